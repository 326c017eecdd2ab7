"""Combines small pieces into larger ones, because work per piece has a fixed cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

_Piece = TypeVar("_Piece")


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


def grouped(
    pieces: Iterable[_Piece], most: int, measure: Callable[[_Piece], int]
) -> list[list[_Piece]]:
    """Put neighbours together as long as they are not more than `most`.

    >>> grouped([1, 2, 2, 9, 1], 4, int)
    [[1, 2], [2], [9], [1]]
    """
    groups: list[list[_Piece]] = []
    size = 0
    for piece in pieces:
        if not groups or size + measure(piece) > most:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += measure(piece)
    return groups
