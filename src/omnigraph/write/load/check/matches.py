"""The rows of a load whose ids are stored, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.write.load.check.buckets import BUCKETS, Buckets, bucket_of
from omnigraph.write.load.check.hashing import Hashes
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.stage.columns import Integers


@dataclass(frozen=True, eq=False)
class Match:
    """Rows of the load whose ids are stored, ascending, and where."""

    rows: Integers
    row_ids: Hashes
    addresses: Hashes

    def between(self, low: int, high: int) -> Match:
        """Return those of consecutive rows."""
        first, last = np.searchsorted(self.rows, (low, high))
        own = slice(first, last)
        return Match(self.rows[own], self.row_ids[own], self.addresses[own])


class Matches:
    """All rows of the load whose ids are stored; many of them wait in a file, by row."""

    def __init__(self, budget: SpoolBudget, row_count: int) -> None:
        self._budget = budget
        self._shift = np.uint64(64 - max(1, row_count.bit_length()))
        self._parts: list[Match] = []
        self._buckets: Buckets | None = None
        self._window = range(0)
        self._inside: Match | None = None
        self.count = 0

    def add(self, rows: Integers, row_ids: Hashes, addresses: Hashes) -> None:
        """Add rows, in any order."""
        self.count += len(rows)
        self._parts.append(Match(rows, row_ids, addresses))
        if self._buckets is None and self.count > self._budget.rows_at_once:
            self._buckets = Buckets(self._budget, 3)
        if self._buckets is not None:
            for part in self._parts:
                scaled = part.rows.astype(np.uint64) << self._shift
                self._buckets.append(scaled, part.row_ids, part.addresses)
            self._parts = []

    def rows(self) -> Iterator[Integers]:
        """Read the rows, in no order."""
        if self._buckets is None:
            yield from (part.rows for part in self._parts)
            return
        for scaled, _, _ in self._buckets.slabs(range(BUCKETS)):
            yield (scaled >> self._shift).astype(np.int64)

    def between(self, low: int, high: int) -> Match:
        """Return the rows of a batch; batches are asked for in their order."""
        if self._buckets is None:
            if self._inside is None:
                self._inside = self._sorted(self._parts)
            return self._inside.between(low, high)
        ends = np.array([low, max(low, high - 1)], np.uint64) << self._shift
        first, last = bucket_of(ends).tolist()
        if self._inside is None or not (first in self._window and last in self._window):
            self._window = range(first, last + 1)
            scaled, row_ids, addresses = self._buckets.rows(self._window)
            rows = (scaled >> self._shift).astype(np.int64)
            self._inside = self._sorted([Match(rows, row_ids, addresses)])
        return self._inside.between(low, high)

    @staticmethod
    def _sorted(parts: Sequence[Match]) -> Match:
        if not parts:
            nothing = np.zeros(0, np.uint64)
            return Match(np.zeros(0, np.int64), nothing, nothing)
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows)
        row_ids = np.concatenate([part.row_ids for part in parts])
        addresses = np.concatenate([part.addresses for part in parts])
        return Match(rows[order], row_ids[order], addresses[order])
