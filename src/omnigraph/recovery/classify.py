"""Observed facts in, verdict out.

For every table of a record, the head of its lineage is compared with *pinned*: the version of the
entry that is published now (for a fresh fork the version that it was cut from, while that is still
the published entry; for a dataset that the write creates, 0). Only versions above it count. They
are *ours* when each carries a transaction id of the record, its restores included.

| label | seen | means |
|---|---|---|
| `InvariantViolation` | head below pinned | storage lost a published version |
| `NoMovement` | head = pinned, or the fork or dataset does not exist | the write was not here yet |
| `UnexpectedAtP1` | one version above, not ours | somebody else wrote without a record |
| `UnexpectedMultistep` | several versions above, not all ours | the same, more than once |
| `RolledPastExpected` | ours, and all of the table's transactions are there | this table is done |
| `IncompletePhaseB` | ours, and some are missing or not confirmed | this table is half done |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.recovery.intent import INTENT_VERSION, Intent, PlannedTable, WriterKind


class Mode(StrEnum):
    """How much a table may have moved."""

    STRICT = "strict"
    """One transaction per table."""
    CONFIRMED = "confirmed"
    """Done only when the record says so."""
    LOOSE = "loose"
    """Several transactions per table, all of them ours."""


def mode_of(writer_kind: WriterKind, schema_version: int) -> Mode:
    """Return how the tables of a record are judged; the one place that knows."""
    match writer_kind:
        case WriterKind.MUTATION | WriterKind.LOAD:
            return Mode.STRICT
        case WriterKind.BRANCH_MERGE:
            return Mode.CONFIRMED if schema_version >= INTENT_VERSION else Mode.LOOSE
        case WriterKind.SCHEMA_APPLY | WriterKind.ENSURE_INDICES | WriterKind.OPTIMIZE:
            return Mode.LOOSE


class TableClass(StrEnum):
    """What was seen of one table."""

    INVARIANT_VIOLATION = "InvariantViolation"
    NO_MOVEMENT = "NoMovement"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    INCOMPLETE_PHASE_B = "IncompletePhaseB"


@dataclass(frozen=True)
class TableFacts:
    """What storage says about one table of a record.

    `head` is None when the lineage does not exist. `moved_by` holds the transaction id of every
    version above `pinned`, oldest first.
    """

    table: PlannedTable
    pinned: int
    head: int | None
    moved_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What storage says about a whole record."""

    is_published: bool
    is_voided: bool
    is_branch_alive: bool
    are_expectations_met: bool
    """Schema, expected head, read and written entries are what the record names."""
    tables: tuple[TableFacts, ...] = ()


class Verdict(StrEnum):
    """What to do about a record. Exactly one fits every combination of facts."""

    FINISHED = "finished"
    """The commit is published: record it and delete the file."""
    FINISH_ROLL_BACK = "finish_roll_back"
    """The commit id is voided already: put the tables back."""
    DISCARD = "discard"
    """The branch is gone: nothing of the record can become visible."""
    STOP = "stop"
    """Storage contradicts the manifest: an operator has to look."""
    ROLL_FORWARD = "roll_forward"
    """Every table is done: publish exactly what was seen."""
    ROLL_BACK = "roll_back"
    """Something is missing or has been overtaken: void, then put the tables back."""


def classify_table(facts: TableFacts, intent: Intent) -> TableClass:
    """Compare one table with what the record meant to do."""
    head, pinned = facts.head, facts.pinned
    if head is None or head == pinned:
        return TableClass.NO_MOVEMENT
    if head < pinned:
        return TableClass.INVARIANT_VIOLATION
    foreign = TableClass.UNEXPECTED_AT_P1 if head == pinned + 1 else TableClass.UNEXPECTED_MULTISTEP
    mode = mode_of(intent.writer_kind, intent.schema_version)
    if intent.schema_version < INTENT_VERSION:
        return _classify_first_version(facts, mode, foreign)
    ours = {*facts.table.transaction_ids, *intent.restore_transaction_ids}
    if not set(facts.moved_by) <= ours:
        return foreign
    is_complete = set(facts.table.transaction_ids) <= set(facts.moved_by)
    is_confirmed = mode is not Mode.CONFIRMED or facts.table.confirmed_version == head
    if is_complete and is_confirmed:
        return TableClass.ROLLED_PAST_EXPECTED
    return TableClass.INCOMPLETE_PHASE_B


def _classify_first_version(facts: TableFacts, mode: Mode, foreign: TableClass) -> TableClass:
    """Judge a record without transaction ids: only version numbers can tell."""
    table = facts.table
    reached = facts.head == table.post_commit_pin and facts.pinned == table.expected_version
    if mode is Mode.LOOSE or reached:
        return TableClass.ROLLED_PAST_EXPECTED
    return foreign


def judge(facts: Facts, intent: Intent) -> tuple[Verdict, tuple[TableClass, ...]]:
    """Decide about a record as a whole: all or nothing."""
    classes = tuple(classify_table(table, intent) for table in facts.tables)
    if facts.is_published:
        return Verdict.FINISHED, classes
    if facts.is_voided or intent.settled:
        return Verdict.FINISH_ROLL_BACK, classes
    if not facts.is_branch_alive:
        return Verdict.DISCARD, classes
    if TableClass.INVARIANT_VIOLATION in classes:
        return Verdict.STOP, classes
    if facts.are_expectations_met and _is_done(facts.tables, classes, intent):
        return Verdict.ROLL_FORWARD, classes
    return Verdict.ROLL_BACK, classes


def _is_done(tables: Sequence[TableFacts], classes: Sequence[TableClass], intent: Intent) -> bool:
    if any(label is not TableClass.ROLLED_PAST_EXPECTED for label in classes):
        return False
    if intent.schema_version < INTENT_VERSION:
        return True
    return all(facts.head == facts.table.post_commit_pin for facts in tables)
