"""Several appends under one lock, each its own commit, one behind the other.

Terms: a *member* is a write of the group; a *round* ends when everything that it wrote is durable.

1. Every member is an ordinary write: its own intent record, its own versions of its tables, its
   own publish. What a crash leaves is what a crash of one writer leaves, and recovery settles each
   record by itself.
2. The members are put in order before anything is written. Each is moved onto the entries that the
   one before it is going to publish (`appends`). One that cannot be moved, or whose requirements do
   not hold, is answered with its error and left out; the others do not notice.
3. Rounds overlap two members. One round publishes member *n*, stages the publish of member *n + 1*
   and moves its tables; then all of it is flushed at once. So *n* members need *n + 1* rounds
   instead of three each.
4. Each step still finds durable what it relies on: a record before its tables move, the tables and
   the staged rows before their publish. At most one version of any lineage is not flushed, the
   newest one, as recovery from power failures expects.
5. A member is answered when its own version is durable: its thread goes on while the others are
   committed.
6. A failure ends the group. The member that failed gets its own error. Those before it are done.
   Of those behind it, none has been published: recovery settles them at once, under the same lock.
   Writes that were voided are prepared again by their callers. Where recovery cannot say that,
   because flushing failed or the lock is lost, the answer is that the outcome is unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import field, replace
from functools import partial

from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.failpoints import hit
from omnigraph.manifest import Entry, Published, Repository
from omnigraph.manifest.errors import CommitSettledError, ExpectedVersionMismatchError
from omnigraph.manifest.locks.branch_lock import BranchLock
from omnigraph.manifest.publish import StagedPublish
from omnigraph.manifest.state import ManifestState
from omnigraph.recovery import Intent, Recovery
from omnigraph.store.background import Inline
from omnigraph.store.errors import DatasetVersionNotFoundError, StaleBaseError
from omnigraph.write.commit.appends import RecentAppends, Steps, moved_onto, steps_of
from omnigraph.write.commit.job import WriteJob
from omnigraph.write.commit.late_commits import undo_late_commits
from omnigraph.write.commit.phases import Phases, prepare_again, unsettled
from omnigraph.write.commit.queue import WaitingWrite

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Member:
    """A write of the group, as it is going to be committed."""

    write: WaitingWrite
    job: WriteJob
    intent: Intent
    record: Future[None] = field(default_factory=Future)
    """Done when the intent record is durable."""
    moved: Future[object] | None = None
    """Done when the tables have moved; None as long as nobody has begun with it."""
    staged: Future[StagedPublish] | None = None
    """Done when the rows of the publish are durable."""

    def require_moved(self) -> None:
        """Raise what has kept the tables from moving."""
        if self.moved is not None:
            self.moved.result()


@dataclass(frozen=True)
class GroupCommit:
    """Commits groups of appends on the branches of one graph."""

    repository: Repository
    recovery: Recovery
    phases: Phases
    appends: RecentAppends

    def commit(self, writes: Sequence[WaitingWrite], lock: BranchLock) -> None:
        """Answer every write; the caller holds the lock and has swept the branch.

        Raises `DriftNeedsRepairError` before anything is written.
        """
        members = self._ordered(writes)
        try:
            if members:
                self._run(members, lock)
        except Exception as error:  # noqa: BLE001 - every member gets its own answer
            self._answer_rest(members, lock, error)

    # -- before phase A ---------------------------------------------------------------------------

    def _ordered(self, writes: Sequence[WaitingWrite]) -> list[_Member]:
        """Put the writes one behind the other; those that cannot take part get their error."""
        state = self._state(writes)
        entries, steps = dict(state.entries), self.appends.steps()
        members: list[_Member] = []
        for write in writes:
            try:
                job = self._on_state(write.job, state, steps)
                job = moved_onto(job, entries, steps, self.repository.store.datasets)
                _require_on(job, entries)
                self.phases.require_staged(job)
            except Exception as error:  # noqa: BLE001 - raised where the write is waited for
                write.finish(error)
                continue
            members.append(_Member(write, job, self.phases.intent(job)))
            seq = state.version + len(members)
            made = {entry.table_key: entry.at_seq(seq) for entry in job.updates.entries}
            entries |= made
            steps |= steps_of(job, made)
        return members

    def _state(self, writes: Sequence[WaitingWrite]) -> ManifestState:
        """Return the newest state, with late commits on the tables of the writes undone."""
        incarnation, reader = writes[0].job.incarnation, self.repository.reader
        state = reader.latest(incarnation)
        keys = {table.table_key for write in writes for table in write.job.tables}
        put_back = [
            undo_late_commits(self.repository, self.recovery, incarnation, state.entries[key])
            for key in sorted(keys & state.entries.keys())
        ]
        return reader.latest(incarnation) if any(put_back) else state

    def _on_state(self, job: WriteJob, state: ManifestState, steps: Steps) -> WriteJob:
        """Return the write as if it had been prepared on this state, or raise.

        `steps` may go beyond it, to what the members before this one are going to publish.
        """
        job = moved_onto(job, state.entries, steps, self.repository.store.datasets)
        job.requirements.require(state)
        # What was read holds in this state, even where something else than an append has moved it.
        return replace(job, reads={key: state.entries.get(key) for key in job.reads})

    # -- rounds -----------------------------------------------------------------------------------

    def _run(self, members: Sequence[_Member], lock: BranchLock) -> None:
        start = self.repository.store.background.start
        for member in members:
            member.write.is_begun = True
            member.record = start(partial(self.phases.write_intent, member.intent))
        try:
            for member, behind in zip(members, [*members[1:], None], strict=True):
                with _answered(member):
                    published = self._publish(member, behind, lock)
                self.appends.note(member.job, published.entries)
                self.phases.forget(member.job, member.intent)
                member.write.finish(published)
        finally:
            # Nothing of them may be written after the lock is released.
            wait([member.record for member in members])
            wait([member.staged for member in members if member.staged is not None])

    def _prepare(self, member: _Member) -> None:
        """Stage the publish of a member and move its tables, as soon as its record is durable.

        A failure is the member's own: one that is published in the same round does not notice.
        """

        def move() -> None:
            member.record.result()
            job, publisher = member.job, self.repository.publisher
            state = publisher.require(job.incarnation, job.requirements)
            _require_unsettled(job, state)
            member.staged = publisher.start_staging(
                job.incarnation, state, draft=job.draft, updates=job.updates
            )
            self.phases.move_tables(job)

        member.moved = Inline().start(move)

    def _publish(self, member: _Member, behind: _Member | None, lock: BranchLock) -> Published:
        if member.moved is None:
            # The publish before it was not part of a round.
            with self._together():
                self._prepare(member)
        member.require_moved()
        hit("write.post_phase_b_pre_manifest_commit", writer=member.job.writer)
        publish = partial(self._round, member, behind)
        return self.phases.publish(member.job, member.intent, lock, publish)

    def _round(self, member: _Member, behind: _Member | None) -> Published:
        """Publish one member while the next one is prepared; all of it is durable afterwards."""
        publisher, job = self.repository.publisher, member.job
        if member.staged is not None and member.staged.exception() is None:
            with suppress(StaleBaseError, DatasetVersionNotFoundError), self._together():
                published = publisher.land(job.incarnation, member.staged.result())
                if behind is not None:
                    self._prepare(behind)
                return published
        # Staging has failed, the settings of the manifest were changed, or the lock is lost. What
        # is staged now must be durable before it is committed, so this is not part of a round.
        return publisher.publish(
            job.incarnation, draft=job.draft, requirements=job.requirements, updates=job.updates
        )

    def _together(self) -> AbstractContextManager[None]:
        return self.repository.store.flusher.together()

    # -- after a failure --------------------------------------------------------------------------

    def _answer_rest(self, members: Sequence[_Member], lock: BranchLock, error: Exception) -> None:
        """Answer the members behind one that failed."""
        rest = [member for member in members if not member.write.is_answered]
        voided = self._settle(rest, lock, error)
        for member in rest:
            commit_id = member.job.draft.graph_commit_id
            is_voided = voided is not None and voided.is_voided(commit_id)
            member.write.finish(
                prepare_again(member.job) if is_voided else unsettled(member.job, error)
            )

    def _settle(
        self, rest: Sequence[_Member], lock: BranchLock, error: Exception
    ) -> ManifestState | None:
        """Let recovery settle the members that are left; None where it cannot.

        After a failed flush nothing may be answered with certainty. A member that recovery has
        published counts as unsettled too: nobody has seen its tables being flushed.
        """
        if not rest or isinstance(error, OutcomeUnknownError):
            return None
        incarnation = rest[0].job.incarnation
        try:
            lock.check()
            self.recovery.sweep_branch(incarnation.branch)
            return self.repository.reader.latest(incarnation)
        except OmnigraphError as failed:
            _log.warning("what is left of a group is settled by the next write: %s", failed)
            return None


@contextmanager
def _answered(member: _Member) -> Iterator[None]:
    """Answer a member with the error that it meets, which also ends the group."""
    try:
        yield
    except Exception as error:
        member.write.finish(error)
        raise


def _require_unsettled(job: WriteJob, state: ManifestState) -> None:
    """Raise when the lock was lost and its next holder has settled the write.

    No table has moved here, so a write that was voided can be prepared again.
    """
    commit_id = job.draft.graph_commit_id
    if state.is_voided(commit_id):
        raise prepare_again(job)
    if state.is_published(commit_id):
        raise CommitSettledError(commit_id, is_published=True)


def _require_on(job: WriteJob, entries: Mapping[str, Entry]) -> None:
    """Raise when a write could not be moved onto the entries of those before it."""
    for table in job.tables:
        expected, found = table.expected, entries.get(table.table_key)
        if expected is None or found is None or expected.state != found.state:
            raise ExpectedVersionMismatchError(
                table.table_key,
                expected.table_version if expected else 0,
                found.table_version if found else 0,
            )
