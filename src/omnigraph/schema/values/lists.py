"""Arrays: lists of scalars, and vectors.

All items of a batch are converted as one flat column; the arrays are only offsets into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.schema.values import codes
from omnigraph.schema.values.json_batch import JsonBatch, Kind
from omnigraph.schema.values.row_errors import ErrorLog, Mask, Rows, quoting
from omnigraph.schema.values.scalars import Subject, convert_scalars
from omnigraph.values import PropType, Scalar

Offsets = npt.NDArray[np.int64]


def convert_lists(batch: JsonBatch, prop: PropType, subject: Subject, log: ErrorLog) -> pa.Array:
    """Convert a list property."""
    log.add(
        batch.others(Kind.ARRAY),
        codes.NOT_AN_ARRAY,
        quoting(f"property '{subject.name}' expects a JSON array, got {{}}", batch.values),
    )
    rows, arrays = _arrays(batch)
    offsets = _offsets(arrays)
    items = JsonBatch(list(chain.from_iterable(arrays)))
    item_log = ErrorLog(len(items))
    column = convert_scalars(items, prop.scalar, subject.items("list value"), item_log)
    lift_item_errors(item_log, offsets, rows, log)
    return list_column(column, offsets, rows, prop, log)


def convert_vectors(batch: JsonBatch, prop: PropType, subject: Subject, log: ErrorLog) -> pa.Array:
    """Convert a vector property."""
    dimension = cast("int", prop.dimension)
    subject.refuse_kinds(batch, (Kind.ARRAY,), f"Vector({dimension})", log)
    rows, arrays = _arrays(batch)
    lengths = np.diff(_offsets(arrays))
    fitting = lengths == dimension
    refuse_dimensions(rows[~fitting], lengths[~fitting], dimension, subject.name, log)
    if not fitting.all():
        arrays = [arrays[i] for i in np.flatnonzero(fitting).tolist()]
    items = JsonBatch(list(chain.from_iterable(arrays)))
    item_log = ErrorLog(len(items))
    elements = _elements(items, subject, item_log)
    return vector_column(elements, rows[fitting], prop, item_log, log)


def refuse_dimensions(
    rows: Rows, lengths: Offsets, dimension: int, name: str, log: ErrorLog
) -> None:
    """Record vectors with too many or too few elements."""
    found = dict(zip(rows.tolist(), lengths.tolist(), strict=True))
    log.add(
        rows,
        codes.WRONG_DIMENSION,
        lambda row: f"property '{name}' expects {dimension} dimensions, got {found[row]}",
    )


def not_numeric(name: str) -> str:
    """Record that a vector holds something other than numbers."""
    return f"property '{name}' vector elements must be numeric"


def lift_item_errors(item_log: ErrorLog, offsets: Offsets, rows: Rows, log: ErrorLog) -> None:
    """Give a row the problem of the first bad item of its array.

    Array `i` holds the items from `offsets[i]` to `offsets[i + 1]` and belongs to `rows[i]`.
    """
    if item_log.is_clean:
        return
    bad_items = np.flatnonzero(item_log.bad)
    # Empty arrays repeat an offset: the last one that starts at or before an item holds it.
    holders = np.searchsorted(offsets, bad_items, side="right") - 1
    holders, first = np.unique(holders, return_index=True)
    log.take_from(item_log, source_rows=bad_items[first], target_rows=rows[holders])


def list_column(
    items: pa.Array, offsets: Offsets, rows: Rows, prop: PropType, log: ErrorLog
) -> pa.Array:
    """Build the list column from the arrays of `rows`; other rows and rows in error are null."""
    lengths = np.diff(offsets)
    good = ~log.bad[rows]
    if not good.all():
        items = items.filter(pa.array(np.repeat(good, lengths)))
    spread, valid = _spread(np.where(good, lengths, 0), rows[good], rows, len(log))
    starts = np.zeros(len(log) + 1, np.int32)
    np.cumsum(spread, out=starts[1:])
    mask = None if valid.all() else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(starts), items, type=prop.arrow_type, mask=mask)


def vector_column(
    elements: pa.Array, rows: Rows, prop: PropType, item_log: ErrorLog, log: ErrorLog
) -> pa.Array:
    """Build the vector column from the elements of `rows`; all other rows are null."""
    dimension = cast("int", prop.dimension)
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * dimension
    lift_item_errors(item_log, offsets, rows, log)
    valid = np.zeros(len(log), np.bool_)
    valid[rows] = True
    valid &= ~log.bad
    if valid.all():
        return pa.FixedSizeListArray.from_arrays(elements, type=prop.arrow_type)
    numbers = np.zeros((len(log), dimension), np.float32)
    numbers[rows] = elements.fill_null(0).to_numpy().reshape(-1, dimension)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(numbers.reshape(-1)), type=prop.arrow_type, mask=pa.array(~valid)
    )


def _elements(items: JsonBatch, subject: Subject, item_log: ErrorLog) -> pa.Array:
    # A null or a text among the numbers fails in both modes.
    message = not_numeric(subject.name)
    item_log.add(items.nulls(), codes.NOT_NUMERIC, message)
    item_log.add(items.others(Kind.INTEGER, Kind.DOUBLE), codes.NOT_NUMERIC, message)
    return convert_scalars(items, Scalar.F32, subject.items("vector value"), item_log)


def _arrays(batch: JsonBatch) -> tuple[Rows, Sequence[Sequence[object]]]:
    rows, values = batch.subset(Kind.ARRAY)
    return rows, cast("Sequence[Sequence[object]]", values)


def _offsets(arrays: Sequence[Sequence[Any]]) -> Offsets:
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, arrays), np.int64, len(arrays)), out=offsets[1:])
    return offsets


def _spread(lengths: Offsets, good: Rows, rows: Rows, count: int) -> tuple[Offsets, Mask]:
    spread = np.zeros(count, np.int64)
    spread[rows] = lengths
    valid = np.zeros(count, np.bool_)
    valid[good] = True
    return spread, valid
