"""Every writer dies at every named point, as a process: `os._exit`, without any cleaning up.

After a reopen the write is there wholly or not at all, heads are published, it is settled exactly
once, a second open changes nothing, the same operation succeeds, and so does a schema apply. The
same with an exception instead of a death is in `tests/faults/test_writer_faults.py`.
"""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

from crash.cases import CASES, RECOVERY_POINTS, Case, message, prepare
from crash.checks import (
    check_audit,
    check_derived,
    check_opening_changes_nothing,
    check_sound,
    pending_records,
    read_content,
)
from crash.child import run_operation
from crash.nursery import Nursery
from crash.world import World
from omnigraph.failpoints import FAILPOINTS
from support.places import Place

ELSEWHERE = {
    # `tests/recovery/test_late_commits.py`.
    "strays.after_restore",
}
QUICK = {
    ("insert", "recovery.sidecar_write"),
    ("first write on a branch", "write.after_first_table"),
    ("load overwrite", "write.post_phase_b_pre_manifest_commit"),
    ("branch merge", "recovery.sidecar_confirm"),
    ("schema apply", "write.after_first_table"),
    ("optimize", "write.post_phase_b_pre_manifest_commit"),
    ("ensure indices", "write.after_first_table"),
}


def die(place: Place, nursery: Nursery, case: Case, point: str) -> None:
    """Run a case in a child that dies at a point."""
    with nursery.child() as child:
        child.ask(message(place))
        child.ask({"do": "arm", "points": f"{point}=die"})
        child.send({"do": "run", "number": 0, "operation": case.form})
        heard = list(child.rest())
        assert heard == [{"begin": 0}], f"{point} is not on the way of {case.name}: {heard}"


def check_after(place: Place, case: Case, point: str, before: World) -> None:
    after = before.copy()
    case.change(after)
    pending = pending_records(place)
    graph = place.open()
    found = read_content(graph)
    is_there = found == after.content()
    assert is_there or found == before.content(), "half a write"
    if case.changes_content:
        assert is_there == (point in case.finished)
    check_sound(graph)
    check_audit(graph, pending)
    check_derived(graph)
    check_opening_changes_nothing(place)
    if not is_there or not case.changes_content:
        run_operation(graph, case.form)
    assert read_content(place.open()) == after.content()
    again = place.open()
    if case.with_branch:
        again.branch_delete("draft")
    again.apply_schema(again.schema_source() + "node After { code: String @key }\n")
    assert "node:After" in again.snapshot().entries
    check_sound(place.open())


def params(*, quick: bool) -> list[ParameterSet]:
    return [
        pytest.param(case, point, id=f"{case.name}-{point}")
        for case in CASES
        for point in case.points
        if ((case.name, point) in QUICK) is quick
    ]


def check_death(place: Place, nursery: Nursery, case: Case, point: str) -> None:
    before = prepare(place, case)
    die(place, nursery, case, point)
    check_after(place, case, point, before)


@pytest.mark.parametrize(("case", "point"), params(quick=True))
def test_a_writer_that_dies_leaves_all_or_nothing(
    local_place: Place, nursery: Nursery, case: Case, point: str
) -> None:
    check_death(local_place, nursery, case, point)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "point"), params(quick=False))
def test_a_writer_that_dies_anywhere_leaves_all_or_nothing(
    local_place: Place, nursery: Nursery, case: Case, point: str
) -> None:
    check_death(local_place, nursery, case, point)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("crash", "point"),
    [(crash, point) for crash, points in RECOVERY_POINTS.items() for point in points],
)
def test_a_recovery_that_dies_is_finished_by_the_next_one(
    local_place: Place, nursery: Nursery, crash: str, point: str
) -> None:
    before = prepare(local_place, CASES[0])
    die(local_place, nursery, CASES[0], crash)
    with nursery.child() as sweeper:
        sweeper.ask({"do": "arm", "points": f"{point}=die"})
        sweeper.send(message(local_place))
        assert list(sweeper.rest()) == [], f"{point} is not on the way"
    pending = pending_records(local_place)
    assert len(pending) == 1, "the record goes last"
    check_after(local_place, CASES[0], crash, before)


def test_every_declared_failpoint_is_died_at() -> None:
    died_at = {point for case in CASES for point in case.points}
    died_at |= {point for points in RECOVERY_POINTS.values() for point in points}
    assert died_at | ELSEWHERE == set(FAILPOINTS)
