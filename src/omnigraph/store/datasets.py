"""Datasets behind two protocols: a handle reads one version, a store does everything else.

Invariants:

1. A handle is one version for its whole life and never changes.
2. No call couples a write with a head movement, except the small ones that are nothing but a head
   movement: `commit_staged`, `restore`, and the branch and tag calls. All `stage_*` and `write_*`
   calls leave every head where it is.
3. `commit_staged` tries once. It returns only when the head moved from the transaction's base to
   exactly the next version and that version carries the transaction's uuid.
4. What a call has written is durable when it returns, or when the `together` block around it ends
   (`omnigraph.store.durability`).
5. Errors are leaves of `omnigraph.store.errors`; exceptions of the adapter's library are
   translated.
6. Locations are paths relative to the store's root. Fragments belong to the lineage under which
   they were written: fork first, then stage.
7. Handles and stores may be shared between threads, but not across `fork()`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.store.filters import Filter
from omnigraph.store.objects.protocol import ObjectInfo
from omnigraph.store.records import (
    BranchInfo,
    CleanupReport,
    CleanupRequest,
    ColumnSource,
    CommittedRange,
    CompactionOptions,
    CompactionResult,
    CompactionTask,
    DatasetVersion,
    FragmentInfo,
    IndexInfo,
    IndexSpec,
    LinkedRows,
    NeededFile,
    Rows,
    ScanRequest,
    StagedTransaction,
    TagInfo,
    TornHead,
    TransactionInfo,
    VersionInfo,
    WrittenDeletion,
    WrittenFragment,
    WrittenIndexSegment,
)


class BlobContent(Protocol):
    """The bytes of one stored blob, read on request."""

    @property
    def size(self) -> int:
        """How many bytes there are."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Read a part that lies inside of the blob."""
        ...


class DatasetHandle(Protocol):
    """Reads one version of a dataset."""

    @property
    def at(self) -> DatasetVersion:
        """Which version this is."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The stored columns with their field and schema metadata."""
        ...

    @property
    def absent_columns(self) -> tuple[str, ...]:
        """Columns of a view that are not stored: all rows show the same value."""
        ...

    def scan(self, request: ScanRequest | None = None) -> pa.RecordBatchReader:
        """Stream rows. The caller reads to the end or drops the reader."""
        ...

    def batches(self, request: ScanRequest) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Stream rows as `scan` does, for a caller that processes each batch in Python anyway."""
        ...

    def find(self, column: str, values: Sequence[str]) -> pa.Table:
        """Find rows by a column in which every value is once, with row ids and addresses.

        For a few values that are looked up often while the dataset grows: rows of small new
        fragments are cached.
        """
        ...

    def count(self, row_filter: Filter | None = None) -> int:
        """Count rows; without a filter nothing is read."""
        ...

    def take(
        self, row_ids: Sequence[int] | pa.Array, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Fetch rows by stable id, in the order given; ids without a live row are left out."""
        ...

    def take_addresses(
        self, addresses: Sequence[int] | pa.Array, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Fetch rows by address, in the order given; addresses of dead rows are left out."""
        ...

    def read_blobs(self, column: str, row_ids: Sequence[int]) -> tuple[bytes | None, ...]:
        """Read blob contents by stable id, in the order given."""
        ...

    def open_blob(self, column: str, row_id: int) -> BlobContent | None:
        """Open one blob without reading it; None where the value is null."""
        ...

    def fragments(self, wanted: Callable[[int], bool] | None = None) -> tuple[FragmentInfo, ...]:
        """Describe the fragments, or those whose number is wanted, from the manifest alone."""
        ...

    def has_written(self, fragment_id: int, columns: Collection[str]) -> bool:
        """Whether the rows of a fragment were written with one of these columns.

        A column that a schema change has added to rows that were there does not count.
        """
        ...

    def row_ids(self, fragment_id: int) -> pa.Array:
        """Return the stable row ids of a fragment in row order, from the manifest alone."""
        ...

    @property
    def column_ids(self) -> tuple[tuple[str, int], ...]:
        """Name and number of the stored columns; a name may stand for another one in time."""
        ...

    def written_rows(self, fragment_id: int) -> pa.Table | None:
        """Return the rows of a fragment in row order if this process wrote them a moment ago.

        Deleted rows are included.
        """
        ...

    def deleted_row_ids(self, fragment_id: int) -> npt.NDArray[np.uint64]:
        """Return the stable row ids of a fragment's deleted rows, ascending by position.

        Costs as much as there are deleted rows, whatever the size of the fragment.
        """
        ...

    def indexes(self) -> tuple[IndexInfo, ...]:
        """Describe the committed indexes."""
        ...


class DatasetStore(Protocol):
    """Opens, stages, commits and maintains the datasets under one root."""

    # Reading

    def open(
        self, location: str, *, branch: str | None = None, version: int | None = None
    ) -> DatasetHandle:
        """Open one version, the newest when `version` is `None`."""
        ...

    def exists(
        self, location: str, *, branch: str | None = None, version: int | None = None
    ) -> bool:
        """Whether the lineage has this version, or any; it need not be readable."""
        ...

    def head_version(self, location: str, *, branch: str | None = None) -> int:
        """Return the newest version number without opening it."""
        ...

    def versions(self, location: str, *, branch: str | None = None) -> tuple[VersionInfo, ...]:
        """Describe every version that still exists, oldest first."""
        ...

    def transactions(
        self, location: str, *, branch: str | None = None, first: int, last: int
    ) -> tuple[TransactionInfo, ...]:
        """Return the transaction of each version of `first..last`, both ends included."""
        ...

    # Writing files, on any worker

    def write_fragments(
        self,
        base: DatasetVersion,
        rows: Rows,
        *,
        row_id_column: str | None = None,
        replacing_schema: pa.Schema | None = None,
    ) -> tuple[WrittenFragment, ...]:
        """Write rows as uncommitted fragments of `base`'s lineage.

        `row_id_column` names a column of stable row ids that the rows keep; it is not stored as a
        column. `replacing_schema` writes for an overwrite instead of an append.
        """
        ...

    def write_deletions(
        self, base: DatasetVersion, addresses: Sequence[int] | pa.Array
    ) -> tuple[WrittenDeletion, ...]:
        """Write the deletion of these rows, one record per fragment."""
        ...

    def write_index_segment(
        self, base: DatasetVersion, spec: IndexSpec, *, fragment_ids: Sequence[int] | None = None
    ) -> WrittenIndexSegment:
        """Build an index over some fragments (all when `None`) without publishing it."""
        ...

    def plan_compaction(
        self, base: DatasetVersion, options: CompactionOptions | None = None
    ) -> tuple[CompactionTask, ...]:
        """Return which fragments are worth rewriting together; empty when none are."""
        ...

    def run_compaction(self, task: CompactionTask) -> CompactionResult:
        """Rewrite the fragments of one task."""
        ...

    # Staging

    def stage_create(
        self,
        location: str,
        schema: pa.Schema,
        *,
        rows: Rows | None = None,
    ) -> StagedTransaction:
        """Prepare a new dataset, empty or with first rows."""
        ...

    def stage_append(
        self,
        base: DatasetVersion,
        rows: Rows | None = None,
        *,
        fragments: Sequence[WrittenFragment] = (),
    ) -> StagedTransaction:
        """Prepare new rows, given as such or as fragments that workers have written."""
        ...

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
        """Prepare rewritten, new and deleted rows as one transaction.

        `rewritten` carries the columns `_rowid` and `_rowaddr` of the rows that it replaces;
        `deleted` is row addresses. Workers give `fragments` and `deletions` instead, at most one
        deletion per fragment.

        `fence` is a fragment that the transaction names as changed although it stays as it is. Of
        two transactions from one base that name the same fence, only the first can be committed.
        """
        ...

    def stage_overwrite(
        self,
        base: DatasetVersion,
        schema: pa.Schema,
        *,
        rows: Rows | None = None,
        row_id_column: str | None = None,
        fragments: Sequence[WrittenFragment] = (),
    ) -> StagedTransaction:
        """Prepare new content and columns for the whole dataset; its indexes are dropped."""
        ...

    def stage_columns(
        self, base: DatasetVersion, schema: pa.Schema, sources: Mapping[str, ColumnSource]
    ) -> StagedTransaction:
        """Prepare other columns for the same rows, with a source for each column of `schema`.

        Columns that are taken over, dropped or null cost nothing that grows with the rows; others
        are written, one file per fragment. Row ids, deletions and the indexes of columns that are
        taken over stay. Blobs cannot be written this way. Rows cannot be added in the same
        transaction: they are staged on its view and made to follow it (`following`).
        """
        ...

    def linked_rows(
        self, source: DatasetVersion, target: DatasetVersion, *, base: DatasetVersion
    ) -> LinkedRows | None:
        """Find what a source has over a target whose rows are those of `base`; reads no row.

        None where files and row ids do not tell it: the source does not come from `base`, the
        target has other rows, the columns are not the same, or rows were only moved.
        """
        ...

    def stage_linked(self, base: DatasetVersion, rows: LinkedRows) -> StagedTransaction:
        """Prepare to take over what a source has, by further names of its files.

        `base` is the target of `rows`, or a fork that was cut from it. `CopyRefusedError` says that
        the storage gives no second names.
        """
        ...

    def stage_linked_create(
        self, location: str, schema: pa.Schema, source: DatasetVersion
    ) -> StagedTransaction | None:
        """Prepare a new dataset with all rows of another one, by further names of its files.

        None where the files do not fit: rows of them are deleted, or columns have other numbers.
        """
        ...

    def stage_create_index(
        self,
        base: DatasetVersion,
        specs: Sequence[IndexSpec] = (),
        *,
        segments: Sequence[WrittenIndexSegment] = (),
        replaced: Iterable[str] = (),
    ) -> StagedTransaction:
        """Prepare indexes: whole ones from `specs`, segments from workers.

        A spec replaces the index of its name. `replaced` lists uuids of segments to drop.
        """
        ...

    def stage_compaction(
        self, base: DatasetVersion, results: Sequence[CompactionResult]
    ) -> StagedTransaction:
        """Prepare the exchange of fragments for their rewritten form; stable row ids stay."""
        ...

    def stage_metadata(
        self,
        base: DatasetVersion,
        *,
        schema_metadata: Mapping[str, str | None] | None = None,
        field_metadata: Mapping[str, Mapping[str, str | None]] | None = None,
    ) -> StagedTransaction:
        """Prepare changes of metadata; `None` as a value removes the key."""
        ...

    # Committing

    def verify_staged_files(self, staged: StagedTransaction) -> None:
        """Check that every staged file exists with its size, or raise `StagedFilesLostError`."""
        ...

    def commit_staged(self, staged: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        """Commit once.

        With `exact` anything but the intended version is an error: `StaleBaseError` when nothing
        landed, `MisplacedCommitError` when the commit landed above another writer's. Without it
        the adapter may move the commit over compatible ones, and the result says where it is.
        """
        ...

    def restore(
        self, location: str, *, branch: str | None = None, version: int, uuid: str
    ) -> CommittedRange:
        """Append a version whose content is that of `version`; late staged writes then fail."""
        ...

    def open_staged(self, staged: StagedTransaction) -> DatasetHandle:
        """Read what a staged transaction would make, without moving a head.

        The handle's version can be opened by other processes too, until `discard_staged_view`.
        """
        ...

    def following(
        self, staged: StagedTransaction, previous: StagedTransaction
    ) -> StagedTransaction:
        """Return a transaction that was staged on the view of `previous` as its true successor.

        Both are then committed one after the other, and no other commit may land in between.
        """
        ...

    def discard_staged_view(self, at: DatasetVersion) -> None:
        """Remove what `open_staged` has made; the staged transaction itself stays."""
        ...

    # Branches and tags

    def create_branch(
        self, location: str, name: str, *, from_branch: str | None = None, from_version: int
    ) -> DatasetVersion:
        """Cut a branch; costs nothing that grows with the data."""
        ...

    def delete_branch(self, location: str, name: str) -> None:
        """Remove a branch that nothing was cut from."""
        ...

    def list_branches(self, location: str) -> tuple[BranchInfo, ...]:
        """List the dataset's branches by name."""
        ...

    def branch_names(self, location: str) -> tuple[str, ...]:
        """List the names alone: one listing, however many branches there are."""
        ...

    def has_branch(self, location: str, name: str) -> bool:
        """Whether a branch exists: one request for one small object."""
        ...

    def create_tag(
        self, location: str, name: str, *, branch: str | None = None, version: int
    ) -> None:
        """Pin a version."""
        ...

    def delete_tag(self, location: str, name: str) -> None:
        """Unpin a version."""
        ...

    def list_tags(self, location: str) -> tuple[TagInfo, ...]:
        """List the dataset's tags by name."""
        ...

    # Maintenance

    def cleanup(
        self,
        location: str,
        request: CleanupRequest,
        *,
        branch: str | None = None,
        preview: bool = True,
    ) -> CleanupReport:
        """Remove old versions and the files that only they need; by default only report them."""
        ...

    def pack_versions(
        self, location: str, *, branch: str | None = None, with_files: bool = False
    ) -> int:
        """Put the files of old versions together into one, if there are many; return how many.

        The versions can be read as before. `with_files` takes in the files that only they need; the
        caller then holds the lock of the branch, and all readers read whole versions at once.
        """
        ...

    def has_versions_to_pack(self, location: str, *, branch: str | None = None) -> bool:
        """Whether `pack_versions` has enough to do."""
        ...

    def packed_versions(self, path: str) -> frozenset[int]:
        """Return the versions in a pack; raises `CorruptObjectError` when it is damaged."""
        ...

    def unreferenced_files(self, location: str) -> tuple[ObjectInfo, ...]:
        """Return files under a dataset that no version of any lineage needs.

        Running jobs have such files too: spare young ones and what a job has declared.
        """
        ...

    def needed_files(
        self, location: str, *, branch: str | None = None, versions: Collection[int]
    ) -> Iterator[NeededFile]:
        """Return the files that some versions of a lineage refer to, version by version.

        A version that cannot be read is left out as a whole.
        """
        ...

    def torn_refs(self, location: str) -> tuple[str, ...]:
        """Return the files of branches and tags that were cut off before they were complete.

        Running processes see refs whole. These are left by a power failure, and their branch or
        tag was never acknowledged. Until they are deleted no ref can be listed.
        """
        ...

    def torn_head(self, location: str, *, branch: str | None = None) -> TornHead | None:
        """Return the newest version if its file was cut off before it was complete.

        One that is complete but unreadable is a `CorruptObjectError`.
        """
        ...

    def discard_torn_head(self, location: str, *, branch: str | None = None) -> int | None:
        """Remove what `torn_head` returns; return its number, or `None` if it can be read."""
        ...

    def forget(self, location: str) -> None:
        """Drop cached handles of a dataset that has been deleted."""
        ...

    def forget_all(self) -> None:
        """Drop everything that is cached, open versions included."""
        ...
