"""Arrow batches of one type become converted columns.

Columns have the names of properties. `id` is optional. Edges have `src` and `dst`, or `from` and
`to`; a column of numbers or days there is spelled as the ids of nodes are.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.names import nearest_name
from omnigraph.schema import EdgeType, EntityType
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.arrow import convert_arrow, plain_encoding
from omnigraph.schema.values.blobs import BASE64_PREFIX
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.converted import Converted
from omnigraph.schema.values.from_text import convert_texts, text_value
from omnigraph.schema.values.ids import Ids, spell
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import ErrorLog
from omnigraph.write.load.rows.check_rows import ColumnBatch
from omnigraph.write.rules import codes
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import Integers

_DELIMITERS: Final = ";\t|,"
_END_NAMES: Final = (("src", "dst"), ("from", "to"))


def column_problems(entity_type: EntityType, names: Sequence[str]) -> list[Violation]:
    """Return what is wrong with the names of a table's columns."""
    problems = [
        _table_problem(entity_type, name, codes.DUPLICATE_MEMBER, f"duplicate column '{name}'")
        for name in sorted({name for name in names if list(names).count(name) > 1})
    ]
    ends: tuple[str, ...] = ()
    if isinstance(entity_type, EdgeType):
        ends = _end_names(entity_type, names) or _half_of_ends(names)
        if not set(ends) <= set(names) or not ends:
            problems.append(_missing_ends(entity_type, ends, names))
    known = {*entity_type.properties, "id", *ends}
    for name in names:
        if name not in known:
            near = nearest_name(name, entity_type.properties)
            hint = _header_hint(name, names) or (f"; did you mean '{near}'?" if near else "")
            message = f"unknown input field '{name}' for '{entity_type.table_key}'{hint}"
            problems.append(_table_problem(entity_type, name, codes.UNKNOWN_PROPERTY, message))
    return problems


def _header_hint(name: str, names: Sequence[str]) -> str:
    """Return what to say of a column without a name, or of one whose name is the whole header."""
    if not name:
        return "; a column has no name: pandas leaves its index out with `to_csv(index=False)`"
    mark = next((mark for mark in _DELIMITERS if mark in names[0]), None)
    if len(names) > 1 or mark is None:
        return ""
    return f"; if the delimiter is {mark!r}, name it with the option `delimiter`"


def _half_of_ends(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of both ends, where the table has one of them."""
    halves = [pair for pair in _END_NAMES if set(pair) & set(names)]
    return halves[0] if len(halves) == 1 else ()


def _missing_ends(edge: EdgeType, ends: Sequence[str], names: Sequence[str]) -> Violation:
    missing = next((name for name in ends if name not in names), None)
    wanted = (
        "field 'from' and field 'to', or 'src' and 'dst'"
        if missing is None
        else f"field '{missing}'"
    )
    message = f"edge '{edge.name}' requires {wanted}"
    return _table_problem(edge, missing, codes.MISSING_COLUMN, message)


def _table_problem(entity_type: EntityType, name: str | None, code: str, message: str) -> Violation:
    return Violation(None, entity_type.name, name, None, "property", code, message)


def _end_names(entity_type: EntityType, names: Sequence[str]) -> tuple[str, str] | None:
    if not isinstance(entity_type, EdgeType):
        return None
    return next((pair for pair in _END_NAMES if set(pair) <= set(names)), None)


def column_batch(
    entity_type: EntityType,
    batch: pa.RecordBatch,
    at: int | Integers,
    texts: frozenset[str] = frozenset(),
) -> ColumnBatch:
    """Convert the columns of a batch; those in `texts` are spelled as CSV spells values.

    `at` is the position of the first row, or of every row.
    """
    names = batch.schema.names
    pair = _end_names(entity_type, names)
    ends = {} if pair is None else dict(zip(("src", "dst"), pair, strict=True))
    return ColumnBatch(
        columns={
            name: _property(entity_type, name, batch, is_text=name in texts)
            for name in entity_type.properties
        },
        positions=pa.array(_numbered(at, batch) if isinstance(at, int) else at),
        raw=lambda name, row: _raw(batch, ends.get(name, name), row),
        record=lambda row: _record(entity_type, batch, ends, texts, row),
        given=_given(entity_type, batch["id"]) if "id" in names else None,
        ends={end: _end(entity_type, batch[name], name) for end, name in ends.items()},
        absent=lambda: {
            name: np.ones(batch.num_rows, np.bool_)
            for name in entity_type.properties
            if name not in names
        },
        is_columnar=True,
    )


def empty_rows(entity_type: EntityType) -> pa.RecordBatch:
    """Return a batch without rows, for an input that names a type and has none of it."""
    names = ("id", "src", "dst") if isinstance(entity_type, EdgeType) else ("id",)
    return pa.RecordBatch.from_pylist([], pa.schema([(name, pa.utf8()) for name in names]))


def _numbered(first: int, batch: pa.RecordBatch) -> Integers:
    return np.arange(first, first + batch.num_rows, dtype=np.int64)


def _property(
    entity_type: EntityType, name: str, batch: pa.RecordBatch, *, is_text: bool
) -> Converted:
    prop = entity_type.properties[name]
    if name in batch.schema.names and is_text:
        return convert_texts(plain_encoding(batch[name]), prop.prop_type, name)
    if name in batch.schema.names:
        return convert_arrow(batch[name], prop.prop_type, name)
    return convert_values([prop.default] * batch.num_rows, prop.prop_type, name)


def _given(entity_type: EntityType, column: pa.Array) -> Ids:
    plain = plain_encoding(column)
    log = ErrorLog(len(plain))
    if pa.types.is_string(plain.type):
        return Ids(plain, log.finish())
    kind = "edge" if isinstance(entity_type, EdgeType) else "node"
    message = f"{kind} id must be a string, got a column of {plain.type}"
    log.add_mask(valid_mask(plain), value_codes.ID_NOT_A_STRING, message)
    return Ids(pa.nulls(len(plain), pa.utf8()), log.finish())


def _end(entity_type: EntityType, column: pa.Array, name: str) -> Ids:
    plain = plain_encoding(column)
    log = ErrorLog(len(plain))
    missing = f"edge '{entity_type.name}' requires field '{name}'"
    log.add_mask(~valid_mask(plain), value_codes.MISSING, missing)
    if pa.types.is_string(plain.type):
        return Ids(plain, log.finish())
    if _is_spelled(plain.type):
        return Ids(spell(plain), log.finish())
    wrong = (
        f"edge '{entity_type.name}' field '{name}' must be a string, got a column of {plain.type}"
    )
    log.add_mask(valid_mask(plain), value_codes.WRONG_KIND, wrong)
    return Ids(pa.nulls(len(plain), pa.utf8()), log.finish())


def _is_spelled(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind))


def _record(
    entity_type: EntityType,
    batch: pa.RecordBatch,
    ends: Mapping[str, str],
    texts: frozenset[str],
    row: int,
) -> dict[str, object]:
    """Return a row in the form of a graph record."""
    names = [name for name in batch.schema.names if name not in ends.values()]
    data = {name: _plain(batch[name][row]) for name in names}
    for name in texts & entity_type.properties.keys():
        data[name] = text_value(batch[name][row].as_py(), entity_type.properties[name].prop_type)
    if not isinstance(entity_type, EdgeType):
        return {"type": entity_type.name, "data": data}
    source, target = (_raw(batch, ends[end], row) for end in ("src", "dst"))
    return {"edge": entity_type.name, "from": source, "to": target, "data": data}


def _raw(batch: pa.RecordBatch, name: str, row: int) -> object:
    return _plain(batch[name][row]) if name in batch.schema.names else None


def _plain(value: pa.Scalar) -> object:
    """Return a value in a form that JSON has, so that it can be shown, kept and loaded again."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_temporal(kind):
        return _moment(value)
    if pa.types.is_decimal(kind):
        number = value.as_py()
        return int(number) if number == int(number) and abs(number) < 1 << 63 else str(number)
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind) and not pa.types.is_map(kind):
        return [_plain(item) for item in value.values]
    found: object = value.as_py()
    if isinstance(found, float) and not math.isfinite(found):
        return "NaN" if math.isnan(found) else f"{'-' if found < 0 else ''}Infinity"
    return BASE64_PREFIX + b64encode(found).decode() if isinstance(found, bytes) else found


def _moment(value: pa.Scalar) -> object:
    """Spell a day or a moment; Python's own types end with the year 9999, and days lose hours."""
    if pa.types.is_date64(value.type):
        value = value.cast(pa.timestamp("ms"))
    text: str = value.cast(pa.utf8()).as_py()
    if not text.startswith("<"):
        return text.replace(" ", "T", 1)
    # Arrow spells no years of more than five digits either.
    width = pa.int32() if pa.types.is_date32(value.type) else pa.int64()
    return value.cast(width).as_py()
