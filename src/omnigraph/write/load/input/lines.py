"""Lines of graph records become columns without a Python object per record, where that is safe.

Arrow's JSON parser is several times as quick as any that makes objects. It is given one type at a
time, with the exact columns of that type, and refuses by itself: names that the type does not have,
a name twice, values of another kind, numbers that do not fit, broken text. What it would let pass
is looked for here:

| it lets pass | what is looked for |
|---|---|
| blank lines, two values on a line, values over lines | braces around lines; values = lines |
| bytes that are no UTF-8, a byte order mark | the text as a whole, its first byte |
| `NaN`, `-0` as a float, integers that a double rounds | the numbers |
| null for `data` or an end, or where there is a default | nulls where the text has a `null` |
| null for a member that is not there | the name with a `null`, where absence matters |

1. Whatever is not plainly good is read again by the strict reader, a block at a time: what a load
   accepts, stores and says does not depend on which of the two has read a block.
2. The type of a line is read off its first bytes; lines that begin in another way are not plain.
3. A record itself is decoded only when it is quoted or quarantined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from omnigraph.dataclass import dataclass
from omnigraph.schema import Catalog, EdgeType, EntityType
from omnigraph.schema.catalog import Property
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.arrow import convert_arrow
from omnigraph.schema.values.converted import ConversionMode, Converted
from omnigraph.schema.values.decode import decode_json_lines
from omnigraph.schema.values.ids import Ids
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import Mask, no_errors
from omnigraph.values import PropType, Scalar
from omnigraph.write.load.input.decode import strict_batches
from omnigraph.write.load.input.interfaces import LoadSink
from omnigraph.write.load.input.records import RecordSorter
from omnigraph.write.load.rows.check_rows import ColumnBatch
from omnigraph.write.stage.columns import Integers, to_mask

_HEADER: Final = re.compile(rb'\{"(type|edge)": ?"([A-Za-z0-9_]+)"')
_HEADERS_MAX: Final = 64
_ESCAPED_LETTER: Final = re.compile(rb"\\u00[3-7]")
"""A letter of a name may be spelled like this; then a null is not found under its name."""
_NEWLINE, _OPEN, _CLOSE, _RETURN = b"\n{}\r"
_EXACT_MAX: Final = float(1 << 53)
"""Up to here a double holds every integer."""
_ENDS: Final = (("src", "from"), ("dst", "to"))
_JSON_TYPES: Final[dict[Scalar, pa.DataType]] = {
    Scalar.STRING: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float64(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.utf8(),
    Scalar.DATETIME: pa.utf8(),
    Scalar.VECTOR: pa.list_(pa.float64()),
}


class LineReader:
    """Reads blocks of whole lines strictly, and hands their rows over by type."""

    def __init__(self, catalog: Catalog, sink: LoadSink) -> None:
        self._catalog = catalog
        self._sink = sink
        self._sorter = RecordSorter(catalog, ConversionMode.STRICT, sink)
        self.blocks_plain = 0
        """How many blocks needed no other reader."""

    def read(self, text: bytes, first: int) -> None:
        """Read a block; its first line has the position `first`."""
        if self.read_plain(text, first):
            return
        for decoded in strict_batches(BytesIO(text), self._sink.refuse, first):
            self._sorter.take(decoded)
            self._sink.end_batch()

    def read_plain(self, text: bytes, first: int) -> bool:
        """Read a block if it is plain; hand nothing over otherwise."""
        found = self._plain(text, first)
        if found is None:
            return False
        self.blocks_plain += 1
        for entity_type, batch in found:
            self._sink.add(entity_type, batch)
        self._sink.end_batch()
        return True

    def _plain(self, text: bytes, first: int) -> list[tuple[EntityType, ColumnBatch]] | None:
        lines = _lines(text)
        if lines is None or (lines.has_null and _ESCAPED_LETTER.search(text)):
            return None
        by_entity_type: dict[str, tuple[EntityType, list[Integers]]] = {}
        for header, numbers in _by_header(lines):
            entity_type = None if header is None else self._entity_type(header)
            if entity_type is None:
                return None
            # One type may be spelled in several ways; its rows stay in the order of the lines.
            by_entity_type.setdefault(entity_type.table_key, (entity_type, []))[1].append(numbers)
        found = []
        for entity_type, parts in by_entity_type.values():
            numbers = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
            batch = _columns(entity_type, lines, numbers, first)
            if batch is None:
                return None
            found.append((entity_type, batch))
        return found

    def _entity_type(self, header: re.Match[bytes]) -> EntityType | None:
        kind, name = header[1], header[2].decode()
        if kind == b"type":
            return self._catalog.node_types.get(name)
        return self._catalog.lookup_edge(name)


# -- lines ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lines:
    """A text in lines, each of which is one object in braces or no JSON at all."""

    text: bytes
    data: np.ndarray
    starts: Integers
    ends: Integers
    """Where the newline of each line is."""
    has_null: bool

    def record(self, number: int) -> dict[str, Any]:
        """Decode one line."""
        value: Any = decode_json_lines(self.text[self.starts[number] : self.ends[number]]).values[0]
        return dict(value)

    def only(self, numbers: Integers) -> bytes | pa.Buffer:
        """Return some lines as a text."""
        if len(numbers) == len(self.starts):
            return self.text
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 == len(numbers):
            return self.text[self.starts[first] : self.ends[last] + 1]
        return self.picked(numbers).buffers()[2]

    def picked(self, numbers: Integers) -> pa.Array:
        """Return some lines as binary values."""
        offsets = pa.py_buffer(np.append(self.starts, len(self.data)))
        every = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(self.starts), [None, offsets, pa.py_buffer(self.text)]
        )
        return every.take(pa.array(numbers))


def _lines(text: bytes) -> _Lines | None:
    """Find the lines of a text; None if one of them cannot be exactly one object."""
    if not text or not _is_unicode(text):
        return None
    if not text.endswith(b"\n"):
        text += b"\n"
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    starts = np.append(0, ends[:-1] + 1)
    if not (data[starts] == _OPEN).all():
        return None
    last = data[ends - 1]
    if (last == _RETURN).any():
        last = np.where(last == _RETURN, data[np.maximum(ends - 2, 0)], last)
    if not (last == _CLOSE).all():
        return None
    return _Lines(text, data, starts, ends, b"null" in text)


def _is_unicode(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _by_header(lines: _Lines) -> Iterator[tuple[re.Match[bytes] | None, Integers]]:
    """Sort lines by what they begin with; None stands for lines that begin in another way."""
    left = np.arange(len(lines.starts))
    for _ in range(_HEADERS_MAX):
        if not len(left):
            return
        header = _HEADER.match(lines.text, int(lines.starts[left[0]]))
        if header is None:
            yield None, left
            return
        wanted = np.frombuffer(header[0], np.uint8)
        places = lines.starts[left][:, None] + np.arange(len(wanted))
        own = (lines.data.take(places, mode="clip") == wanted).all(axis=1)
        yield header, left[own]
        left = left[~own]
    if len(left):
        yield None, left


# -- columns --------------------------------------------------------------------------------------


def _columns(
    entity_type: EntityType, lines: _Lines, numbers: Integers, first: int
) -> ColumnBatch | None:
    """Parse lines of one type; None if anything about them is not plain."""
    table = _parsed(entity_type, lines.only(numbers))
    if table is None or table.num_rows != len(numbers):
        return None
    data = _one(table["data"])
    if data.null_count and lines.has_null:
        return None
    ends = {end: _one(table[name]) for end, name in _ENDS if name in table.schema.names}
    if any(column.null_count for column in ends.values()):
        return None
    columns: dict[str, Converted] = {}
    for name, prop in entity_type.properties.items():
        converted = _converted(pc.struct_field(data, name), prop)
        if converted is None:
            return None
        columns[name] = converted
    given = pc.struct_field(data, "id") if "id" not in entity_type.properties else None
    return ColumnBatch(
        columns=columns,
        positions=pa.array(numbers + first),
        raw=lambda name, row: _raw(lines.record(numbers[row]), name),
        record=lambda row: lines.record(numbers[row]),
        given=None if given is None or given.null_count == len(given) else _ids(given),
        ends={end: _ids(column) for end, column in ends.items()},
        absent=lambda: _absent(entity_type, data, lines, numbers),
    )


def _absent(
    entity_type: EntityType, data: pa.Array, lines: _Lines, numbers: Integers
) -> dict[str, Mask]:
    """Return the lines that have no member for a property.

    The parser says null for both. A member that is null has its name, a colon and `null` in the
    line; inside of a text that has a quote which is not escaped, so it cannot stand there.
    """
    found = {}
    every: pa.Array | None = None
    for name in entity_type.properties:
        empty = ~valid_mask(pc.struct_field(data, name))
        if empty.any() and lines.has_null:
            every = lines.picked(numbers) if every is None else every
            pattern = rf'"{name}"[ \t\r]*:[ \t\r]*null'
            empty &= ~to_mask(pc.match_substring_regex(every, pattern))
        if empty.any():
            found[name] = empty
    return found


def _parsed(entity_type: EntityType, text: bytes | pa.Buffer) -> pa.Table | None:
    schema = _json_schema(entity_type)
    if schema is None:
        return None
    try:
        return arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="error"
            ),
        )
    except pa.ArrowInvalid:
        return None


def _json_schema(entity_type: EntityType) -> pa.Schema | None:
    """Return the columns of the records of a type; None for types that JSON spells in many ways."""
    kinds = {name: _json_type(prop.prop_type) for name, prop in entity_type.properties.items()}
    members = [pa.field(name, kind) for name, kind in kinds.items() if kind is not None]
    if len(members) < len(kinds):
        return None
    if "id" not in kinds:
        members.append(pa.field("id", pa.utf8()))
    data = pa.field("data", pa.struct(members))
    if isinstance(entity_type, EdgeType):
        names = ("edge", "from", "to")
        return pa.schema([*(pa.field(name, pa.utf8()) for name in names), data])
    return pa.schema([pa.field("type", pa.utf8()), data])


def _json_type(prop: PropType) -> pa.DataType | None:
    kind = _JSON_TYPES.get(prop.scalar)
    return pa.list_(kind) if prop.is_list and kind is not None else kind


def _converted(column: pa.Array, prop: Property) -> Converted | None:
    if prop.default is not None and column.null_count:
        # Left out and null are different things here, and the same to the parser.
        return None
    items = column.flatten() if pa.types.is_list(column.type) else column
    if not _are_plain(items) or (items is not column and items.null_count):
        return None
    converted = convert_arrow(column, prop.prop_type, prop.name)
    problems = converted.codes.drop_null().unique().to_pylist() if not converted.is_clean else []
    return converted if set(problems) <= {value_codes.MISSING} else None


def _are_plain(column: pa.Array) -> bool:
    """Whether both readers understand numbers alike: finite, exact, and no negative zero."""
    if not pa.types.is_floating(column.type) or column.null_count == len(column):
        return True
    numbers = column.drop_null().to_numpy()
    if not (np.abs(numbers) <= _EXACT_MAX).all():
        return False
    return not np.signbit(numbers[numbers == 0]).any()


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _ids(column: pa.Array) -> Ids:
    return Ids(column, no_errors(len(column)))


def _raw(record: dict[str, Any], name: str) -> object:
    if name in ("src", "dst"):
        return record.get("from" if name == "src" else "to")
    return record.get("data", {}).get(name)
