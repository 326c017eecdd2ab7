"""A fault at every storage effect, and at every named point, of every kind of writer.

After each the graph is opened again: the write is there wholly or not at all, every head is what
the manifest says, each operation that had to be settled has exactly one audit row, a second open
changes nothing, the write succeeds when it is tried again, and so does a schema apply after it.

Dying before an effect is dying after the one before it, so three faults say everything.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from omnigraph import failpoints
from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.graph.opening import open_for_writing
from omnigraph.recovery.intent import FOLDER
from support.faulty_store import FaultMode, FaultPlan, SimulatedDeath, faulty, sweep
from support.places import Place
from support.s3 import S3Server
from support.sweep_jobs import JOBS, JOBS_BY_NAME, Job
from support.sweeps import (
    Archives,
    Sweep,
    attempt,
    broken,
    pending_operations,
    settle_elsewhere,
)

pytestmark = pytest.mark.usefixtures("disarmed")

FAULTS = (FaultMode.FAIL_BEFORE, FaultMode.FAIL_AFTER, FaultMode.DIE_AFTER)
POINTS = [
    *failpoints.OF_A_WRITE,
    "schema_apply.reserved",
    "schema_apply.locked",
    "schema_apply.published",
]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return Archives(str(tmp_path_factory.mktemp("archives")))


@pytest.fixture(scope="module")
def s3_archives(s3: S3Server) -> Archives:
    return Archives(f"s3://{s3.bucket}/sweeps", s3.options)


def check_fault(swept: Sweep, place: Place, plan: FaultPlan) -> int:
    """Run a job under a plan and check what is left of it; return how many steps were done."""
    error = attempt(broken(place, plan, swept.job.branch), swept.job)
    # The lease of a dead process would make the next one wait for ten seconds.
    place.store().objects.delete_prefix("__leases")
    try:
        return swept.check(place, audited=pending_operations(place), error=error)
    except BaseException as problem:
        problem.add_note(f"{swept.job.name}: {plan.effects[-1]}; the caller saw {error!r}")
        raise


LONG_ONLY = (
    "merge forward",
    "merge by link into a branch",
    "merge a schema by link",
    "merge and delete",
    "merge a schema into a branch",
    "revert",
    "hard drop on a branch",
)
QUICK = [job for job in JOBS if job.name not in LONG_ONLY]
"""The long sweep has all of them."""


@pytest.mark.parametrize("job", QUICK, ids=lambda job: job.name)
def test_a_fault_from_the_record_on_leaves_all_or_nothing(archives: Archives, job: Job) -> None:
    """The faults take turns; the long sweep has each of them at every effect."""
    places = archives.of(job).places()
    swept = Sweep.measured(job, next(places))
    faults = itertools.cycle(FAULTS)
    for _ in range(JOBS.index(job) % len(FAULTS)):
        next(faults)
    done = [
        check_fault(swept, next(places), FaultPlan(at=number, mode=next(faults)))
        for number in swept.decisive
    ]
    assert len(job.steps) in done
    assert 0 in done or not job.moves_tables, "some fault stops it"


@pytest.mark.slow
@pytest.mark.parametrize("mode", FAULTS)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_fault_at_any_effect_leaves_all_or_nothing(
    archives: Archives, job: Job, mode: FaultMode
) -> None:
    places = archives.of(job).places()
    swept = Sweep.measured(job, next(places))
    done = [check_fault(swept, next(places), plan) for plan in sweep(mode, effects_max=200)]
    assert len(done) > len(swept.decisive)
    assert done[-1] == len(job.steps), "without a fault the job succeeds"
    # Rows of a publish that cannot be staged ahead are staged again: that stops nothing.
    assert 0 in done or not job.moves_tables, "some fault stops it"


ON_S3 = [
    (job, offset)
    for job in JOBS
    for offset in range(len(FAULTS))
    if offset == 0 or job.name in ("insert", "merge three ways")
]


def rotating_plans(offset: int) -> Iterator[FaultPlan]:
    """Yield a plan for every effect until none fires; the faults take turns."""
    for number in range(1, 200):
        plan = FaultPlan(at=number, mode=FAULTS[(number + offset) % len(FAULTS)])
        yield plan
        if not plan.has_fired:
            return


@pytest.mark.slow
@pytest.mark.parametrize(("job", "offset"), ON_S3, ids=lambda part: getattr(part, "name", part))
def test_a_fault_at_any_effect_on_s3_leaves_all_or_nothing(
    s3_archives: Archives, job: Job, offset: int
) -> None:
    """Leases are objects here: taking, renewing and letting go of a lock is swept as well.

    An insert and a merge meet every fault at every effect; the other jobs, which are slow here,
    one each.
    """
    places = s3_archives.of(job).places()
    swept = Sweep.measured(job, next(places))
    done = [check_fault(swept, next(places), plan) for plan in rotating_plans(offset)]
    assert done[-1] == len(job.steps), "without a fault the job succeeds"
    assert 0 in done or not job.moves_tables, "some fault stops it; a lease that landed does not"


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("delete with cascade", FaultMode.DIE_AFTER),
        ("load append", FaultMode.FAIL_AFTER),
        ("schema apply on a branch", FaultMode.DIE_AFTER),
        ("load merge", FaultMode.FAIL_BEFORE),
        ("load overwrite", FaultMode.DIE_AFTER),
        ("ensure indices", FaultMode.FAIL_AFTER),
        ("merge three ways", FaultMode.DIE_AFTER),
        ("merge by link", FaultMode.DIE_AFTER),
        ("merge a schema", FaultMode.DIE_AFTER),
    ],
)
def test_a_fault_at_the_last_table_on_s3_leaves_all_or_nothing(
    s3_archives: Archives, name: str, mode: FaultMode
) -> None:
    job = JOBS_BY_NAME[name]
    places = s3_archives.of(job).places()
    swept = Sweep.measured(job, next(places))
    commits = [e.number for e in swept.effects if e.name == "datasets.commit_staged"]
    last = [number for number in commits if number in swept.decisive][swept.table_count - 1]
    check_fault(swept, next(places), FaultPlan(at=last, mode=mode))


@pytest.mark.parametrize("point", POINTS)
def test_a_failure_at_a_named_point_leaves_all_or_nothing(archives: Archives, point: str) -> None:
    name = "insert on a branch"
    if point.startswith("schema_apply."):
        name = "schema apply on a branch"
    if point == "recovery.sidecar_confirm":
        name = "merge three ways"
    check_point(archives, JOBS_BY_NAME[name], point)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_failure_of_any_job_at_a_named_point_leaves_all_or_nothing(
    archives: Archives, job: Job, point: str
) -> None:
    check_point(archives, job, point)


def check_point(archives: Archives, job: Job, point: str) -> None:
    places = archives.of(job).places()
    swept = Sweep.measured(job, next(places))
    place = next(places)
    failpoints.arm(point)
    with place.open(job.branch) as graph:
        error = attempt(graph, job)
        failpoints.disarm()
    done = swept.check(place, audited=pending_operations(place), error=error)
    order = failpoints.FAILPOINTS.index
    if point.startswith("schema_apply."):
        is_complete = point == "schema_apply.published"
    else:
        is_complete = order(point) >= order(job.complete_at)
    if error is None or is_complete:
        assert done, "what is complete is rolled forward"
    elif swept.table_count > 1 or order(point) < order("write.after_first_table"):
        assert not done, "what is not is rolled back"


# -- slow, not dead -------------------------------------------------------------------------------


def check_delay(swept: Sweep, place: Place, number: int) -> int:
    """Delay one effect until the writer is presumed dead and settled; then let it go on."""
    job, settled = swept.job, list[str]()
    plan = FaultPlan(
        at=number,
        mode=FaultMode.DELAY,
        meanwhile=lambda: settled.extend(settle_elsewhere(place, job.branch)),
    )
    error = attempt(broken(place, plan, job.branch), job)
    assert plan.has_fired
    try:
        settled += [one for one in pending_operations(place) if one not in settled]
        return swept.check(place, audited=settled, error=error)
    except BaseException as problem:
        problem.add_note(f"{job.name}: delayed at {plan.effects[number - 1]}; told {error!r}")
        raise


@pytest.mark.parametrize("name", ["insert", "insert on a branch"])
def test_a_writer_that_is_slow_at_an_effect_and_was_settled_tells_the_truth(
    archives: Archives, name: str
) -> None:
    check_delays(archives, JOBS_BY_NAME[name])


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_writer_of_any_kind_that_is_slow_and_was_settled_tells_the_truth(
    archives: Archives, job: Job
) -> None:
    check_delays(archives, job)


def check_delays(archives: Archives, job: Job) -> None:
    places = archives.of(job).places()
    swept = Sweep.measured(job, next(places))
    done = [check_delay(swept, next(places), number) for number in swept.decisive]
    assert len(job.steps) in done


# -- the recovery itself ---------------------------------------------------------------------------

STATES: dict[str, tuple[str, int]] = {
    "record written": ("insert", 0),
    "first table moved": ("insert", 1),
    "all tables moved": ("insert", 2),
    "published": ("insert", 3),
    "fork moved": ("insert on a branch", 1),
    "types renamed and moved": ("schema apply", 3),
    "forks rewritten on a branch": ("schema apply on a branch", 2),
    "chain half done": ("optimize", 1),
    "merge half moved": ("merge three ways", 2),
    "merge moved": ("merge three ways", 3),
    "merge confirmed": ("merge three ways", 4),
    "merged forks half moved": ("merge into a branch", 1),
    "pointers announced": ("merge by pointer", 0),
    "columns moved, rows not": ("merge a schema", 1),
    "schema merged, not published": ("merge a schema", 4),
}
"""Dead writes by job and the number of effects after the record's own."""


def dead_write(swept: Sweep, place: Place, effects_after_record: int) -> str:
    """Leave a write in the middle; return its operation."""
    at = swept.decisive[effects_after_record]
    error = attempt(
        broken(place, FaultPlan(at=at, mode=FaultMode.DIE_AFTER), swept.job.branch), swept.job
    )
    assert isinstance(error, SimulatedDeath)
    (operation_id,) = pending_operations(place)
    return operation_id


def recover(place: Place, plan: FaultPlan) -> None:
    """Open a graph on storage that is under a plan."""
    with suppress(SimulatedDeath, OmnigraphError):
        open_for_writing(faulty(place.store(), plan), SystemClock())


def check_recovery_faults(
    swept: Sweep,
    places: Iterator[Place],
    state: str,
    plans: Sequence[FaultPlan] | Iterator[FaultPlan],
) -> None:
    outcomes = set()
    for plan in plans:
        place = next(places)
        operation_id = dead_write(swept, place, STATES[state][1])
        recover(place, plan)
        try:
            outcomes.add(
                swept.check(place, audited=[operation_id], error=SimulatedDeath("the writer"))
            )
        except BaseException as problem:
            problem.add_note(f"{state}: recovery failed at {plan.effects[-1]}")
            raise
    assert len(outcomes) == 1, "a fault in the recovery changes its verdict"


@pytest.mark.parametrize("state", [*list(STATES)[:4], "merge half moved"])
def test_a_fault_in_the_recovery_is_finished_by_the_next_one(
    archives: Archives, state: str
) -> None:
    """The faults take turns; the long sweep has each of them at every effect."""
    job = JOBS_BY_NAME[STATES[state][0]]
    places = archives.of(job).places()
    swept = Sweep.measured(job, next(places))
    place = next(places)
    dead_write(swept, place, STATES[state][1])
    whole = FaultPlan()
    recover(place, whole)
    assert any(effect.path.startswith(FOLDER) for effect in whole.effects)
    plans = [
        FaultPlan(at=effect.number, mode=FAULTS[effect.number % len(FAULTS)])
        for effect in whole.effects
    ]
    check_recovery_faults(swept, places, state, plans)


@pytest.mark.slow
@pytest.mark.parametrize("mode", FAULTS)
@pytest.mark.parametrize("state", list(STATES))
def test_a_fault_at_any_effect_of_the_recovery_is_finished_by_the_next_one(
    archives: Archives, state: str, mode: FaultMode
) -> None:
    job = JOBS_BY_NAME[STATES[state][0]]
    places = archives.of(job).places()
    swept = Sweep.measured(job, next(places))
    check_recovery_faults(swept, places, state, sweep(mode, effects_max=100))
