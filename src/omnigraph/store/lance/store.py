"""Datasets in Lance. The invariants are those of `omnigraph.store.datasets`.

What the adapter adds to them:

1. One Lance session per store holds the caches; handles are cached by (location, branch,
   version) and bounded in number (`opener`).
2. A commit is tried once, on a handle at its base, after a read of the head; the result is
   compared with what was intended, and the version's uuid with ours. A failed commit is looked
   up again, because the answer may be lost although the write landed (`commit`).
3. Staged files are flushed by the call that wrote them, transaction and version files by the call
   that committed them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import lance
import pyarrow as pa
from lance.dataset import Version

from omnigraph.store.digests import Ledger, hashed
from omnigraph.store.durability import Flusher, NoFlusher, PathFlusher
from omnigraph.store.errors import CorruptObjectError, InvalidScanError
from omnigraph.store.lance import maintenance, staging
from omnigraph.store.lance.columns import columns_transaction
from omnigraph.store.lance.commit import LanceCommitter
from omnigraph.store.lance.errors import lance_failures, read_failures, write_error
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.lance.layout import VERSIONS_DIR, is_torn, lineage_path, manifest_path
from omnigraph.store.lance.links.copies import Copies
from omnigraph.store.lance.links.difference import comes_from, linked_rows
from omnigraph.store.lance.links.linker import Linker
from omnigraph.store.lance.needed_files import needed_files
from omnigraph.store.lance.opener import HANDLES_MAX, LanceOpener
from omnigraph.store.lance.orphans import unreferenced_files
from omnigraph.store.lance.packing import LancePacking
from omnigraph.store.lance.refs import LanceRefs
from omnigraph.store.objects.protocol import ObjectInfo, ObjectStore
from omnigraph.store.records import (
    ROW_ID,
    CleanupReport,
    CleanupRequest,
    ColumnSource,
    CommittedRange,
    CompactionOptions,
    CompactionResult,
    CompactionTask,
    DatasetVersion,
    IndexSpec,
    LinkedRows,
    NeededFile,
    Rows,
    StagedFile,
    StagedTransaction,
    TornHead,
    TransactionInfo,
    VersionInfo,
    WrittenDeletion,
    WrittenFragment,
    WrittenIndexSegment,
)
from omnigraph.store.uri import Root, checked_path, join_path

_LISTINGS_MAX: Final = 8
"""How often listing versions is tried before one of them counts as damaged."""


class LanceStore:
    """A `DatasetStore` over Lance."""

    def __init__(
        self,
        root: Root,
        objects: ObjectStore,
        *,
        storage_options: Mapping[str, str] | None = None,
        flusher: Flusher | None = None,
        ledger: Ledger | None = None,
        handles_max: int = HANDLES_MAX,
    ) -> None:
        self._root = root
        self._objects = objects
        self._ledger = ledger or Ledger(is_kept=False)
        self._flusher = PathFlusher(root, flusher or NoFlusher())
        self._opener = LanceOpener(
            root, objects, storage_options=storage_options, handles_max=handles_max
        )
        # What a part does exactly as the protocol asks is the part's own method.
        self.open = self._opener.open
        self.exists = self._opener.exists
        self.head_version = self._opener.head_version
        self.forget = self._opener.forget
        self.forget_all = self._opener.forget_all
        self._committer = committer = LanceCommitter(
            self._opener, objects, self._flusher, self._ledger, root
        )
        self.verify_staged_files = committer.verify_files
        self.commit_staged = committer.commit
        self.following = maintenance.following_transaction
        self._refs = refs = LanceRefs(
            self._opener, objects, self._flusher, self._ledger, is_local=root.is_local
        )
        self._packing = LancePacking(
            root,
            objects=objects,
            opener=self._opener,
            refs=refs,
            flusher=self._flusher,
            ledger=self._ledger,
        )
        self.pack_versions = self._packing.pack
        self.has_versions_to_pack = self._packing.is_due
        self.packed_versions = self._opener.packs.versions_in
        self.delete_branch = refs.delete_branch
        self.list_branches = refs.list_branches
        self.branch_names = refs.branch_names
        self.has_branch = refs.has_branch
        self.torn_refs = refs.torn_refs
        self.delete_tag = refs.delete_tag
        self.list_tags = refs.list_tags

    # Reading

    def versions(self, location: str, *, branch: str | None = None) -> tuple[VersionInfo, ...]:
        # Packs before and after: what is packed meanwhile is in a later one, and what is unpacked
        # was in an earlier one.
        packs = self._opener.packs.of(location, branch)
        listed = self._listed_versions(location, branch)
        packs += self._opener.packs.of(location, branch)
        found = {number: packed.info for pack in packs for number, packed in pack.versions.items()}
        for entry in listed:
            found[entry["version"]] = VersionInfo(
                version=entry["version"],
                created_us=_microseconds(entry["timestamp"]),
                rows=int(entry["metadata"]["total_rows"]),
                fragments=int(entry["metadata"]["total_fragments"]),
            )
        return tuple(found[number] for number in sorted(found))

    def _listed_versions(self, location: str, branch: str | None) -> list[Version]:
        """List the versions; a cleanup in parallel may remove one after it was listed."""
        for _ in range(_LISTINGS_MAX):
            try:
                return self.open(location, branch=branch).dataset.versions()
            except lance_failures():
                continue
        with read_failures(location):
            return self.open(location, branch=branch).dataset.versions()

    def transactions(
        self, location: str, *, branch: str | None = None, first: int, last: int
    ) -> tuple[TransactionInfo, ...]:
        return tuple(
            self._opener.transaction(DatasetVersion(location, branch, version))
            for version in range(first, last + 1)
        )

    # Writing files

    def write_fragments(
        self,
        base: DatasetVersion,
        rows: Rows,
        *,
        row_id_column: str | None = None,
        replacing_schema: pa.Schema | None = None,
    ) -> tuple[WrittenFragment, ...]:
        target: lance.LanceDataset | str
        if base.version == 0:
            if replacing_schema is None:
                raise InvalidScanError(
                    path=base.location, reason="first rows of a new dataset need its schema"
                )
            target, schema, mode = (
                self._opener.uri(base.location, base.branch),
                replacing_schema,
                "create",
            )
        else:
            handle = self._for_files(base)
            target = handle.dataset
            schema = handle.schema if replacing_schema is None else replacing_schema
            mode = "append" if replacing_schema is None else "overwrite"
        written = staging.write_rows(
            target,
            rows,
            base=base,
            objects=self._objects,
            schema=schema,
            mode=mode,  # type: ignore[arg-type]  # the three literals above
            row_id_column=row_id_column,
            storage_options=self._opener.options,
            remember=self._remember(base) if mode == "append" else _forget,
        )
        return tuple(replace(part, files=self._finished(part.files)) for part in written)

    def _for_files(self, base: DatasetVersion) -> LanceHandle:
        """Open a version on which files are written."""
        handle = self._opener.at(base)
        self._opener.packs.make_folders(base, handle.dataset)
        return handle

    def _remember(self, base: DatasetVersion) -> Callable[[str, pa.Table], None]:
        def remember(file: str, rows: pa.Table) -> None:
            self._opener.written.remember(file, self._opener.at(base).column_ids, rows)

        return remember

    def write_deletions(
        self, base: DatasetVersion, addresses: Sequence[int] | pa.Array
    ) -> tuple[WrittenDeletion, ...]:
        handle = self._for_files(base)
        written = staging.write_deletions(handle, _addresses(addresses), self._objects)
        return tuple(replace(part, files=self._finished(part.files)) for part in written)

    def write_index_segment(
        self, base: DatasetVersion, spec: IndexSpec, *, fragment_ids: Sequence[int] | None = None
    ) -> WrittenIndexSegment:
        # Building an index locks the library's object, and others read through the shared one.
        dataset = self._for_files(base).private_dataset()
        if fragment_ids is None:
            fragment_ids = [fragment.fragment_id for fragment in dataset.get_fragments()]
        written = maintenance.build_index_segment(
            dataset, spec, base=base, fragment_ids=fragment_ids
        )
        return replace(written, files=self._finished(written.files))

    def plan_compaction(
        self, base: DatasetVersion, options: CompactionOptions | None = None
    ) -> tuple[CompactionTask, ...]:
        with read_failures(base.location):
            return maintenance.plan_compaction(
                self._opener.at(base).dataset, base, options or CompactionOptions()
            )

    def run_compaction(self, task: CompactionTask) -> CompactionResult:
        dataset = self._for_files(task.base).dataset
        result = maintenance.run_compaction(dataset, task, objects=self._objects)
        return replace(result, files=self._finished(result.files))

    # Staging

    def stage_create(
        self,
        location: str,
        schema: pa.Schema,
        *,
        rows: Rows | None = None,
    ) -> StagedTransaction:
        base = DatasetVersion(checked_path(location), None, 0)
        written = () if rows is None else self.write_fragments(base, rows, replacing_schema=schema)
        return staging.overwrite_transaction(base, schema, written)

    def stage_append(
        self,
        base: DatasetVersion,
        rows: Rows | None = None,
        *,
        fragments: Sequence[WrittenFragment] = (),
    ) -> StagedTransaction:
        written = list(fragments)
        if rows is not None:
            written += self.write_fragments(base, rows)
        return staging.append_transaction(base, written)

    def stage_update(
        self,
        base: DatasetVersion,
        *,
        rewritten: Rows | None = None,
        inserted: Rows | None = None,
        deleted: Sequence[int] | pa.Array | None = None,
        fragments: Sequence[WrittenFragment] = (),
        deletions: Sequence[WrittenDeletion] = (),
        fence: int | None = None,
    ) -> StagedTransaction:
        written, removed = list(fragments), list(deletions)
        leaving = [] if deleted is None else [_addresses(deleted)]
        with self._flusher.together():
            if rewritten is not None:
                kept, replaced = staging.split_rewritten(rewritten, base)
                written += self.write_fragments(base, kept, row_id_column=ROW_ID)
                leaving.append(replaced)
            if inserted is not None:
                written += self.write_fragments(base, inserted)
            if leaving:
                removed += self.write_deletions(base, pa.concat_arrays(leaving))
        fenced = () if fence is None else (self._opener.at(base).fragment(fence).metadata,)
        return staging.update_transaction(base, written, removed, fenced=fenced)

    def stage_overwrite(
        self,
        base: DatasetVersion,
        schema: pa.Schema,
        *,
        rows: Rows | None = None,
        row_id_column: str | None = None,
        fragments: Sequence[WrittenFragment] = (),
    ) -> StagedTransaction:
        written = list(fragments)
        if rows is not None:
            written += self.write_fragments(
                base, rows, row_id_column=row_id_column, replacing_schema=schema
            )
        return staging.overwrite_transaction(base, schema, written)

    def stage_columns(
        self, base: DatasetVersion, schema: pa.Schema, sources: Mapping[str, ColumnSource]
    ) -> StagedTransaction:
        staged = columns_transaction(self._opener.at(base), schema, sources)
        return replace(staged, files=self._finished(staged.files))

    def linked_rows(
        self, source: DatasetVersion, target: DatasetVersion, *, base: DatasetVersion
    ) -> LinkedRows | None:
        if source.location != target.location:
            return None
        if not comes_from(source, base, self._refs.branch):
            return None
        return linked_rows(*(self._opener.at(each) for each in (source, target, base)))

    def stage_linked(self, base: DatasetVersion, rows: LinkedRows) -> StagedTransaction:
        copies = Copies(base, self._opener.at(rows.source), self._objects, self._root)
        linker = Linker(self._opener.at(base), rows, copies)
        # A cleanup that is under way may be about to remove a file whose name looks free by now.
        with self._packing.alone(base.location):
            staged = linker.staged()
        return self._flushed(staged)

    def stage_linked_create(
        self, location: str, schema: pa.Schema, source: DatasetVersion
    ) -> StagedTransaction | None:
        base = DatasetVersion(checked_path(location), None, 0)
        copies = Copies(base, self._opener.at(source), self._objects, self._root)
        staged = copies.staged_create(schema)
        return None if staged is None else self._flushed(staged)

    def _flushed(self, staged: StagedTransaction) -> StagedTransaction:
        """Make linked files durable; what their bytes are is known by their first names."""
        self._flusher.files(file.path for file in staged.files)
        return staged

    def stage_create_index(
        self,
        base: DatasetVersion,
        specs: Sequence[IndexSpec] = (),
        *,
        segments: Sequence[WrittenIndexSegment] = (),
        replaced: Iterable[str] = (),
    ) -> StagedTransaction:
        handle = self._opener.at(base)
        built = [*segments, *(self.write_index_segment(base, spec) for spec in specs)]
        names = frozenset(spec.full_name for spec in specs)
        leaving = frozenset(replaced) | maintenance.segments_named(handle.indexes(), names)
        return maintenance.index_transaction(handle.dataset, base, built, replaced=leaving)

    def stage_compaction(
        self, base: DatasetVersion, results: Sequence[CompactionResult]
    ) -> StagedTransaction:
        return maintenance.compaction_transaction(self._opener.at(base).dataset, base, results)

    def stage_metadata(
        self,
        base: DatasetVersion,
        *,
        schema_metadata: Mapping[str, str | None] | None = None,
        field_metadata: Mapping[str, Mapping[str, str | None]] | None = None,
    ) -> StagedTransaction:
        return staging.metadata_transaction(
            self._opener.at(base).dataset,
            base,
            schema_metadata=schema_metadata or {},
            field_metadata=field_metadata or {},
        )

    # Committing

    def open_staged(self, staged: StagedTransaction) -> LanceHandle:
        if self._opener.open_loose(staged.base) is not None:
            return self._committer.open_staged(staged)
        with self._packing.loose(staged.base):
            return self._committer.open_staged(staged)

    def discard_staged_view(self, at: DatasetVersion) -> None:
        self._objects.delete(manifest_path(at.location, at.branch, at.version))

    def restore(
        self, location: str, *, branch: str | None = None, version: int, uuid: str
    ) -> CommittedRange:
        with self._packing.loose(DatasetVersion(location, branch, version)):
            return self._committer.restore(location, branch=branch, version=version, uuid=uuid)

    # Branches and tags

    def create_branch(
        self, location: str, name: str, *, from_branch: str | None = None, from_version: int
    ) -> DatasetVersion:
        with self._packing.loose(DatasetVersion(location, from_branch, from_version)):
            return self._refs.create_branch(
                location, name, from_branch=from_branch, from_version=from_version
            )

    def create_tag(
        self, location: str, name: str, *, branch: str | None = None, version: int
    ) -> None:
        with self._packing.loose(DatasetVersion(location, branch, version)):
            self._refs.create_tag(location, name, branch=branch, version=version)

    # Maintenance

    def cleanup(
        self,
        location: str,
        request: CleanupRequest,
        *,
        branch: str | None = None,
        preview: bool = True,
    ) -> CleanupReport:
        if preview:
            return self._cleaned(location, request, branch=branch, preview=True)
        with self._packing.alone(location):
            return self._cleaned(location, request, branch=branch, preview=False)

    def _cleaned(
        self, location: str, request: CleanupRequest, *, branch: str | None, preview: bool
    ) -> CleanupReport:
        packed = self._removed_with_packs(location, branch, request, preview=preview)
        dataset = self._opener.open(location, branch=branch).dataset
        before: frozenset[str] = frozenset() if preview else self._version_files(location, branch)
        options: dict[str, Any] = {
            "older_than": None
            if request.older_than_s is None
            else timedelta(seconds=request.older_than_s),
            "retain_versions": request.keep_versions,
            "versions": None if request.versions is None else list(request.versions),
            "delete_unverified": False,
            "error_if_tagged_old_versions": False,
        }
        try:
            if preview:
                removed = dataset.explain_cleanup_old_versions(**options).stats
            else:
                removed = dataset.cleanup_old_versions(**options)
        except lance_failures() as error:
            raise write_error(error, location) from error
        if not preview:
            self._opener.forget_lineage(location, branch)
            self._ledger.note_gone(before - self._version_files(location, branch))
        return CleanupReport(
            versions_removed=removed.old_versions + packed,
            bytes_removed=removed.bytes_removed,
            files_removed=_files_removed(removed),
        )

    def _removed_with_packs(
        self, location: str, branch: str | None, request: CleanupRequest, *, preview: bool
    ) -> int:
        """Take packs apart that what goes would leave incomplete; return how many went."""
        if preview:
            packs = self._opener.packs.of(location, branch)
            going = frozenset(request.versions or ())
            return len({number for pack in packs for number in pack.versions} & going)
        self._packing.restore_pinned(location, branch)
        return self._packing.release(location, branch, request.versions)

    def unreferenced_files(self, location: str) -> tuple[ObjectInfo, ...]:
        return unreferenced_files(
            checked_path(location),
            root=self._root,
            opener=self._opener,
            refs=self._refs,
            objects=self._objects,
        )

    def needed_files(
        self, location: str, *, branch: str | None = None, versions: Collection[int]
    ) -> Iterator[NeededFile]:
        return needed_files(
            checked_path(location),
            branch,
            versions,
            root=self._root,
            opener=self._opener,
            objects=self._objects,
        )

    def torn_head(self, location: str, *, branch: str | None = None) -> TornHead | None:
        head = self._opener.head_version(location, branch=branch)
        self._opener.forget_lineage(location, branch)
        try:
            self._opener.open_cold(DatasetVersion(location, branch, head))
        except CorruptObjectError:
            held = self._objects.get(manifest_path(location, branch, head))
            if not is_torn(held.data):
                raise
            return TornHead(head, held.path, held.tag)
        return None

    def discard_torn_head(self, location: str, *, branch: str | None = None) -> int | None:
        torn = self.torn_head(location, branch=branch)
        if torn is None:
            return None
        self._ledger.note_gone([torn.path])
        self._objects.delete(torn.path)
        self._opener.forget_lineage(location, branch)
        self._flusher.directory_of(torn.path)
        return torn.version

    def _version_files(self, location: str, branch: str | None) -> frozenset[str]:
        directory = join_path(lineage_path(location, branch), VERSIONS_DIR)
        return frozenset(info.path for info in self._objects.list(directory))

    def _finished(self, files: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
        """Make new files durable, and hash them while their bytes are in memory."""
        self._flusher.files(file.path for file in files)
        if not self._root.is_local or not self._ledger.is_kept:
            return tuple(files)
        return hashed(self._root, files)


def _addresses(values: Sequence[int] | pa.Array) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return (
        values.cast(pa.uint64()) if isinstance(values, pa.Array) else pa.array(values, pa.uint64())
    )


def _microseconds(moment: datetime | int) -> int:
    # pylance hands out local time without a zone.
    return round(moment.timestamp() * 1_000_000) if isinstance(moment, datetime) else moment


def _files_removed(removed: Any) -> int:
    return sum(
        getattr(removed, name, 0)
        for name in (
            "data_files_removed",
            "transaction_files_removed",
            "index_files_removed",
            "deletion_files_removed",
        )
    )


def _forget(_file: str, _rows: pa.Table) -> None:
    """Remember nothing: a new schema numbers its columns when it is committed."""
