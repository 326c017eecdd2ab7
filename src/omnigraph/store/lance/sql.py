"""Turns filter records into the SQL text that Lance reads.

Literals are spelled so that DataFusion sees exactly the Arrow type of the scalar: only then does
it probe an index instead of reading the column.
"""

from __future__ import annotations

import math
from typing import Final

import pyarrow as pa

from omnigraph.store.filters import (
    AllOf,
    AnyOf,
    Comparison,
    Contains,
    Filter,
    IsNull,
    Negation,
    OneOf,
    StartsWith,
    Value,
)

_CASTS: Final[dict[pa.DataType, str]] = {
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.uint8(): "UInt8",
    pa.uint16(): "UInt16",
    pa.uint32(): "UInt32",
    pa.uint64(): "UInt64",
    pa.float32(): "Float32",
    pa.date32(): "Date32",
    pa.date64(): "Date64",
}
_INT64_MIN: Final = -(2**63)
_DAY: Final = pa.date32()


def render_filter(row_filter: Filter) -> str:  # noqa: PLR0911 - one line per kind of filter
    """Spell a filter.

    >>> render_filter(OneOf("id", ("a", "it's")))
    "`id` IN ('a', 'it''s')"
    """
    match row_filter:
        case Comparison(column, operator, value):
            return f"{_column(column)} {operator} {_literal(value)}"
        case OneOf(column, values):
            listed = ", ".join(_literal(value) for value in values)
            return f"{_column(column)} IN ({listed})" if values else "false"
        case IsNull(column):
            return f"{_column(column)} IS NULL"
        case StartsWith(column, prefix):
            return f"starts_with({_column(column)}, {_text(prefix)})"
        case Contains(column, part):
            return f"contains({_column(column)}, {_text(part)})"
        case AllOf(parts):
            return _joined(parts, " AND ", empty="true")
        case AnyOf(parts):
            return _joined(parts, " OR ", empty="false")
        case Negation(part):
            return f"NOT ({render_filter(part)})"


def _joined(parts: tuple[Filter, ...], word: str, *, empty: str) -> str:
    return word.join(f"({render_filter(part)})" for part in parts) or empty


def _column(name: str) -> str:
    # Inside backticks a name keeps its letter case; a dot outside of them would mean a struct.
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _literal(value: Value) -> str:
    if isinstance(value, pa.Scalar):
        return _typed(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    return _double(value) if isinstance(value, float) else _integer(value)


def _typed(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "NULL"
    kind = value.type
    if pa.types.is_date(kind):
        # Python dates have no time of day, and a stored date64 may have one.
        number = value.cast(pa.int32() if kind == _DAY else pa.int64()).as_py()
        return f"arrow_cast(arrow_cast({number}, '{_backing(kind)}'), '{_CASTS[kind]}')"
    plain = _literal(value.as_py())
    return f"arrow_cast({plain}, '{_CASTS[kind]}')" if kind in _CASTS else plain


def _backing(kind: pa.DataType) -> str:
    return "Int32" if kind == _DAY else "Int64"


def _integer(value: int) -> str:
    # The smallest integer reads as a minus before a number that is too large for one.
    return f"arrow_cast('{value}', 'Int64')" if value == _INT64_MIN else str(value)


def _double(value: float) -> str:
    if math.isnan(value):
        return "arrow_cast('NaN', 'Float64')"
    if math.isinf(value):
        return f"arrow_cast('{'-' if value < 0 else ''}Infinity', 'Float64')"
    return f"arrow_cast({value!r}, 'Float64')"
