"""Dense ids: the live rows of one dataset version, numbered in order of stable row id.

1. Dense id `d` of a dataset version is its live row with the `d`-th smallest stable row id.
2. Appending rows never changes the dense id of an older row.
3. A numbering is made for one state, the base. For another state it has changes: rows that came
   later follow in a *tail*, and rows that are gone leave a gap, so that no dense id changes.
4. Most datasets hold the row ids `0..n-1` and need no array at all.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.dataclass import dataclass
from omnigraph.search.topology.csr import Ints, RowIds, id_type
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import ROW_ID, ScanRequest

_NO_IDS: Final = np.empty(0, np.uint64)
_NO_NUMBERS: Final[Ints] = np.empty(0, np.int32)
_NONE: Final = np.uint64(2**64 - 1)
"""Becomes -1 as a signed number of any width."""


@dataclass(frozen=True, eq=False)
class Numbering:
    """Stable row ids by dense id: `first, first + 1, …`, or `listed`; behind them the `tail`."""

    count: int
    """How many dense ids there are, those of gone rows included."""
    first: int = 0
    listed: RowIds | None = None
    """Ascending; `None` when the row ids have no gap. May be 32-bit to save memory."""
    tail: RowIds = field(default_factory=lambda: _NO_IDS)
    """Row ids that are larger than all of those, ascending."""
    gone: Ints = field(default_factory=lambda: _NO_NUMBERS)
    """Dense ids whose row does not exist any more, ascending."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        listed = 0 if self.listed is None else self.listed.nbytes
        return listed + self.tail.nbytes + self.gone.nbytes

    @property
    def is_plain(self) -> bool:
        """Whether it has no changes."""
        return not len(self.tail) and not len(self.gone)

    def changed(self, added: RowIds, gone: RowIds) -> Numbering | None:
        """Return the numbering with more rows and without others.

        None when an added row would not come last, or a gone one does not exist.
        """
        tail = added[self.dense(added) < 0]
        lost = self.dense(gone)
        if (lost < 0).any() or (len(tail) and not self._ends_before(tail[0])):
            return None
        if self.is_plain and not len(lost) and self._continues(tail):
            return Numbering(self.count + len(tail), self.first)
        return Numbering(
            self.count + len(tail),
            self.first,
            self.listed,
            np.concatenate([self.tail, tail]) if len(tail) else self.tail,
            np.sort(np.concatenate([self.gone, lost])) if len(lost) else self.gone,
        )

    def _ends_before(self, row_id: np.uint64) -> bool:
        last = self.count - 1
        return last < 0 or int(self.row_ids(np.array([last]))[0]) < int(row_id)

    def _continues(self, tail: RowIds) -> bool:
        if self.listed is not None or not self.count:
            return False
        end = self.first + self.count
        return not len(tail) or (int(tail[0]) == end and int(tail[-1]) == end + len(tail) - 1)

    @property
    def _base_count(self) -> int:
        return self.count - len(self.tail)

    def row_ids(self, dense: Ints | None = None) -> RowIds:
        """Return the stable row ids of dense ids, of all when `None`: as `take` expects them."""
        if not self.is_plain:
            return self._changed_row_ids(dense)
        if self.listed is not None:
            chosen = self.listed if dense is None else self.listed[dense]
            return chosen.astype(np.uint64, copy=False)
        numbers = np.arange(self.count) if dense is None else dense
        return numbers.astype(np.uint64) + np.uint64(self.first)

    def _changed_row_ids(self, dense: Ints | None) -> RowIds:
        if dense is None:
            everything = np.arange(self.count)
            return self.row_ids(np.setdiff1d(everything, self.gone, assume_unique=True))
        base = Numbering(self._base_count, self.first, self.listed)
        is_tail = dense >= base.count
        if not is_tail.any():
            return base.row_ids(dense)
        found = np.empty(len(dense), np.uint64)
        found[~is_tail] = base.row_ids(dense[~is_tail])
        found[is_tail] = self.tail[dense[is_tail] - base.count]
        return found

    def dense(self, row_ids: RowIds | pa.Array | pa.ChunkedArray) -> Ints:
        """Return the dense ids of stable row ids; -1 where no live row has the id."""
        asked = _as_row_ids(row_ids)
        if not self.is_plain:
            return self._changed_dense(asked)
        if self.listed is None:
            # An id below `first` wraps round to a number that is far too large.
            offsets = asked - np.uint64(self.first)
            return np.where(offsets < self.count, offsets, _NONE).astype(id_type(self.count))
        positions = np.searchsorted(self.listed, asked)
        found = positions < self.count
        found[found] = self.listed[positions[found]] == asked[found]
        return np.where(found, positions, -1).astype(id_type(self.count))

    def _changed_dense(self, asked: RowIds) -> Ints:
        base = Numbering(self._base_count, self.first, self.listed)
        found = base.dense(asked).astype(id_type(self.count))
        if len(self.tail):
            later = Numbering(len(self.tail), listed=self.tail).dense(asked)
            found[later >= 0] = later[later >= 0] + base.count
        if len(self.gone):
            found[np.isin(found, self.gone)] = -1
        return found

    def positions(self, row_ids: NDArray[np.int64]) -> Ints:
        """Return the dense ids of stable row ids as they come from queries.

        Queries name live rows only. Without gaps, only the smallest and the largest id are checked.
        """
        if self.listed is not None or not len(row_ids):
            return self.dense(row_ids.astype(np.uint64))
        end = self.first + self._base_count
        if int(row_ids.min()) < self.first or int(row_ids.max()) >= end:
            return self.dense(row_ids.astype(np.uint64))
        return row_ids - self.first if self.first else row_ids

    def is_prefix_of(self, other: Numbering) -> bool:
        """Whether every dense id of this numbering means the same row in `other`."""
        if self.count > other.count:
            return False
        if self.count == 0:
            return True
        if self.listed is None and other.listed is None:
            return self.first == other.first
        return bool(np.array_equal(self.row_ids(), other.row_ids()[: self.count]))


def numbering_of(row_ids: RowIds) -> Numbering:
    """Give dense ids to ascending stable row ids."""
    count = len(row_ids)
    if count == 0:
        return Numbering(0)
    first, last = int(row_ids[0]), int(row_ids[-1])
    if last - first == count - 1:
        return Numbering(count, first)
    return Numbering(count, first, row_ids.astype(np.uint32) if last < 2**32 else row_ids)


def ascending(row_ids: RowIds) -> RowIds:
    """Sort row ids; most are in order already, or in a few runs that are."""
    if bool((row_ids[1:] > row_ids[:-1]).all()):
        return row_ids
    return np.sort(row_ids, kind="stable")


def scan_row_ids(handle: DatasetHandle, fragment_ids: tuple[int, ...] | None = None) -> RowIds:
    """Read the stable row ids of some fragments, all when `None`, in physical order.

    No column is read: the ids come from the manifest and the deletion files.
    """
    if fragment_ids == ():
        return np.empty(0, np.uint64)
    request = ScanRequest(columns=(), with_row_id=True, fragment_ids=fragment_ids)
    return _as_row_ids(handle.scan(request).read_all()[ROW_ID])


def read_numbering(handle: DatasetHandle) -> Numbering:
    """Give dense ids to the live rows of a dataset version."""
    return numbering_of(ascending(scan_row_ids(handle)))


def _as_row_ids(values: RowIds | pa.Array | pa.ChunkedArray) -> RowIds:
    # `__array__` of both Arrow forms gives a view where it can and a copy where it must.
    return np.asarray(values).astype(np.uint64, copy=False)
