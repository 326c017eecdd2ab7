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
from pathlib import Path

import pytest

from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.manifest import OpenMode, open_repository
from omnigraph.recovery import Recovery, failpoints
from omnigraph.recovery.sidecar import FOLDER
from omnigraph.store.faults import FaultMode, FaultPlan, SimulatedDeath, faulty, sweep
from support.places import Place
from support.s3 import S3Server
from support.sweeps import (
    JOBS,
    JOBS_BY_NAME,
    Job,
    Sweep,
    attempt,
    broken,
    copies,
    pending_operations,
    prepare,
)

FAULTS = (FaultMode.FAIL_BEFORE, FaultMode.FAIL_AFTER, FaultMode.DIE_AFTER)
POINTS = [point for point in failpoints.FAILPOINTS if point.startswith(("write.", "schema_apply."))]
_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Place]:
    """Two small graphs, without and with a branch."""
    found = {}
    for with_branch in (False, True):
        found[with_branch] = Place(str(tmp_path_factory.mktemp("template") / "graph"))
        prepare(found[with_branch], with_branch=with_branch)
    return found


def fresh(templates: dict[bool, Place], tmp_path: Path, job: Job) -> Iterator[Place]:
    return copies(templates[job.branch != "main"], tmp_path)


def check_fault(swept: Sweep, place: Place, plan: FaultPlan) -> bool:
    """Run a job under a plan and check what is left of it."""
    error = attempt(broken(place, plan, swept.job.branch), swept.job)
    # The lease of a dead process would make the next one wait for ten seconds.
    place.store().objects.delete_prefix("__leases")
    try:
        return swept.check(place, audited=pending_operations(place), error=error)
    except BaseException as problem:
        problem.add_note(f"{swept.job.name}: {plan.effects[-1]}; the caller saw {error!r}")
        raise


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_fault_from_the_record_on_leaves_all_or_nothing(
    templates: dict[bool, Place], tmp_path: Path, job: Job
) -> None:
    """The faults take turns; the long sweep has each of them at every effect."""
    places = fresh(templates, tmp_path, job)
    swept = Sweep.measured(job, next(places))
    faults = itertools.cycle(FAULTS)
    for _ in range(JOBS.index(job) % len(FAULTS)):
        next(faults)
    done = [
        check_fault(swept, next(places), FaultPlan(at=number, mode=next(faults)))
        for number in swept.decisive
    ]
    assert set(done) == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("mode", FAULTS)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_fault_at_any_effect_leaves_all_or_nothing(
    templates: dict[bool, Place], tmp_path: Path, job: Job, mode: FaultMode
) -> None:
    places = fresh(templates, tmp_path, job)
    swept = Sweep.measured(job, next(places))
    done = [check_fault(swept, next(places), plan) for plan in sweep(mode, effects_max=200)]
    assert len(done) > len(swept.decisive)
    assert done[-1], "without a fault the job succeeds"
    assert not done[0], "the first effect is not the last one"


def s3_copies(template: Place, s3: S3Server) -> Iterator[Place]:
    """Yield copies of a graph without branches under other prefixes of the bucket."""
    source = template.store().objects
    held = {info.path: source.get(info.path).data for info in source.list()}
    for number in _NUMBERS:
        place = Place(f"s3://{s3.bucket}/sweep{number}/graph", s3.options)
        target = place.store().objects
        for path, data in held.items():
            target.put(path, data)
        yield place


ON_S3 = [
    (job, offset)
    for job in JOBS
    for offset in range(len(FAULTS))
    if job.branch == "main" and (offset == 0 or job.name == "insert")
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
    templates: dict[bool, Place], s3: S3Server, job: Job, offset: int
) -> None:
    """Leases are objects here: taking, renewing and letting go of a turn is swept as well.

    An insert meets every fault at every effect; the other jobs, which are slow here, one each.
    """
    places = s3_copies(templates[False], s3)
    swept = Sweep.measured(job, next(places))
    done = [check_fault(swept, next(places), plan) for plan in rotating_plans(offset)]
    assert done[-1], "without a fault the job succeeds"
    assert False in done, "some fault stops it; a lease that landed unnoticed does not"


@pytest.mark.parametrize("point", POINTS)
def test_a_failure_at_a_named_point_leaves_all_or_nothing(
    templates: dict[bool, Place], tmp_path: Path, point: str
) -> None:
    name = "schema apply" if point.startswith("schema_apply.") else "insert on a branch"
    check_point(templates, tmp_path, JOBS_BY_NAME[name], point)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_failure_of_any_job_at_a_named_point_leaves_all_or_nothing(
    templates: dict[bool, Place], tmp_path: Path, job: Job, point: str
) -> None:
    check_point(templates, tmp_path, job, point)


def check_point(templates: dict[bool, Place], tmp_path: Path, job: Job, point: str) -> None:
    places = fresh(templates, tmp_path, job)
    swept = Sweep.measured(job, next(places))
    place = next(places)
    failpoints.arm(point)
    with place.open(job.branch) as graph:
        error = attempt(graph, job)
        failpoints.disarm()
    done = swept.check(place, audited=pending_operations(place), error=error)
    if error is None or point in (
        "write.phase_b_done",
        "write.published",
        "write.sidecar_deleted",
        "schema_apply.published",
    ):
        assert done, "what is complete is rolled forward"
    elif point != "write.after_first_table" or swept.table_count > 1:
        assert not done, "what is not is rolled back"


# -- the recovery itself ---------------------------------------------------------------------------

STATES: dict[str, tuple[str, int]] = {
    "record written": ("insert", 0),
    "first table moved": ("insert", 1),
    "all tables moved": ("insert", 2),
    "published": ("insert", 3),
    "fork moved": ("insert on a branch", 1),
    "types renamed and moved": ("schema apply", 3),
    "chain half done": ("optimize", 1),
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


def heal(place: Place, plan: FaultPlan) -> None:
    """Open a graph on storage that is under a plan."""
    with suppress(SimulatedDeath, OmnigraphError):
        open_repository(
            faulty(place.store(), plan),
            SystemClock(),
            mode=OpenMode.READ_WRITE,
            heal=lambda repository: Recovery(repository).sweep(),
        )


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
        heal(place, plan)
        try:
            outcomes.add(
                swept.check(place, audited=[operation_id], error=SimulatedDeath("the writer"))
            )
        except BaseException as problem:
            problem.add_note(f"{state}: recovery failed at {plan.effects[-1]}")
            raise
    assert len(outcomes) == 1, "a fault in the recovery changes its verdict"


@pytest.mark.parametrize("state", list(STATES)[:4])
def test_a_fault_in_the_recovery_is_finished_by_the_next_one(
    templates: dict[bool, Place], tmp_path: Path, state: str
) -> None:
    """The faults take turns; the long sweep has each of them at every effect."""
    job = JOBS_BY_NAME[STATES[state][0]]
    places = fresh(templates, tmp_path, job)
    swept = Sweep.measured(job, next(places))
    place = next(places)
    dead_write(swept, place, STATES[state][1])
    whole = FaultPlan()
    heal(place, whole)
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
    templates: dict[bool, Place], tmp_path: Path, state: str, mode: FaultMode
) -> None:
    job = JOBS_BY_NAME[STATES[state][0]]
    places = fresh(templates, tmp_path, job)
    swept = Sweep.measured(job, next(places))
    check_recovery_faults(swept, places, state, sweep(mode, effects_max=100))
