"""The one way in which prepared writes become visible.

    prepare   in parallel with other writers: read, validate, fork, stage. No head moves.
    lock      one writer per branch: settle unfinished writes, check the requirements again.
    phase A   every staged file is there with its size; the intent record is written.
    phase B   each staged transaction is committed on its table, in order.
    phase C   one manifest commit makes all of it visible, under an id minted in advance.
    phase D   the record is deleted, the lock is released, the call returns.

An error before phase A leaves nothing but unreferenced files. From phase A on the record stays
until the operation is settled: by phase D, or by the process that takes the lock next.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from omnigraph.errors import ConflictError, CorruptError, OmnigraphError, OutcomeUnknownError
from omnigraph.failpoints import hit
from omnigraph.manifest import GraphCommit, Published, Repository
from omnigraph.manifest.errors import (
    BranchGoneError,
    CommitSettledError,
    PublishTimeoutError,
    SchemaApplyInProgressError,
)
from omnigraph.manifest.locks.branch_lock import (
    BranchLock,
    BranchLockLostError,
    BranchLockTimeoutError,
)
from omnigraph.manifest.publish import StagedPublish
from omnigraph.manifest.state import ManifestState
from omnigraph.names import BranchName
from omnigraph.recovery import Intent, Recovery, WriterKind
from omnigraph.recovery.classify import Mode, mode_of
from omnigraph.recovery.intent import INTENT_VERSION
from omnigraph.store.errors import StorageError
from omnigraph.write.commit.job import TableWrite, WriteJob
from omnigraph.write.commit.late_commits import DriftNeedsRepairError, undo_late_commits

_log = logging.getLogger(__name__)


class IncompleteWriteError(CorruptError):
    """A table has not reached the version that its transactions should have made."""

    code = "OG-INCOMPLETE-WRITE"
    hint = "`omnigraph recovery status` shows it; the next write settles it"
    template = (
        "{table_key} reached version {reached} instead of {intended}; the write was not"
        " published and recovery settles it"
    )
    table_key: str
    intended: int
    reached: int


class SchemaHeldError(ConflictError):
    """A handle is held to one schema, and the branch has another one; nothing was changed."""

    code = "OG-SCHEMA-HELD"
    hint = "try again: the new schema is about to be served, or `omnigraph cluster apply` ends it"
    template = "schema drift: the branch has the schema {found}, and the handle is held to {held}"
    held: str
    found: str


class WriteUnsettledError(OutcomeUnknownError):
    """Every table has moved, the publish has failed: recovery publishes it or takes it back.

    Whatever the storage reported, the write as a whole may still become visible.
    `__cause__` is the failure itself.
    """

    code = "OG-WRITE-UNSETTLED"
    hint = "look for commit {commit_id} before writing the same again"
    template = (
        "operation {operation_id} is written but not yet published, and the next write to the"
        " branch settles it: {reason}"
    )
    operation_id: str
    commit_id: str
    reason: str


class _Reserved(threading.local):
    """The lock that the current thread holds for its next commit."""

    lock: BranchLock | None = None


class Committer:
    """Takes prepared writes through lock and phases."""

    def __init__(
        self,
        repository: Repository,
        recovery: Recovery,
        owner_id: str,
        *,
        on_commit: Callable[[WriteJob], None] | None = None,
        record: Callable[[GraphCommit], None] | None = None,
        held_schema: str | None = None,
    ) -> None:
        """Work on one graph.

        `on_commit` is called after every write that has become visible, without the lock. `record`
        adds a commit to the derived tables, which may happen later; by default it happens at once.
        Writes are refused on a schema whose hash is not `held_schema`.
        """
        self._repository = repository
        self._recovery = recovery
        self._owner_id = owner_id
        self._datasets = repository.store.datasets
        self._objects = repository.store.objects
        self._on_commit = on_commit
        self._record = record
        self._held_schema = held_schema
        self._reserved = _Reserved()

    def held_to(self, schema_hash: str) -> Committer:
        """Return another committer of the graph, for writes on one schema only."""
        return Committer(
            self._repository,
            self._recovery,
            self._owner_id,
            on_commit=self._on_commit,
            record=self._record,
            held_schema=schema_hash,
        )

    def require_schema(self, schema_hash: str) -> None:
        """Raise if writes are held to another schema."""
        if self._held_schema is not None and schema_hash != self._held_schema:
            raise SchemaHeldError(self._held_schema, schema_hash)

    def commit(self, job: WriteJob) -> Published:
        """Make a prepared write visible, or raise.

        A conflict raised before phase A has changed nothing.
        """
        self.require_schema(job.schema_hash)
        began_s = self._repository.clock.monotonic_s()
        hit("write.post_stage", writer=job.writer)
        branch = job.incarnation.branch
        if self._reserved.lock is not None:
            published = self.commit_locked(job, self._reserved.lock)
        else:
            operation = job.draft.operation
            with self.branch_lock(
                branch, operation_id=job.operation_id, operation=operation
            ) as held:
                hit("write.turn_taken", writer=job.writer)
                self._recovery.sweep_branch(branch)
                published = self.commit_locked(job, held)
        self._log_commit(job, published, began_s)
        self.record(published)
        if self._on_commit is not None:
            self._on_commit(job)
        return published

    def _log_commit(self, job: WriteJob, published: Published, began_s: float) -> None:
        if published.commit is None or not _log.isEnabledFor(logging.DEBUG):
            return
        _log.debug(
            "commit %s: %s on %s by %s, tables %s, published in %.1f ms",
            published.commit.graph_commit_id,
            job.draft.operation,
            job.incarnation.branch,
            job.draft.actor_id or "an unnamed actor",
            ", ".join(table.table_key for table in job.tables) or "none",
            (self._repository.clock.monotonic_s() - began_s) * 1000,
        )

    @contextmanager
    def reserved_lock(self, branch: BranchName, *, operation: str) -> Iterator[None]:
        """Let this thread prepare and commit under one lock, so that no other writer can be faster.

        Preparing is long and a lock should be short: this is for a write that has lost its race
        several times.
        """
        operation_id = self._repository.clock.ulid()
        with self.branch_lock(branch, operation_id=operation_id, operation=operation) as held:
            self._recovery.sweep_branch(branch)
            self._reserved.lock = held
            try:
                yield
            finally:
                self._reserved.lock = None

    @contextmanager
    def branch_lock(
        self, branch: BranchName, *, operation_id: str, operation: str
    ) -> Iterator[BranchLock]:
        """Hold the lock of a branch; raise instead of waiting for a schema change."""
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

    def commit_locked(self, job: WriteJob, lock: BranchLock) -> Published:
        """Commit under a lock that the caller holds, after the caller has swept the branch."""
        try:
            state = self._require_ready(job)
        except DriftNeedsRepairError:
            # Not drift, if it is the unfinished write of the process that has the lock now, or of
            # one that lost it and wrote its intent after the sweep.
            lock.check()
            self._recovery.sweep_branch(job.incarnation.branch)
            state = self._require_ready(job)
        for table in job.tables:
            self._require_staged(table)
        intent = self._intent(job)
        with self._repository.publisher.prestage(
            job.incarnation, state, draft=job.draft, updates=job.updates
        ) as prestaged:
            self._objects.put_if_absent(intent.path, intent.to_json())
            hit("recovery.sidecar_write")
            published = self._run(job, intent, lock, prestaged)
        self._forget(intent)
        hit("write.sidecar_deleted", writer=job.writer)
        return published

    def record(self, published: Published) -> None:
        """Add a published commit to the derived tables, after the lock."""
        if published.commit is None:
            return
        if self._record is not None:
            self._record(published.commit)
        else:
            self._repository.commit_tables.record([published.commit])

    def _require_staged(self, table: TableWrite) -> None:
        """Raise when a cleanup has removed what the write prepared: its files, or its fork."""
        for staged in table.staged:
            self._datasets.verify_staged_files(staged)
        if table.base is not None:
            # Files may have been written to the folder of a fork after it was removed.
            table.base.require_fork(self._datasets)

    def _require_ready(self, job: WriteJob) -> ManifestState:
        repository = self._repository
        if not repository.branches.is_alive(job.incarnation):
            raise BranchGoneError(job.incarnation.text)
        if job.kind is not WriterKind.SCHEMA_APPLY:
            self._require_no_schema_apply(job)
        state = repository.publisher.require(job.incarnation, job.requirements)
        put_back = [
            undo_late_commits(repository, self._recovery, job.incarnation, table.base.entry)
            for table in job.tables
            if table.base is not None and not table.base.is_fork
        ]
        if any(put_back):
            # A table that was put back has a new entry: the write has to be prepared again.
            state = repository.publisher.require(job.incarnation, job.requirements)
        return state

    def _require_no_schema_apply(self, job: WriteJob) -> None:
        branches = self._repository.branches
        if not job.incarnation.is_main:
            branches.require_no_schema_apply(job.draft.operation)
        elif branches.has_schema_lock():
            # Its owner would hold the lock of `main`, which is held here: the owner is dead.
            branches.clear_schema_lock()

    def _run(
        self,
        job: WriteJob,
        intent: Intent,
        lock: BranchLock,
        prestaged: Future[StagedPublish],
    ) -> Published:
        with self._repository.store.flusher.together():
            reached = self._phase_b(job)
        hit("write.post_phase_b_pre_manifest_commit", writer=job.writer)
        # Without a table there is nothing to confirm: recovery publishes as soon as the record is
        # there. A confirmation that failed would report a merge as failed that is done.
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
                prestaged=prestaged,
            )
        except (CommitSettledError, BranchLockLostError) as error:
            published = self._settled_elsewhere(job, intent, error)
        except (BranchGoneError, StorageError, PublishTimeoutError) as error:
            if isinstance(error, OutcomeUnknownError):
                raise
            # A branch that was deleted may have shown the write before: recovery has published it.
            commit_id = job.draft.graph_commit_id
            raise WriteUnsettledError(job.operation_id, commit_id, str(error)) from error
        hit("graph_publish.after_commit_append")
        return published

    def _settled_elsewhere(
        self, job: WriteJob, intent: Intent, error: CommitSettledError | BranchLockLostError
    ) -> Published:
        """Return the outcome of a write that was presumed dead, or raise."""
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
