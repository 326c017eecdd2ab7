from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.clock import SystemClock, encode_ulid
from omnigraph.schema.values.convert import ConversionMode, convert_values
from omnigraph.schema.values.ids import (
    accept_ids,
    build_endpoint_remap,
    derive_ids,
    encode_ulids,
    given_ids,
    new_ulids,
    spell,
)
from support.cases import Case, check_case, load_cases
from support.prop_types import prop_type
from support.reference_convert import parse_json

STRICT, COMPATIBLE = ConversionMode.STRICT, ConversionMode.COMPATIBLE


@pytest.mark.parametrize("case", load_cases("ids"), ids=str)
def test_case(case: Case, update_cases: bool) -> None:
    names_and_types = [line.split(": ") for line in case.sections["key"].splitlines()]
    lines = case.sections["rows"].splitlines()
    rows = [parse_json(line) for line in lines]
    members: list[tuple[str, pa.Array]] = []
    for place, (name, text) in enumerate(names_and_types):
        done = convert_values([row[place] for row in rows], prop_type(text), name)  # type: ignore[index]  # a row of JSON
        assert done.is_clean
        members.append((name, done.column))
    derived = derive_ids(members, type_name="T")
    assert derived.errors.is_clean
    shown = [f"{line} -> {text}" for line, text in zip(lines, derived.ids, strict=True)]
    check_case(case, "ids", "\n".join(shown), update_cases)
    if "given" not in case.sections:
        return
    given_lines = case.sections["given"].splitlines()
    given_column = pa.array([parse_json(line) for line in given_lines], pa.utf8())
    for mode in ConversionMode:
        accepted = accept_ids(given_column, derived.ids, members, type_name="T", mode=mode)
        out = [
            _show_accepted(given_lines[row], accepted.ids[row], accepted.errors.messages[row])
            for row in range(len(lines))
        ]
        check_case(case, str(mode), "\n".join(out), update_cases)


def _show_accepted(line: str, stored: pa.Scalar, error: pa.Scalar) -> str:
    return f"{line} -> {error if error.is_valid else stored}"


# --- spelling --------------------------------------------------------------------------------


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_a_double_reads_back_from_its_spelling(numbers: list[float]) -> None:
    for number, text in zip(
        numbers, spell(pa.array(numbers, pa.float64())).to_pylist(), strict=True
    ):
        assert float(text) == number
        assert_plain(text)
        assert significant_digits(text) == significant_digits(f"{abs(number)!r}")


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_a_single_reads_back_from_its_spelling(numbers: list[float]) -> None:
    for number, text in zip(
        numbers, spell(pa.array(numbers, pa.float32())).to_pylist(), strict=True
    ):
        assert np.float32(text) == np.float32(number)
        assert_plain(text)
        shortest = np.format_float_scientific(abs(np.float32(number)), unique=True, trim="-")
        assert len(significant_digits(text)) <= len(significant_digits(shortest))


def assert_plain(text: str) -> None:
    assert "e" not in text.lower()
    assert not text.endswith((".0", "."))
    assert text not in ("-0", "")


def significant_digits(text: str) -> str:
    mantissa = text.lower().partition("e")[0].lstrip("-+")
    return mantissa.replace(".", "").strip("0")


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array(["a", "", "Ü", None]), ["a", "", "Ü", None]),
        (pa.array([42, -1, None], pa.int32()), ["42", "-1", None]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([19723, -1], pa.int32()).view(pa.date32()), ["19723", "-1"]),
        (pa.array([1500], pa.int64()).view(pa.date64()), ["1500"]),
        (pa.array([2.0, 1e-7, 16777216.0, 0.0, -0.0]), ["2", "0.0000001", "16777216", "0", "0"]),
        (pa.array([0.1, 16777216.0, 1e-7], pa.float32()), ["0.1", "16777216", "0.0000001"]),
        (
            pa.array([1e21, -1.5e300, 5e-324]),
            ["1" + "0" * 21, "-15" + "0" * 299, "0." + "0" * 323 + "5"],
        ),
        (pa.array([1.7976931348623157e308]), ["17976931348623157" + "0" * 292]),
    ],
    ids=str,
)
def test_spellings(column: pa.Array, texts: list[str | None]) -> None:
    assert spell(column).to_pylist() == texts


# --- derived ids -----------------------------------------------------------------------------


@given(st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_a_composite_id_is_the_compact_json_of_its_spellings(rows: list[tuple[str, int]]) -> None:
    members = [("a", pa.array([row[0] for row in rows])), ("b", pa.array([row[1] for row in rows]))]
    ids = derive_ids(members, type_name="T").ids.to_pylist()
    for (text, number), found in zip(rows, ids, strict=True):
        assert found == json.dumps([text, str(number)], ensure_ascii=False, separators=(",", ":"))
    assert len(set(ids)) == len(set(rows))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("width", [pa.float32(), pa.float64()])
def test_a_key_that_is_not_finite_cannot_identify(number: float, width: pa.DataType) -> None:
    derived = derive_ids([("k", pa.array([number, 1.0], width))], type_name="T")
    assert derived.ids.to_pylist() == [None, "1"]
    assert derived.errors.messages[0].as_py() == (
        f"@key value {number} of T.k cannot identify an entity"
    )
    assert derived.errors.codes.to_pylist() == ["V301", None]


def test_a_row_without_a_key_member_has_no_id() -> None:
    members = [("a", pa.array(["x", None])), ("b", pa.array([1, 2]))]
    derived = derive_ids(members, type_name="T")
    assert derived.ids.to_pylist() == ['["x","1"]', None]
    assert derived.errors.is_clean


# --- given ids -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ConversionMode)
def test_a_node_id_must_be_a_string(mode: ConversionMode) -> None:
    read = given_ids(["a", None, 5, ""], is_edge=False, mode=mode)
    assert read.ids.to_pylist() == ["a", None, None, ""]
    assert read.errors.messages.to_pylist() == [None, None, "node id must be a string, got 5", None]


def test_an_edge_id_that_is_no_string_is_refused_strictly_and_ignored_otherwise() -> None:
    strict = given_ids(["a", 5], is_edge=True, mode=STRICT)
    assert strict.errors.messages.to_pylist() == [None, "edge id must be a string, got 5"]
    compatible = given_ids(["a", 5], is_edge=True, mode=COMPATIBLE)
    assert compatible.errors.is_clean
    assert compatible.ids.to_pylist() == ["a", None]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1), st.integers(0, 5), st.booleans())
def test_zeros_and_plus_signs_before_a_number_mean_nothing(
    numbers: list[int], zeros: int, plus: bool
) -> None:
    column = pa.array(numbers, pa.int32())
    spelled = [("-" if n < 0 else "+" if plus else "") + "0" * zeros + str(abs(n)) for n in numbers]
    members = [("k", column)]
    derived = derive_ids(members, type_name="T").ids
    accepted = accept_ids(pa.array(spelled), derived, members, type_name="T", mode=COMPATIBLE)
    assert accepted.errors.is_clean
    assert accepted.ids.to_pylist() == [str(n) for n in numbers]
    assert accepted.spellings.to_pylist() == [
        None if text == str(n) else text for text, n in zip(spelled, numbers, strict=True)
    ]


# --- endpoints -------------------------------------------------------------------------------


def texts(*values: str | None) -> pa.Array:
    return pa.array(values, pa.utf8())


def test_endpoints_in_another_spelling_are_rewritten() -> None:
    remap = build_endpoint_remap(
        texts("00042", None, "7.0"), texts("42", "8", "7"), texts("42", "8", "7")
    )
    done = remap.apply(texts("00042", "8", "unknown", "7.0", None))
    assert done.ids.to_pylist() == ["42", "8", "unknown", "7", None]
    assert done.errors.is_clean


def test_one_spelling_for_one_id_twice_is_not_ambiguous() -> None:
    remap = build_endpoint_remap(texts("042", "042"), texts("42", "42"), texts("42"))
    assert len(remap.ambiguous) == 0
    assert remap.apply(texts("042")).ids.to_pylist() == ["42"]


def test_one_spelling_for_two_ids_is_ambiguous() -> None:
    ids = texts('["7","acme"]', '["7","zeta"]')
    remap = build_endpoint_remap(texts("7", "7"), ids, ids)
    assert remap.ambiguous.to_pylist() == ["7"]
    done = remap.apply(texts("7", '["7","acme"]'))
    assert done.ids.to_pylist() == [None, '["7","acme"]']
    message = done.errors.messages[0].as_py()
    assert message.startswith("ambiguous edge endpoint remap: '7' stands for")
    assert done.errors.codes.to_pylist() == ["V304", None]


def test_a_spelling_that_is_another_nodes_id_is_ambiguous() -> None:
    remap = build_endpoint_remap(texts("b"), texts("a"), texts("a", "b"))
    assert remap.ambiguous.to_pylist() == ["b"]


def test_an_empty_remap_changes_nothing() -> None:
    remap = build_endpoint_remap(texts(), texts(), texts())
    assert remap.apply(texts("a", None)).ids.to_pylist() == ["a", None]


# --- ULIDs -----------------------------------------------------------------------------------


@given(
    time_ms=st.integers(0, 2**48 - 1),
    first=st.integers(0, 2**80 - 100) | st.sampled_from([2**40 - 3, 2**41 - 1]),
    count=st.integers(0, 20),
)
def test_many_ulids_are_spelled_like_single_ones(time_ms: int, first: int, count: int) -> None:
    found = encode_ulids(time_ms=time_ms, first=first, count=count)
    found.validate(full=True)
    assert found.to_pylist() == [encode_ulid(time_ms, first + i) for i in range(count)]


def test_new_ulids_increase_together_with_single_ones() -> None:
    clock = SystemClock()
    ids = [clock.ulid()]
    for count in (3, 0, 1, 100_000):
        ids += new_ulids(clock, count).to_pylist()
        ids.append(clock.ulid())
    assert ids == sorted(set(ids))
    assert {len(one) for one in ids} == {26}


def test_a_full_millisecond_moves_on_to_the_next() -> None:
    class Stopped(SystemClock):
        def now_us(self) -> int:
            return 5_000

    clock = Stopped()
    first_ms, first = clock.reserve_ulids(1)
    assert first_ms == 5
    second_ms, _ = clock.reserve_ulids(2**80 - first)
    assert second_ms == 6
    third_ms, _ = clock.reserve_ulids(1)
    assert third_ms in (6, 7)
