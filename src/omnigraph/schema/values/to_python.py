"""Turns stored columns into Python values, column by column.

`Array.to_pylist` makes one Arrow scalar for each value: that takes twice as long, for moments three
times.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.to_json import at_valid, list_values, plain_values
from omnigraph.values import PropType, Scalar

_DAYS: Final = (-719_162, 2_932_896)
"""The days that a `date` can hold: the years 1 to 9999."""
_DAY_MS: Final = 86_400_000
_MOMENT: Final = pa.timestamp("ms", tz="UTC")


def to_python_values(column: pa.Array, prop: PropType) -> list[Any]:
    """Return the Python value of every row; dates and moments are those of `datetime`.

    Raises `OverflowError` for a day outside of Python's years.

    >>> to_python_values(pa.array([3, None]), PropType(Scalar.I64))
    [3, None]
    """
    if prop.dimension is not None:
        return _vectors(column, prop.dimension)
    if prop.is_list:
        return _lists(column, prop)
    return _scalars(column, prop.scalar)


def _scalars(column: pa.Array, scalar: Scalar) -> list[Any]:
    if scalar is Scalar.BLOB:
        blobs: list[Any] = column.to_pylist()
        return blobs
    if scalar is Scalar.DATE:
        return _dates(column)
    if scalar is Scalar.DATETIME:
        return _moments(column)
    return plain_values(column)


def _dates(column: pa.Array) -> list[Any]:
    days = column.view(pa.int32())
    _require_years(days, 1)
    found: list[Any] = days.fill_null(0).to_numpy().astype("datetime64[D]").tolist()
    return found if not column.null_count else _with_nulls(found, column)


def _moments(column: pa.Array) -> list[Any]:
    moments = column.view(pa.int64())
    _require_years(moments, _DAY_MS)
    # The same zone that Arrow gives to single values.
    zone = pa.scalar(0, _MOMENT).as_py().tzinfo
    naive = moments.fill_null(0).to_numpy().astype("datetime64[ms]").tolist()
    found = [moment.replace(tzinfo=zone) for moment in naive]
    return found if not column.null_count else _with_nulls(found, column)


def _require_years(numbers: pa.Array, unit: int) -> None:
    bounds = pc.min_max(numbers)
    lowest, highest = bounds["min"].as_py(), bounds["max"].as_py()
    if lowest is not None and (lowest < _DAYS[0] * unit or highest >= (_DAYS[1] + 1) * unit):
        raise OverflowError("a day outside of the years 1 to 9999")


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    pairs = zip(values, valid_mask(column).tolist(), strict=True)
    return [value if is_valid else None for value, is_valid in pairs]


def _vectors(column: pa.Array, dimension: int) -> list[Any]:
    present = column.drop_null()
    elements = present.flatten()
    if elements.null_count:
        found: list[Any] = column.to_pylist()
        return found
    rows = elements.to_numpy().reshape(-1, dimension).astype(np.float64).tolist()
    return at_valid(rows, valid_mask(column))


def _lists(column: pa.Array, prop: PropType) -> list[Any]:
    return list_values(column, lambda items: _scalars(items, prop.scalar))
