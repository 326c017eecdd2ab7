"""Finding and settling what dead writers have left.

Facts on which the sweep rests:

1. It works on a record only while it holds the lock of the record's branch. A writer holds that
   lock from before its record exists until after it is deleted, so the owner of a record that is
   found here is dead, or paused and presumed dead.
2. Exactly one of *publish* and *void* wins for a commit id: both rewrite the head row, and each is
   refused where the other one has landed. A paused writer therefore cannot publish afterwards.
3. A roll back voids the id before it touches any table.
4. A restore carries an id that was first written into the record, so a crash between restore and
   publish is recognised as our own. It also makes every late commit of the settled writer fail.
5. The record is deleted last, after the audit row. A crash at any point leads to the same verdict,
   or to one that finishes the work.
6. A record that cannot be settled blocks the branch that it names, and no other one: opening a
   graph logs it and continues, every write to that branch is refused. A record that names no
   branch blocks the graph.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from omnigraph.errors import CorruptError, NotFoundError
from omnigraph.failpoints import hit
from omnigraph.manifest import Repository
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, Incarnation
from omnigraph.manifest.locks.branch_lock import take_unless_held
from omnigraph.names import BranchName
from omnigraph.recovery.audit import RecoveryAuditRow, RecoveryLog
from omnigraph.recovery.classify import TableClass, Verdict, decide
from omnigraph.recovery.intent import FOLDER, Intent, UnreadableIntentError, load_intent
from omnigraph.recovery.observe import completed, observe
from omnigraph.recovery.settle import RecoveryStoppedError, Settler
from omnigraph.recovery.torn import TornHeadError, TornHeads
from omnigraph.store.errors import ObjectNotFoundError

_log = logging.getLogger(__name__)


class RecoveryNotFoundError(NotFoundError):
    """Recovery has done nothing about this operation."""

    code = "OG-RECOVERY-NOT-FOUND"
    hint = "`omnigraph recovery list`"
    template = "recovery has settled no operation '{operation_id}'"
    operation_id: str


class IntentNotFoundError(NotFoundError):
    """There is no intent record of this operation."""

    code = "OG-RECORD-NOT-FOUND"
    hint = "`omnigraph recovery status` lists the records that are there"
    template = "no record of an operation '{operation_id}' is pending"
    operation_id: str


class PendingRecovery(NamedTuple):
    """A record that is not settled yet, and what a sweep would do about it.

    `intent` is None for a record that cannot be read; `problem` then says why.
    """

    operation_id: str
    branch: str | None
    intent: Intent | None
    verdict: Verdict
    classes: tuple[TableClass, ...] = ()
    problem: str | None = None


class Swept(NamedTuple):
    """What a sweep has settled, and why it could not settle the rest."""

    settled: tuple[RecoveryAuditRow, ...]
    blocked: tuple[CorruptError, ...]


class Recovery:
    """Finds and settles the intent records of one graph."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._objects = repository.store.objects
        self.log = RecoveryLog(repository.store.datasets)
        self._torn = TornHeads(repository, self.log, self.pending)
        self._settler = Settler(repository, self.log, self._torn)

    def pending(self) -> list[Intent]:
        """Return all records, oldest first; one that cannot be read is an error."""
        hit("recovery.sidecar_list")
        return [
            intent
            for info in self._objects.list(FOLDER)
            if (intent := load_intent(self._objects, info.path)) is not None
        ]

    def status(self) -> list[PendingRecovery]:
        """Return what a sweep would do about each record, without doing it."""
        hit("recovery.sidecar_list")
        found = (self._status_of(info.path) for info in self._objects.list(FOLDER))
        return [pending for pending in found if pending is not None]

    def _status_of(self, path: str) -> PendingRecovery | None:
        try:
            intent = load_intent(self._objects, path)
        except UnreadableIntentError as error:
            operation_id = path.removeprefix(f"{FOLDER}/").removesuffix(".json")
            return PendingRecovery(
                operation_id, error.branch, None, Verdict.STOP, problem=error.problem
            )
        if intent is None:
            return None
        intent = completed(self._repository, intent)
        verdict, classes = decide(observe(self._repository, intent), intent)
        return PendingRecovery(intent.operation_id, intent.branch, intent, verdict, classes)

    def show(self, operation_id: str) -> RecoveryAuditRow:
        """Return what recovery did about one operation."""
        row = self.log.find(operation_id)
        if row is None:
            raise RecoveryNotFoundError(operation_id)
        return row

    def drop_torn(self) -> None:
        """Make readable what a power failure has cut off and opening a graph needs."""
        self._torn.drop_torn_system_tables()
        self._torn.drop_torn_refs(MANIFEST)
        self._torn.drop_torn_manifest(MAIN_INCARNATION)

    def drop_torn_branches(self) -> None:
        """Make the manifest of every branch readable, before all of them are read."""
        for incarnation in self._repository.branches.incarnations():
            self._torn.drop_torn_manifest(incarnation)

    def drop_torn_branch(self, incarnation: Incarnation) -> None:
        """Remove what a power failure has cut off of a branch and of the tables that it writes."""
        self._torn.drop_torn_manifest(incarnation)
        self._torn.drop_torn_tables(incarnation)

    def sweep(self) -> Swept:
        """Settle every record of the graph, each under the lock of its branch.

        What blocks one branch is logged and returned; what may concern any branch is raised.
        """
        hit("recovery.sidecar_list")
        settled: list[RecoveryAuditRow] = []
        blocked: list[CorruptError] = []
        for info in self._objects.list(FOLDER):
            try:
                settled += self._sweep_unless_alive(info.path)
            except (RecoveryStoppedError, TornHeadError, UnreadableIntentError) as error:
                if isinstance(error, UnreadableIntentError) and error.branch is None:
                    raise
                _log.error("%s (%s)", error, error.hint)
                blocked.append(error)
        return Swept(tuple(settled), tuple(blocked))

    def _sweep_unless_alive(self, path: str) -> list[RecoveryAuditRow]:
        """Settle a record under its lock; a writer that still holds the lock is alive."""
        intent = load_intent(self._objects, path)
        if intent is None:
            return []
        self._torn.drop_torn_manifest(Incarnation(intent.branch_incarnation))
        operation_id, branch = intent.operation_id, BranchName(intent.branch)
        with take_unless_held(
            self._repository.branch_locks, branch, operation_id=operation_id
        ) as lock:
            if lock is None:
                _log.info("operation %s is under way", operation_id)
                return []
            return self._settle_if_there(intent.path)

    def sweep_branch(self, branch: BranchName) -> list[RecoveryAuditRow]:
        """Settle the records of one branch; the caller holds its lock."""
        settled = []
        for intent in self.pending_of(branch):
            settled += self._settle_if_there(intent.path)
        return settled

    def quarantine(self, operation_id: str) -> str:
        """Move a record to the quarantine, so that its branch can be written; return its new path.

        The record of a writer that is at work is left alone.
        """
        path = f"{FOLDER}/{operation_id}.json"
        quarantined = f"{FOLDER}-quarantine/{operation_id}.json"
        with self._lock_of_intent(path, operation_id):
            try:
                data = self._objects.get(path).data
            except ObjectNotFoundError as error:
                raise IntentNotFoundError(operation_id) from error
            self._objects.put(quarantined, data)
            self._objects.delete(path)
        return quarantined

    @contextmanager
    def _lock_of_intent(self, path: str, operation_id: str) -> Iterator[None]:
        """Hold the lock of the branch that a record names, if it names one."""
        try:
            intent = load_intent(self._objects, path)
            branch = None if intent is None else intent.branch
        except UnreadableIntentError as error:
            branch = error.branch
        if branch is None:
            yield
            return
        branch_locks = self._repository.branch_locks
        with branch_locks.take(
            BranchName(branch), operation_id=operation_id, wait_max_s=branch_locks.takeover_s
        ):
            yield

    def pending_of(self, branch: BranchName) -> list[Intent]:
        """Return the records of one branch; unreadable records of other branches are skipped."""
        hit("recovery.sidecar_list")
        found = []
        for info in self._objects.list(FOLDER):
            try:
                intent = load_intent(self._objects, info.path)
            except UnreadableIntentError as error:
                if error.branch is not None and error.branch != branch.text:
                    _log.warning("%s", error)
                    continue
                raise
            if intent is not None and intent.branch == branch.text:
                found.append(intent)
        return found

    def _settle_if_there(self, path: str) -> list[RecoveryAuditRow]:
        intent = load_intent(self._objects, path)
        return [] if intent is None else [self._settler.settle(intent)]
