"""A fault at every storage effect, and at every named point, of a group of appends.

Each member is there wholly or not at all, whatever happens to the others; what a member was told is
true; the group ends, and so does every thread that waits for it. Power failures during a group are
in `tests/faults/test_power.py`, processes that die in `tests/crash/test_group_deaths.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.recovery.intent import FOLDER
from support.fault_plan import FaultMode, FaultPlan
from support.groups import Answer, run_together
from support.places import Place, tree
from support.s3 import S3Server
from support.sweep_jobs import GROUP, GROUP_NAMES, members_in
from support.sweeps import Archives, broken, check_heads, settle_elsewhere

pytestmark = pytest.mark.usefixtures("disarmed")

FAULTS = (FaultMode.FAIL_BEFORE, FaultMode.FAIL_AFTER, FaultMode.DIE_AFTER)
POINTS = [point for point in failpoints.OF_A_WRITE if point != "recovery.sidecar_confirm"]
QUICK_STEP = 5
"""The quick run has every fifth effect from the first record on."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return Archives(str(tmp_path_factory.mktemp("archives")))


@pytest.fixture(scope="module")
def s3_archives(s3: S3Server) -> Archives:
    return Archives(f"s3://{s3.bucket}/groups", s3.options)


def check(place: Place, answers: Sequence[Answer]) -> list[str]:
    """Check a graph after a fault in a group; return whose rows were there."""
    with place.open() as graph:
        found = members_in(graph)
        for name, answer in zip(GROUP_NAMES, answers, strict=True):
            if answer.error is None:
                assert name in found, f"{name} was told that it is done"
            elif isinstance(answer.error, OmnigraphError) and name in found:
                assert isinstance(answer.error, OutcomeUnknownError), f"refused: {answer.error!r}"
        check_heads(graph)
        assert graph.recovery_status() == []
        settled = [row.operation_id for row in graph.recovery_list()]
        assert len(set(settled)) == len(settled)
    if place.is_local:
        before = tree(Path(place.uri))
        place.open().close()
        assert tree(Path(place.uri)) == before, "a second open changes something"
    with place.open() as graph:
        GROUP.run(graph)
        assert members_in(graph) == list(GROUP_NAMES)
    return found


def check_plan(place: Place, plan: FaultPlan) -> list[str]:
    answers = run_together(broken(place, plan), GROUP.steps)
    # The lease of a dead process would make the next one wait for ten seconds.
    place.store().objects.delete_prefix("__leases")
    try:
        return check(place, answers)
    except BaseException as problem:
        problem.add_note(f"{plan.effects[-1]}; the members saw {[a.error for a in answers]}")
        raise


def decisive(place: Place) -> range:
    """Return the numbers of the effects of a group from its first record on."""
    plan = FaultPlan()
    answers = run_together(broken(place, plan), GROUP.steps)
    assert [answer.error for answer in answers] == [None] * len(GROUP_NAMES)
    records = [effect for effect in plan.effects if effect.path.startswith(FOLDER)]
    first = records[0].number
    puts = [effect.number for effect in records if effect.name == "objects.put_if_absent"]
    assert puts == [first, first + 1, first + 2], "the writes are one group"
    return range(first, len(plan.effects) + 1)


def test_a_fault_in_a_group_leaves_each_member_whole(archives: Archives) -> None:
    places = archives.of(GROUP).places()
    faults = itertools.cycle(FAULTS)
    found = [
        check_plan(next(places), FaultPlan(at=number, mode=next(faults)))
        for number in decisive(next(places))[::QUICK_STEP]
    ]
    assert list(GROUP_NAMES) in found
    assert any(members != list(GROUP_NAMES) for members in found)


@pytest.mark.slow
@pytest.mark.parametrize("mode", FAULTS)
def test_a_fault_at_any_effect_of_a_group_leaves_each_member_whole(
    archives: Archives, mode: FaultMode
) -> None:
    places = archives.of(GROUP).places()
    found = [
        check_plan(next(places), FaultPlan(at=number, mode=mode))
        for number in decisive(next(places))
    ]
    assert any(members != list(GROUP_NAMES) for members in found)


@pytest.mark.slow
@pytest.mark.parametrize("offset", range(len(FAULTS)))
def test_a_fault_in_a_group_on_s3_leaves_each_member_whole(
    s3_archives: Archives, offset: int
) -> None:
    places = s3_archives.of(GROUP).places()
    for number in decisive(next(places)):
        mode = FAULTS[(number + offset) % len(FAULTS)]
        check_plan(next(places), FaultPlan(at=number, mode=mode))


def check_point(place: Place, point: str, hit: int) -> None:
    """Fail when a point is passed for the n-th time."""
    hits = itertools.count(1)

    def fail() -> None:
        if next(hits) == hit:
            raise failpoints.FailpointError(point)

    failpoints.arm(point, fail)
    with place.open() as graph:
        answers = run_together(graph, GROUP.steps)
    failpoints.disarm()
    check(place, answers)


@pytest.mark.parametrize(
    ("point", "hit"),
    [
        ("recovery.sidecar_write", 2),
        ("write.after_first_table", 2),
        ("write.post_phase_b_pre_manifest_commit", 3),
        ("graph_publish.after_commit_append", 1),
    ],
)
def test_a_failure_at_a_point_of_a_group_leaves_each_member_whole(
    archives: Archives, point: str, hit: int
) -> None:
    check_point(archives.of(GROUP).restored(), point, hit)


@pytest.mark.slow
@pytest.mark.parametrize("hit", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS)
def test_a_failure_at_any_point_of_a_group_leaves_each_member_whole(
    archives: Archives, point: str, hit: int
) -> None:
    check_point(archives.of(GROUP).restored(), point, hit)


def check_delay(place: Place, number: int) -> None:
    """Delay one effect until the group is presumed dead and settled; then let it go on."""
    plan = FaultPlan(
        at=number, mode=FaultMode.DELAY, meanwhile=lambda: settle_elsewhere(place, "main")
    )
    answers = run_together(broken(place, plan), GROUP.steps)
    assert plan.has_fired
    try:
        check(place, answers)
    except BaseException as problem:
        problem.add_note(f"delayed at {plan.effects[number - 1]}")
        raise


def test_a_group_that_is_slow_and_was_settled_tells_its_members_the_truth(
    archives: Archives,
) -> None:
    places = archives.of(GROUP).places()
    for number in decisive(next(places))[1::QUICK_STEP]:
        check_delay(next(places), number)


@pytest.mark.slow
def test_a_group_that_is_slow_at_any_effect_and_was_settled_tells_the_truth(
    archives: Archives,
) -> None:
    places = archives.of(GROUP).places()
    for number in decisive(next(places)):
        check_delay(next(places), number)
