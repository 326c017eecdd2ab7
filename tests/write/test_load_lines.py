"""Lines that Arrow has parsed say what the strict reader says, about everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omnigraph.clock import SystemClock
from omnigraph.schema import Catalog, EntityType
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.write.load.input.decode import strict_batches
from omnigraph.write.load.input.lines import LineReader
from omnigraph.write.load.input.records import RecordSorter
from omnigraph.write.load.rows.check_rows import ColumnBatch, RowRules, check_rows
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.external_blobs import ExternalBlobs
from support.catalogs import named_catalog

SCHEMA = """\
node Keyed { k: String @key  n: I32?  big: U64?  on: Bool?  day: Date?  at: DateTime? }
node Free {
    f: F64?  g: F32?  names: [String]?  sizes: [F64]?  vec: Vector(2)?
    kind: enum(a, b)?  must: I64  rank: I32 @default(7)  @range(must, 0..9)
}
node Heavy { k: String @key  bytes: Blob? }
edge Link: Keyed -> Free { w: I32?  at: DateTime? }
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return named_catalog(SCHEMA)


class Heard:
    """Remembers everything that a reader says, as values that can be compared."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[object, ...]]] = {}
        self.refused: list[tuple[Violation, object]] = []
        self.problems: list[str] = []

    def begin(self, name: str | None) -> int:
        del name
        return 1

    def refuse(self, violation: Violation, record: object) -> None:
        self.refused.append((violation, record))

    def end_batch(self) -> None:
        pass

    def add(self, owner: EntityType, batch: ColumnBatch) -> None:
        columns = [
            *((one.column, one.errors, one.codes) for one in batch.columns.values()),
            *((ids.ids, ids.errors.messages) for ids in batch.ends.values()),
        ]
        lists = [array.to_pylist() for group in columns for array in group]
        given_ids = [None] * len(batch.positions)
        if batch.given is not None:
            given_ids = batch.given.ids.to_pylist()
        rows = self.rows.setdefault(owner.table_key, [])
        for row, position in enumerate(batch.positions.to_pylist()):
            values = [repr(column[row]) for column in lists]
            raw = [batch.raw(name, row) for name in batch.columns]
            rows.append((position, given_ids[row], *values, raw, batch.record(row)))
        rules = RowRules(owner, ConversionMode.STRICT, ExternalBlobs((), {}))
        self.problems += map(repr, check_rows(rules, batch, SystemClock()).log.kept)

    def said(self) -> object:
        return self.rows, self.refused, sorted(self.problems)


def strictly(catalog: Catalog, text: bytes) -> object:
    heard = Heard()
    sorter = RecordSorter(catalog, ConversionMode.STRICT, heard)
    for decoded in strict_batches(BytesIO(text), heard.refuse, 5):
        sorter.take(decoded)
    return heard.said()


def quickly(catalog: Catalog, text: bytes) -> tuple[object, bool]:
    heard = Heard()
    reader = LineReader(catalog, heard)
    reader.read(text, 5)
    return heard.said(), reader.blocks_plain == 1


# -- random blocks --------------------------------------------------------------------------------

NUMBERS = st.sampled_from(
    (
        *("0", "-0", "-0.0", "1", "9", "12", "2.5", "1e2", "1E400", "1e-400", "NaN", "-Infinity"),
        *("007", "2147483648", "9007199254740993", "9223372036854775808"),
        *("18446744073709551615", "1" * 25),
    )
)
TEXTS = st.sampled_from(
    (
        *('"a"', '"b"', '""', '"é\U0001f600"', '"\\u00e9"', '"\\ud800"', '"x\\n:null"', '"a\x01"'),
        *('"2024-02-30"', '"2024-02-29"', '"2024-01-01T06:00:00Z"', '"2024-01-01T06:00:00.1234Z"'),
    )
)
OTHERS = st.sampled_from(["null", "true", "[]", "{}", '{"a": 1}', "[null]", '["a"]', "[1, 2.5]"])
VALUES = NUMBERS | TEXTS | OTHERS
GOOD: dict[str, st.SearchStrategy[str]] = {
    "k": TEXTS.filter(lambda text: "\x01" not in text and "ud800" not in text),
    "n": st.sampled_from(["0", "-5", "null"]),
    "big": st.sampled_from(["0", "18446744073709551615", "null"]),
    "on": st.sampled_from(["true", "false", "null"]),
    "day": st.sampled_from(['"2024-02-29"', "null", '"2024-02-30"', "19000"]),
    "at": st.sampled_from(['"2024-01-01T06:00:00Z"', "null", "5"]),
    "f": st.sampled_from(["0", "2.5", "-1e10", "null", "0.1"]),
    "g": st.sampled_from(["0.1", "3", "null", "1e300"]),
    "names": st.sampled_from(["[]", '["a", "é"]', "null"]),
    "sizes": st.sampled_from(["[1, 2.5]", "[]", "null"]),
    "vec": st.sampled_from(["[0.1, 1]", "null", "[1]"]),
    "kind": st.sampled_from(['"a"', "null", '"c"']),
    "must": st.sampled_from(["1", "9", "10"]),
    "rank": st.sampled_from(["1", "null"]),
    "bytes": st.sampled_from(['"base64:AAE="', "null"]),
    "w": st.sampled_from(["0", "1", "null"]),
    "id": st.sampled_from(['"i"', '"j"', "null"]),
}
PROPERTIES = {
    "Keyed": ("k", "n", "big", "on", "day", "at"),
    "Free": ("f", "g", "names", "sizes", "vec", "kind", "must", "rank", "id"),
    "Heavy": ("k", "bytes"),
    "Link": ("w", "at", "id"),
}
REQUIRED = {"Keyed": ("k",), "Free": ("must",), "Heavy": ("k",), "Link": ()}


def members(draw: Callable[..., Any], pairs: list[tuple[str, str]]) -> str:
    gap = draw(st.sampled_from(["", " ", " ", "  "]))
    return "{" + ", ".join(f'"{name}":{gap}{value}' for name, value in pairs) + "}"


@st.composite
def good_line(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["Keyed", "Free", "Link", "Link", "Keyed"]))
    names = draw(st.sets(st.sampled_from(PROPERTIES[kind]))) | set(REQUIRED[kind])
    data = members(draw, [(name, draw(GOOD[name])) for name in sorted(names)])
    if kind == "Link":
        name = draw(st.sampled_from(["Link", "Link", "link"]))
        pairs = [("edge", f'"{name}"'), ("from", '"a"'), ("to", '"b"')]
    else:
        pairs = [("type", f'"{kind}"')]
    if kind not in ("Keyed", "Free") and not names and draw(st.booleans()):
        return members(draw, pairs)
    return members(draw, [*pairs, ("data", data)])


@st.composite
def odd_line(draw: st.DrawFn) -> str:
    """A line that is mostly a record, with something about it that some reader trips over."""
    kind = draw(st.sampled_from(["Keyed", "Free", "Heavy", "Link", "Nobody", "keyed"]))
    known = PROPERTIES.get(kind, ("k",))
    names = draw(st.lists(st.sampled_from([*known, "zz", "src", "k"]), max_size=4))
    data = members(draw, [(name, draw(VALUES)) for name in names])
    pairs = [(draw(st.sampled_from(["type", "edge"])), f'"{kind}"')]
    more = {"from": '"a"', "to": '"b"', "data": data, "type": '"Keyed"', "x": "1"}
    pairs += [
        (name, draw(st.sampled_from([more[name], more[name], "null", "7"])))
        for name in draw(st.lists(st.sampled_from([*more, "data", "data"]), max_size=4))
    ]
    line = members(draw, pairs)
    before, after = draw(st.sampled_from([("", ""), ("", ""), (" ", ""), ("", " "), ("", line)]))
    return before + line + after


BROKEN = st.sampled_from(["", " ", "{", "}", "null", "[]", '{"type": "Keyed"', "\ufeff{}", "{}{}"])


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(good_line(), max_size=6))
    lines += draw(st.lists(odd_line() | BROKEN, max_size=draw(st.sampled_from([0, 0, 1, 3]))))
    ends = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    text = ends.join(draw(st.permutations(lines)))
    return (text + draw(st.sampled_from(["", ends]))).encode("utf-8", "surrogatepass")


@settings(max_examples=400)
@given(block=blocks())
@example(block=b'{"edge": "Link", "from": "a", "to": "b", "data": null}')
@example(block=b'{"edge": "Link", "from": "a", "to": null}')
@example(block=b'{"type": "Keyed", "data": {"k": "a", "k": "b"}}')
@example(block=b'{"type": "Keyed", "data": {"k": "\xff"}}')
@example(block=b'{"type": "Keyed", "data": {"k": "a"}}\n\n{"type": "Keyed"}{"type": "Keyed"}')
@example(block=b'{"type": "Free", "data": {"must": 1, "f": -0, "g": NaN}}')
@example(block=b'{"type": "Free", "data": {"must": 1, "sizes": [-0]}}')
@example(block=b'{"type": "Free", "data": {"must": 1, "rank": null}}')
def test_both_readers_say_the_same(catalog: Catalog, block: bytes) -> None:
    assert quickly(catalog, block)[0] == strictly(catalog, block)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@settings(max_examples=5_000)
@given(block=blocks())
def test_both_readers_say_the_same_of_many_blocks(catalog: Catalog, block: bytes) -> None:
    assert quickly(catalog, block)[0] == strictly(catalog, block)


def test_usual_records_need_no_other_reader(catalog: Catalog) -> None:
    records = [
        {"type": "Keyed", "data": {"k": "é", "n": None, "at": "2024-01-01T06:00:00Z"}},
        {"edge": "LINK", "from": "é", "to": "i", "data": {"id": "x: null", "w": 3}},
        {"edge": "Link", "from": "é", "to": "i", "data": {}},
        {"type": "Free", "data": {"must": 3, "rank": 1, "vec": [0.5, 2], "names": ["a"]}},
        {"type": "Keyed", "data": {"k": "b", "day": "2024-02-29", "big": 2**64 - 1, "on": True}},
    ]
    for separators in ((",", ":"), (", ", ": ")):
        text = "\n".join(json.dumps(record, separators=separators) for record in records)
        said, is_plain = quickly(catalog, text.encode())
        assert is_plain
        assert said == strictly(catalog, text.encode())


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "Keyed", "data": {"k": "a", "k": "b"}}',
        b'{"type": "Keyed", "data": {"k": "a", "zz": null}}',
        b'{"type": "Keyed", "type": "Keyed", "data": {"k": "a"}}',
        b'{"type": "Keyed", "data": {"k": "a", "n": 2147483648}}',
        b'{"type": "Keyed", "data": {"k": 1}}',
        b'{"type": "Keyed", "data": {"k": "\\ud800"}}',
        b'{"type": "Keyed", "data": {"k": "a\x01"}}',
        b'{"type": "Keyed", "data": {"k": "a", "n": 1.0}}',
        b'{"type": "Keyed", "data": {"k": "a"},}',
    ],
)
def test_arrow_refuses_what_the_reader_relies_on(catalog: Catalog, line: bytes) -> None:
    assert not quickly(catalog, line)[1]
