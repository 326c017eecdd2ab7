from __future__ import annotations

import gc
import threading
from io import BytesIO

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.values.decode import (
    Decoded,
    decode_json_array,
    decode_json_lines,
    decode_json_stream,
    decode_line_batches,
    paused_garbage_collection,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
BROKEN = [
    b'{"a":[{}',
    b"{}]}",
    b'{"a":1',
    b'"b":2}',
    b"[1",
    b"2]",
    b"NaN",
    b"1e999",
    b"{}x",
    b"\xff",
]
WHOLE = [b"{}", b"1", b'{"a":"},{"}', b"[{},{}]", b"{}\r", b"", b" ", b"\r"]
SEVERAL = [b"{},{}", b"{} , {}"]
FRAGMENTS = st.sampled_from([*BROKEN, *WHOLE, *SEVERAL])


def one_by_one(text: bytes) -> Decoded:
    values: list[object] = []
    positions: list[int] = []
    invalid: list[int] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip(b" \t\r"):
            continue
        try:
            values.append(orjson.loads(line))
            positions.append(number)
        except orjson.JSONDecodeError:
            invalid.append(number)
    return Decoded(values, positions, tuple((number, "") for number in invalid))


@given(st.lists(FRAGMENTS | JSON.map(orjson.dumps), max_size=8), st.booleans())
def test_lines_never_borrow_from_each_other(lines: list[bytes], ends: bool) -> None:
    text = b"\n".join(lines) + (b"\n" if ends else b"")
    expected = one_by_one(text)
    found = decode_json_lines(text)
    assert found.values == expected.values
    assert list(found.positions) == list(expected.positions)
    assert [line for line, _ in found.invalid] == [line for line, _ in expected.invalid]


@given(st.lists(FRAGMENTS, max_size=12), st.integers(1, 30))
def test_batches_of_lines_are_the_lines(lines: list[bytes], batch_bytes: int) -> None:
    text = b"\n".join(lines)
    expected = decode_json_lines(text)
    batches = list(decode_line_batches(BytesIO(text), batch_bytes=batch_bytes))
    assert [v for b in batches for v in b.values] == expected.values
    assert [p for b in batches for p in b.positions] == list(expected.positions)
    assert tuple(e for b in batches for e in b.invalid) == expected.invalid


def test_two_objects_on_one_line_cannot_hide_behind_an_object_on_two() -> None:
    found = decode_json_lines(b'{"a":[{}\n{}]}\n{},{}\n')
    assert found.values == []
    assert [line for line, _ in found.invalid] == [1, 2, 3]


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"1e999", b'"\\ud800"', b"{'a': 1}"])
def test_what_is_no_json_is_reported_with_its_line(text: bytes) -> None:
    found = decode_json_lines(b'{"a":1}\n' + text)
    assert found.values == [{"a": 1}]
    assert [line for line, _ in found.invalid] == [2]


def test_first_line_shifts_positions() -> None:
    assert list(decode_json_lines(b"{}\n{}", first_line=10).positions) == [10, 11]
    assert list(decode_json_lines(b"{}\n\n1", first_line=10).positions) == [10, 12]


@given(st.lists(JSON, max_size=6), st.lists(st.sampled_from([b" ", b"\n", b"\r\n\t"]), min_size=6))
def test_a_stream_does_not_care_about_lines(values: list[object], gaps: list[bytes]) -> None:
    pieces = [orjson.dumps(value, option=orjson.OPT_INDENT_2) for value in values]
    text = b"".join(piece + gap for piece, gap in zip(pieces, gaps, strict=False))
    found = decode_json_stream(text)
    assert found.values == values
    assert list(found.positions) == list(range(1, len(values) + 1))
    assert not found.invalid


@pytest.mark.parametrize(
    ("text", "values", "invalid"),
    [
        (b'{"a":1}{"b":2} 3', [{"a": 1}, {"b": 2}, 3], None),
        (b'{"a":1} {"b":', [{"a": 1}], 2),
        (b"1 \xff 2", [1], 2),
        (b"", [], None),
        (b"[" * 100_000, [], 1),
        (b"\xef\xbb\xbf{}", [], 1),
    ],
)
def test_a_stream_ends_at_the_first_thing_that_is_no_json(
    text: bytes, values: list[object], invalid: int | None
) -> None:
    found = decode_json_stream(text)
    assert found.values == values
    assert [record for record, _ in found.invalid] == ([] if invalid is None else [invalid])
    assert found.is_cut == (invalid is not None)


@pytest.mark.parametrize(
    "bad", [b"NaN", b"1e999", b"9" * 5_000, b'"\\ud800"', b'{"a":\n"\xff"}', b'["\\udc00"]']
)
def test_a_stream_goes_on_behind_a_value_that_has_an_end(bad: bytes) -> None:
    found = decode_json_stream(b'{"a":1}\n' + bad + b'\n{"b":\n2} 3')
    assert found.values == [{"a": 1}, {"b": 2}, 3]
    assert list(found.positions) == [1, 3, 4]
    assert [record for record, _ in found.invalid] == [2]
    assert found.invalid_texts == (bad,)
    assert not found.is_cut


def test_bytes_that_are_no_text_are_named_with_their_column() -> None:
    words = "byte 0xff in column 8 is not UTF-8"
    assert decode_json_lines(b'{}\n{"a": "\xff"}\n').invalid == ((2, words),)
    assert decode_json_stream(b'{}\n{"a": "\xff"\n}').invalid == ((2, words),)


def test_an_array_gives_its_elements() -> None:
    assert decode_json_array(b"[1, {}]").values == [1, {}]
    assert decode_json_array(b"{}").invalid == ((1, "expected a JSON array"),)
    assert decode_json_array(b"[1,").invalid[0][0] == 1


def test_the_collector_is_paused_and_restored() -> None:
    assert gc.isenabled()
    with paused_garbage_collection():
        assert not gc.isenabled()
        with paused_garbage_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with paused_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_overlapping_pauses_of_threads_restore_the_collector() -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with paused_garbage_collection():
            inside.set()
            leave.wait(5)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(5)
    with paused_garbage_collection():
        leave.set()
        thread.join()
        assert not gc.isenabled()
    assert gc.isenabled()
