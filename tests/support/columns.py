"""Stored columns as Python values that can be compared exactly."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def raw_values(column: pa.Array) -> list[Any]:
    """Stored values as Python objects, dates and moments as numbers."""
    if pa.types.is_date64(column.type):
        return column.view(pa.int64()).to_pylist()
    if pa.types.is_date32(column.type):
        return column.view(pa.int32()).to_pylist()
    if pa.types.is_list(column.type):
        items = iter(raw_values(column.flatten()))
        lengths = column.value_lengths().to_pylist()
        return [None if n is None else [next(items) for _ in range(n)] for n in lengths]
    return column.to_pylist()


def same_bits(value: object) -> object:
    """Tell 0.0 from -0.0 and True from 1."""
    if isinstance(value, list):
        return [same_bits(item) for item in value]
    if isinstance(value, float):
        return value.hex()
    return (type(value), value) if isinstance(value, bool) else value
