"""Texts, as CSV and names of partitions have them, become stored columns.

| property | text |
|---|---|
| String, enum, Date, DateTime, Blob | as in JSON |
| Bool | `true`, `false`, `1`, `0`, in any case |
| I32 I64 U32 U64 | digits, perhaps with a sign; a fraction of zeros is ignored |
| F32 F64 | a decimal number, `NaN`, `Infinity` |
| [T], Vector(n) | a JSON array |

Blanks around numbers and booleans do not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.values.arrow import convert_arrow
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.converted import Converted, refuse_nulls
from omnigraph.schema.values.row_errors import ErrorLog
from omnigraph.values import PropType, Scalar

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NO_NUMBERS: Final = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_TYPED: Final = {
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int64(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.int64(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float64(),
    Scalar.F64: pa.float64(),
}


def convert_texts(column: pa.Array, prop: PropType, name: str) -> Converted:
    r"""Convert a column of texts of the property `name`; rows in error are null.

    >>> found = convert_texts(pa.array(["7", " 8.0", "x"]), PropType(Scalar.I32), "p")
    >>> found.column.to_pylist(), found.errors.to_pylist()[2]
    ([7, 8, None], 'strict property \'p\' expects Int32, got "x"')
    """
    if prop.is_list or prop.dimension is not None:
        return convert_values(_json_values(column), prop, name)
    if prop.scalar not in _TYPED:
        return convert_arrow(column, prop, name)
    typed = _cast(column, _TYPED[prop.scalar])
    return _one_by_one(column, prop, name) if typed is None else convert_arrow(typed, prop, name)


def text_value(text: str | None, prop: PropType) -> object:
    """Return one text as the JSON value that it stands for, or itself where it is none.

    >>> text_value("7", PropType(Scalar.I32)), text_value("x", PropType(Scalar.I32))
    (7, 'x')
    """
    if text is None:
        return None
    if prop.is_list or prop.dimension is not None:
        return _json_values(pa.array([text]))[0]
    if prop.scalar not in _TYPED:
        return text
    found = _parsed(text, prop.scalar)
    return text if found is None else found


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    for texts in (column, pc.utf8_trim_whitespace(column)):
        try:
            return pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
    return None


def _one_by_one(column: pa.Array, prop: PropType, name: str) -> Converted:
    """Convert what is a number or boolean, and say of the others what they are."""
    texts = column.to_pylist()
    values = [None if text is None else _parsed(text, prop.scalar) for text in texts]
    bad = np.fromiter(
        (value is None and text is not None for value, text in zip(values, texts, strict=True)),
        np.bool_,
        len(texts),
    )
    good = _of_values(values, replace(prop, nullable=True), name)
    log = ErrorLog(len(texts))
    problems = (good.errors.to_pylist(), good.codes.to_pylist())
    for row, (message, code) in enumerate(zip(*problems, strict=True)):
        if message is not None:
            log.add(np.array([row]), code, message)
    rows = np.flatnonzero(bad)
    wrong = convert_values(
        [texts[row] for row in rows.tolist()], replace(prop, nullable=True), name
    )
    for row, message, code in zip(
        rows.tolist(), wrong.errors.to_pylist(), wrong.codes.to_pylist(), strict=True
    ):
        log.add(np.array([row]), code, message)
    if not prop.nullable:
        refuse_nulls(good.column, prop, name, log)
    return Converted.of(good.column, log)


def _of_values(values: Sequence[object], prop: PropType, name: str) -> Converted:
    if prop.scalar.is_float:
        return convert_arrow(pa.array(values, pa.float64()), prop, name)
    return convert_values(values, prop, name)


def _parsed(text: str, scalar: Scalar) -> object | None:
    """Return the number or boolean that a text is, or None."""
    plain = text.strip()
    if scalar is Scalar.BOOL:
        return _BOOLEANS.get(plain.lower())
    if _INTEGER.fullmatch(plain):
        return float(plain) if scalar.is_float else int(plain)
    if _NUMBER.fullmatch(plain):
        number = float(plain)
    else:
        sign = -1.0 if plain.startswith("-") else 1.0
        known = _NO_NUMBERS.get(plain.lstrip("+-").lower())
        if known is None:
            return None
        number = sign * known
    if scalar.is_float:
        return number
    return int(number) if number.is_integer() and abs(number) <= 1 << 53 else None


def _json_values(column: pa.Array) -> list[object]:
    """Read one JSON value per text; what is no JSON stays a text."""
    texts = column.to_pylist()
    try:
        found = orjson.loads(
            "[" + ",".join("null" if text is None else text for text in texts) + "]"
        )
        # A text may hold a comma between two values: then there are more values than texts.
        if len(found) == len(texts) and all(type(each) in (list, type(None)) for each in found):
            return list(found)
    except orjson.JSONDecodeError:
        pass
    return [None if text is None else _json_value(text) for text in texts]


def _json_value(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
