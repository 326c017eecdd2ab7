"""Observed facts in, verdict out: a label for each table, then one verdict for the record.

For every table of a record, the head of its lineage is compared with *pinned*: the version of the
entry that is published now (for a fresh fork the version that it was cut from, while that is still
the published entry; for a dataset that the write creates, 0). Only versions above it count. They
are *ours* when each carries a transaction id of the record, its restores included.

| label | seen | means |
|---|---|---|
| `InvariantViolation` | head below pinned | storage lost a published version |
| `NoMovement` | head = pinned, or the fork or dataset does not exist | the write was not here yet |
| `UnexpectedAtP1` | one version above, not ours | another process wrote without a record |
| `UnexpectedMultistep` | several versions above, not all ours | the same, more than once |
| `RolledPastExpected` | ours, and all of the table's transactions are there | this table is done |
| `IncompletePhaseB` | ours, and some are missing or not confirmed | this table is half done |

The labels, the manifest and the record itself answer the questions of `RecordFacts`; `VERDICTS` is
the table that turns the answers into a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from omnigraph.dataclass import dataclass
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
    """Return how the tables of a record are classified."""
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
    """What to do about a record."""

    FINISHED = "finished"
    """Write the audit row and delete the record."""
    FINISH_ROLL_BACK = "finish_roll_back"
    """Put the tables back."""
    DISCARD = "discard"
    """Delete the record."""
    STOP = "stop"
    """Change nothing: an operator has to look."""
    ROLL_FORWARD = "roll_forward"
    """Publish exactly the versions that were seen."""
    ROLL_BACK = "roll_back"
    """Void the commit id, then put the tables back."""


class RecordFacts(NamedTuple):
    """The answers that decide about a record."""

    is_published: bool
    """The manifest has the commit of the record."""
    is_voided: bool
    """The commit id is voided, as the manifest or the record itself says."""
    is_branch_alive: bool
    is_storage_intact: bool
    """No table has lost a published version."""
    is_complete: bool
    """Every table is `RolledPastExpected`, at exactly the intended version."""
    are_expectations_met: bool


class Case(NamedTuple):
    """One row of the decision: which answers it takes, in the order of `RecordFacts`."""

    label: str
    answers: tuple[bool | None, ...]
    verdict: Verdict
    why: str

    def matches(self, facts: RecordFacts) -> bool:
        """Whether the facts are those of this case."""
        return all(
            expected is ANY or expected == fact
            for expected, fact in zip(self.answers, facts, strict=True)
        )


YES: Final = True
NO: Final = False
ANY: Final = None

# fmt: off
VERDICTS: Final = (
    #         published, voided, branch alive, intact, complete, expectations met
    Case("A", (YES, ANY, ANY, ANY, ANY, ANY), Verdict.FINISHED,
         "The write is visible; only the record is left."),
    Case("B", (NO,  YES, ANY, ANY, ANY, ANY), Verdict.FINISH_ROLL_BACK,
         "The write can no longer be published; an earlier recovery died before it was done."),
    Case("C", (NO,  NO,  NO,  ANY, ANY, ANY), Verdict.DISCARD,
         "The branch is deleted, so nothing of the write can become visible."),
    Case("D", (NO,  NO,  YES, NO,  ANY, ANY), Verdict.STOP,
         "Storage contradicts the manifest, and a restore could destroy what is left."),
    Case("E", (NO,  NO,  YES, YES, YES, YES), Verdict.ROLL_FORWARD,
         "Everything but the publish is done, and nothing has changed that the write relied on."),
    Case("F", (NO,  NO,  YES, YES, YES, NO ), Verdict.ROLL_BACK,
         "Another publish has overtaken the write."),
    Case("G", (NO,  NO,  YES, YES, NO,  ANY), Verdict.ROLL_BACK,
         "A table is not where the write meant to take it; only its writer could finish it."),
)
"""Exactly one case matches any combination of answers."""
# fmt: on


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
    """Classify a table of a record without transaction ids, by version numbers alone."""
    table = facts.table
    reached = facts.head == table.post_commit_pin and facts.pinned == table.expected_version
    if mode is Mode.LOOSE or reached:
        return TableClass.ROLLED_PAST_EXPECTED
    return foreign


def decide(facts: Facts, intent: Intent) -> tuple[Verdict, tuple[TableClass, ...]]:
    """Decide about a record as a whole: all or nothing."""
    classes = tuple(classify_table(table, intent) for table in facts.tables)
    answers = RecordFacts(
        is_published=facts.is_published,
        is_voided=facts.is_voided or intent.settled,
        is_branch_alive=facts.is_branch_alive,
        is_storage_intact=TableClass.INVARIANT_VIOLATION not in classes,
        is_complete=_is_complete(facts.tables, classes, intent),
        are_expectations_met=facts.are_expectations_met,
    )
    return next(case.verdict for case in VERDICTS if case.matches(answers)), classes


def _is_complete(
    tables: Sequence[TableFacts], classes: Sequence[TableClass], intent: Intent
) -> bool:
    if any(label is not TableClass.ROLLED_PAST_EXPECTED for label in classes):
        return False
    if intent.schema_version < INTENT_VERSION:
        return True
    return all(facts.head == facts.table.post_commit_pin for facts in tables)
