"""Hashes of the rows of a load, looked at together: all at once, or bucket by bucket.

1. What a rule has in memory at one time are the hashes of `rows_at_once` rows and one slab of
   others, however many rows there are. Up to so many rows nothing is divided.
2. Beyond, both sides of a comparison are divided by the leading bits of their hashes; equal texts
   have equal hashes, so they meet in the same bucket.
3. Rows are found by pairs of hashes, each of which stands for its text; one hash alone finds
   candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.store.records import ROW_ADDRESS
from omnigraph.write.load.check.buckets import Buckets, bucket_of, divided
from omnigraph.write.load.check.hashing import (
    NO_HASH,
    Hashes,
    HashIndex,
    HashPairs,
    HashScheme,
    distinct_hashes,
    repeated_hashes,
)
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.stage.columns import Integers, Mask, flat
from omnigraph.write.stage.stored_rows import StoredRows


class HashedRows(Protocol):
    """A pair of hashes per row, with the number of the row."""

    def __len__(self) -> int: ...

    def slabs(self) -> Iterator[tuple[HashPairs, Integers]]:
        """Read everything in pieces, with the numbers of the rows."""
        ...

    def buckets(self) -> Buckets:
        """Return both hashes and the number of every row, divided by the first hash."""
        ...

    def forget_buckets(self) -> None:
        """Remove the files of the buckets."""
        ...


class HashedColumn:
    """Hashes of one text or tuple of each row of a load, from row `start` on, in their order."""

    def __init__(self, budget: SpoolBudget, width: int) -> None:
        self._budget = budget
        self._width = width
        self._numbers = budget.numbers(np.uint64, width)
        self._buckets: Buckets | None = None
        self.start = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def append(self, *hashes: Hashes) -> None:
        """Add rows."""
        self._numbers.append(*hashes)

    def slabs(self) -> Iterator[tuple[HashPairs, Integers]]:
        """Read all pairs in pieces, with the numbers of their rows."""
        row = self.start
        for first, second in self._numbers.slabs():
            yield HashPairs(first, second), np.arange(row, row + len(first))
            row += len(first)

    def buckets(self) -> Buckets:
        """Return the hashes and the number of every row that has some, divided by the first."""
        if self._buckets is None:
            self._buckets = Buckets(self._budget, self._width + 1)
            row = self.start
            for columns in self._numbers.slabs():
                has_hash = columns[0] != NO_HASH
                rows = np.arange(row, row + len(has_hash), dtype=np.uint64)
                row += len(has_hash)
                self._buckets.append(*(column[has_hash] for column in (*columns, rows)))
        return self._buckets

    def forget_buckets(self) -> None:
        """Remove the files of the buckets."""
        if self._buckets is not None:
            self._buckets.close()
            self._buckets = None

    def parts(self, counted: Mask | None) -> Iterator[HashPart]:
        """Divide the rows that count so that equal first hashes are in one part."""
        rows_max = self._budget.rows_at_once
        if len(self) <= rows_max:
            hashes = self._numbers.whole()
            rows = np.arange(self.start, self.start + len(hashes))
            yield HashPart(None, range(0), (hashes, rows), counted, rows_max)
            return
        buckets = self.buckets()
        for within in divided(buckets.counts, rows_max):
            yield HashPart(buckets, within, None, counted, rows_max)


@dataclass(frozen=True, eq=False)
class HashPart:
    """Some hashes of the rows of a load, with all rows that have them."""

    buckets: Buckets | None
    within: range
    whole: tuple[Hashes, Integers] | None
    counted: Mask | None
    rows_max: int

    def slabs(self) -> Iterator[tuple[Hashes, Integers]]:
        """Read hashes and rows in pieces."""
        if self.whole is not None:
            yield self._counting(*self.whole)
        elif self.buckets is not None:
            for columns in self.buckets.slabs(self.within):
                yield self._counting(columns[0], columns[-1].view(np.int64))

    def _counting(self, hashes: Hashes, rows: Integers) -> tuple[Hashes, Integers]:
        if self.counted is None:
            return hashes, rows
        kept = self.counted[rows]
        return hashes[kept], rows[kept]

    def own(self, hashes: Hashes) -> Hashes:
        """Return those of some hashes that belong to this part."""
        if self.buckets is None:
            return hashes
        buckets = bucket_of(hashes)
        return hashes[(buckets >= self.within.start) & (buckets < self.within.stop)]

    def repeated(self) -> Hashes:
        """Return the hashes that more than one row has, sorted."""
        again: list[Hashes] = []
        known: list[Hashes] = []
        size = 0
        for hashes, _ in self.slabs():
            known.append(hashes)
            size += len(hashes)
            if size > 2 * self.rows_max:
                # Many rows share few hashes: keeping each once bounds the memory.
                together = np.concatenate(known)
                again.append(repeated_hashes(together))
                known = [distinct_hashes(together)]
                size = len(known[0])
        if not known:
            return np.zeros(0, np.uint64)
        last = repeated_hashes(known[0] if len(known) == 1 else np.concatenate(known))
        if not again:
            return last
        found: Hashes = distinct_hashes(np.concatenate([*again, last]))
        return found

    def distinct(self) -> Hashes:
        """Return all hashes once, sorted."""
        parts = [distinct_hashes(hashes) for hashes, _ in self.slabs()]
        found: Hashes = distinct_hashes(np.concatenate([*parts, np.zeros(0, np.uint64)]))
        kept: Hashes = found[found != NO_HASH]
        return kept


class StoredHashes:
    """The texts of a column of stored rows, hashed.

    Rows are numbered as a scan returns them, or by their addresses.
    """

    def __init__(
        self,
        stored: StoredRows,
        table_key: str,
        column: str,
        *,
        scheme: HashScheme,
        budget: SpoolBudget,
        by_address: bool = False,
    ) -> None:
        self._stored = stored
        self._table_key = table_key
        self._column = column
        self._scheme = scheme
        self._budget = budget
        self._by_address = by_address
        self._buckets: Buckets | None = None

    def __len__(self) -> int:
        return self._stored.row_count(self._table_key)

    def slabs(self) -> Iterator[tuple[HashPairs, Integers]]:
        """Read the column, slab by slab."""
        row = 0
        scan = self._stored.scan(self._table_key, (self._column,), with_addresses=self._by_address)
        for slab in scan:
            pairs = self._scheme.pairs(flat(slab[self._column]))
            if self._by_address:
                yield pairs, flat(slab[ROW_ADDRESS]).to_numpy().astype(np.int64)
            else:
                yield pairs, np.arange(row, row + len(pairs))
            row += len(pairs)

    def buckets(self) -> Buckets:
        """Read the column once, and divide its hashes."""
        if self._buckets is None:
            self._buckets = Buckets(self._budget, 3)
            for pairs, rows in self.slabs():
                self._buckets.append(pairs.first, pairs.second, rows.astype(np.uint64))
        return self._buckets

    def forget_buckets(self) -> None:
        """Remove the files of the buckets."""
        if self._buckets is not None:
            self._buckets.close()
            self._buckets = None


class RowLookup:
    """Finds rows by the pair of hashes of their id."""

    def __init__(self, known: HashedRows, counted: Mask | None, rows_max: int) -> None:
        self._known = known
        self._counted = counted
        self._rows_max = rows_max
        self._whole: _Index | None = None

    def rows_of(self, wanted: HashPairs) -> Integers:
        """Return the number of every pair, -1 where it is not known."""
        if not self.is_divided:
            return self._index().rows_of(wanted)
        found = np.full(len(wanted), -1, np.int64)
        buckets = bucket_of(wanted.first)
        for within, index in self._indexes():
            own = (buckets >= within.start) & (buckets < within.stop)
            if own.any():
                found[own] = index().rows_of(wanted.filter(own))
        return found

    def hits(self, ids: pa.Array, scheme: HashScheme) -> tuple[Integers, Integers]:
        """Return the positions of the ids that are known, and their numbers.

        Made for many ids of which few are known: only those that pass a pre-filter get a pair.
        """
        prefilter = None if self.is_divided else self._index().index.prefilter
        if prefilter is None:
            candidates = np.arange(len(ids))
        else:
            candidates = np.flatnonzero(prefilter.may_have(scheme.texts(ids)))
            ids = ids.take(pa.array(candidates))
        rows = self.rows_of(scheme.pairs(ids))
        is_known = rows >= 0
        return candidates[is_known], rows[is_known]

    def joined(self, wanted: HashedRows) -> Iterator[tuple[Integers, Integers]]:
        """Look up all rows of the other side: their numbers, and what is found for each.

        The rows of one piece are in ascending order only while nothing is divided.
        """
        if not self.is_divided:
            for pairs, rows in wanted.slabs():
                yield rows, self._index().rows_of(pairs)
            return
        for columns, found in self.joined_buckets(wanted.buckets()):
            yield columns[2].view(np.int64), found

    def joined_buckets(self, wanted: Buckets) -> Iterator[tuple[tuple[Hashes, ...], Integers]]:
        """Look up rows that are divided already; their first two columns are a pair."""
        for within, index in self._indexes():
            # No local variable, so that the index is freed before the next one is made.
            yield from _found_in(index(), wanted.slabs(within))

    def close(self) -> None:
        """Remove the files of the buckets."""
        self._known.forget_buckets()

    @property
    def is_divided(self) -> bool:
        """Whether there are too many rows to have an index over all of them."""
        return len(self._known) > self._rows_max

    def _index(self) -> _Index:
        if self._whole is None:
            parts = list(self._known.slabs())
            pairs = HashPairs(
                _together([pairs.first for pairs, _ in parts]),
                _together([pairs.second for pairs, _ in parts]),
            )
            if self._counted is None:
                start = int(parts[0][1][0]) if parts else 0
                self._whole = _Index(HashIndex(pairs), None, start)
            else:
                rows = np.concatenate([rows for _, rows in parts] or [np.zeros(0, np.int64)])
                self._whole = self._made(pairs, rows, self._counted)
        return self._whole

    def _indexes(self) -> Iterator[tuple[range, Callable[[], _Index]]]:
        buckets = self._known.buckets()
        for within in divided(buckets.counts, self._rows_max):

            def make(within: range = within) -> _Index:
                first, second, rows = buckets.rows(within)
                return self._made(HashPairs(first, second), rows.view(np.int64), self._counted)

            yield within, make

    @staticmethod
    def _made(pairs: HashPairs, rows: Integers, counted: Mask | None) -> _Index:
        if counted is not None:
            kept = counted[rows]
            pairs, rows = pairs.filter(kept), rows[kept]
        return _Index(HashIndex(pairs), rows)


@dataclass(frozen=True, eq=False)
class _Index:
    """Pairs and the numbers of their rows, which count from `start` where they are not given."""

    index: HashIndex
    rows: Integers | None
    start: int = 0

    def rows_of(self, wanted: HashPairs) -> Integers:
        places = self.index.places(wanted)
        if self.rows is None:
            return np.where(places >= 0, places + self.start, -1)
        if not len(self.rows):
            return places
        return np.where(places >= 0, self.rows[places], -1)


def _found_in(
    index: _Index, slabs: Iterator[tuple[Hashes, ...]]
) -> Iterator[tuple[tuple[Hashes, ...], Integers]]:
    for columns in slabs:
        yield columns, index.rows_of(HashPairs(columns[0], columns[1]))


def _together(parts: list[Hashes]) -> Hashes:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts or [np.zeros(0, np.uint64)])
