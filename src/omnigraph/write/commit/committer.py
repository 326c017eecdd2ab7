"""The one way in which prepared writes become visible.

    prepare   in parallel with everybody: read, validate, fork, stage. No head moves.
    lock      one writer per branch: settle what a dead predecessor left, look again.
    phase A   every staged file is there with its size; the intent record is written.
    phase B   each staged transaction is committed on its table, in order.
    phase C   one manifest commit makes all of it visible, under an id minted in advance.
    phase D   the record is deleted, the lock ends, the caller hears "done".

An error before phase A leaves nothing but unreferenced files. From phase A on the record stays
until the operation is settled: by phase D, or by whoever takes the next lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from omnigraph.errors import CorruptError, OmnigraphError, OutcomeUnknownError
from omnigraph.failpoints import hit
from omnigraph.manifest import (
    CommitDraft,
    Entry,
    GraphCommit,
    Published,
    Registration,
    Repository,
    Requirements,
    Updates,
)
from omnigraph.manifest.branch_lock import BranchLock, BranchLockLostError, BranchLockTimeoutError
from omnigraph.manifest.errors import (
    BranchGoneError,
    CommitSettledError,
    PublishTimeoutError,
    SchemaApplyInProgressError,
)
from omnigraph.manifest.forks import WriteBase
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.publish import StagedPublish
from omnigraph.manifest.requirements import Revalidate
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.manifest.state import ManifestState
from omnigraph.names import BranchName
from omnigraph.recovery import Intent, PlannedTable, Recovery, WriterKind
from omnigraph.recovery.classify import Mode, mode_of
from omnigraph.recovery.intent import INTENT_VERSION, Adoption, ForkOrigin
from omnigraph.store.errors import StorageError
from omnigraph.store.records import StagedTransaction
from omnigraph.write.commit.late_commits import DriftNeedsRepairError, undo_late_commits

_log = logging.getLogger(__name__)


class IncompleteWriteError(CorruptError):
    """A table has not reached the version that its transactions should have made."""

    code = "OG-INCOMPLETE-WRITE"
    hint = "`omnigraph recovery status` shows it; the next write settles it"

    def __init__(self, table_key: str, intended: int, reached: int) -> None:
        self.table_key = table_key
        self.intended = intended
        self.reached = reached
        super().__init__(
            f"{table_key} reached version {reached} instead of {intended}; the write was not"
            " published and recovery settles it"
        )


class WriteUnsettledError(OutcomeUnknownError):
    """Every table has moved, the publish has failed: recovery publishes it or takes it back.

    Whatever the storage said about its own call, the write as a whole may still become visible.
    `__cause__` is the failure itself.
    """

    code = "OG-WRITE-UNSETTLED"

    def __init__(self, operation_id: str, commit_id: str, reason: str) -> None:
        self.operation_id = operation_id
        self.commit_id = commit_id
        self.reason = reason
        super().__init__(
            f"operation {operation_id} is written but not yet published, and the next write to the"
            f" branch settles it: {reason}"
        )
        self.hint = f"look for commit {commit_id} before writing the same again"


@dataclass(frozen=True)
class TableWrite:
    """What a write does to one table: transactions that follow each other on one lineage.

    `base` is None for a dataset that the write creates at `location`. `table_key` is the key to
    publish; while a type takes another name, the entry of `base` still has the old one.
    """

    table_key: str
    staged: tuple[StagedTransaction, ...]
    row_count: int
    base: WriteBase | None = None
    location: str = ""
    owner_branch: str = "main"

    @property
    def expected(self) -> Entry | None:
        """The published entry that the write was prepared on."""
        return None if self.base is None else self.base.entry

    @property
    def intended_version(self) -> int:
        """The version that the last transaction makes."""
        return self.staged[-1].intended_version

    @cached_property
    def planned(self) -> PlannedTable:
        """The table as the intent record names it."""
        base = self.base
        fork = base is not None and base.is_fork
        return PlannedTable(
            table_key=self.table_key,
            table_path=base.base.location if base else self.location,
            table_branch=base.base.branch if base else None,
            entry=self.expected,
            expected_version=base.base.version if base else 0,
            post_commit_pin=self.intended_version,
            transaction_ids=tuple(staged.uuid for staged in self.staged),
            fork_of=(
                ForkOrigin(base.entry.table_branch, base.base.version) if base and fork else None
            ),
            row_count=self.row_count,
            owner_branch=base.owner_branch if base else self.owner_branch,
        )

    def published(self) -> Entry:
        """Return the entry to publish."""
        version = self.intended_version
        if self.base is not None:
            entry = self.base.entry_at(version, self.row_count)
            return replace(entry, table_key=self.table_key)
        return replace(self.planned.created_entry(), table_version=version)


@dataclass(frozen=True)
class WriteJob:
    """A prepared write."""

    kind: WriterKind
    incarnation: Incarnation
    operation_id: str
    draft: CommitDraft
    schema_hash: str
    tables: tuple[TableWrite, ...] = ()
    reads: Mapping[str, Entry | None] = field(default_factory=dict)
    expected_head: str | None = None
    merge_source_commit_id: str | None = None
    merged_into: str | None = None
    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[str, ...] = ()
    schema: AcceptedSchema | None = None
    adopted: tuple[Adoption, ...] = ()
    """Entries to publish as they are, beside the tables that move."""

    @property
    def writer(self) -> str:
        """What the writer is called at failpoints."""
        return self.kind.name.lower()

    @cached_property
    def updates(self) -> Updates:
        """What the write publishes, once every table has reached its intended version."""
        return Updates(
            entries=(
                *(table.published() for table in self.tables),
                *(adoption.entry for adoption in self.adopted),
            ),
            registrations=self.registrations,
            tombstones=self.tombstones,
            schema=self.schema,
        )

    @cached_property
    def requirements(self) -> Requirements:
        """What must still hold when the write is published."""
        moved = {table.planned.accepted_key: table.expected for table in self.tables}
        adopted = {adoption.accepted_key: adoption.expected for adoption in self.adopted}
        return Requirements(
            schema_hash=self.schema_hash,
            written=moved | adopted,
            read=self.reads,
            expected_head=self.expected_head,
            merged_into=self.merged_into,
        )


class _Reserved(threading.local):
    """The lock that the current thread holds for its next commit."""

    lock: BranchLock | None = None


class Committer:
    """Takes prepared writes through lock and phases."""

    def __init__(self, repository: Repository, recovery: Recovery, owner_id: str) -> None:
        self._repository = repository
        self._recovery = recovery
        self._owner_id = owner_id
        self._datasets = repository.store.datasets
        self._objects = repository.store.objects
        self.on_commit: Callable[[WriteJob], None] | None = None
        """Hears of every write that has become visible, after its lock."""
        self.on_published: Callable[[GraphCommit], None] | None = None
        """Takes over recording a commit in the derived tables, which need not happen at once."""
        self._reserved = _Reserved()

    def commit(self, job: WriteJob, *, revalidate: Revalidate | None = None) -> Published:
        """Make a prepared write visible, or raise.

        A conflict raised before phase A has changed nothing. `revalidate` checks again what was
        read, when other tables than the written ones have moved.
        """
        hit("write.post_stage", writer=job.writer)
        branch = job.incarnation.branch
        if self._reserved.lock is not None:
            published = self.commit_locked(job, self._reserved.lock, revalidate=revalidate)
        else:
            operation = job.draft.operation
            with self.branch_lock(branch, operation_id=job.operation_id, operation=operation) as it:
                hit("write.turn_taken", writer=job.writer)
                self._recovery.sweep_branch(branch)
                published = self.commit_locked(job, it, revalidate=revalidate)
        self.record(published)
        if self.on_commit is not None:
            self.on_commit(job)
        return published

    @contextmanager
    def reserved_lock(self, branch: BranchName, *, operation: str) -> Iterator[None]:
        """Let this thread prepare and commit under one lock, so that nobody can be faster.

        Preparing is long and a lock should be short: this is for a write that has lost its race
        again and again.
        """
        operation_id = self._repository.clock.ulid()
        with self.branch_lock(branch, operation_id=operation_id, operation=operation) as it:
            self._recovery.sweep_branch(branch)
            self._reserved.lock = it
            try:
                yield
            finally:
                self._reserved.lock = None

    @contextmanager
    def branch_lock(
        self, branch: BranchName, *, operation_id: str, operation: str
    ) -> Iterator[BranchLock]:
        """Hold the lock of a branch; whoever would wait for a schema change is refused instead."""
        branch_locks = self._repository.branch_locks
        with ExitStack() as stack:
            try:
                held = stack.enter_context(
                    branch_locks.take(
                        branch, operation_id=operation_id, wait_max_s=branch_locks.takeover_s
                    )
                )
            except BranchLockTimeoutError as busy:
                if self._repository.branches.has_schema_lock():
                    raise SchemaApplyInProgressError(operation) from busy
                held = stack.enter_context(branch_locks.take(branch, operation_id=operation_id))
            yield held

    def commit_locked(
        self, job: WriteJob, lock: BranchLock, *, revalidate: Revalidate | None = None
    ) -> Published:
        """Do what `commit` does, under a lock that the caller holds and has swept."""
        try:
            state = self._require_ready(job, revalidate)
        except DriftNeedsRepairError:
            # Not drift, when it is the unfinished write of whoever has the lock now.
            lock.check()
            raise
        for staged in (staged for table in job.tables for staged in table.staged):
            self._datasets.verify_staged_files(staged)
        intent = self._intent(job)
        with self._repository.publisher.prestage(
            job.incarnation, state, draft=job.draft, updates=job.updates
        ) as ahead:
            self._objects.put_if_absent(intent.path, intent.to_json())
            hit("recovery.sidecar_write")
            published = self._run(job, intent, lock, revalidate, ahead)
        self._forget(intent)
        hit("write.sidecar_deleted", writer=job.writer)
        return published

    def record(self, published: Published) -> None:
        """Add a published commit to the derived tables, after the lock."""
        if published.commit is None:
            return
        if self.on_published is not None:
            self.on_published(published.commit)
        else:
            self._repository.commit_tables.record([published.commit])

    def _require_ready(self, job: WriteJob, revalidate: Revalidate | None) -> ManifestState:
        repository = self._repository
        if not repository.branches.is_alive(job.incarnation):
            raise BranchGoneError(job.incarnation.text)
        if job.kind is not WriterKind.SCHEMA_APPLY:
            self._require_no_schema_apply(job)
        state = repository.publisher.require(job.incarnation, job.requirements, revalidate)
        put_back = [
            undo_late_commits(repository, self._recovery, job.incarnation, table.base.entry)
            for table in job.tables
            if table.base is not None and not table.base.is_fork
        ]
        if any(put_back):
            # What was put back has a new entry: the write has to be prepared again.
            state = repository.publisher.require(job.incarnation, job.requirements, revalidate)
        return state

    def _require_no_schema_apply(self, job: WriteJob) -> None:
        branches = self._repository.branches
        if not job.incarnation.is_main:
            branches.require_no_schema_apply(job.draft.operation)
        elif branches.has_schema_lock():
            # Its owner would hold the lock that is held here: it is dead.
            branches.clear_schema_lock()

    def _run(
        self,
        job: WriteJob,
        intent: Intent,
        lock: BranchLock,
        revalidate: Revalidate | None,
        ahead: Future[StagedPublish],
    ) -> Published:
        with self._repository.store.flusher.together():
            reached = self._phase_b(job)
        hit("write.post_phase_b_pre_manifest_commit", writer=job.writer)
        # Without a table there is nothing to confirm, and recovery publishes from the record on: a
        # confirmation that failed would tell the caller of a merge that is done that it is not.
        if job.tables and mode_of(job.kind, INTENT_VERSION) is Mode.CONFIRMED:
            self._objects.put(intent.path, intent.confirmed(reached).to_json())
            hit("recovery.sidecar_confirm")
        try:
            lock.check()
            hit("graph_publish.before_commit_append")
            published = self._repository.publisher.publish(
                job.incarnation,
                draft=job.draft,
                requirements=job.requirements,
                updates=job.updates,
                revalidate=revalidate,
                prestaged=ahead,
            )
        except (CommitSettledError, BranchLockLostError) as error:
            published = self._settled_elsewhere(job, intent, error)
        except (BranchGoneError, StorageError, PublishTimeoutError) as error:
            if isinstance(error, OutcomeUnknownError):
                raise
            # A branch that is gone may have shown the write before: recovery has published it.
            commit_id = job.draft.graph_commit_id
            raise WriteUnsettledError(job.operation_id, commit_id, str(error)) from error
        hit("graph_publish.after_commit_append")
        return published

    def _settled_elsewhere(
        self, job: WriteJob, intent: Intent, error: CommitSettledError | BranchLockLostError
    ) -> Published:
        """Say what became of a write that was presumed dead, or raise."""
        commit_id = job.draft.graph_commit_id
        try:
            state = self._repository.reader.latest(job.incarnation)
        except BranchGoneError as gone:
            raise WriteUnsettledError(job.operation_id, commit_id, str(gone)) from error
        commit = state.commit(commit_id)
        if commit is not None:
            # Recovery has published it on our behalf: to the caller it is done.
            keys = [table.table_key for table in job.tables]
            entries = {key: state.entries[key] for key in keys if key in state.entries}
            return Published(commit.manifest_version, commit, entries)
        if state.is_voided(commit_id):
            # What phase B did since then must be put back.
            self._objects.put(intent.path, replace(intent, settled=True).to_json())
            raise CommitSettledError(commit_id, is_published=False) from error
        raise WriteUnsettledError(job.operation_id, commit_id, str(error)) from error

    def _phase_b(self, job: WriteJob) -> dict[str, int]:
        reached: dict[str, int] = {}
        for table in job.tables:
            version = 0
            for staged in table.staged:
                version = self._datasets.commit_staged(staged).version
            if version != table.intended_version:
                raise IncompleteWriteError(table.table_key, table.intended_version, version)
            reached[table.table_key] = version
            if len(reached) == 1:
                hit("write.after_first_table", writer=job.writer)
        return reached

    def _forget(self, intent: Intent) -> None:
        try:
            self._objects.delete(intent.path)
        except OmnigraphError as error:
            _log.warning("the write is done; its record stays for the next lock: %s", error)

    def _intent(self, job: WriteJob) -> Intent:
        clock = self._repository.clock
        return Intent(
            operation_id=job.operation_id,
            owner_id=self._owner_id,
            started_at=clock.now_us(),
            branch=job.incarnation.branch.text,
            branch_incarnation=job.incarnation.text,
            schema_hash=job.schema_hash,
            writer_kind=job.kind,
            commit=job.draft,
            recovery_commit_id=clock.ulid(),
            tables=tuple(table.planned for table in job.tables),
            reads=tuple(job.reads.items()),
            expected_head=job.expected_head,
            merge_source_commit_id=job.merge_source_commit_id,
            merged_into=job.merged_into,
            additional_registrations=job.registrations,
            tombstones=job.tombstones,
            schema=job.schema,
            adopted=job.adopted,
        )
