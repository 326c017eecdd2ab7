"""What differs between two versions of one table, at a cost that follows the difference.

1. A fragment whose data and deletion files are the same on both sides holds no difference and is
   not looked at.
2. Of a fragment whose data files are the same and whose deletions differ, only the rows that are
   alive on one side alone can differ: their places are found without reading a column.
3. All live rows of every other fragment are candidates. Only their ids are read; a candidate is an
   insert or a delete when the other side has none of the same id, and nothing else of it is read.
4. An id that is a candidate on both sides is an update when the rows differ by the comparator of
   `omnigraph.changes.compare`, and nothing at all when they are equal: moved by compaction, written
   again with the same values, or deleted and inserted again.

The two versions may be of one lineage or of two that share files, in either direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.blobs import differing_blobs
from omnigraph.changes.compare import Mask, differing_rows
from omnigraph.store.records import ROW_ADDRESS, ROW_ID, ScanRequest

if TYPE_CHECKING:
    from omnigraph.store.datasets import DatasetHandle
    from omnigraph.store.records import FragmentInfo

Addresses = npt.NDArray[np.uint64]

_OFFSET_BITS: Final = np.uint64(32)
_OFFSET_MASK: Final = np.uint64((1 << 32) - 1)
COMPARED_AT_ONCE: Final = 100_000
"""Rows of both sides that are compared together: bounds memory, not results."""


@dataclass(frozen=True)
class RowChanges:
    """Rows that are in one version only, or differ; every id is in one of the three, sorted.

    Addresses are of the side on which the row is: `before` for deleted and updated rows, `after`
    for inserted and updated ones.
    """

    inserted: pa.Array
    inserted_after: Addresses
    updated: pa.Array
    updated_before: Addresses
    updated_after: Addresses
    deleted: pa.Array
    deleted_before: Addresses

    @property
    def is_empty(self) -> bool:
        """Whether both versions hold the same rows."""
        return not (len(self.inserted) or len(self.updated) or len(self.deleted))


@dataclass(frozen=True)
class Candidates:
    """Rows of one side that the other side may not have, sorted by id."""

    ids: pa.Array
    addresses: Addresses


def table_changes(
    before: DatasetHandle | None,
    after: DatasetHandle | None,
    *,
    columns: Sequence[str],
    blobs: Sequence[str] = (),
) -> RowChanges:
    """Compare two versions by id; a side that is None holds no rows.

    `columns` are the stored columns of which an update differs in at least one, `blobs` those of
    them that hold blobs, which are compared last.
    """
    gone, came = candidates(before, after)
    place_in_came = pc.index_in(gone.ids, value_set=came.ids)
    in_both = _mask(place_in_came.is_valid())
    is_new = ~_mask(pc.is_in(came.ids, value_set=gone.ids))
    at_before = gone.addresses[in_both]
    at_after = came.addresses[place_in_came.drop_null().to_numpy()]
    differ = np.zeros(len(at_before), np.bool_)
    if before is not None and after is not None:
        differ = _Comparison(before, after, columns, blobs).differing(at_before, at_after)
    return RowChanges(
        inserted=came.ids.filter(pa.array(is_new)),
        inserted_after=came.addresses[is_new],
        updated=gone.ids.filter(pa.array(in_both)).filter(pa.array(differ)),
        updated_before=at_before[differ],
        updated_after=at_after[differ],
        deleted=gone.ids.filter(pa.array(~in_both)),
        deleted_before=gone.addresses[~in_both],
    )


def candidates(
    before: DatasetHandle | None, after: DatasetHandle | None
) -> tuple[Candidates, Candidates]:
    """Return the rows of each side that may not be in the other one."""
    left = {} if before is None else _by_files(before.fragments())
    right = {} if after is None else _by_files(after.fragments())
    shared = left.keys() & right.keys()
    moved = sorted(name for name in shared if left[name].identity != right[name].identity)
    only_left = [left[name].fragment_id for name in left.keys() - shared]
    only_right = [right[name].fragment_id for name in right.keys() - shared]
    gone, came = _whole(before, only_left), _whole(after, only_right)
    if before is not None and after is not None and moved:
        lost, won = _one_sided(before, after, [(left[name], right[name]) for name in moved])
        gone, came = [*gone, *lost], [*came, *won]
    return _sorted(gone), _sorted(came)


def rows_at(handle: DatasetHandle, addresses: Addresses, columns: Sequence[str]) -> pa.Table:
    """Fetch columns of exact rows, in the order given."""
    return handle.take_addresses(pa.array(addresses, pa.uint64()), columns)


# -- candidates ------------------------------------------------------------------------------------


def _by_files(fragments: Iterable[FragmentInfo]) -> dict[str, FragmentInfo]:
    return {fragment.data_identity: fragment for fragment in fragments}


def _whole(handle: DatasetHandle | None, fragment_ids: Sequence[int]) -> list[pa.Table]:
    """Read ids and addresses of all live rows of some fragments."""
    if handle is None or not fragment_ids:
        return []
    request = ScanRequest(
        columns=("id",), with_row_address=True, fragment_ids=tuple(sorted(fragment_ids))
    )
    return [handle.scan(request).read_all().select(["id", ROW_ADDRESS])]


def _one_sided(
    before: DatasetHandle, after: DatasetHandle, pairs: Sequence[tuple[FragmentInfo, FragmentInfo]]
) -> tuple[list[pa.Table], list[pa.Table]]:
    """Read the rows of fragments with the same data that are alive on one side alone."""
    left = _live(before, [old.fragment_id for old, _ in pairs])
    right = _live(after, [new.fragment_id for _, new in pairs])
    # The two sides may number fragments differently: compare places as the left numbers them.
    renumbered = {new.fragment_id: old.fragment_id for old, new in pairs}
    as_left = _renumbered(right, renumbered)
    lost = np.setdiff1d(left, as_left, assume_unique=True)
    won = right[~np.isin(as_left, left, assume_unique=True)]
    return _ids_at(before, lost), _ids_at(after, won)


def _live(handle: DatasetHandle, fragment_ids: Sequence[int]) -> Addresses:
    """Return the addresses of live rows; no column is read."""
    request = ScanRequest(columns=(), with_row_address=True, fragment_ids=tuple(fragment_ids))
    found = handle.scan(request).read_all()[ROW_ADDRESS]
    addresses: Addresses = found.to_numpy()
    return addresses


def _renumbered(addresses: Addresses, numbers: dict[int, int]) -> Addresses:
    known = np.array(sorted(numbers), np.uint64)
    targets = np.array([numbers[int(number)] for number in known], np.uint64)
    fragments = targets[np.searchsorted(known, addresses >> _OFFSET_BITS)]
    return (fragments << _OFFSET_BITS) | (addresses & _OFFSET_MASK)


def _ids_at(handle: DatasetHandle, addresses: Addresses) -> list[pa.Table]:
    if not len(addresses):
        return []
    return [rows_at(handle, addresses, ["id", ROW_ADDRESS])]


def _sorted(tables: list[pa.Table]) -> Candidates:
    if not tables:
        return Candidates(pa.array([], pa.utf8()), np.zeros(0, np.uint64))
    rows = pa.concat_tables(tables).sort_by("id").combine_chunks()
    ids = rows["id"].chunk(0) if rows.num_rows else pa.array([], pa.utf8())
    return Candidates(ids, rows[ROW_ADDRESS].to_numpy())


# -- comparing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Comparison:
    """Compares rows of two versions by their addresses."""

    before: DatasetHandle
    after: DatasetHandle
    columns: Sequence[str]
    blobs: Sequence[str]

    def differing(self, at_before: Addresses, at_after: Addresses) -> Mask:
        """Mark the pairs of rows that differ."""
        differ = np.zeros(len(at_before), np.bool_)
        for start in range(0, len(at_before), COMPARED_AT_ONCE):
            part = slice(start, start + COMPARED_AT_ONCE)
            differ[part] = self._differing_part(at_before[part], at_after[part])
        return differ

    def _differing_part(self, at_before: Addresses, at_after: Addresses) -> Mask:
        plain = [name for name in self.columns if name not in self.blobs]
        left = rows_at(self.before, at_before, plain)
        right = rows_at(self.after, at_after, plain)
        differ = differing_rows(left, right, plain)
        for name in self.blobs:
            same = np.flatnonzero(~differ)
            if len(same):
                old = self._described(self.before, at_before[same], name)
                new = self._described(self.after, at_after[same], name)
                differ[same] = differing_blobs(self.before, self.after, name, old, new)
        return differ

    def _described(
        self, handle: DatasetHandle, addresses: Addresses, name: str
    ) -> tuple[pa.Array, pa.Array]:
        rows = rows_at(handle, addresses, [name, ROW_ID]).combine_chunks()
        return rows[name].chunk(0), rows[ROW_ID].chunk(0)


def _mask(column: pa.Array) -> Mask:
    mask: Mask = column.to_numpy(zero_copy_only=False)
    return mask
