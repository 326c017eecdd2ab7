"""Settling one intent record: observe, decide, act, until the record is gone.

The facts on which this rests are those of `omnigraph.recovery.sweep`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from omnigraph.errors import CorruptError
from omnigraph.failpoints import hit
from omnigraph.manifest import CommitDraft, Entry, Repository, Requirements, Updates
from omnigraph.manifest.errors import (
    CommitSettledError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    SchemaMovedError,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.rows import voided_row
from omnigraph.manifest.state import ManifestState
from omnigraph.recovery.audit import RecoveryAuditRow, RecoveryKind, RecoveryLog, TableOutcome
from omnigraph.recovery.classify import Facts, TableClass, TableFacts, Verdict, decide
from omnigraph.recovery.intent import Intent, load_intent
from omnigraph.recovery.observe import completed, observe, pinned_version, published_on_lineage
from omnigraph.recovery.outcomes import intended, rolled_back, rolled_back_by, rolled_forward
from omnigraph.recovery.put_back import RECOVERY_ACTOR, are_explained, late_moves, put_back
from omnigraph.recovery.torn import TornHeads

_ROUNDS_MAX: Final = 10

_logger = logging.getLogger(__name__)


class RecoveryStoppedError(CorruptError):
    """Storage contradicts the manifest; an operator has to look before this branch is written."""

    code = "OG-RECOVERY-STOPPED"
    hint = "`omnigraph recovery quarantine {operation_id} --confirm` after a look"
    operation_id: str
    branch: str
    tables: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"recovery of operation {self.operation_id} on branch '{self.branch}' has stopped: the"
            f" head of {', '.join(self.tables)} is older than its published version, or gone"
        )


class Settler:
    """Settles intent records, each under the lock of its branch."""

    def __init__(self, repository: Repository, log: RecoveryLog, torn: TornHeads) -> None:
        self._repository = repository
        self._objects = repository.store.objects
        self._datasets = repository.store.datasets
        self._log = log
        self._torn = torn

    def settle(self, intent: Intent) -> RecoveryAuditRow:
        """Bring a record to its end; the caller holds the lock of its branch."""
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
                row = self._apply(verdict, intent, facts, is_first_round=number == 0)
            except (
                CommitSettledError,
                ExpectedVersionMismatchError,
                PreconditionFailedError,
                SchemaMovedError,
            ):
                # The manifest has moved since it was read: read it again, and the record too, which
                # now names the restores of this round.
                intent = completed(
                    self._repository, load_intent(self._objects, intent.path) or intent
                )
                continue
            hit("recovery.record_audit")
            self._log.record(row)
            hit("recovery.sidecar_delete")
            self._objects.delete(intent.path)
            _logger.warning(
                "recovery settled operation %s (%s): %s",
                intent.operation_id,
                intent.writer_kind,
                row.recovery_kind,
            )
            return row
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

    def _apply(
        self, verdict: Verdict, intent: Intent, facts: Facts, *, is_first_round: bool
    ) -> RecoveryAuditRow:
        match verdict:
            case Verdict.FINISHED:
                kind, outcomes = RecoveryKind.ROLLED_FORWARD, intended(intent.tables)
                return self._row(intent, kind, intent.commit.graph_commit_id, outcomes)
            case Verdict.ROLL_FORWARD:
                return self._roll_forward(intent, facts)
            case Verdict.DISCARD:
                return self._row(intent, RecoveryKind.ORPHANED_BRANCH_DISCARDED, None, ())
            case Verdict.ROLL_BACK:
                self._void(intent)
                return self._put_back(intent, facts, is_first_round=is_first_round)
            case _:
                return self._put_back(intent, facts, is_first_round=is_first_round)

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
        outcomes = rolled_forward(facts.tables)
        return self._row(intent, RecoveryKind.ROLLED_FORWARD, commit_id, outcomes)

    def _void(self, intent: Intent) -> None:
        """Void the commit id, so that its writer cannot publish, before any table is touched."""
        row = voided_row(intent.commit.graph_commit_id, intent.operation_id)
        self._repository.publisher.publish(
            Incarnation(intent.branch_incarnation),
            draft=None,
            requirements=Requirements(),
            updates=Updates(rows=(row,)),
        )
        hit("recovery.after_void")

    def _put_back(self, intent: Intent, facts: Facts, *, is_first_round: bool) -> RecoveryAuditRow:
        """Restore every table of the record to its published entry, and publish the new heads."""
        if not facts.is_branch_alive:
            return self._row(intent, RecoveryKind.ORPHANED_BRANCH_DISCARDED, None, ())
        incarnation = Incarnation(intent.branch_incarnation)
        state = self._repository.reader.latest(incarnation)
        earlier = state.commit(intent.recovery_commit_id)
        if earlier is not None:
            outcomes = rolled_back_by(earlier, intent.tables, state)
            self._put_back_late(intent, state, is_first_round=is_first_round)
        else:
            outcomes = rolled_back(facts.tables)
            published = {
                table.accepted_key: entry
                for table in intent.tables
                if (entry := published_on_lineage(state, table)) is not None
            }
            intent = self._name_restores(intent, len(published))
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
        return self._row(intent, RecoveryKind.ROLLED_BACK, intent.recovery_commit_id, outcomes)

    def _put_back_late(self, intent: Intent, state: ManifestState, *, is_first_round: bool) -> None:
        """Undo commits that were made after the operation was settled.

        In a later round another process has been at work: this one may have been paused and have
        lost its lock. It then undoes only what no audit row explains, namely a restore that this
        record names and that was written after the audit row. The next write to the table undoes
        the rest.
        """
        audited = self._log.settled_transactions()
        settled = {*audited, *_transactions(intent)}
        incarnation = Incarnation(intent.branch_incarnation)
        for table in intent.tables:
            entry = published_on_lineage(state, table)
            moves = () if entry is None else late_moves(self._datasets, entry)
            is_left_to_others = not is_first_round and are_explained(moves, audited)
            if entry is None or not moves or is_left_to_others:
                continue
            if are_explained(moves, settled):
                put_back(self._repository, self._log, incarnation, entry, moves)

    def _name_restores(self, intent: Intent, count: int) -> Intent:
        """Write the ids of further restores into the record, before any of them is made."""
        uuids = (
            *intent.restore_transaction_ids,
            *(self._repository.clock.uuid() for _ in range(count)),
        )
        named = replace(intent, restore_transaction_ids=uuids)
        self._objects.put(intent.path, named.to_json())
        hit("recovery.after_announce")
        return named

    def _restore(
        self, published: dict[str, Entry], restore_ids: tuple[str, ...]
    ) -> tuple[Entry, ...]:
        uuids = restore_ids[len(restore_ids) - len(published) :]
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

    def _row(
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


def _violated(tables: Sequence[TableFacts], classes: Sequence[TableClass]) -> tuple[str, ...]:
    return tuple(
        seen.table.table_key
        for seen, label in zip(tables, classes, strict=True)
        if label is TableClass.INVARIANT_VIOLATION
    )
