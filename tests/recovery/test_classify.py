"""The verdict table: every combination of facts has exactly one verdict, the right one."""

from __future__ import annotations

from itertools import product

import pytest

from omnigraph.manifest import CommitDraft, Entry
from omnigraph.recovery.classify import (
    VERDICTS,
    Facts,
    Mode,
    RecordFacts,
    TableClass,
    TableFacts,
    Verdict,
    classify_table,
    decide,
    mode_of,
)
from omnigraph.recovery.intent import Intent, PlannedTable, WriterKind

PINNED = 5
OURS = ("ours-1", "ours-2")
RESTORE = "restore-1"


def entry(version: int = PINNED) -> Entry:
    return Entry("node:Person", "nodes/a", None, version, 3, 10, "main")


def table(transactions: int = 1, *, confirmed: int | None = None) -> PlannedTable:
    return PlannedTable(
        table_key="node:Person",
        table_path="nodes/a",
        table_branch=None,
        entry=entry(),
        expected_version=PINNED,
        post_commit_pin=PINNED + transactions,
        transaction_ids=OURS[:transactions],
        confirmed_version=confirmed,
    )


def intent(
    kind: WriterKind = WriterKind.MUTATION,
    *tables: PlannedTable,
    schema_version: int = 2,
    settled: bool = False,
) -> Intent:
    return Intent(
        operation_id="01J",
        owner_id="me",
        started_at=0,
        branch="main",
        branch_incarnation="main",
        schema_hash="sha256:x",
        writer_kind=kind,
        commit=CommitDraft("01C", "mutation", None, 0),
        recovery_commit_id="01R",
        tables=tables or (table(),),
        restore_transaction_ids=(RESTORE,),
        settled=settled,
        schema_version=schema_version,
    )


MOVES: dict[str, tuple[int | None, tuple[str, ...]]] = {
    "absent": (None, ()),
    "behind": (PINNED - 1, ()),
    "still": (PINNED, ()),
    "first of ours": (PINNED + 1, OURS[:1]),
    "all of ours": (PINNED + 2, OURS),
    "ours and a restore": (PINNED + 2, (OURS[0], RESTORE)),
    "only a restore": (PINNED + 1, (RESTORE,)),
    "foreign": (PINNED + 1, ("foreign",)),
    "ours and foreign": (PINNED + 2, (OURS[0], "foreign")),
    "foreign twice": (PINNED + 2, ("foreign", "foreign-2")),
}


@pytest.mark.parametrize(
    ("move", "transactions", "expected"),
    [
        ("absent", 1, TableClass.NO_MOVEMENT),
        ("behind", 1, TableClass.INVARIANT_VIOLATION),
        ("still", 1, TableClass.NO_MOVEMENT),
        ("first of ours", 1, TableClass.ROLLED_PAST_EXPECTED),
        ("first of ours", 2, TableClass.INCOMPLETE_PHASE_B),
        ("all of ours", 2, TableClass.ROLLED_PAST_EXPECTED),
        ("ours and a restore", 1, TableClass.ROLLED_PAST_EXPECTED),
        ("only a restore", 1, TableClass.INCOMPLETE_PHASE_B),
        ("foreign", 1, TableClass.UNEXPECTED_AT_P1),
        ("ours and foreign", 1, TableClass.UNEXPECTED_MULTISTEP),
        ("foreign twice", 1, TableClass.UNEXPECTED_MULTISTEP),
    ],
)
@pytest.mark.parametrize("kind", [WriterKind.MUTATION, WriterKind.LOAD, WriterKind.OPTIMIZE])
def test_a_table_is_judged_by_who_moved_it(
    kind: WriterKind, move: str, transactions: int, expected: TableClass
) -> None:
    head, moved_by = MOVES[move]
    planned = table(transactions)
    seen = TableFacts(planned, PINNED, head, moved_by)
    assert classify_table(seen, intent(kind, planned)) is expected


@pytest.mark.parametrize(
    ("confirmed", "expected"),
    [
        (None, TableClass.INCOMPLETE_PHASE_B),
        (PINNED + 1, TableClass.ROLLED_PAST_EXPECTED),
        (PINNED + 2, TableClass.INCOMPLETE_PHASE_B),
    ],
)
def test_a_merge_counts_only_when_confirmed(confirmed: int | None, expected: TableClass) -> None:
    planned = table(confirmed=confirmed)
    seen = TableFacts(planned, PINNED, PINNED + 1, OURS[:1])
    assert classify_table(seen, intent(WriterKind.BRANCH_MERGE, planned)) is expected


@pytest.mark.parametrize(
    ("kind", "head", "expected"),
    [
        (WriterKind.MUTATION, PINNED + 1, TableClass.ROLLED_PAST_EXPECTED),
        (WriterKind.MUTATION, PINNED + 2, TableClass.UNEXPECTED_MULTISTEP),
        (WriterKind.LOAD, PINNED, TableClass.NO_MOVEMENT),
        (WriterKind.OPTIMIZE, PINNED + 3, TableClass.ROLLED_PAST_EXPECTED),
        (WriterKind.BRANCH_MERGE, PINNED + 2, TableClass.ROLLED_PAST_EXPECTED),
    ],
)
def test_a_record_of_the_first_version_is_judged_by_numbers_alone(
    kind: WriterKind, head: int, expected: TableClass
) -> None:
    planned = table()
    seen = TableFacts(planned, PINNED, head, ("another",) * (head - PINNED))
    assert classify_table(seen, intent(kind, planned, schema_version=1)) is expected


def test_a_first_version_record_that_was_overtaken_is_not_ours() -> None:
    seen = TableFacts(table(), PINNED + 1, PINNED + 2, ("another",))
    judged = classify_table(seen, intent(WriterKind.MUTATION, table(), schema_version=1))
    assert judged is TableClass.UNEXPECTED_AT_P1


def test_every_writer_kind_and_version_has_a_mode() -> None:
    modes = {(kind, version): mode_of(kind, version) for kind in WriterKind for version in (1, 2)}
    assert modes[WriterKind.BRANCH_MERGE, 1] is Mode.LOOSE
    assert modes[WriterKind.BRANCH_MERGE, 2] is Mode.CONFIRMED
    assert {modes[kind, 2] for kind in (WriterKind.MUTATION, WriterKind.LOAD)} == {Mode.STRICT}
    assert len(modes) == 2 * len(WriterKind)


def expected_class(seen: TableFacts, record: Intent) -> TableClass:
    """Say the same as `classify_table` in other words: the rows of the table, first match wins."""
    head = PINNED if seen.head is None else seen.head
    written, restored = set(seen.table.transaction_ids), set(record.restore_transaction_ids)
    is_first_version = record.schema_version == 1
    is_loose = record.writer_kind in (
        *(WriterKind.SCHEMA_APPLY, WriterKind.ENSURE_INDICES, WriterKind.OPTIMIZE),
        *((WriterKind.BRANCH_MERGE,) if is_first_version else ()),
    )
    if is_first_version:
        # Whose the versions are is assumed; a writer of one transaction meant one exact version.
        are_ours = is_loose or head == seen.table.post_commit_pin
        is_done = True
    else:
        are_ours = all(uuid in written | restored for uuid in seen.moved_by)
        is_merge = record.writer_kind is WriterKind.BRANCH_MERGE
        is_confirmed = not is_merge or seen.table.confirmed_version == head
        is_done = written <= set(seen.moved_by) and is_confirmed
    rows = [
        (head < PINNED, TableClass.INVARIANT_VIOLATION),
        (head == PINNED, TableClass.NO_MOVEMENT),
        (not are_ours and head == PINNED + 1, TableClass.UNEXPECTED_AT_P1),
        (not are_ours, TableClass.UNEXPECTED_MULTISTEP),
        (is_done, TableClass.ROLLED_PAST_EXPECTED),
        (True, TableClass.INCOMPLETE_PHASE_B),
    ]
    return next(label for applies, label in rows if applies)


def expected_verdict(facts: Facts, record: Intent, classes: tuple[TableClass, ...]) -> Verdict:
    """Say the same as `decide` in other words: the rows of the decision, first match wins."""
    done = all(label is TableClass.ROLLED_PAST_EXPECTED for label in classes)
    reached = record.schema_version == 1 or all(
        seen.head == seen.table.post_commit_pin for seen in facts.tables
    )
    rows = [
        (facts.is_published, Verdict.FINISHED),
        (facts.is_voided or record.settled, Verdict.FINISH_ROLL_BACK),
        (not facts.is_branch_alive, Verdict.DISCARD),
        (TableClass.INVARIANT_VIOLATION in classes, Verdict.STOP),
        (done and reached and facts.are_expectations_met, Verdict.ROLL_FORWARD),
        (True, Verdict.ROLL_BACK),
    ]
    return next(verdict for applies, verdict in rows if applies)


def test_exactly_one_case_matches_each_combination_of_answers() -> None:
    matched: dict[str, Verdict] = {}
    for answers in product((False, True), repeat=len(RecordFacts._fields)):
        cases = [case for case in VERDICTS if case.matches(RecordFacts(*answers))]
        assert len(cases) == 1, answers
        matched[cases[0].label] = cases[0].verdict
    assert matched == {case.label: case.verdict for case in VERDICTS}
    assert set(matched.values()) == set(Verdict)


def test_the_cases_are_labelled_apart_and_give_a_reason() -> None:
    assert len({case.label for case in VERDICTS}) == len(VERDICTS)
    assert all(case.why.endswith(".") for case in VERDICTS)


def test_every_combination_of_facts_has_exactly_one_verdict() -> None:
    seen_verdicts: set[Verdict] = set()
    seen_classes: set[TableClass] = set()
    combinations = 0
    for (
        kind,
        version,
        (published, voided),
        settled,
        alive,
        met,
        transactions,
        confirmed,
        first,
        second,
    ) in product(
        WriterKind,
        (1, 2),
        ((False, False), (True, False), (False, True)),
        (False, True),
        (False, True),
        (False, True),
        (1, 2),
        (None, PINNED + 1, PINNED + 2),
        MOVES.values(),
        (MOVES["still"], MOVES["first of ours"], MOVES["behind"], MOVES["foreign"]),
    ):
        planned = table(transactions, confirmed=confirmed)
        record = intent(kind, planned, planned, schema_version=version, settled=settled)
        facts = Facts(
            is_published=published,
            is_voided=voided,
            is_branch_alive=alive,
            are_expectations_met=met,
            tables=tuple(TableFacts(planned, PINNED, *move) for move in (first, second)),
        )
        verdict, classes = decide(facts, record)
        assert classes == tuple(expected_class(seen, record) for seen in facts.tables)
        assert verdict is expected_verdict(facts, record, classes)
        seen_verdicts.add(verdict)
        seen_classes.update(classes)
        combinations += 1
    assert seen_verdicts == set(Verdict)
    assert seen_classes == set(TableClass)
    assert combinations == 6 * 2 * 3 * 2 * 2 * 2 * 2 * 3 * 10 * 4


def test_nothing_is_rolled_forward_past_the_intended_version() -> None:
    planned = table(1)
    beyond = TableFacts(planned, PINNED, PINNED + 2, (OURS[0], RESTORE))
    facts = Facts(
        is_published=False,
        is_voided=False,
        is_branch_alive=True,
        are_expectations_met=True,
        tables=(beyond,),
    )
    assert decide(facts, intent(WriterKind.LOAD, planned))[0] is Verdict.ROLL_BACK


def test_a_record_that_moves_no_table_rolls_forward_when_nothing_else_changed() -> None:
    record = intent(WriterKind.SCHEMA_APPLY)
    bare = Intent(**{**vars(record), "tables": ()})
    facts = Facts(
        is_published=False, is_voided=False, is_branch_alive=True, are_expectations_met=True
    )
    assert decide(facts, bare)[0] is Verdict.ROLL_FORWARD
