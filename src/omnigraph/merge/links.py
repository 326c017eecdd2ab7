"""Merges by link: tables of which the target takes the source's files over, without reading rows.

1. A table can be linked when all sides have its type as the merged schema has it and the target has
   the rows of the base. The merged table is then the source's table. What the source has over the
   target is found by files and row ids (`DatasetStore.linked_rows`); where these do not tell it,
   rows are compared.
2. Small differences are compared, too: their rows then go into one fragment of the target instead
   of many.
3. When all sides have one schema and the target has changed no table, the merged graph is that of
   the source. Its writes have checked all rules, so nothing is read to check them again.
4. Otherwise the rows that differ are named, and the rules are checked as for rows that are written.
5. Rows that the source has written count as updated, also where they have their old values again:
   only a comparison would tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.mapped_table import mapping_of
from omnigraph.changes.table_changes import RowRefs, differing_fragments, sorted_refs
from omnigraph.manifest import Entry
from omnigraph.merge.parts import StoredPart, TableWork
from omnigraph.merge.sides import Sides
from omnigraph.merge.tables import MergedTable, TableSide, same_version
from omnigraph.store.blob_contents import is_external
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_ID,
    DatasetVersion,
    LinkedRows,
    ScanRequest,
)

_TAKEN_AT_ONCE: Final = 65_536


@dataclass(frozen=True)
class LinkLimits:
    """Below these limits a difference is compared, and its rows are written again."""

    rows_min: int = 8_192
    rows_per_fragment_min: int = 1_024
    """The target would get all fragments of the source, however small."""


limits = LinkLimits()
"""Tests lower them, to link tables of any size; a benchmark raises them, to link none."""


@dataclass(frozen=True)
class LinkedTable:
    """A table of which the target takes the source's files over."""

    rows: LinkedRows
    target: Entry
    row_count: int
    work: TableWork | None
    """The rows that differ, where rules have to be checked."""

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many rows are inserted, updated and deleted."""
        return self.rows.inserted, self.rows.updated, len(self.rows.deleted)


KnownLinks: TypeAlias = dict[tuple[DatasetVersion, ...], LinkedRows | None]
"""What was found before, by base, source and target: sizing and merging need the same."""


class Links:
    """Finds the tables of one merge that can be linked."""

    def __init__(self, sides: Sides, known: KnownLinks) -> None:
        self._sides = sides
        self._known = known

    @cached_property
    def is_source(self) -> bool:
        """Whether the merged graph is that of the source."""
        return self._sides.has_one_schema and all(
            table.target_is_base
            or same_version(table.source, table.target)
            or self._rows_of(table) is not None
            for table in self._sides.tables.values()
        )

    def of(self, table: MergedTable) -> LinkedTable | None:
        """Return what the target takes over of a table; None where its rows are compared."""
        rows = self._rows_of(table)
        if rows is None or table.source is None or table.target is None:
            return None
        target, row_count = table.target.entry, table.source.entry.row_count
        work = None if self.is_source else self._work(table, rows)
        return LinkedTable(rows, target, row_count, work)

    def _rows_of(self, table: MergedTable) -> LinkedRows | None:
        base, source, target = table.base, table.source, table.target
        if base is None or source is None or target is None or not table.is_one_type:
            return None
        key = tuple(side.entry.at for side in (base, source, target))
        if key not in self._known:
            self._known[key] = self._looked_up(table, base, source, target)
        return self._known[key]

    def _looked_up(
        self, table: MergedTable, base: TableSide, source: TableSide, target: TableSide
    ) -> LinkedRows | None:
        if not _is_worth_it(table):
            return None
        rows = source.datasets.linked_rows(source.entry.at, target.entry.at, base=base.entry.at)
        if rows is None:
            return None
        row_count = target.entry.row_count + rows.inserted - len(rows.deleted)
        if row_count != source.entry.row_count or _has_external(table, rows):
            return None
        return None if _has_returned(table, rows) else rows

    def _work(self, table: MergedTable, rows: LinkedRows) -> TableWork:
        """Name the rows that differ, for the rules."""
        handles = table.handles
        if handles.source is None or handles.target is None:
            raise ValueError("a linked table is on both sides")
        came = _came(handles.source, rows)
        is_new = came.row_ids >= rows.first_new_row_id
        return TableWork(
            table.entity_type,
            (StoredPart(handles.source, came.where(is_new)),),
            (StoredPart(handles.source, came.where(~is_new)),),
            _ids_of(handles.target, rows.deleted),
        )


def _is_worth_it(table: MergedTable) -> bool:
    handles = table.handles
    differing = differing_fragments(handles.target, handles.source)
    rows = sum(one.rows for one in differing.only_after)
    lost = sum(one.rows for one in differing.only_before)
    lost += sum(new.deleted_rows - old.deleted_rows for old, new in differing.moved)
    return _is_large(rows, lost, len(differing.only_after))


def _is_large(rows: int, lost: int, fragments: int) -> bool:
    """Whether it is better to take over fragments with rows than to write the rows."""
    if max(rows, lost) < limits.rows_min:
        return False
    return rows >= fragments * limits.rows_per_fragment_min


def linked_source(work: TableWork) -> DatasetVersion | None:
    """Return the version whose rows are all that a new table gets; None where there is none."""
    parts = [part for part in work.inserted if len(part.ids)]
    if len(parts) != 1 or any(len(part.ids) for part in work.updated) or len(work.deleted):
        return None
    part = parts[0]
    if not isinstance(part, StoredPart) or part.nulled or mapping_of(part.handle) is not None:
        return None
    fragments, rows = part.handle.fragments(), len(part.ids)
    if rows != sum(one.rows for one in fragments) or not _is_large(rows, 0, len(fragments)):
        return None
    names = work.entity_type.blob_properties
    numbers = tuple(one.fragment_id for one in fragments)
    return None if _names_external(part.handle, names, numbers) else part.handle.at


def _has_external(table: MergedTable, rows: LinkedRows) -> bool:
    source = table.handles.source
    if source is None or not rows.fragment_ids:
        return False
    return _names_external(source, table.entity_type.blob_properties, rows.fragment_ids)


def _names_external(
    source: DatasetHandle, names: Sequence[str], fragment_ids: tuple[int, ...]
) -> bool:
    """Whether a row names an object outside of the graph, whose bytes a merge makes its own."""
    if not names:
        return False
    request = ScanRequest(columns=tuple(names), fragment_ids=fragment_ids)
    return any(
        pc.any(is_external(batch[name])).as_py() for batch in source.scan(request) for name in names
    )


def _has_returned(table: MergedTable, rows: LinkedRows) -> bool:
    """Whether an entity was deleted and inserted again: it is updated, under its old row id."""
    source, target = table.handles.source, table.handles.target
    if not rows.inserted or not len(rows.deleted) or source is None or target is None:
        return False
    gone = _ids_of(target, rows.deleted)
    request = ScanRequest(columns=("id",), with_row_id=True, fragment_ids=rows.fragment_ids)
    for batch in source.scan(request):
        is_new = pc.greater_equal(batch[ROW_ID], pa.scalar(rows.first_new_row_id, pa.uint64()))
        if pc.any(pc.and_(is_new, pc.is_in(batch["id"], value_set=gone))).as_py():
            return True
    return False


def _came(source: DatasetHandle, rows: LinkedRows) -> RowRefs:
    """Read the ids of the rows of the source that the target does not have."""
    if not rows.fragment_ids:
        return RowRefs.none()
    request = ScanRequest(
        columns=("id",), with_row_id=True, with_row_address=True, fragment_ids=rows.fragment_ids
    )
    return sorted_refs([source.scan(request).read_all().select(["id", ROW_ID, ROW_ADDRESS])])


def _ids_of(target: DatasetHandle, row_ids: pa.Array) -> pa.Array:
    """Read the ids of rows, ascending."""
    parts: Sequence[pa.Table] = [
        target.take(row_ids.slice(start, _TAKEN_AT_ONCE), ["id"])
        for start in range(0, len(row_ids), _TAKEN_AT_ONCE)
    ]
    ids = pa.concat_arrays([pa.array([], pa.utf8()), *(c for p in parts for c in p["id"].chunks)])
    return ids.take(pa.array(np.asarray(pc.sort_indices(ids))))
