"""Turns stored columns back into JSON values.

| type | in results | in exports and changes |
|---|---|---|
| String, enum, Bool, integers | as they are | same |
| F32, F64 | double; `"NaN"`, `"Infinity"`, `"-Infinity"` as strings | same |
| Date, DateTime | `"2026-03-06"`, `"2026-03-06T12:00:00.000Z"` | days, milliseconds |
| list | array | same |
| Vector | array; an element that is not finite is null | same |
| Blob | `"base64:…"` or the URI | same |
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.schema.values.blobs import BASE64_PREFIX
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.temporal import format_dates, format_datetimes
from omnigraph.values import PropType, Scalar


class JsonForm(StrEnum):
    """What the JSON is for: a result that people read, or a later load."""

    RESULT = "result"
    EXPORT = "export"


def to_json_values(
    column: pa.Array, prop: PropType, form: JsonForm = JsonForm.RESULT
) -> list[object]:
    """Return the JSON value of every row of a stored column.

    >>> to_json_values(pa.array([0.5, None, float("nan")]), PropType(Scalar.F64))
    [0.5, None, 'NaN']
    """
    if prop.dimension is not None:
        return _vectors(column, prop.dimension)
    if prop.is_list:
        return _lists(column, prop, form)
    return _scalars(column, prop.scalar, form)


def _scalars(column: pa.Array, scalar: Scalar, form: JsonForm) -> list[object]:
    if scalar is Scalar.BLOB:
        return _blobs(column)
    if scalar.is_float:
        return _floats(column)
    if scalar is Scalar.DATE:
        return plain_values(
            format_dates(column) if form is JsonForm.RESULT else column.view(pa.int32())
        )
    if scalar is Scalar.DATETIME:
        texts = form is JsonForm.RESULT
        return plain_values(format_datetimes(column) if texts else column.view(pa.int64()))
    return plain_values(column)


def plain_values(column: pa.Array) -> list[object]:
    """Take the values out as Python objects; null is None."""
    if not column.null_count or pa.types.is_string(column.type):
        values: list[object] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    zero = pa.scalar(0).cast(column.type)
    return _with_none(column.fill_null(zero).to_numpy(zero_copy_only=False), valid_mask(column))


def _with_none(numbers: npt.NDArray[np.generic], valid: npt.NDArray[np.bool_]) -> list[object]:
    objects = numbers.astype(object)
    objects[~valid] = None
    values: list[object] = objects.tolist()
    return values


def _floats(column: pa.Array) -> list[object]:
    doubles = column.fill_null(0).to_numpy().astype(np.float64)
    finite = np.isfinite(doubles)
    if finite.all() and not column.null_count:
        values: list[object] = doubles.tolist()
        return values
    objects = doubles.astype(object)
    objects[np.isnan(doubles)] = "NaN"
    objects[np.isposinf(doubles)] = "Infinity"
    objects[np.isneginf(doubles)] = "-Infinity"
    objects[~valid_mask(column)] = None
    spelled: list[object] = objects.tolist()
    return spelled


def _vectors(column: pa.Array, dimension: int) -> list[object]:
    present = column.drop_null()
    elements = present.flatten()
    doubles = elements.fill_null(np.nan).to_numpy().astype(np.float64).reshape(-1, dimension)
    finite = np.isfinite(doubles)
    vectors = doubles.tolist() if finite.all() else _with_none_inside(doubles, finite)
    return at_valid(vectors, valid_mask(column))


def _with_none_inside(
    doubles: npt.NDArray[np.float64], finite: npt.NDArray[np.bool_]
) -> list[object]:
    objects = doubles.astype(object)
    objects[~finite] = None
    values: list[object] = objects.tolist()
    return values


def _lists(column: pa.Array, prop: PropType, form: JsonForm) -> list[object]:
    return list_values(column, lambda items: _scalars(items, prop.scalar, form))


def list_values(column: pa.Array, items_of: Callable[[pa.Array], list[object]]) -> list[object]:
    """Return the lists of a column; `items_of` turns their elements into values."""
    present = column.drop_null()
    items = items_of(present.flatten())
    ends = np.cumsum(present.value_lengths().to_numpy(zero_copy_only=False)).tolist()
    starts = [0, *ends[:-1]]
    lists = [items[start:end] for start, end in zip(starts, ends, strict=False)]
    return at_valid(lists, valid_mask(column))


def at_valid(values: Sequence[object], valid: npt.NDArray[np.bool_]) -> list[object]:
    """Return values at the places that are valid, and None at the others."""
    if valid.all():
        return list(values)
    spread = np.full(len(valid), None, object)
    spread[valid] = np.fromiter(values, object, len(values))
    result: list[object] = spread.tolist()
    return result


_URI: Final = "uri"
_DATA: Final = "data"


def _blobs(column: pa.Array) -> list[object]:
    valid = column.is_valid().to_pylist()
    rows = zip(valid, column.field(_DATA).to_pylist(), column.field(_URI).to_pylist(), strict=True)
    return [_blob(data, uri) if is_valid else None for is_valid, data, uri in rows]


def _blob(data: bytes | None, uri: str | None) -> str | None:
    if data is None:
        return uri
    return BASE64_PREFIX + binascii.b2a_base64(data, newline=False).decode()
