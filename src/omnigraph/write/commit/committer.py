"""The one way in which prepared writes become visible.

    prepare   in parallel with other writers: read, validate, fork, stage. No head moves.
    lock      one writer per branch: settle unfinished writes, check the requirements again.
    phase A   every staged file is there with its size; the intent record is written.
    phase B   each staged transaction is committed on its table, in order.
    phase C   one manifest commit makes all of it visible, under an id minted in advance.
    phase D   the record is deleted, the lock is released, the call returns.

An error before phase A leaves nothing but unreferenced files. From phase A on the record stays
until the operation is settled: by phase D, or by the process that takes the lock next.

Writes of one handle that only append rows take the lock together (`queue`) and go through the
phases one behind the other (`group`). All others go through them alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from functools import partial
from typing import Protocol

from omnigraph.dataclass import dataclass
from omnigraph.errors import ConflictError
from omnigraph.failpoints import hit
from omnigraph.manifest import GraphCommit, Published, Repository
from omnigraph.manifest.errors import BranchGoneError, SchemaApplyInProgressError
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.locks.branch_lock import WAIT_MAX_S, BranchLock, BranchLockTimeoutError
from omnigraph.manifest.state import ManifestState
from omnigraph.names import BranchName
from omnigraph.recovery import Recovery
from omnigraph.recovery.classify import Mode, mode_of
from omnigraph.recovery.intent import INTENT_VERSION
from omnigraph.write.commit.appends import RecentAppends, moved_onto
from omnigraph.write.commit.group import GroupCommit
from omnigraph.write.commit.job import WriteJob
from omnigraph.write.commit.late_commits import DriftNeedsRepairError, undo_late_commits
from omnigraph.write.commit.phases import Phases, prepare_again, unsettled
from omnigraph.write.commit.queue import CommitQueue, TakeGroup, WaitingWrite

_log = logging.getLogger(__name__)


class SchemaHeldError(ConflictError):
    """A handle is held to one schema, and the branch has another one; nothing was changed."""

    code = "OG-SCHEMA-HELD"
    hint = "try again: the new schema is about to be served, or `omnigraph cluster apply` ends it"
    template = "schema drift: the branch has the schema {found}, and the handle is held to {held}"
    held: str
    found: str


class HeldSchema(Protocol):
    """The schema of `main` that a handle is held to."""

    @property
    def schema_hash(self) -> str:
        """The hash that the handle was given."""
        ...

    def has(self, schema_hash: str) -> bool:
        """Whether a schema is the held one."""
        ...


class _Reserved(threading.local):
    """The lock that the current thread holds for its next commit."""

    lock: BranchLock | None = None

    def __init__(self) -> None:
        self.committed: list[tuple[WriteJob, Published]] = []
        """What was committed under it: what follows a commit waits until the lock is released."""


@dataclass(frozen=True)
class _Shared:
    """What the committers of one handle have in common."""

    queue: CommitQueue = field(default_factory=CommitQueue)
    appends: RecentAppends = field(default_factory=RecentAppends)


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
        held: HeldSchema | None = None,
        shared: _Shared | None = None,
    ) -> None:
        """Work on one graph.

        `on_commit` is called after every write that has become visible, without the lock. `record`
        adds a commit to the derived tables, which may happen later; by default it happens at once.
        Writes to `main` are refused on a schema that is not the `held` one. Committers of one
        handle have their queue and what they know of each other's appends in `shared`.
        """
        self._repository = repository
        self._recovery = recovery
        self._owner_id = owner_id
        self._objects = repository.store.objects
        self._phases = Phases(repository, owner_id)
        self._on_commit = on_commit
        self._record = record
        self._held = held
        self._reserved = _Reserved()
        self._shared = shared or _Shared()
        self._group = GroupCommit(repository, recovery, self._phases, self._shared.appends)

    def held_to(self, held: HeldSchema) -> Committer:
        """Return another committer of the graph, which writes to `main` on one schema only."""
        return Committer(
            self._repository,
            self._recovery,
            self._owner_id,
            on_commit=self._on_commit,
            record=self._record,
            held=held,
            shared=self._shared,
        )

    def require_schema(self, incarnation: Incarnation, schema_hash: str) -> None:
        """Raise if writes to the branch are held to another schema."""
        held = self._held if incarnation.is_main else None
        if held is not None and not held.has(schema_hash):
            raise SchemaHeldError(held.schema_hash, schema_hash)

    def commit(self, job: WriteJob) -> Published:
        """Make a prepared write visible, or raise.

        A conflict raised before phase A has changed nothing.
        """
        self.require_schema(job.incarnation, job.schema_hash)
        began_s = self._repository.clock.monotonic_s()
        hit("write.post_stage", writer=job.writer)
        reserved = self._reserved
        if reserved.lock is not None:
            published = self.commit_locked(job, reserved.lock)
        elif job.claims is not None:
            write = WaitingWrite(job, began_s)
            published = self._shared.queue.commit(write, partial(self._lead, write))
        else:
            with self._swept_lock(job) as held:
                published = self.commit_locked(job, held)
        self._log_commit(job, published, began_s)
        if reserved.lock is not None:
            reserved.committed.append((job, published))
        else:
            self._follow(job, published)
        return published

    def _follow(self, job: WriteJob, published: Published) -> None:
        """Do what follows a commit; no lock is held."""
        self.record(published)
        if self._on_commit is not None:
            self._on_commit(job)

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
    def _swept_lock(self, job: WriteJob, wait_max_s: float = WAIT_MAX_S) -> Iterator[BranchLock]:
        """Hold the lock of the branch of a write, with nothing left on it by dead writers."""
        branch = job.incarnation.branch
        with self.branch_lock(
            branch,
            operation_id=job.operation_id,
            operation=job.draft.operation,
            wait_max_s=wait_max_s,
        ) as held:
            hit("write.turn_taken", writer=job.writer)
            self._recovery.sweep_branch(branch)
            yield held

    def _lead(self, leader: WaitingWrite, take_group: TakeGroup) -> None:
        """Take the lock, commit the writes that wait for it by then, and answer them."""
        waited_s = self._repository.clock.monotonic_s() - leader.entered_s
        try:
            with self._swept_lock(leader.job, max(WAIT_MAX_S - waited_s, 0.0)) as lock:
                self._commit_group(take_group(), lock)
        except SchemaApplyInProgressError as busy:
            # Those behind it would wait as long, one after the other, and get the same error.
            for write in take_group():
                write.end(SchemaApplyInProgressError(busy.operation))
        finally:
            for write in leader.group:
                write.end(_without_outcome(write))

    def _commit_group(self, group: Sequence[WaitingWrite], lock: BranchLock) -> None:
        """Answer every write of a group."""
        try:
            if len(group) > 1:
                # Only appends are grouped; a schema apply would hold the lock held here.
                self._repository.branches.clear_schema_lock(group[0].job.incarnation)
                self._group.commit(group, lock)
                return
        except DriftNeedsRepairError:
            # Nothing was written yet. One by one, each write finds out what that means for it.
            pass
        for number, write in enumerate(group):
            if number:
                self._recovery.sweep_branch(write.job.incarnation.branch)
            write.is_begun = True
            write.finish(self._outcome_alone(write.job, lock))

    def _outcome_alone(self, job: WriteJob, lock: BranchLock) -> Published | Exception:
        appends, repository = self._shared.appends, self._repository
        try:
            if appends.have_passed(job):
                entries = repository.reader.latest(job.incarnation).entries
                job = moved_onto(job, entries, appends.steps(), repository.store.datasets)
            return self.commit_locked(job, lock)
        except Exception as error:  # noqa: BLE001 - raised where the write is waited for
            return error

    @contextmanager
    def reserved_lock(self, branch: BranchName, *, operation: str) -> Iterator[None]:
        """Let this thread prepare and commit under one lock, so that no other writer can be faster.

        Preparing is long and a lock should be short: this is for a write that has lost its race
        several times.
        """
        operation_id, reserved = self._repository.clock.ulid(), self._reserved
        try:
            with self.branch_lock(branch, operation_id=operation_id, operation=operation) as held:
                self._recovery.sweep_branch(branch)
                reserved.lock = held
                try:
                    yield
                finally:
                    reserved.lock = None
        finally:
            committed, reserved.committed = reserved.committed, []
            for job, published in committed:
                self._follow(job, published)

    @contextmanager
    def branch_lock(
        self,
        branch: BranchName,
        *,
        operation_id: str,
        operation: str,
        wait_max_s: float = WAIT_MAX_S,
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
                if self._repository.branches.is_schema_changing(branch):
                    raise SchemaApplyInProgressError(operation) from busy
                held = stack.enter_context(
                    branch_locks.take(branch, operation_id=operation_id, wait_max_s=wait_max_s)
                )
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
        return self._run(job, state, lock)

    def record(self, published: Published) -> None:
        """Add a published commit to the derived tables, after the lock."""
        if published.commit is None:
            return
        if self._record is not None:
            self._record(published.commit)
        else:
            self._repository.commit_tables.record([published.commit])

    def _require_ready(self, job: WriteJob) -> ManifestState:
        repository = self._repository
        if not repository.branches.is_alive(job.incarnation):
            raise BranchGoneError(job.incarnation.text)
        if job.schema is None:
            # Its owner would hold the lock that is held here, so it is dead.
            repository.branches.clear_schema_lock(job.incarnation)
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

    def _run(self, job: WriteJob, state: ManifestState, lock: BranchLock) -> Published:
        phases, publisher = self._phases, self._repository.publisher
        phases.require_staged(job)
        intent = phases.intent(job)
        with publisher.prestage(
            job.incarnation, state, draft=job.draft, updates=job.updates
        ) as prestaged:
            phases.write_intent(intent)
            with self._repository.store.flusher.together():
                reached = phases.move_tables(job)
            hit("write.post_phase_b_pre_manifest_commit", writer=job.writer)
            # Without a table there is nothing to confirm: recovery publishes as soon as the record
            # is there. A confirmation that failed would report a merge as failed that is done.
            if job.tables and mode_of(job.kind, INTENT_VERSION) is Mode.CONFIRMED:
                self._objects.put(intent.path, intent.confirmed(reached).to_json())
                hit("recovery.sidecar_confirm")
            publish = partial(
                publisher.publish,
                job.incarnation,
                draft=job.draft,
                requirements=job.requirements,
                updates=job.updates,
                prestaged=prestaged,
            )
            published = phases.publish(job, intent, lock, publish)
        phases.forget(job, intent)
        self._shared.appends.note(job, published.entries)
        return published


def _without_outcome(write: WaitingWrite) -> Exception:
    """Return the answer of a write whose leader was interrupted, or failed before it began."""
    if write.is_begun:
        return unsettled(write.job, "the thread that was committing it has been interrupted")
    return prepare_again(write.job)
