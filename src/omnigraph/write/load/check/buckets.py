"""Rows of 64-bit numbers in a file, divided into buckets by the leading bits of the first number.

1. A *run* has about `_RUN_ROWS` rows: they are in the file bucket by bucket, in their order within
   each. A run takes a few thousand bytes of memory, whatever its size.
2. Neighbouring buckets are read together, run by run: a reader needs the memory of one run, or of
   the rows that it asks for at one time.
3. First numbers have to be spread evenly (hashes, scaled row numbers). Equal ones are all in one
   bucket, so a caller that reads a whole bucket must know that few are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import SEEK_END
from typing import BinaryIO, Final

import numpy as np

from omnigraph.write.load.check.hashing import Hashes
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.stage.columns import Integers

BUCKET_BITS: Final = 8
BUCKETS: Final = 1 << BUCKET_BITS
_SHIFT: Final = np.uint64(64 - BUCKET_BITS)
_RUN_ROWS: Final = 1 << 18
_NUMBER_BYTES: Final = 8


def bucket_of(numbers: Hashes) -> Integers:
    """Return the bucket of each number."""
    found: Integers = (numbers >> _SHIFT).astype(np.int64)
    return found


def divided(counts: Integers, rows_max: int) -> Iterator[range]:
    """Divide all buckets into ranges with at most `rows_max` rows, where single ones allow it."""
    start, rows = 0, 0
    for bucket, count in enumerate(counts.tolist()):
        if rows and rows + count > rows_max:
            yield range(start, bucket)
            start, rows = bucket, 0
        rows += count
    yield range(start, BUCKETS)


class Buckets:
    """Rows of `width` numbers."""

    def __init__(self, budget: SpoolBudget, width: int) -> None:
        self._budget = budget
        self._width = width
        self._waiting: list[tuple[Hashes, ...]] = []
        self._waiting_rows = 0
        self._file: BinaryIO | None = None
        self._runs: list[tuple[int, Integers]] = []
        """Where each run begins in the file, and where each bucket begins in the run."""
        self.counts: Integers = np.zeros(BUCKETS, np.int64)

    def __len__(self) -> int:
        return int(self.counts.sum())

    def append(self, *columns: Hashes) -> None:
        """Add rows, column by column."""
        for start in range(0, len(columns[0]), _RUN_ROWS):
            piece = tuple(column[start : start + _RUN_ROWS] for column in columns)
            self.counts += np.bincount(bucket_of(piece[0]), minlength=BUCKETS)
            self._waiting.append(piece)
            self._waiting_rows += len(piece[0])
            if self._waiting_rows >= _RUN_ROWS:
                self._write_run()

    def slabs(self, within: range) -> Iterator[tuple[Hashes, ...]]:
        """Read the rows of some buckets, run by run."""
        self._write_run()
        for at, begins in self._runs:
            low, high = int(begins[within.start]), int(begins[within.stop])
            if high > low:
                rows = int(begins[-1])
                yield tuple(
                    self._read(at + column * rows + low, high - low)
                    for column in range(self._width)
                )

    def rows(self, within: range) -> tuple[Hashes, ...]:
        """Read the rows of some buckets together."""
        count = int(self.counts[within.start : within.stop].sum())
        whole = tuple(np.empty(count, np.uint64) for _ in range(self._width))
        start = 0
        for slab in self.slabs(within):
            for column, piece in zip(whole, slab, strict=True):
                column[start : start + len(piece)] = piece
            start += len(slab[0])
        return whole

    def close(self) -> None:
        """Remove the file; nothing can be read any more."""
        self._runs, self._waiting, self._waiting_rows = [], [], 0
        if self._file is not None:
            self._budget.discard_file(self._file)
            self._file = None

    def _write_run(self) -> None:
        if not self._waiting_rows:
            return
        columns = [np.concatenate(parts) for parts in zip(*self._waiting, strict=True)]
        self._waiting, self._waiting_rows = [], 0
        buckets = bucket_of(columns[0])
        begins = np.zeros(BUCKETS + 1, np.int64)
        np.cumsum(np.bincount(buckets, minlength=BUCKETS), out=begins[1:])
        # NumPy sorts numbers of one byte by counting, in linear time.
        order = np.argsort(buckets.astype(np.uint8), kind="stable")
        if self._file is None:
            self._file = self._budget.open_file()
        at = self._file.seek(0, SEEK_END) // _NUMBER_BYTES
        for column in columns:
            self._file.write(np.ascontiguousarray(column[order], np.uint64).data)
        self._runs.append((at, begins))

    def _read(self, at: int, count: int) -> Hashes:
        if self._file is None:
            raise ValueError("nothing was written")
        self._file.seek(at * _NUMBER_BYTES)
        return np.frombuffer(self._file.read(count * _NUMBER_BYTES), np.uint64)
