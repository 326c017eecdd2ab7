"""What every call of a graph rests on: the open repository, the bound branch, snapshots."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Self

import pyarrow as pa

from omnigraph.clock import Clock, SystemClock
from omnigraph.errors import InvalidInputError
from omnigraph.maintenance.background import BackgroundMaintenance
from omnigraph.maintenance.optimize import Maintenance
from omnigraph.manifest import (
    GraphCommit,
    OpenMode,
    ReadTarget,
    Repository,
    Snapshot,
    init_repository,
    open_repository,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.repository import check_contract, reconcile_commits
from omnigraph.manifest.state import ManifestState
from omnigraph.names import MAIN, BranchName, check_actor, choice, one_of
from omnigraph.read.reader import Reader
from omnigraph.recovery import Recovery
from omnigraph.schema import Catalog, compile_schema
from omnigraph.search.embedding.client import LazyEmbeddingClient
from omnigraph.search.topology.cache import Topologies
from omnigraph.search.topology.store import TopologyStore
from omnigraph.store import connect
from omnigraph.store.durability import DURABILITIES, Durability
from omnigraph.store.filters import Comparison
from omnigraph.store.records import ScanRequest
from omnigraph.syntax import SourceText
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import WriteJob
from omnigraph.write.stage.staging_record import StagingRecords


class ReadOnlyGraphError(InvalidInputError):
    """The graph was opened for reading only."""

    code = "OG-READ-ONLY"
    hint = "open it with mode=OpenMode.READ_WRITE"

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(f"{operation} needs a graph that was opened for writing")


class ForeignSnapshotError(InvalidInputError):
    """A snapshot came from another handle, which may be one of another graph."""

    code = "OG-FOREIGN-SNAPSHOT"
    hint = "take the snapshot from this handle, or name it by a `ReadTarget`"

    def __init__(self, manifest_version: int) -> None:
        self.manifest_version = manifest_version
        super().__init__(
            f"the snapshot of manifest version {manifest_version} was taken from another handle"
        )


class GraphCore:
    """A graph that is open, bound to one of its branches."""

    def __init__(
        self,
        repository: Repository,
        *,
        mode: OpenMode,
        incarnation: Incarnation,
        auto_optimize: bool = True,
    ) -> None:
        self._repository = repository
        self._mode = mode
        self._incarnation = incarnation
        self._guard = threading.Lock()
        self._recovery = Recovery(repository)
        self._committer = Committer(
            repository,
            self._recovery,
            owner_id=repository.clock.ulid(),
            on_commit=self._note_commit,
            record=self._record_commit,
        )
        self._maintenance = Maintenance(repository, self._recovery, self._committer)
        self._staging = StagingRecords(repository.store.objects, repository.clock)
        self._auto_optimize = BackgroundMaintenance(
            repository, self._maintenance, enabled=auto_optimize
        )
        is_writable = mode is OpenMode.READ_WRITE
        self._topologies = Topologies(TopologyStore(repository.store, is_writable=is_writable))
        self._embeddings = LazyEmbeddingClient(repository.clock, environ=os.environ)
        self._reader = Reader(self._topologies, repository.clock, embeddings=self._embeddings)

    # Methods, because the committer exists before the maintenance that uses it.
    def _note_commit(self, job: WriteJob) -> None:
        self._auto_optimize.note(job)

    def _record_commit(self, commit: GraphCommit) -> None:
        self._auto_optimize.record(commit)

    @classmethod
    def init(
        cls,
        uri: str | os.PathLike[str],
        schema: str | SourceText,
        *,
        actor_id: str | None = None,
        force: bool = False,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "full",
        clock: Clock | None = None,
        auto_optimize: bool = True,
        checksums: bool = True,
    ) -> Self:
        """Make a new graph with this schema; the root must not hold one.

        `force` replaces leftover schema files, never a graph. `auto_optimize=False` leaves the
        compaction after small writes to calls of `optimize`; `checksums=False` writes files without
        the checksums that `scrub` compares.
        """
        check_actor(actor_id)
        one_of(DURABILITIES, durability, "durability")
        clock = clock or SystemClock()
        compiled = compile_schema(schema, domain=clock.ulid())
        store = connect(
            str(uri), storage_options=storage_options, durability=durability, checksums=checksums
        )
        repository = init_repository(store, clock, compiled, actor_id=actor_id, force=force)
        return cls(
            repository,
            mode=OpenMode.READ_WRITE,
            incarnation=Incarnation(MAIN),
            auto_optimize=auto_optimize,
        )

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        branch: str = MAIN,
        mode: OpenMode | str = OpenMode.READ_WRITE,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "full",
        clock: Clock | None = None,
        auto_optimize: bool = True,
        checksums: bool = True,
    ) -> Self:
        """Open a graph and bind to a branch."""
        mode = choice(OpenMode, mode, "mode")
        one_of(DURABILITIES, durability, "durability")
        store = connect(
            str(uri), storage_options=storage_options, durability=durability, checksums=checksums
        )
        repository = open_repository(
            store,
            clock or SystemClock(),
            mode=mode,
            drop_torn=lambda repository: Recovery(repository).drop_torn(),
            sweep=lambda repository: Recovery(repository).sweep(),
        )
        if mode is OpenMode.READ_WRITE:
            repository.branches.drop_torn = Recovery(repository).drop_torn_branch
        incarnation = repository.branches.resolve(BranchName.parse(branch))
        if mode is OpenMode.READ_WRITE:
            if incarnation.is_main:
                Recovery(repository).drop_torn_branch(incarnation)
            else:
                reconcile_commits(repository, incarnation)
            repository.checksums.record()
        return cls(repository, mode=mode, incarnation=incarnation, auto_optimize=auto_optimize)

    def close(self) -> None:
        """Let go of the graph, after compaction up behind many small writes.

        Nothing is lost without it: every write was finished by its call.
        """
        self._auto_optimize.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def uri(self) -> str:
        """The root of the graph."""
        return self._repository.root

    @property
    def branch(self) -> str:
        """The branch that this handle is bound to."""
        return str(self._bound().branch)

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot of the bound branch."""
        return self._repository.history.snapshot(self._bound())

    def snapshot_of(self, target: ReadTarget | Snapshot) -> Snapshot:
        """Return the snapshot of a branch, a commit, a tag or a moment.

        A snapshot that this handle has given out stands for itself.
        """
        if isinstance(target, Snapshot):
            if target.datasets is not self._repository.store.datasets:
                raise ForeignSnapshotError(target.manifest_version)
            return target
        return self._repository.history.snapshot_of(target, self._bound())

    def snapshot_at_version(self, version: int) -> Snapshot:
        """Return the snapshot of one manifest version of the bound branch."""
        return self._repository.history.snapshot_at_version(self._bound(), version)

    def entity_at(self, table_key: str, entity_id: str, version: int) -> pa.Table:
        """Return one entity at one manifest version: a table of one row, or of none."""
        handle = self._repository.history.table_at_version(self._bound(), version, table_key)
        request = ScanRequest(row_filter=Comparison("id", "=", entity_id), limit=1)
        return handle.scan(request).read_all()

    def refresh(self) -> Snapshot:
        """Look at storage again: settle dead writes, check the schema, update derived tables."""
        if self._mode is OpenMode.READ_WRITE:
            self._recovery.sweep()
        snapshot = self.snapshot()
        check_contract(snapshot.state)
        if self._mode is OpenMode.READ_WRITE:
            reconcile_commits(self._repository, snapshot.incarnation)
            self._repository.checksums.record()
        return snapshot

    def catalog(self) -> Catalog:
        """Return what the accepted schema of the bound branch declares."""
        return self.snapshot().catalog

    def _bound(self) -> Incarnation:
        with self._guard:
            return self._incarnation

    def _state_of(self, branch: str | None) -> ManifestState:
        return self._repository.reader.latest(self._incarnation_of(branch))

    def _incarnation_of(self, branch: str | None) -> Incarnation:
        if branch is None:
            return self._bound()
        return self._repository.branches.resolve(BranchName.parse(branch))

    def _require_writable(self, operation: str) -> None:
        if self._mode is OpenMode.READ_ONLY:
            raise ReadOnlyGraphError(operation)
