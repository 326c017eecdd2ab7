"""The phases of a write under the lock, one by one: `committer` and `group` put them in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from omnigraph.errors import CorruptError, OmnigraphError, OutcomeUnknownError
from omnigraph.failpoints import hit
from omnigraph.manifest import Published, Repository
from omnigraph.manifest.errors import (
    BranchGoneError,
    CommitSettledError,
    ExpectedVersionMismatchError,
    PublishTimeoutError,
)
from omnigraph.manifest.locks.branch_lock import BranchLock, BranchLockLostError
from omnigraph.recovery import Intent
from omnigraph.recovery.intent import Adoption
from omnigraph.store.errors import StagedFilesLostError, StorageError
from omnigraph.write.commit.job import TableWrite, WriteJob

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


class WriteUnsettledError(OutcomeUnknownError):
    """Tables have moved, the publish has failed: recovery publishes the write or takes it back.

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


def unsettled(job: WriteJob, reason: object) -> WriteUnsettledError:
    """Return the error of a write that recovery settles."""
    return WriteUnsettledError(job.operation_id, job.draft.graph_commit_id, str(reason))


def prepare_again(job: WriteJob) -> ExpectedVersionMismatchError:
    """Return the error of a write of which nothing has landed, through no fault of its own.

    Its writer prepares it again, as after maintenance.
    """
    table = job.tables[0]
    version = table.expected.table_version if table.expected else 0
    return ExpectedVersionMismatchError(table.table_key, version, version, is_only_maintenance=True)


class Phases:
    """What each phase does for one write."""

    def __init__(self, repository: Repository, owner_id: str) -> None:
        self._repository = repository
        self._owner_id = owner_id
        self._datasets = repository.store.datasets
        self._objects = repository.store.objects

    def require_staged(self, job: WriteJob) -> None:
        """Raise when a cleanup has removed what the write prepared: its files, or a fork."""
        for table in job.tables:
            for staged in table.staged:
                self._datasets.verify_staged_files(staged)
            if table.base is not None:
                # Files may have been written to the folder of a fork after it was removed.
                table.base.require_fork(self._datasets)
        for adoption in job.adopted:
            self._require_adoptable(adoption)

    def _require_adoptable(self, adoption: Adoption) -> None:
        """Raise when a version of another lineage is gone: it was purged before the lock was had.

        From now on it stays: versions are removed under the locks of all branches.
        """
        at = adoption.entry.at
        if adoption.expected is not None and adoption.expected.at == at:
            return
        if not self._datasets.exists(at.location, branch=at.branch, version=at.version):
            problem = f"version {at.version} was purged"
            raise StagedFilesLostError(path=at.location, problems=(problem,))

    def intent(self, job: WriteJob) -> Intent:
        """Return the intent record of a write."""
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

    def write_intent(self, intent: Intent) -> None:
        """Write the intent record."""
        self._objects.put_if_absent(intent.path, intent.to_json())
        hit("recovery.sidecar_write")

    def move_tables(self, job: WriteJob) -> dict[str, int]:
        """Commit the staged transactions on their tables; return the versions that they made."""
        reached: dict[str, int] = {}
        for table in job.tables:
            reached[table.table_key] = self._move(table)
            if len(reached) == 1:
                hit("write.after_first_table", writer=job.writer)
        return reached

    def _move(self, table: TableWrite) -> int:
        version = 0
        for staged in table.staged:
            version = self._datasets.commit_staged(staged).version
        if version != table.intended_version:
            raise IncompleteWriteError(table.table_key, table.intended_version, version)
        return version

    def publish(
        self, job: WriteJob, intent: Intent, lock: BranchLock, publish: Callable[[], Published]
    ) -> Published:
        """Publish by the given call; raise what the caller must know about the whole write."""
        try:
            lock.check()
            hit("graph_publish.before_commit_append")
            published = publish()
        except (CommitSettledError, BranchLockLostError) as error:
            published = self._settled_elsewhere(job, intent, error)
        except (BranchGoneError, StorageError, PublishTimeoutError) as error:
            if isinstance(error, OutcomeUnknownError):
                raise
            # A branch that was deleted may have shown the write before: recovery has published it.
            raise unsettled(job, error) from error
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
            raise unsettled(job, gone) from error
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
        raise unsettled(job, error) from error

    def forget(self, job: WriteJob, intent: Intent) -> None:
        """Delete the record of a write that is done."""
        try:
            self._objects.delete(intent.path)
        except OmnigraphError as error:
            _log.warning("the write is done; its record stays for the next lock: %s", error)
        hit("write.sidecar_deleted", writer=job.writer)
