"""Settling what a dead writer left.

Facts on which the sweep rests:

1. It works on a record only while it holds the lock of the record's branch. A writer holds that
   lock from before its record exists until after it is gone, so the owner of a record that is met
   here is dead, or paused and presumed dead.
2. Exactly one of *publish* and *void* wins for a commit id: both rewrite the head row, and each is
   refused where the other one has landed. A paused writer therefore cannot publish afterwards.
3. A roll back voids the id before it touches any table.
4. A restore carries an id that was first written into the record, so a crash between restore and
   publish is recognised as our own. It also makes every late commit of the settled writer fail.
5. The file goes last, after the audit row. A crash anywhere in here leads to the same verdict, or
   to one that finishes the work.
6. A record that nobody can settle blocks the branch that it names, and no other one: opening a
   graph says so and goes on, every write to that branch is refused. A record that names no branch
   blocks the graph.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from omnigraph.errors import CorruptError, NotFoundError
from omnigraph.failpoints import hit
from omnigraph.manifest import CommitDraft, Entry, GraphCommit, Repository, Requirements, Updates
from omnigraph.manifest.branch_lock import take_unless_held
from omnigraph.manifest.errors import (
    CommitSettledError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    SchemaMovedError,
)
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, Incarnation
from omnigraph.manifest.rows import voided_row
from omnigraph.manifest.state import ManifestState
from omnigraph.names import BranchName
from omnigraph.recovery.audit import RecoveryAuditRow, RecoveryKind, RecoveryLog, TableOutcome
from omnigraph.recovery.classify import Facts, TableClass, TableFacts, Verdict, decide
from omnigraph.recovery.intent import (
    FOLDER,
    Intent,
    PlannedTable,
    UnreadableIntentError,
    read_intent,
)
from omnigraph.recovery.observe import completed, observe, pinned_version, published_on_lineage
from omnigraph.recovery.put_back import RECOVERY_ACTOR, are_explained, late_moves, put_back
from omnigraph.recovery.torn import TornHeadError, TornHeads
from omnigraph.store.errors import ObjectNotFoundError

_ROUNDS_MAX: Final = 10

_log = logging.getLogger(__name__)


class RecoveryStoppedError(CorruptError):
    """Storage contradicts the manifest; an operator has to look before this branch is written."""

    code = "OG-RECOVERY-STOPPED"

    def __init__(self, operation_id: str, branch: str, tables: tuple[str, ...]) -> None:
        self.operation_id = operation_id
        self.branch = branch
        self.tables = tables
        super().__init__(
            f"recovery of operation {operation_id} on branch '{branch}' has stopped: the head of"
            f" {', '.join(tables)} is older than its published version, or gone"
        )
        self.hint = f"`omnigraph recovery quarantine {operation_id} --confirm` after a look"


class RecoveryNotFoundError(NotFoundError):
    """Recovery has done nothing about this operation."""

    code = "OG-RECOVERY-NOT-FOUND"
    hint = "`omnigraph recovery list`"

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(f"recovery has settled no operation '{operation_id}'")


class IntentNotFoundError(NotFoundError):
    """There is no intent record of this operation."""

    code = "OG-RECORD-NOT-FOUND"
    hint = "`omnigraph recovery status` lists the records that are there"

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(f"no record of an operation '{operation_id}' is pending")


class PendingRecovery(NamedTuple):
    """A record that nobody has settled yet, and what a sweep would do about it.

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
        self._datasets = repository.store.datasets
        self.log = RecoveryLog(repository.store.datasets)
        self._torn = TornHeads(repository, self.log, self.pending)

    # -- finding ----------------------------------------------------------------------------------

    def pending(self) -> list[Intent]:
        """Return all records, oldest first; one that cannot be read is an error."""
        hit("recovery.sidecar_list")
        return [
            intent
            for info in self._objects.list(FOLDER)
            if (intent := self._read(info.path)) is not None
        ]

    def status(self) -> list[PendingRecovery]:
        """Return what a sweep would do about each record, without doing it."""
        hit("recovery.sidecar_list")
        found = (self._status_of(info.path) for info in self._objects.list(FOLDER))
        return [pending for pending in found if pending is not None]

    def _status_of(self, path: str) -> PendingRecovery | None:
        try:
            intent = self._read(path)
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
        record = self.log.find(operation_id)
        if record is None:
            raise RecoveryNotFoundError(operation_id)
        return record

    def drop_torn(self) -> None:
        """Make readable what a power failure has cut off and opening a graph needs."""
        self._torn.drop_torn_system_tables()
        self._torn.drop_torn_refs(MANIFEST)
        self._torn.drop_torn_manifest(MAIN_INCARNATION)

    def drop_torn_branches(self) -> None:
        """Make the manifest of every branch readable, for whoever is about to read all of them."""
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
        """Settle a record under its lock; whoever keeps holding that lock is alive and goes on."""
        intent = self._read(path)
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
        """Set a record aside, so that its branch can be written again; return where it is now.

        The record of somebody who is at work is left alone.
        """
        path = f"{FOLDER}/{operation_id}.json"
        aside = f"{FOLDER}-quarantine/{operation_id}.json"
        with self._lock_of_intent(path, operation_id):
            try:
                data = self._objects.get(path).data
            except ObjectNotFoundError as error:
                raise IntentNotFoundError(operation_id) from error
            self._objects.put(aside, data)
            self._objects.delete(path)
        return aside

    @contextmanager
    def _lock_of_intent(self, path: str, operation_id: str) -> Iterator[None]:
        """Hold the lock of the branch that a record names, if it names one."""
        try:
            intent = self._read(path)
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
        """Return the records of one branch, however unreadable those of others may be."""
        hit("recovery.sidecar_list")
        found = []
        for info in self._objects.list(FOLDER):
            try:
                intent = self._read(info.path)
            except UnreadableIntentError as error:
                if error.branch is not None and error.branch != branch.text:
                    _log.warning("%s", error)
                    continue
                raise
            if intent is not None and intent.branch == branch.text:
                found.append(intent)
        return found

    def _read(self, path: str) -> Intent | None:
        try:
            data = self._objects.get(path).data
        except ObjectNotFoundError:
            return None
        return read_intent(path, data)

    # -- settling ---------------------------------------------------------------------------------

    def _settle_if_there(self, path: str) -> list[RecoveryAuditRow]:
        intent = self._read(path)
        return [] if intent is None else [self._settle(intent)]

    def _settle(self, intent: Intent) -> RecoveryAuditRow:
        intent = completed(self._repository, intent)
        self._drop_torn_tables(intent)
        for number in range(_ROUNDS_MAX):
            facts = observe(self._repository, intent)
            verdict, classes = decide(facts, intent)
            if verdict is Verdict.STOP:
                raise RecoveryStoppedError(
                    intent.operation_id, intent.branch, _violated(facts.tables, classes)
                )
            try:
                record = self._carry_out(verdict, intent, facts, is_fresh=number == 0)
            except (
                CommitSettledError,
                ExpectedVersionMismatchError,
                PreconditionFailedError,
                SchemaMovedError,
            ):
                # The manifest has moved in between: look again, at the record as well, which says
                # by now what was announced.
                intent = completed(self._repository, self._read(intent.path) or intent)
                continue
            hit("recovery.record_audit")
            self.log.record(record)
            hit("recovery.sidecar_delete")
            self._objects.delete(intent.path)
            _log.warning(
                "recovery settled operation %s (%s): %s",
                intent.operation_id,
                intent.writer_kind,
                record.recovery_kind,
            )
            return record
        raise RecoveryStoppedError(intent.operation_id, intent.branch, ())

    def _drop_torn_tables(self, intent: Intent) -> None:
        incarnation = Incarnation(intent.branch_incarnation)
        if not self._repository.branches.is_alive(incarnation):
            return
        state = self._repository.reader.latest(incarnation)
        for table in intent.tables:
            self._torn.drop_torn_table(
                table.table_key,
                (table.table_path, table.table_branch),
                published=pinned_version(state, table),
            )

    def _carry_out(
        self, verdict: Verdict, intent: Intent, facts: Facts, *, is_fresh: bool
    ) -> RecoveryAuditRow:
        match verdict:
            case Verdict.FINISHED:
                kind, outcomes = RecoveryKind.ROLLED_FORWARD, _intended(intent.tables)
                return self._record(intent, kind, intent.commit.graph_commit_id, outcomes)
            case Verdict.ROLL_FORWARD:
                return self._roll_forward(intent, facts)
            case Verdict.DISCARD:
                return self._record(intent, RecoveryKind.ORPHANED_BRANCH_DISCARDED, None, ())
            case Verdict.ROLL_BACK:
                self._void(intent)
                return self._put_back(intent, facts, is_fresh=is_fresh)
            case _:
                return self._put_back(intent, facts, is_fresh=is_fresh)

    def _roll_forward(self, intent: Intent, facts: Facts) -> RecoveryAuditRow:
        """Publish exactly the versions that were seen, under the writer's own commit id."""
        published = self._repository.publisher.publish(
            Incarnation(intent.branch_incarnation),
            draft=intent.commit,
            requirements=intent.requirements,
            updates=Updates(
                entries=(
                    *(_entry_seen(seen) for seen in facts.tables),
                    *(adoption.entry for adoption in intent.adopted),
                ),
                registrations=intent.additional_registrations,
                tombstones=intent.tombstones,
                schema=intent.schema,
            ),
        )
        hit("recovery.after_roll_forward")
        if published.commit is not None:
            self._repository.commit_tables.record([published.commit])
        commit_id = intent.commit.graph_commit_id
        outcomes = tuple(
            TableOutcome(seen.table.table_key, seen.pinned, seen.head or seen.pinned)
            for seen in facts.tables
        )
        return self._record(intent, RecoveryKind.ROLLED_FORWARD, commit_id, outcomes)

    def _void(self, intent: Intent) -> None:
        """Take the commit id away from its writer, before any table is touched."""
        row = voided_row(intent.commit.graph_commit_id, intent.operation_id)
        self._repository.publisher.publish(
            Incarnation(intent.branch_incarnation),
            draft=None,
            requirements=Requirements(),
            updates=Updates(rows=(row,)),
        )
        hit("recovery.after_void")

    def _put_back(self, intent: Intent, facts: Facts, *, is_fresh: bool) -> RecoveryAuditRow:
        """Restore every table of the record to its published entry, and publish the new heads."""
        if not facts.is_branch_alive:
            return self._record(intent, RecoveryKind.ORPHANED_BRANCH_DISCARDED, None, ())
        incarnation = Incarnation(intent.branch_incarnation)
        state = self._repository.reader.latest(incarnation)
        earlier = state.commit(intent.recovery_commit_id)
        if earlier is not None:
            outcomes = _rolled_back_by(earlier, intent.tables, state)
            self._put_back_late(intent, state, is_fresh=is_fresh)
        else:
            outcomes = _rolled_back(facts.tables)
            published = {
                table.accepted_key: entry
                for table in intent.tables
                if (entry := published_on_lineage(state, table)) is not None
            }
            intent = self._announce_restores(intent, len(published))
            restored = self._restore(published, intent.restore_transaction_ids)
            hit("recovery.after_restore")
            landed = self._repository.publisher.publish(
                incarnation,
                draft=self._recovery_draft(intent),
                requirements=Requirements(written=published),
                updates=Updates(entries=restored),
            )
            if landed.commit is not None:
                self._repository.commit_tables.record([landed.commit])
        return self._record(intent, RecoveryKind.ROLLED_BACK, intent.recovery_commit_id, outcomes)

    def _put_back_late(self, intent: Intent, state: ManifestState, *, is_fresh: bool) -> None:
        """Take back what came after the operation was settled.

        Whoever meets somebody else's work on the way may have been paused, and its lock may be
        over: it takes back only what nobody but this record explains, a restore that was announced
        after the audit row had been written. The rest is left to the next write to the table.
        """
        audited = self.log.settled_transactions()
        settled = {*audited, *_transactions(intent)}
        incarnation = Incarnation(intent.branch_incarnation)
        for table in intent.tables:
            entry = published_on_lineage(state, table)
            moves = () if entry is None else late_moves(self._datasets, entry)
            is_left_to_others = not is_fresh and are_explained(moves, audited)
            if entry is None or not moves or is_left_to_others:
                continue
            if are_explained(moves, settled):
                put_back(self._repository, self.log, incarnation, entry, moves)

    def _announce_restores(self, intent: Intent, count: int) -> Intent:
        uuids = (
            *intent.restore_transaction_ids,
            *(self._repository.clock.uuid() for _ in range(count)),
        )
        announced = replace(intent, restore_transaction_ids=uuids)
        self._objects.put(intent.path, announced.to_json())
        hit("recovery.after_announce")
        return announced

    def _restore(
        self, published: dict[str, Entry], announced: tuple[str, ...]
    ) -> tuple[Entry, ...]:
        uuids = announced[len(announced) - len(published) :]
        restored = []
        for entry, uuid in zip(published.values(), uuids, strict=True):
            landed = self._datasets.restore(
                entry.location,
                branch=entry.table_branch,
                version=entry.table_version,
                uuid=uuid,
            )
            restored.append(replace(entry, table_version=landed.version))
        return tuple(restored)

    def _recovery_draft(self, intent: Intent) -> CommitDraft:
        return CommitDraft(
            graph_commit_id=intent.recovery_commit_id,
            operation="recovery",
            actor_id=RECOVERY_ACTOR,
            created_at=self._repository.clock.now_us(),
            properties={"operation_id": intent.operation_id},
        )

    def _record(
        self,
        intent: Intent,
        kind: RecoveryKind,
        commit_id: str | None,
        outcomes: tuple[TableOutcome, ...],
    ) -> RecoveryAuditRow:
        return RecoveryAuditRow(
            operation_id=intent.operation_id,
            graph_commit_id=commit_id,
            recovery_kind=kind,
            recovery_for_actor=intent.actor_id,
            sidecar_writer_kind=intent.writer_kind.value,
            per_table_outcomes=outcomes,
            transaction_ids=_transactions(intent),
            created_at=self._repository.clock.now_us(),
        )


def _entry_seen(seen: TableFacts) -> Entry:
    """Return the entry that pins exactly the version that classification saw."""
    table = seen.table
    template = table.entry or table.created_entry()
    return replace(
        template,
        table_key=table.table_key,
        location=table.table_path,
        table_branch=table.table_branch,
        table_version=seen.head or table.post_commit_pin,
        row_count=table.row_count,
        owner_branch=table.owner_branch,
    )


def _transactions(intent: Intent) -> tuple[str, ...]:
    """Return the ids of everything that a write and its recovery have done to tables."""
    written = (uuid for table in intent.tables for uuid in table.transaction_ids)
    return (*written, *intent.restore_transaction_ids)


def _intended(tables: Sequence[PlannedTable]) -> tuple[TableOutcome, ...]:
    return tuple(
        TableOutcome(table.table_key, table.expected_version, table.post_commit_pin)
        for table in tables
    )


def _rolled_back(tables: Sequence[TableFacts]) -> tuple[TableOutcome, ...]:
    """Say where tables were met and which logical version they were taken back to.

    By the keys that they keep: a type that was about to take another name has not got it.
    """
    return tuple(
        TableOutcome(
            seen.table.accepted_key, seen.pinned if seen.head is None else seen.head, seen.pinned
        )
        for seen in tables
    )


def _rolled_back_by(
    commit: GraphCommit, tables: Sequence[PlannedTable], state: ManifestState
) -> tuple[TableOutcome, ...]:
    """Say the same of a roll back whose commit is published, from what that commit replaced."""
    histories = state.entry_history()
    found = []
    for table in tables:
        published = [
            (version, entry)
            for version, entry in histories.get(table.accepted_key, ())
            if entry is not None and version <= commit.manifest_version
        ]
        before = [entry for version, entry in published if version < commit.manifest_version]
        after = [entry for version, entry in published if version == commit.manifest_version]
        if before and after:
            met, left = after[0].table_version - 1, before[-1].table_version
        else:
            # A fork, or a dataset that the write has made: nothing of it was ever published.
            met = left = table.expected_version
        found.append(TableOutcome(table.accepted_key, met, left))
    return tuple(found)


def _violated(tables: Sequence[TableFacts], classes: Sequence[TableClass]) -> tuple[str, ...]:
    return tuple(
        seen.table.table_key
        for seen, label in zip(tables, classes, strict=True)
        if label is TableClass.INVARIANT_VIOLATION
    )
