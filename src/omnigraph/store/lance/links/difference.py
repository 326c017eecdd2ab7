"""Which rows a source has over a target, told by the fragments and row ids of both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lance import FragmentMetadata
from lance.schema import LanceSchema

from omnigraph.dataclass import dataclass
from omnigraph.store.lance.handle import LanceHandle, data_file_name
from omnigraph.store.lance.layout import next_row_id, oldest_version
from omnigraph.store.lance.links.numbers import Part, RowIds, number_rows
from omnigraph.store.records import (
    ROW_ID,
    ROW_UPDATED,
    BranchInfo,
    DatasetVersion,
    LinkedRows,
    ScanRequest,
)


def comes_from(
    at: DatasetVersion, base: DatasetVersion, branch: Callable[[str, str], BranchInfo | None]
) -> bool:
    """Whether a version was made from another one, on its lineage or on forks of it."""
    while at.branch != base.branch:
        fork = None if at.branch is None else branch(at.location, at.branch)
        if fork is None:
            return False
        at = DatasetVersion(at.location, fork.parent_branch, fork.parent_version)
    return at.location == base.location and at.version >= base.version


def linked_rows(source: LanceHandle, target: LanceHandle, base: LanceHandle) -> LinkedRows | None:
    """Find what a source has over a target; the source comes from `base`."""
    if not source.schema.equals(target.schema, check_metadata=True):
        return None
    schemas = (source.dataset.lance_schema, target.dataset.lance_schema)
    if column_numbers(schemas[0]) != column_numbers(schemas[1]):
        return None
    if not _has_rows_of(target, base):
        return None
    return _Difference.of(source, target, base).linked_rows()


def column_numbers(schema: LanceSchema) -> list[tuple[str, int]]:
    """Name all columns and their parts with the numbers under which files hold them."""

    def named(fields: Sequence[Any], prefix: str) -> Iterator[tuple[str, int]]:
        for field in fields:
            name = f"{prefix}{field.name()}"
            yield name, field.id()
            yield from named(field.children(), f"{name}.")

    return list(named(schema.fields(), ""))


def _fragments(handle: LanceHandle) -> dict[tuple[str, ...], FragmentMetadata]:
    found = (fragment.metadata for fragment in handle.dataset.get_fragments())
    return {tuple(data_file_name(file) for file in one.files): one for one in found}


def _has_rows_of(target: LanceHandle, base: LanceHandle) -> bool:
    """Whether two versions have the same files and the same rows of them."""
    if target.at == base.at:
        return True
    theirs, ours = _fragments(target), _fragments(base)
    if theirs.keys() != ours.keys():
        return False
    return all(
        theirs[files].num_deletions == ours[files].num_deletions
        and np.array_equal(target.deleted_offsets(theirs[files]), base.deleted_offsets(ours[files]))
        for files in theirs
    )


@dataclass(frozen=True)
class _Difference:
    """The fragments of two versions that are not the same."""

    source: LanceHandle
    target: LanceHandle
    base: LanceHandle
    came: tuple[FragmentMetadata, ...]
    """Fragments that only the source has."""
    gone: tuple[FragmentMetadata, ...]
    """Fragments that only the target has."""
    shared: tuple[tuple[FragmentMetadata, FragmentMetadata], ...]
    """Fragments of the target and the same ones of the source."""

    @classmethod
    def of(cls, source: LanceHandle, target: LanceHandle, base: LanceHandle) -> _Difference:
        ours, theirs = _fragments(source), _fragments(target)
        return cls(
            source,
            target,
            base,
            came=tuple(one for files, one in ours.items() if files not in theirs),
            gone=tuple(one for files, one in theirs.items() if files not in ours),
            shared=tuple((one, ours[files]) for files, one in theirs.items() if files in ours),
        )

    def linked_rows(self) -> LinkedRows | None:
        first_files = {data_file_name(one.files[0]) for one in self.gone}
        if any(data_file_name(one.files[0]) in first_files or one.overlays for one in self.came):
            # The same rows with other columns.
            return None
        lost_ids = self._lost_ids()
        if lost_ids is None:
            return None
        first_new = next_row_id(self.base.dataset._ds.serialized_manifest())
        parts = [self._live_ids(self.source, one) for one in self.came]
        live = np.sort(np.concatenate([np.empty(0, np.uint64), *parts]))
        kept = live[live < first_new]
        is_twice = bool((live[1:] == live[:-1]).any())
        if is_twice or not np.isin(kept, lost_ids, assume_unique=True).all():
            return None
        if self._has_moved(first_new):
            return None
        if number_rows(self._parts(), first_new, first_new) is None:
            return None
        deleted = np.setdiff1d(lost_ids, kept, assume_unique=True)
        return LinkedRows(
            source=self.source.at,
            target=self.target.at,
            fragment_ids=tuple(one.id for one in self.came),
            first_new_row_id=first_new,
            inserted=len(live) - len(kept),
            updated=len(kept),
            deleted=pa.array(deleted, pa.uint64()),
            gone=tuple(one.id for one in self.gone),
            trimmed=tuple(
                (theirs.id, ours.id)
                for theirs, ours in self.shared
                if theirs.num_deletions != ours.num_deletions
            ),
        )

    def _lost_ids(self) -> RowIds | None:
        """Return the row ids of rows that the source has in other fragments, or not at all.

        None where the source has a row back that the target has deleted.
        """
        found = [self._live_ids(self.target, one) for one in self.gone]
        for theirs, ours in self.shared:
            before = self.target.deleted_offsets(theirs)
            after = self.source.deleted_offsets(ours)
            if not np.isin(before, after, assume_unique=True).all():
                return None
            lost = np.setdiff1d(after, before, assume_unique=True)
            if len(lost):
                found.append(self.target.row_ids(theirs.id).to_numpy()[lost])
        return np.concatenate([np.empty(0, np.uint64), *found])

    def _live_ids(self, handle: LanceHandle, fragment: FragmentMetadata) -> RowIds:
        """Return the row ids of the live rows of a fragment."""
        row_ids: RowIds = handle.row_ids(fragment.id).to_numpy()
        return np.delete(row_ids, handle.deleted_offsets(fragment))

    def _has_moved(self, first_new: int) -> bool:
        """Whether a live row of the new fragments is one of the base that nobody has written."""
        version = self.base.at.version
        mixed = tuple(one.id for one in self.came if _oldest_update(one) <= version)
        if not mixed:
            return False
        request = ScanRequest(columns=(ROW_UPDATED,), with_row_id=True, fragment_ids=mixed)
        rows = self.source.scan(request).read_all()
        is_old = (rows[ROW_ID].to_numpy() < first_new) & (rows[ROW_UPDATED].to_numpy() <= version)
        return bool(is_old.any())

    def _parts(self) -> list[Part]:
        return [Part(one, self.source.row_ids(one.id).to_numpy()) for one in self.came]


def _oldest_update(fragment: FragmentMetadata) -> int:
    """Return the earliest version in which a row of a fragment was written; 0 if it is unknown."""
    if fragment.last_updated_at_version_meta is None:
        return 0
    inline = json.loads(fragment.last_updated_at_version_meta.json()).get("inline")
    return 0 if inline is None else oldest_version(bytes(inline))
