"""Combines small batches into larger tables, because work per batch has a fixed cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa


def rows_of(batch: pa.RecordBatch) -> int:
    """Measure a batch by its rows."""
    return int(batch.num_rows)


def bytes_of(batch: pa.RecordBatch) -> int:
    """Measure a batch by its memory."""
    return int(batch.nbytes)


def gathered(
    batches: Iterable[pa.RecordBatch],
    enough: int,
    measure: Callable[[pa.RecordBatch], int] = rows_of,
) -> Iterator[pa.Table]:
    """Yield tables of at least `enough` each, but for the last; batches without rows are dropped.

    >>> rows = pa.record_batch({"a": [1, 2]})
    >>> [table.num_rows for table in gathered([rows, rows.slice(2), rows, rows], enough=3)]
    [4, 2]
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += measure(batch)
        if size >= enough:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
