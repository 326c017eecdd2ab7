"""The ids of a node type as a sorted set that tasks probe.

A *run* is a table sorted by `hash`: the hashes of some ids, the ids themselves, and a number for
the row of each: that of a staged row among those of its type, or one below -1 for the row id of a
stored row. Tasks write one run each; `merged` combines runs into one part of a set. A set is
one file, or several that divide the hashes by range when one would be too large.

1. A probe is exact: a hash leads to a position, the text there decides. Several ids with one hash
   are adjacent and are all compared.
2. Memory of a probe is that of the probed column, not of the set: sets are mapped, not read.
3. Where nearly no id is in the set, a *prefilter* drops most before they are hashed and compared: a
   byte map over a cheap hash of the last word of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.spark.load.side_files import SideFiles, mapped
from omnigraph.write.load.check.hashing import Hashes, HashScheme
from omnigraph.write.stage.columns import Integers, Mask

Answer = TypeVar("Answer", np.bool_, np.int64)

RUN_SCHEMA: Final = pa.schema([("hash", pa.uint64()), ("id", pa.large_utf8()), ("row", pa.int64())])
_BITS: Final = 64
_SETS_OPEN_MAX: Final = 16
NO_ROW: Final = -1
_STORED_BELOW: Final = 2
"""The number of the stored row with row id 0 is minus this."""
_PREFILTER_BITS: Final = 22
PREFILTER_ROWS_MAX: Final = 1 << 19
"""Larger sets fill the prefilter, so that it drops nothing."""


def stored_numbers(row_ids: npt.NDArray[np.uint64]) -> Integers:
    """Return the numbers by which sets know stored rows.

    >>> stored_row_ids(stored_numbers(np.array([0, 7], np.uint64))).tolist()
    [0, 7]
    """
    numbers: Integers = -row_ids.astype(np.int64) - _STORED_BELOW
    return numbers


def stored_row_ids(numbers: npt.NDArray[np.signedinteger[Any]]) -> Integers:
    """Return the row ids that numbers of stored rows stand for; -1 for -1, which is no row."""
    row_ids: Integers = -numbers.astype(np.int64) - _STORED_BELOW
    return row_ids


def sorted_run(hashes: Hashes, ids: pa.Array, rows: Integers) -> pa.Table:
    """Return hashes, ids and their rows as a run."""
    order = np.argsort(hashes)
    taken = ids.cast(pa.large_utf8()).take(pa.array(order))
    return pa.table([pa.array(hashes[order]), taken, pa.array(rows[order])], schema=RUN_SCHEMA)


def numbered(run: pa.Table, first_row: int) -> pa.Table:
    """Add a number to all row numbers of a run."""
    rows = pa.array(run["row"].to_numpy() + first_row)
    return run.set_column(run.schema.get_field_index("row"), "row", rows)


@dataclass(frozen=True)
class HashRange:
    """Hashes from `first` up to and without `end`."""

    first: int
    end: int

    def slice_of(self, run: pa.Table) -> pa.Table:
        """Return the part of a run that lies in the range."""
        hashes = run["hash"].to_numpy()
        start = int(np.searchsorted(hashes, np.uint64(self.first)))
        end = len(hashes)
        if self.end < 1 << _BITS:
            end = int(np.searchsorted(hashes, np.uint64(self.end)))
        return run.slice(start, end - start)


def ranges(count: int) -> tuple[HashRange, ...]:
    """Divide all hashes into ranges of the same length."""
    bounds = [number * (1 << _BITS) // count for number in range(count + 1)]
    return tuple(HashRange(first, end) for first, end in pairwise(bounds))


def merged(runs: Sequence[pa.Table], within: HashRange) -> pa.Table:
    """Return what the runs have in a range, as one run."""
    parts = [within.slice_of(run) for run in runs]
    together = pa.concat_tables(parts) if parts else RUN_SCHEMA.empty_table()
    if len(parts) <= 1:
        return together
    hashes = together["hash"].to_numpy()
    # A stable sort is quick on a sequence of sorted parts.
    order = np.argsort(hashes, kind="stable")
    return together.combine_chunks().take(pa.array(order))


@dataclass(frozen=True)
class KeySet:
    """A set of ids in side files; the parts divide the hashes among them, in order."""

    files: SideFiles
    scheme: HashScheme
    parts: tuple[str, ...]

    def contains(self, ids: pa.Array) -> Mask:
        """Return which ids are in the set; the column has no nulls."""
        return self._asked(ids, _Part.contains, np.zeros(len(ids), np.bool_))

    def rows_of(self, ids: pa.Array) -> Integers:
        """Return the number of the row of each id, or -1; of several rows any."""
        return self._asked(ids, _Part.rows_of, np.full(len(ids), -1, np.int64))

    def rows_of_some(self, ids: pa.Array) -> Integers:
        """Return what `rows_of` does; quicker where few of the ids are in the set."""
        rows = np.full(len(ids), -1, np.int64)
        prefilter = _prefilter(tuple(map(self.files.local, self.parts)), self.scheme)
        worth = np.flatnonzero(prefilter[_slots(self.scheme, ids)])
        rows[worth] = self.rows_of(ids.take(pa.array(worth)))
        return rows

    def _asked(
        self,
        ids: pa.Array,
        ask: Callable[[_Part, Hashes, pa.Array], npt.NDArray[Answer]],
        answers: npt.NDArray[Answer],
    ) -> npt.NDArray[Answer]:
        hashes = self.scheme.texts(ids)
        for part, own in self._shares(hashes):
            opened = _opened(self.files.local(part))
            if own is None:
                return ask(opened, hashes, ids)
            if len(own):
                answers[own] = ask(opened, hashes[own], ids.take(pa.array(own)))
        return answers

    def shared_hashes(self) -> Iterator[Hashes]:
        """Return, part by part, the hashes that stand for more than one id."""
        for part in self.parts:
            run = self.files.read(part)
            hashes = run["hash"].to_numpy()
            again = np.flatnonzero(hashes[1:] == hashes[:-1])
            if len(again):
                before = run["id"].take(pa.array(again))
                after = run["id"].take(pa.array(again + 1))
                differ = pc.not_equal(before, after).to_numpy()
                yield np.unique(hashes[again[differ]])

    def _shares(self, hashes: Hashes) -> Iterator[tuple[str, Integers | None]]:
        if len(self.parts) == 1:
            yield self.parts[0], None
            return
        bounds = np.array([within.first for within in ranges(len(self.parts))], np.uint64)
        part_numbers = np.searchsorted(bounds, hashes, side="right") - 1
        for number, part in enumerate(self.parts):
            yield part, np.flatnonzero(part_numbers == number)


class _Part:
    """One part, with a table that leads from the upper bits of a hash to its position."""

    def __init__(self, run: pa.Table) -> None:
        self._hashes = run["hash"].to_numpy()
        self._ids = run["id"].chunk(0) if run.num_rows else pa.array([], pa.large_utf8())
        self._rows = run["row"].to_numpy()
        count = len(self._hashes)
        bits = max(1, min(28, int(count).bit_length()))
        if count:
            # All hashes of a part may share their upper bits, so slots count from the first hash.
            first, last = int(self._hashes[0]), int(self._hashes[-1])
            span = max(1, last - first)
            self._first = np.uint64(first)
            self._shift = np.uint64(max(0, span.bit_length() - bits))
            slots = (self._hashes - self._first) >> self._shift
            size = int(slots[-1]) + 2
            starts = np.zeros(size, np.int64)
            np.cumsum(np.bincount(slots.astype(np.int64), minlength=size - 1), out=starts[1:])
            self._starts = starts

    def contains(self, hashes: Hashes, ids: pa.Array) -> Mask:
        return self._positions(hashes, ids) >= 0

    def rows_of(self, hashes: Hashes, ids: pa.Array) -> Integers:
        positions = self._positions(hashes, ids)
        found = positions >= 0
        positions[found] = self._rows[positions[found]]
        return positions

    def _positions(self, hashes: Hashes, ids: pa.Array) -> Integers:
        found = np.full(len(ids), -1, np.int64)
        count = len(self._hashes)
        if not count or not len(ids):
            return found
        texts = ids.cast(pa.large_utf8())
        positions = self._first_positions(hashes)
        rows = np.flatnonzero(positions < count)
        while len(rows):
            at = positions[rows]
            rows = rows[self._hashes[at] == hashes[rows]]
            at = positions[rows]
            everything = len(rows) == len(ids)
            wanted = texts if everything else texts.take(pa.array(rows))
            equal = pc.equal(self._ids.take(pa.array(at)), wanted).to_numpy(zero_copy_only=False)
            found[rows[equal]] = at[equal]
            rows = rows[~equal]
            # The next id may have the same hash.
            positions[rows] += 1
            rows = rows[positions[rows] < count]
        return found

    def _first_positions(self, hashes: Hashes) -> Integers:
        """Return the position of the first hash that is not smaller."""
        count = len(self._hashes)
        slots = (hashes - self._first) >> self._shift
        outside = (hashes < self._first) | (slots >= np.uint64(len(self._starts) - 1))
        slots[outside] = 0
        positions = self._starts[slots.astype(np.int64)]
        positions[outside] = count
        rows = np.flatnonzero(positions < count)
        rows = rows[self._hashes[positions[rows]] < hashes[rows]]
        while len(rows):
            positions[rows] += 1
            rows = rows[positions[rows] < count]
            rows = rows[self._hashes[positions[rows]] < hashes[rows]]
        return positions


@lru_cache(maxsize=_SETS_OPEN_MAX)
def _prefilter(paths: tuple[Path, ...], scheme: HashScheme) -> Mask:
    prefilter = np.zeros(1 << _PREFILTER_BITS, np.bool_)
    for run in map(mapped, paths):
        if run.num_rows:
            prefilter[_slots(scheme, run["id"].chunk(0))] = True
    return prefilter


def _slots(scheme: HashScheme, ids: pa.Array) -> Integers:
    return (scheme.endings(ids) >> np.uint64(_BITS - _PREFILTER_BITS)).astype(np.int64)


@lru_cache(maxsize=_SETS_OPEN_MAX)
def _opened(path: Path) -> _Part:
    return _Part(mapped(path))
