"""Takes the rows of another branch of a dataset over by its files, without reading a row.

1. Which rows are meant is known from row ids: the source comes from the base, so a row id below the
   next one of the base is the row of the base, and every other one is new. The target has the rows
   of the base.
2. A fragment of the source that the target lacks becomes a fragment of the target with a number of
   its own. Where both have the rows of a fragment and the source has deleted some, the target takes
   the list of deleted rows. Files get second names in the target's directory, so they stay
   when the source goes.
3. Rows that the source has replaced keep their row ids. New rows get the next ids of the target:
   the library numbers the rows of a fragment that names no ids, in the order of the fragments, so
   the numbers are known beforehand. The transaction can only be committed on its exact base.
4. A file keeps its name only where its rows have the row ids of the source: files of one name hold
   the same rows under the same ids, and what is derived from rows relies on it.
5. A name that is taken in the target's directory is not given again. A version that was put back
   may have it: a cleanup that removes this version takes no lock, and removes its files, also when
   a newer version begins to name them meanwhile.
6. Versions of rows are derived by the commit: replaced rows keep the version that made them. It
   would also give the new version to rows that the source only moved, so fragments with such rows
   are not taken.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import FragmentMetadata, LanceOperation
from lance.fragment import DataFile, DeletionFile, RowIdSequence
from lance.schema import LanceSchema

from omnigraph.dataclass import dataclass
from omnigraph.store.errors import CorruptObjectError, InvalidScanError
from omnigraph.store.lance.handle import LanceHandle, data_file_name
from omnigraph.store.lance.layout import (
    data_path,
    lineage_path,
    next_row_id,
    oldest_version,
    relative_to_root,
)
from omnigraph.store.lance.maintenance import highest_fragment_id
from omnigraph.store.lance.staging import has_blob_columns, staged_record
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import (
    ROW_ID,
    ROW_UPDATED,
    BranchInfo,
    DatasetVersion,
    LinkedRows,
    OperationKind,
    RowCounts,
    ScanRequest,
    StagedFile,
    StagedTransaction,
)
from omnigraph.store.uri import Root, join_path

RowIds: TypeAlias = npt.NDArray[np.uint64]

_COPIES_AT_ONCE_MAX: Final = 8
_SUFFIX: Final = ".lance"
_DELETION_ID_BITS: Final = 63


# -- what a source has -----------------------------------------------------------------------------


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
    if _column_numbers(schemas[0]) != _column_numbers(schemas[1]):
        return None
    if not _has_rows_of(target, base):
        return None
    return _Difference.of(source, target, base).linked_rows()


def _column_numbers(schema: LanceSchema) -> list[tuple[str, int]]:
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
        if _numbered(self._numbered_parts(), first_new, first_new) is None:
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

    def _numbered_parts(self) -> list[_Part]:
        return [_Part(one, self.source.row_ids(one.id).to_numpy()) for one in self.came]


def _oldest_update(fragment: FragmentMetadata) -> int:
    """Return the earliest version in which a row of a fragment was written; 0 if it is unknown."""
    if fragment.last_updated_at_version_meta is None:
        return 0
    inline = json.loads(fragment.last_updated_at_version_meta.json()).get("inline")
    return 0 if inline is None else oldest_version(bytes(inline))


# -- numbers of rows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A fragment of the source, and the row ids of all its rows there."""

    fragment: FragmentMetadata
    row_ids: RowIds


@dataclass(frozen=True)
class _Numbered:
    """A fragment of the source with the row ids that its rows have in the target."""

    part: _Part
    row_ids: RowIds
    is_numbered_by_commit: bool

    @property
    def keeps_name(self) -> bool:
        """Whether the rows have the same row ids on both sides."""
        return bool(np.array_equal(self.row_ids, self.part.row_ids))


def _numbered(parts: Sequence[_Part], first_new: int, next_id: int) -> list[_Numbered] | None:
    """Give the rows of fragments their numbers; None where a new row would get none.

    A fragment of new rows alone is numbered by the commit. A row that was written again since is in
    a second fragment, and has there the number that it got in the first.
    """
    by_first = sorted(parts, key=lambda part: int(part.row_ids.min(initial=first_new)))
    homes: list[_Numbered] = []
    others: list[_Part] = []
    for part in by_first:
        is_home = bool((part.row_ids >= first_new).all())
        if not is_home or any(_overlap(part.row_ids, home.part.row_ids) for home in homes):
            others.append(part)
            continue
        row_ids = np.arange(next_id, next_id + len(part.row_ids), dtype=np.uint64)
        next_id += len(part.row_ids)
        homes.append(_Numbered(part, row_ids, is_numbered_by_commit=True))
    empty = np.empty(0, np.uint64)
    known = np.concatenate([empty, *(home.part.row_ids for home in homes)])
    given = np.concatenate([empty, *(home.row_ids for home in homes)])
    order = np.argsort(known)
    numbered = list(homes)
    for part in others:
        kept = _translated(part.row_ids, first_new, known[order], given[order])
        if kept is None:
            return None
        numbered.append(_Numbered(part, kept, is_numbered_by_commit=False))
    return numbered


def _overlap(one: RowIds, other: RowIds) -> bool:
    if one.min() > other.max() or other.min() > one.max():
        return False
    return bool(np.isin(one, other).any())


def _translated(row_ids: RowIds, first_new: int, known: RowIds, given: RowIds) -> RowIds | None:
    """Return row ids with those of new rows replaced; None where one is not known."""
    is_new = row_ids >= first_new
    new = row_ids[is_new]
    if not len(new):
        return row_ids
    places = np.searchsorted(known, new)
    if not len(known) or (places == len(known)).any() or (known[places] != new).any():
        return None
    translated = row_ids.copy()
    translated[is_new] = given[places]
    return translated


# -- staging ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copies:
    """Gives files of a source second names in the directory of a target."""

    base: DatasetVersion
    source: LanceHandle
    objects: ObjectStore
    root: Root

    def staged_create(self, schema: pa.Schema) -> StagedTransaction | None:
        """Stage a new dataset with all rows of the source; None where its files do not fit."""
        numbers = _column_numbers(LanceSchema.from_pyarrow(schema))
        if not self.source.schema.equals(schema, check_metadata=True):
            return None
        if numbers != _column_numbers(self.source.dataset.lance_schema):
            return None
        parts = [fragment.metadata for fragment in self.source.dataset.get_fragments()]
        if any(part.deletion_file is not None or part.overlays for part in parts):
            # The library creates no dataset of which rows are deleted.
            return None
        fragments: list[FragmentMetadata] = []
        files: list[StagedFile] = []
        for number, part in enumerate(parts):
            data, needed = self.data_files(part, keeps_names=False)
            fragments.append(FragmentMetadata(number, data, part.physical_rows))
            files += needed
        self.make(files)
        return staged_record(
            self.base,
            LanceOperation.Overwrite(schema, fragments),
            kind=OperationKind.OVERWRITE,
            files=tuple(files),
            counts=RowCounts(inserted=sum(part.physical_rows for part in parts)),
        )

    def data_files(
        self, fragment: FragmentMetadata, *, keeps_names: bool
    ) -> tuple[list[DataFile], list[StagedFile]]:
        """Return the data files of a fragment of the source as files of the target."""
        data: list[DataFile] = []
        files: list[StagedFile] = []
        for file in fragment.files:
            name = self._data_name(file, keeps_name=keeps_names)
            path = data_path(self.base.location, self.base.branch, name)
            source = join_path(self._home(file.base_id), "data", data_file_name(file))
            files.append(_copied(source, path, file.file_size_bytes))
            files += self._blob_files(source, path)
            data.append(
                DataFile(
                    name,
                    list(file.fields),
                    list(file.column_indices),
                    file.file_major_version,
                    file.file_minor_version,
                    file.file_size_bytes,
                )
            )
        return data, files

    def deletion(self, fragment: FragmentMetadata, number: int) -> tuple[DeletionFile, StagedFile]:
        """Return the deleted rows of a fragment of the source as those of one of the target."""
        known, base = fragment.deletion_file, self.base
        if known is None:
            raise InvalidScanError(
                path=base.location, reason=f"fragment {fragment.id} has all its rows"
            )
        source = join_path(self._home(known.base_id), known.path(fragment.id))
        renamed = _deletion_file(known, known.id)
        path = join_path(lineage_path(base.location, base.branch), renamed.path(number))
        if self._is_taken(path):
            renamed = _deletion_file(known, secrets.randbits(_DELETION_ID_BITS))
            path = join_path(lineage_path(base.location, base.branch), renamed.path(number))
        return renamed, _copied(source, path, None)

    def _data_name(self, file: DataFile, *, keeps_name: bool) -> str:
        name = data_file_name(file)
        path = data_path(self.base.location, self.base.branch, name)
        return name if keeps_name and not self._is_taken(path) else uuid.uuid4().hex + _SUFFIX

    def _is_taken(self, path: str) -> bool:
        return self.objects.head(path) is not None

    def make(self, files: Sequence[StagedFile]) -> None:
        """Make the second names."""
        copies = [(file.copy_of, file.path) for file in files if file.copy_of is not None]
        if self.root.is_local or len(copies) < 2:
            for source, target in copies:
                self.objects.copy(source, target)
            return
        # Each copy is a request for which the storage takes its time.
        with ThreadPoolExecutor(_COPIES_AT_ONCE_MAX) as pool:
            for copied in [pool.submit(partial(self.objects.copy, *each)) for each in copies]:
                copied.result()

    def _blob_files(self, source: str, path: str) -> Iterator[StagedFile]:
        """Yield the files of large values that belong to a data file."""
        if not has_blob_columns(self.source.schema):
            return
        folders = source.removesuffix(_SUFFIX), path.removesuffix(_SUFFIX)
        for info in self.objects.list(folders[0]):
            name = info.path.removeprefix(f"{folders[0]}/")
            yield _copied(info.path, join_path(folders[1], name), info.size)

    def _home(self, base_id: int | None) -> str:
        """Return the directory of the lineage in which a file of the source is."""
        if base_id is None:
            return lineage_path(self.source.at.location, self.source.at.branch)
        base = self.source.dataset.base_paths().get(base_id)
        if base is None:
            raise CorruptObjectError(
                path=self.source.at.location, reason=f"the version names no directory {base_id}"
            )
        return relative_to_root(base.path, self.root)


@dataclass(frozen=True)
class Linker:
    """Makes fragments of a target of those of a source."""

    base: LanceHandle
    rows: LinkedRows
    copies: Copies

    def staged(self) -> StagedTransaction:
        """Copy the files, and stage all fragments that come, change and go as one update."""
        fragments, files = self._fragments()
        trimmed = [self._trimmed(*numbers) for numbers in self.rows.trimmed]
        files += [file for _, file in trimmed]
        self.copies.make(files)
        return staged_record(
            self.base.at,
            LanceOperation.Update(
                removed_fragment_ids=list(self.rows.gone),
                updated_fragments=[fragment for fragment, _ in trimmed],
                new_fragments=fragments,
                fields_modified=[],
            ),
            kind=OperationKind.UPDATE,
            files=tuple(files),
            counts=RowCounts(self.rows.inserted, self.rows.updated, len(self.rows.deleted)),
        )

    def _fragments(self) -> tuple[list[FragmentMetadata], list[StagedFile]]:
        """Return the fragments that come, and their files."""
        source = self.copies.source
        next_id = next_row_id(self.base.dataset._ds.serialized_manifest())
        parts = [
            _Part(source.fragment(number).metadata, source.row_ids(number).to_numpy())
            for number in self.rows.fragment_ids
        ]
        numbered = _numbered(parts, self.rows.first_new_row_id, next_id)
        if numbered is None:
            raise InvalidScanError(path=self.base.at.location, reason="linked rows have no ids")
        made: list[FragmentMetadata] = []
        files: list[StagedFile] = []
        first_id = highest_fragment_id(self.base.dataset) + 1
        for number, each in enumerate(numbered, first_id):
            fragment, needed = self._fragment(number, each)
            made.append(fragment)
            files += needed
        return made, files

    def _fragment(
        self, number: int, numbered: _Numbered
    ) -> tuple[FragmentMetadata, list[StagedFile]]:
        before = numbered.part.fragment
        data, files = self.copies.data_files(before, keeps_names=numbered.keeps_name)
        deletion = row_ids = None
        if before.deletion_file is not None:
            deletion, listed = self.copies.deletion(before, number)
            files.append(listed)
        if not numbered.is_numbered_by_commit:
            ids = pa.array(numbered.row_ids, pa.uint64())
            row_ids = RowIdSequence(ids).to_inline_metadata()
        return FragmentMetadata(number, data, before.physical_rows, deletion, row_ids), files

    def _trimmed(self, number: int, source_number: int) -> tuple[FragmentMetadata, StagedFile]:
        """Return a fragment of the target without the rows that the source has deleted."""
        fragment = self.base.fragment(number).metadata
        ours = self.copies.source.fragment(source_number).metadata
        fragment.deletion_file, file = self.copies.deletion(ours, number)
        return fragment, file


def _copied(source: str, path: str, size: int | None) -> StagedFile:
    return StagedFile(path, size, copy_of=source)


def _deletion_file(known: DeletionFile, number: int) -> DeletionFile:
    """Return a list of deleted rows under another number."""
    return DeletionFile(
        read_version=known.read_version,
        id=number,
        file_type=known.file_type,
        num_deleted_rows=known.num_deleted_rows,
        base_id=None,
    )
