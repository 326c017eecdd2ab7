"""JSON objects that are rows of one type get the envelope of graph records.

    {"name": "Ada"}            → {"type": "Person", "data": {"name": "Ada"}}
    {"src": "a", "dst": "b"}   → {"edge": "Knows", "from": "a", "to": "b", "data": {}}

From there on they are read as graph records: a member that is left out stays left out, and lines of
nodes need no Python object per row.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import singledispatch
from io import BytesIO
from typing import Any, Final
from uuid import UUID

from omnigraph.schema import Catalog, EdgeType, EntityType
from omnigraph.schema.values.blobs import BASE64_PREFIX
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.schema.values.decode import Decoded
from omnigraph.schema.values.from_text import text_value
from omnigraph.write.load.formats.kinds import GRAPH_RECORDS, InputFormatError
from omnigraph.write.load.input.decode import Refuse, strict_batches
from omnigraph.write.load.input.lines import LineReader
from omnigraph.write.load.input.records import RecordSorter
from omnigraph.write.load.rows.check_rows import ColumnBatch
from omnigraph.write.rules.violations import Violation

RECORDS_AT_ONCE: Final = 8192
_ENVELOPE: Final = frozenset({"type", "edge", "from", "to", "data"})
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


@dataclass
class _Collected:
    """Keeps what a reader of records hands over."""

    refuse_record: Refuse
    batches: list[ColumnBatch] = field(default_factory=list)

    def begin(self, name: str | None, place: str | None = None) -> int:
        """Refuse another input: the reader was given the only one."""
        raise TypeError(f"a reader of one input began another one: {name}, {place}")

    def add(self, entity_type: EntityType, batch: ColumnBatch) -> None:
        """Keep rows, which are all of one type."""
        del entity_type
        self.batches.append(batch)

    def refuse(self, violation: Violation, record: object) -> None:
        """Hand a record on that is no row."""
        self.refuse_record(violation, record)

    def end_batch(self) -> None:
        """Do nothing: whoever takes the batches ends them."""

    def taken(self) -> list[ColumnBatch]:
        """Return what was collected, and forget it."""
        found, self.batches = self.batches, []
        return found


class RowReader:
    """Reads rows of one type that are JSON objects.

    `columns` renames members: property to member. `constants` are texts of partitions.
    """

    def __init__(
        self,
        entity_type: EntityType,
        catalog: Catalog,
        refuse: Refuse,
        *,
        source: str,
        columns: Mapping[str, str],
        constants: Sequence[tuple[str, str | None]] = (),
    ) -> None:
        self._entity_type = entity_type
        self._sink = _Collected(refuse)
        self._lines = LineReader(catalog, self._sink)
        self._sorter = RecordSorter(catalog, ConversionMode.STRICT, self._sink)
        self._source = source
        self._members = {member: name for name, member in columns.items()}
        self._constants = {name: _typed(entity_type, name, text) for name, text in constants}
        self._is_first = True

    def lines(self, text: bytes, first: int) -> Iterator[ColumnBatch]:
        """Read a block of lines; its first one has the position `first`."""
        if not self._is_changed and self._lines.read_plain(self._wrapped(text), first):
            self._is_first = False
            yield from self._sink.taken()
            return
        for decoded in strict_batches(BytesIO(text), self._sink.refuse, first):
            yield from self.records(decoded)

    def records(self, decoded: Decoded) -> Iterator[ColumnBatch]:
        """Read decoded objects."""
        if self._is_first and decoded.values:
            self._require_rows(decoded.values[0])
            self._is_first = False
        values = [self._record(value) for value in decoded.values]
        self._sorter.take(Decoded(values, decoded.positions))
        yield from self._sink.taken()

    @property
    def _is_changed(self) -> bool:
        """Whether rows are more than the data of a record."""
        is_edge = isinstance(self._entity_type, EdgeType)
        return is_edge or bool(self._members or self._constants)

    def _wrapped(self, text: bytes) -> bytes:
        before = b'{"type":"' + self._entity_type.name.encode() + b'","data":'
        body = text.removesuffix(b"\n")
        return before + body.replace(b"\n", b"}\n" + before) + b"}\n"

    def _record(self, row: object) -> object:
        if not isinstance(row, dict):
            return row
        if self._members:
            row = _renamed(row, self._members, self._entity_type)
        if self._constants:
            row = row | self._constants
        if not isinstance(self._entity_type, EdgeType):
            return {"type": self._entity_type.name, "data": row}
        pair = ("src", "dst") if "src" in row or "dst" in row else ("from", "to")
        ends = {
            end: row[name] for end, name in zip(("from", "to"), pair, strict=True) if name in row
        }
        data = {name: value for name, value in row.items() if name not in pair}
        return {"edge": self._entity_type.name, **ends, "data": data}

    def _require_rows(self, first: object) -> None:
        """Raise where the file has graph records, whose types are in them."""
        if not isinstance(first, dict) or not first.keys() <= _ENVELOPE:
            return
        named = first.get("type", first.get("edge"))
        is_known = "data" in self._entity_type.properties or "type" in self._entity_type.properties
        if isinstance(named, str) and not is_known:
            raise InputFormatError(self._source, GRAPH_RECORDS, f"rows of {self._entity_type.name}")


def _renamed(
    row: Mapping[str, Any], members: Mapping[str, str], entity_type: EntityType
) -> dict[str, Any]:
    known = {*entity_type.properties, "id", "src", "dst", "from", "to"} - set(members.values())
    renamed = {members[name]: value for name, value in row.items() if name in members}
    return renamed | {
        name: value for name, value in row.items() if name in known and name not in members
    }


def _typed(entity_type: EntityType, name: str, text: str | None) -> object:
    prop = entity_type.properties.get(name)
    return text if prop is None else text_value(text, prop.prop_type)


# -- Python objects -------------------------------------------------------------------------------


def object_batches(records: Iterable[Mapping[str, object]], first: int) -> Iterator[Decoded]:
    """Yield objects of Python as decoded JSON, some at a time."""
    waiting: list[object] = []
    for record in records:
        waiting.append(_object(record))
        if len(waiting) == RECORDS_AT_ONCE:
            yield Decoded(waiting, range(first, first + len(waiting)))
            first += len(waiting)
            waiting = []
    if waiting:
        yield Decoded(waiting, range(first, first + len(waiting)))


def _object(value: object) -> object:
    """Return a value of Python as the JSON value that says the same."""
    return value if type(value) in _PLAIN else _converted(value)


@singledispatch
def _converted(value: Any) -> object:
    if type(value).__name__ == "NAType" and type(value).__module__.startswith("pandas."):
        return None
    # Numbers and arrays of NumPy, and their like.
    convert = getattr(value, "tolist", None)
    return _object(convert()) if callable(convert) else value


@_converted.register(Mapping)
def _(value: Mapping[object, object]) -> object:
    return {str(name): _object(each) for name, each in value.items()}


@_converted.register(list)
@_converted.register(tuple)
@_converted.register(set)
@_converted.register(frozenset)
def _(value: Iterable[object]) -> object:
    return [_object(each) for each in value]


@_converted.register(date)
def _(value: date) -> object:
    is_missing = value != value  # noqa: PLR0124 - NaT of pandas differs from itself
    return None if is_missing else value.isoformat()


@_converted.register(bytes)
@_converted.register(bytearray)
@_converted.register(memoryview)
def _(value: bytes) -> object:
    return BASE64_PREFIX + b64encode(value).decode()


@_converted.register(Decimal)
def _(value: Decimal) -> object:
    return int(value) if value == value.to_integral_value() else float(value)


@_converted.register(UUID)
def _(value: UUID) -> object:
    return str(value)


@_converted.register(Enum)
def _(value: Enum) -> object:
    return _object(value.value)
