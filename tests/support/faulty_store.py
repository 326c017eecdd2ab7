"""Storage that fails on purpose.

Both protocols can be wrapped around one `FaultPlan`. It numbers every *effect*, that is every call
that writes, across both wrappers, and does what it was told at effect number n:

| mode | effect n | the caller sees | afterwards |
|---|---|---|---|
| `FAIL_BEFORE` | does not happen | `StorageUnavailableError` | everything works again |
| `FAIL_AFTER` | happens | `WriteOutcomeUnknownError` | everything works again |
| `DIE_BEFORE` | does not happen | `SimulatedDeath` | every call dies, reads too |
| `DIE_AFTER` | happens | `SimulatedDeath` | every call dies, reads too |

A dead process has no `finally`: whatever handlers do after `SimulatedDeath` has no effect, because
every further call dies as well.

```python
for plan in sweep(FaultMode.DIE_AFTER):
    graph = fresh_copy()
    with suppress(SimulatedDeath):
        operation(faulty(graph, plan))
    check(reopened(graph))
```
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import pyarrow as pa

from omnigraph.store.background import Inline
from omnigraph.store.connect import Store
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.objects.protocol import ObjectInfo, ObjectStore, StoredObject
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
    IndexSpec,
    LinkedRows,
    NeededFile,
    Rows,
    StagedTransaction,
    TagInfo,
    TornHead,
    TransactionInfo,
    VersionInfo,
    WrittenDeletion,
    WrittenFragment,
    WrittenIndexSegment,
)
from support.fault_plan import (
    Effect,
    FaultMode,
    FaultPlan,
    ReadFault,
    SimulatedDeath,
    sweep,
)

__all__ = [
    "Effect",
    "FaultMode",
    "FaultPlan",
    "FaultyDatasetStore",
    "FaultyObjectStore",
    "ReadFault",
    "SimulatedDeath",
    "faulty",
    "sweep",
]

_ROWS_MAX: Final = 1_000_000
_BYTES_MAX: Final = 256 * 1024 * 1024

_Answer = TypeVar("_Answer")


def faulty(store: Store, plan: FaultPlan) -> Store:
    """Return the same store with both halves under a plan, and its effects in one order."""
    return replace(
        store,
        objects=FaultyObjectStore(store.objects, plan),
        datasets=FaultyDatasetStore(store.datasets, plan),
        background=Inline(),
    )


class FaultyObjectStore:
    """An `ObjectStore` under a plan."""

    def __init__(self, inner: ObjectStore, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    def get(self, path: str) -> StoredObject:
        """Read an object."""
        return self._plan.read("objects.get", path, lambda: self._inner.get(path))

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object."""
        return self._plan.read("objects.head", path, lambda: self._inner.head(path))

    def list(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        """Describe every object under a directory."""
        return self._plan.read("objects.list", prefix, lambda: self._inner.list(prefix))

    def put(self, path: str, data: bytes) -> str:
        """Write an object."""
        return self._plan.effect("objects.put", path, lambda: self._inner.put(path, data))

    def put_pieces(self, path: str, pieces: Iterable[bytes | memoryview]) -> str:
        """Write an object that comes in pieces."""
        return self._plan.effect(
            "objects.put_pieces", path, lambda: self._inner.put_pieces(path, pieces)
        )

    def put_if_absent(self, path: str, data: bytes) -> str:
        """Create an object."""
        return self._plan.effect(
            "objects.put_if_absent", path, lambda: self._inner.put_if_absent(path, data)
        )

    def put_if_match(self, path: str, data: bytes, *, tag: str) -> str:
        """Replace the object that has `tag`."""
        return self._plan.effect(
            "objects.put_if_match", path, lambda: self._inner.put_if_match(path, data, tag=tag)
        )

    def copy(self, path: str, to_path: str) -> None:
        """Give the bytes of an object another name."""
        self._plan.effect("objects.copy", path, lambda: self._inner.copy(path, to_path))

    def delete(self, path: str) -> None:
        """Remove an object if it is there."""
        self._plan.effect("objects.delete", path, lambda: self._inner.delete(path))

    def delete_prefix(self, prefix: str) -> int:
        """Remove everything under a directory."""
        return self._plan.effect(
            "objects.delete_prefix", prefix, lambda: self._inner.delete_prefix(prefix)
        )

    def leftovers(self) -> tuple[ObjectInfo, ...]:
        """Describe temporary files."""
        return self._plan.read("objects.leftovers", "", self._inner.leftovers)


class FaultyDatasetStore:
    """A `DatasetStore` under a plan. Handles that it gives out read without faults."""

    def __init__(self, inner: DatasetStore, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    def open(
        self, location: str, *, branch: str | None = None, version: int | None = None
    ) -> DatasetHandle:
        """Open one version."""
        return self._read(
            "open", location, lambda: self._inner.open(location, branch=branch, version=version)
        )

    def exists(
        self, location: str, *, branch: str | None = None, version: int | None = None
    ) -> bool:
        """Whether the lineage has this version, or any."""
        return self._read(
            "exists", location, lambda: self._inner.exists(location, branch=branch, version=version)
        )

    def head_version(self, location: str, *, branch: str | None = None) -> int:
        """Return the newest version number."""
        return self._read(
            "head_version", location, lambda: self._inner.head_version(location, branch=branch)
        )

    def versions(self, location: str, *, branch: str | None = None) -> tuple[VersionInfo, ...]:
        """Describe every version."""
        return self._read(
            "versions", location, lambda: self._inner.versions(location, branch=branch)
        )

    def transactions(
        self, location: str, *, branch: str | None = None, first: int, last: int
    ) -> tuple[TransactionInfo, ...]:
        """Say whose commit each version is."""
        return self._read(
            "transactions",
            location,
            lambda: self._inner.transactions(location, branch=branch, first=first, last=last),
        )

    def write_fragments(
        self,
        base: DatasetVersion,
        rows: Rows,
        *,
        row_id_column: str | None = None,
        replacing_schema: pa.Schema | None = None,
    ) -> tuple[WrittenFragment, ...]:
        """Write rows as uncommitted fragments."""
        return self._effect(
            "write_fragments",
            base.location,
            lambda: self._inner.write_fragments(
                base,
                rows,
                row_id_column=row_id_column,
                replacing_schema=replacing_schema,
            ),
        )

    def write_deletions(
        self, base: DatasetVersion, addresses: Sequence[int] | pa.Array
    ) -> tuple[WrittenDeletion, ...]:
        """Write the deletion of rows."""
        return self._effect(
            "write_deletions", base.location, lambda: self._inner.write_deletions(base, addresses)
        )

    def write_index_segment(
        self, base: DatasetVersion, spec: IndexSpec, *, fragment_ids: Sequence[int] | None = None
    ) -> WrittenIndexSegment:
        """Build an index over some fragments."""
        return self._effect(
            "write_index_segment",
            base.location,
            lambda: self._inner.write_index_segment(base, spec, fragment_ids=fragment_ids),
        )

    def plan_compaction(
        self, base: DatasetVersion, options: CompactionOptions | None = None
    ) -> tuple[CompactionTask, ...]:
        """Say which fragments are worth rewriting."""
        return self._read(
            "plan_compaction", base.location, lambda: self._inner.plan_compaction(base, options)
        )

    def run_compaction(self, task: CompactionTask) -> CompactionResult:
        """Rewrite the fragments of one task."""
        return self._effect(
            "run_compaction", task.base.location, lambda: self._inner.run_compaction(task)
        )

    def stage_create(
        self,
        location: str,
        schema: pa.Schema,
        *,
        rows: Rows | None = None,
    ) -> StagedTransaction:
        """Prepare a new dataset."""
        return self._effect(
            "stage_create",
            location,
            lambda: self._inner.stage_create(location, schema, rows=rows),
        )

    def stage_append(
        self,
        base: DatasetVersion,
        rows: Rows | None = None,
        *,
        fragments: Sequence[WrittenFragment] = (),
    ) -> StagedTransaction:
        """Prepare new rows."""
        return self._effect(
            "stage_append",
            base.location,
            lambda: self._inner.stage_append(base, rows, fragments=fragments),
        )

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
        """Prepare rewritten, new and deleted rows."""
        return self._effect(
            "stage_update",
            base.location,
            lambda: self._inner.stage_update(
                base,
                rewritten=rewritten,
                inserted=inserted,
                deleted=deleted,
                fragments=fragments,
                deletions=deletions,
                fence=fence,
            ),
        )

    def stage_overwrite(
        self,
        base: DatasetVersion,
        schema: pa.Schema,
        *,
        rows: Rows | None = None,
        row_id_column: str | None = None,
        fragments: Sequence[WrittenFragment] = (),
    ) -> StagedTransaction:
        """Prepare new content."""
        return self._effect(
            "stage_overwrite",
            base.location,
            lambda: self._inner.stage_overwrite(
                base, schema, rows=rows, row_id_column=row_id_column, fragments=fragments
            ),
        )

    def stage_columns(
        self, base: DatasetVersion, schema: pa.Schema, sources: Mapping[str, ColumnSource]
    ) -> StagedTransaction:
        """Prepare other columns."""
        return self._effect(
            "stage_columns",
            base.location,
            lambda: self._inner.stage_columns(base, schema, sources),
        )

    def linked_rows(
        self, source: DatasetVersion, target: DatasetVersion, *, base: DatasetVersion
    ) -> LinkedRows | None:
        """Find what a source has over a target."""
        return self._read(
            "linked_rows",
            source.location,
            lambda: self._inner.linked_rows(source, target, base=base),
        )

    def stage_linked(self, base: DatasetVersion, rows: LinkedRows) -> StagedTransaction:
        """Prepare to take over the files of a source."""
        return self._effect(
            "stage_linked", base.location, lambda: self._inner.stage_linked(base, rows)
        )

    def stage_linked_create(
        self, location: str, schema: pa.Schema, source: DatasetVersion
    ) -> StagedTransaction | None:
        """Prepare a new dataset with the files of another one."""
        return self._effect(
            "stage_linked_create",
            location,
            lambda: self._inner.stage_linked_create(location, schema, source),
        )

    def stage_create_index(
        self,
        base: DatasetVersion,
        specs: Sequence[IndexSpec] = (),
        *,
        segments: Sequence[WrittenIndexSegment] = (),
        replaced: Iterable[str] = (),
    ) -> StagedTransaction:
        """Prepare indexes."""
        return self._effect(
            "stage_create_index",
            base.location,
            lambda: self._inner.stage_create_index(
                base, specs, segments=segments, replaced=replaced
            ),
        )

    def stage_compaction(
        self, base: DatasetVersion, results: Sequence[CompactionResult]
    ) -> StagedTransaction:
        """Prepare the exchange of fragments."""
        return self._effect(
            "stage_compaction", base.location, lambda: self._inner.stage_compaction(base, results)
        )

    def stage_metadata(
        self,
        base: DatasetVersion,
        *,
        schema_metadata: Mapping[str, str | None] | None = None,
        field_metadata: Mapping[str, Mapping[str, str | None]] | None = None,
    ) -> StagedTransaction:
        """Prepare changes of metadata."""
        return self._effect(
            "stage_metadata",
            base.location,
            lambda: self._inner.stage_metadata(
                base, schema_metadata=schema_metadata, field_metadata=field_metadata
            ),
        )

    def verify_staged_files(self, staged: StagedTransaction) -> None:
        """Check that every staged file exists."""
        self._read(
            "verify_staged_files",
            staged.base.location,
            lambda: self._inner.verify_staged_files(staged),
        )

    def commit_staged(self, staged: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        """Commit once."""
        return self._effect(
            "commit_staged",
            staged.base.location,
            lambda: self._inner.commit_staged(staged, exact=exact),
        )

    def restore(
        self, location: str, *, branch: str | None = None, version: int, uuid: str
    ) -> CommittedRange:
        """Append a version with old content."""
        return self._effect(
            "restore",
            location,
            lambda: self._inner.restore(location, branch=branch, version=version, uuid=uuid),
        )

    def open_staged(self, staged: StagedTransaction) -> DatasetHandle:
        """Read what a staged transaction would make."""
        return self._effect(
            "open_staged", staged.base.location, lambda: self._inner.open_staged(staged)
        )

    def following(
        self, staged: StagedTransaction, previous: StagedTransaction
    ) -> StagedTransaction:
        """Return a staged transaction as the successor of another; no effect."""
        return self._inner.following(staged, previous)

    def discard_staged_view(self, at: DatasetVersion) -> None:
        """Remove what `open_staged` has made."""
        self._effect(
            "discard_staged_view", at.location, lambda: self._inner.discard_staged_view(at)
        )

    def create_branch(
        self, location: str, name: str, *, from_branch: str | None = None, from_version: int
    ) -> DatasetVersion:
        """Cut a branch."""
        return self._effect(
            "create_branch",
            location,
            lambda: self._inner.create_branch(
                location, name, from_branch=from_branch, from_version=from_version
            ),
        )

    def delete_branch(self, location: str, name: str) -> None:
        """Remove a branch."""
        self._effect("delete_branch", location, lambda: self._inner.delete_branch(location, name))

    def list_branches(self, location: str) -> tuple[BranchInfo, ...]:
        """List the branches."""
        return self._read("list_branches", location, lambda: self._inner.list_branches(location))

    def branch_names(self, location: str) -> tuple[str, ...]:
        """List the names of the branches."""
        return self._read("branch_names", location, lambda: self._inner.branch_names(location))

    def has_branch(self, location: str, name: str) -> bool:
        """Whether a branch exists."""
        return self._read("has_branch", location, lambda: self._inner.has_branch(location, name))

    def create_tag(
        self, location: str, name: str, *, branch: str | None = None, version: int
    ) -> None:
        """Pin a version."""
        self._effect(
            "create_tag",
            location,
            lambda: self._inner.create_tag(location, name, branch=branch, version=version),
        )

    def delete_tag(self, location: str, name: str) -> None:
        """Unpin a version."""
        self._effect("delete_tag", location, lambda: self._inner.delete_tag(location, name))

    def list_tags(self, location: str) -> tuple[TagInfo, ...]:
        """List the tags."""
        return self._read("list_tags", location, lambda: self._inner.list_tags(location))

    def cleanup(
        self,
        location: str,
        request: CleanupRequest,
        *,
        branch: str | None = None,
        preview: bool = True,
    ) -> CleanupReport:
        """Remove old versions."""
        run = self._read if preview else self._effect
        return run(
            "cleanup",
            location,
            lambda: self._inner.cleanup(location, request, branch=branch, preview=preview),
        )

    def pack_versions(
        self, location: str, *, branch: str | None = None, with_files: bool = False
    ) -> int:
        """Put the files of old versions together."""
        return self._effect(
            "pack_versions",
            location,
            lambda: self._inner.pack_versions(location, branch=branch, with_files=with_files),
        )

    def has_versions_to_pack(self, location: str, *, branch: str | None = None) -> bool:
        """Return whether there are enough old versions."""
        return self._read(
            "has_versions_to_pack",
            location,
            lambda: self._inner.has_versions_to_pack(location, branch=branch),
        )

    def packed_versions(self, path: str) -> frozenset[int]:
        """Return the versions in a pack."""
        return self._read("packed_versions", path, lambda: self._inner.packed_versions(path))

    def unreferenced_files(self, location: str) -> tuple[ObjectInfo, ...]:
        """Return files that no version needs."""
        return self._read(
            "unreferenced_files", location, lambda: self._inner.unreferenced_files(location)
        )

    def needed_files(
        self, location: str, *, branch: str | None = None, versions: Collection[int]
    ) -> Iterator[NeededFile]:
        """Return the files that some versions refer to."""
        return self._read(
            "needed_files",
            location,
            lambda: self._inner.needed_files(location, branch=branch, versions=versions),
        )

    def torn_refs(self, location: str) -> tuple[str, ...]:
        """Return incomplete refs."""
        return self._read("torn_refs", location, lambda: self._inner.torn_refs(location))

    def torn_head(self, location: str, *, branch: str | None = None) -> TornHead | None:
        """Return an incomplete newest version."""
        return self._read(
            "torn_head", location, lambda: self._inner.torn_head(location, branch=branch)
        )

    def discard_torn_head(self, location: str, *, branch: str | None = None) -> int | None:
        """Remove an unreadable newest version."""
        return self._effect(
            "discard_torn_head",
            location,
            lambda: self._inner.discard_torn_head(location, branch=branch),
        )

    def forget(self, location: str) -> None:
        """Drop cached handles."""
        self._inner.forget(location)

    def forget_all(self) -> None:
        self._inner.forget_all()

    def _effect(self, name: str, path: str, call: Callable[[], _Answer]) -> _Answer:
        return self._plan.effect(f"datasets.{name}", path, call)

    def _read(self, name: str, path: str, call: Callable[[], _Answer]) -> _Answer:
        return self._plan.read(f"datasets.{name}", path, call)
