"""What differs between two versions of one table, at a cost in proportion to the difference.

1. A fragment whose data and deletion files are the same on both sides holds no difference and is
   not read.
2. Of a fragment whose data files are the same and whose deletions differ, only the rows that are
   alive on one side alone can differ: their positions are found without reading a column.
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
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.blobs import differing_blobs
from omnigraph.changes.compare import Mask, differing_rows, to_mask
from omnigraph.changes.mapped_table import unshown_values
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import ROW_ADDRESS, ROW_ID, FragmentInfo, ScanRequest

Numbers = npt.NDArray[np.uint64]

_OFFSET_BITS: Final = np.uint64(32)
_OFFSET_MASK: Final = np.uint64((1 << 32) - 1)
COMPARED_AT_ONCE: Final = 8_192
"""Rows of both sides that are compared together: bounds memory, not results."""


@dataclass(frozen=True)
class RowRefs:
    """Rows of one version: their ids, and where they are; sorted by id."""

    ids: pa.Array
    row_ids: Numbers
    addresses: Numbers

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, mask: Mask) -> RowRefs:
        """Keep some of them."""
        return RowRefs(self.ids.filter(pa.array(mask)), self.row_ids[mask], self.addresses[mask])

    def at(self, positions: npt.NDArray[np.int64]) -> RowRefs:
        """Pick some of them, in the order given."""
        return RowRefs(
            self.ids.take(pa.array(positions)), self.row_ids[positions], self.addresses[positions]
        )

    @classmethod
    def none(cls) -> RowRefs:
        """Return no rows."""
        empty = np.zeros(0, np.uint64)
        return cls(pa.array([], pa.utf8()), empty, empty)


@dataclass(frozen=True)
class RowChanges:
    """Rows that are in one version only, or differ; every id is in one of the three.

    `inserted` and `updated_after` are rows of the later version, `deleted` and `updated_before` of
    the earlier one; the two sides of an update are at the same positions.
    """

    inserted: RowRefs
    updated_before: RowRefs
    updated_after: RowRefs
    deleted: RowRefs

    @property
    def is_empty(self) -> bool:
        """Whether both versions hold the same rows."""
        return not (len(self.inserted) or len(self.updated_after) or len(self.deleted))

    @classmethod
    def none(cls) -> RowChanges:
        """Return no changes."""
        return cls(*(RowRefs.none() for _ in range(4)))


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
    return compared_changes(before, after, gone, came, columns=columns, blobs=blobs)


def compared_changes(
    before: DatasetHandle | None,
    after: DatasetHandle | None,
    gone: RowRefs,
    came: RowRefs,
    *,
    columns: Sequence[str],
    blobs: Sequence[str] = (),
) -> RowChanges:
    """Compare the candidates of both sides: all of them, or all those of some ids."""
    place_in_came = pc.index_in(gone.ids, value_set=came.ids)
    in_both = to_mask(place_in_came.is_valid())
    is_new = ~to_mask(pc.is_in(came.ids, value_set=gone.ids))
    old, new = gone.where(in_both), came.at(place_in_came.drop_null().to_numpy())
    differ = np.zeros(len(old), np.bool_)
    if before is not None and after is not None:
        differ = differing_refs(before, old, after, new, columns=columns, blobs=blobs)
    return RowChanges(
        inserted=came.where(is_new),
        updated_before=old.where(differ),
        updated_after=new.where(differ),
        deleted=gone.where(~in_both),
    )


def candidates(
    before: DatasetHandle | None, after: DatasetHandle | None
) -> tuple[RowRefs, RowRefs]:
    """Return the rows of each side that may not be in the other one."""
    differing = differing_fragments(before, after)
    gone = _whole(before, [one.fragment_id for one in differing.only_before])
    came = _whole(after, [one.fragment_id for one in differing.only_after])
    if before is not None and after is not None and differing.moved:
        lost, won = one_sided(before, after, differing.moved)
        gone, came = [*gone, *lost], [*came, *won]
    return sorted_refs(gone), sorted_refs(came)


@dataclass(frozen=True)
class DifferingFragments:
    """The fragments of two versions that may hold a difference."""

    only_before: tuple[FragmentInfo, ...]
    only_after: tuple[FragmentInfo, ...]
    moved: tuple[tuple[FragmentInfo, FragmentInfo], ...]
    """Fragments with the same data of which other rows are deleted."""

    @property
    def are_only_added(self) -> bool:
        """Whether all rows of `only_after` are inserts, and there is no other difference."""
        return not self.only_before and not self.moved

    @property
    def rows(self) -> int:
        """How many rows they hold: an upper bound of what a comparison reads."""
        moved = [one for pair in self.moved for one in pair]
        return sum(one.rows for one in (*self.only_before, *self.only_after, *moved))

    @property
    def data_bytes(self) -> int:
        """Bytes that a comparison reads, about: of `moved` only rows that one side has deleted."""
        whole = sum(one.data_bytes for one in (*self.only_before, *self.only_after))
        parts = (
            new.data_bytes * abs(new.deleted_rows - old.deleted_rows) // max(1, new.physical_rows)
            for old, new in self.moved
        )
        return whole + sum(parts)


def differing_fragments(
    before: DatasetHandle | None, after: DatasetHandle | None
) -> DifferingFragments:
    """Find what may differ between two versions, from their manifests alone."""
    left = {} if before is None else _by_files(before.fragments())
    right = {} if after is None else _by_files(after.fragments())
    shared = left.keys() & right.keys()
    if before is not None and after is not None and (before.absent_columns or after.absent_columns):
        is_same = _SameColumns(before, after)
        shared = {name for name in shared if is_same(left[name], right[name])}
    moved = sorted(name for name in shared if left[name].identity != right[name].identity)
    return DifferingFragments(
        tuple(one for name, one in left.items() if name not in shared),
        tuple(one for name, one in right.items() if name not in shared),
        tuple((left[name], right[name]) for name in moved),
    )


def differing_refs(
    before: DatasetHandle,
    old: RowRefs,
    after: DatasetHandle,
    new: RowRefs,
    *,
    columns: Sequence[str],
    blobs: Sequence[str],
) -> Mask:
    """Mark the pairs of rows that differ; both sides are at the same positions."""
    comparison = _Comparison(before, after, columns, blobs)
    differ = np.zeros(len(old), np.bool_)
    for start in range(0, len(old), COMPARED_AT_ONCE):
        part = slice(start, start + COMPARED_AT_ONCE)
        differ[part] = comparison.differing(old.row_ids[part], new.row_ids[part])
    return differ


@dataclass(frozen=True)
class _SameColumns:
    """Whether fragments with the same data show the same values in all columns.

    They do not where the rows were written with a column that one side has lost since: that side
    shows one value in all rows.
    """

    before: DatasetHandle
    after: DatasetHandle

    def __call__(self, old: FragmentInfo, new: FragmentInfo) -> bool:
        lost_before = self.after.has_written(new.fragment_id, self.before.absent_columns)
        lost_after = self.before.has_written(old.fragment_id, self.after.absent_columns)
        return not (lost_before or lost_after)


# -- candidates ------------------------------------------------------------------------------------


def _by_files(fragments: Iterable[FragmentInfo]) -> dict[str, FragmentInfo]:
    return {fragment.data_identity: fragment for fragment in fragments}


def _whole(handle: DatasetHandle | None, fragment_ids: Sequence[int]) -> list[pa.Table]:
    """Read the ids of all live rows of some fragments."""
    if handle is None or not fragment_ids:
        return []
    request = ScanRequest(
        columns=("id",),
        with_row_id=True,
        with_row_address=True,
        fragment_ids=tuple(sorted(fragment_ids)),
    )
    return [handle.scan(request).read_all().select(["id", ROW_ID, ROW_ADDRESS])]


def one_sided(
    before: DatasetHandle, after: DatasetHandle, pairs: Sequence[tuple[FragmentInfo, FragmentInfo]]
) -> tuple[list[pa.Table], list[pa.Table]]:
    """Read the ids of fragments with the same data whose rows are alive on one side alone."""
    left = _live(before, [old.fragment_id for old, _ in pairs])
    right = _live(after, [new.fragment_id for _, new in pairs])
    # The two sides may number fragments differently: use the numbers of the left side.
    renumbered = {new.fragment_id: old.fragment_id for old, new in pairs}
    as_left = _renumbered(right, renumbered)
    lost = np.setdiff1d(left, as_left, assume_unique=True)
    won = right[~np.isin(as_left, left, assume_unique=True)]
    return _ids_at(before, lost), _ids_at(after, won)


def _live(handle: DatasetHandle, fragment_ids: Sequence[int]) -> Numbers:
    """Return the addresses of live rows; no column is read."""
    request = ScanRequest(columns=(), with_row_address=True, fragment_ids=tuple(fragment_ids))
    addresses: Numbers = handle.scan(request).read_all()[ROW_ADDRESS].to_numpy()
    return addresses


def _renumbered(addresses: Numbers, numbers: dict[int, int]) -> Numbers:
    known = np.array(sorted(numbers), np.uint64)
    targets = np.array([numbers[int(number)] for number in known], np.uint64)
    fragments = targets[np.searchsorted(known, addresses >> _OFFSET_BITS)]
    return (fragments << _OFFSET_BITS) | (addresses & _OFFSET_MASK)


def _ids_at(handle: DatasetHandle, addresses: Numbers) -> list[pa.Table]:
    if not len(addresses):
        return []
    wanted = pa.array(addresses, pa.uint64())
    return [handle.take_addresses(wanted, ["id", ROW_ID, ROW_ADDRESS])]


def sorted_refs(tables: list[pa.Table]) -> RowRefs:
    """Return rows that were read as ids, row ids and addresses."""
    rows = pa.concat_tables(tables).sort_by("id").combine_chunks() if tables else None
    if rows is None or not rows.num_rows:
        return RowRefs.none()
    return RowRefs(rows["id"].chunk(0), rows[ROW_ID].to_numpy(), rows[ROW_ADDRESS].to_numpy())


def joined_refs(parts: Sequence[RowRefs]) -> RowRefs:
    """Put rows together, sorted by id."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return RowRefs.none()
    everything = RowRefs(
        pa.concat_arrays([part.ids for part in filled]),
        np.concatenate([part.row_ids for part in filled]),
        np.concatenate([part.addresses for part in filled]),
    )
    return everything.at(pc.sort_indices(everything.ids).to_numpy().astype(np.int64))


# -- comparing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Comparison:
    """Compares rows of two versions by their stable row ids."""

    before: DatasetHandle
    after: DatasetHandle
    columns: Sequence[str]
    blobs: Sequence[str]

    def differing(self, old: Numbers, new: Numbers) -> Mask:
        """Mark the pairs that differ: first by the plain columns, then by blobs."""
        plain = [name for name in self.columns if name not in self.blobs]
        differ: Mask = np.zeros(len(old), np.bool_)
        if plain:  # Rows cannot be taken without any column.
            left, right = _taken(self.before, old, plain), _taken(self.after, new, plain)
            differ = differing_rows(left, right, plain)
            # What a view cannot show looks like null, and equals no value of the other side.
            differ |= unshown_values(self.before, old, plain)
            differ |= unshown_values(self.after, new, plain)
        for name in self.blobs:
            same = np.flatnonzero(~differ)
            if len(same):
                differ[same] = differing_blobs(
                    self.before,
                    self.after,
                    name,
                    _described(self.before, old[same], name),
                    _described(self.after, new[same], name),
                )
        return differ


def _taken(handle: DatasetHandle, row_ids: Numbers, columns: Sequence[str]) -> pa.Table:
    return handle.take(pa.array(row_ids, pa.uint64()), columns)


def _described(handle: DatasetHandle, row_ids: Numbers, name: str) -> tuple[pa.Array, pa.Array]:
    column = _taken(handle, row_ids, [name]).combine_chunks()[name].chunk(0)
    return column, pa.array(row_ids, pa.uint64())
