"""Paused, not dead: a process is stopped at a named point until another has taken its lock over,
settled what it left and written on. Then it is resumed.

It is refused by the fence, or it tells that its write is there because it is. Nothing that it does
late becomes visible, and the graph converges.

Whoever takes over may also clean up: then the versions are gone that the paused one started from,
except that a tag or a branch pins them.

On an object store the lease of a silent holder runs out; a clock that counts every wait as a long
one lets that happen soon. On a local disk the operating system keeps the lock of a paused process,
so nobody takes over: others wait.
"""

from __future__ import annotations

import signal
import time

import pytest

from crash.cases import CASES, RECOVERY_POINTS, Case, grown, message, prepare
from crash.checks import check_opening_changes_nothing, check_sound, read_content
from crash.nursery import Child, Nursery
from crash.world import World
from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.manifest.locks.branch_lock import BranchLockTimeoutError
from support.places import Place

AT_PUBLISH = "between the look at the head and its replacement"


class ImpatientClock(SystemClock):
    """Every wait counts as a second longer than it is."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_s = 0.0

    def monotonic_s(self) -> float:
        return time.monotonic() + self._ahead_s

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self._ahead_s += 1.0


def opened(place: Place) -> Graph:
    return Graph.open(
        place.uri,
        storage_options=place.options,
        durability="process",
        auto_optimize=False,
        clock=ImpatientClock(),
    )


def add_person(graph: Graph, world: World, name: str, branch: str) -> None:
    """Write something that is legal before and after every case."""
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}', branch=branch)
    world.branches[branch].people[name] = (None, None)


def touch_everything(graph: Graph, world: World, name: str, branch: str) -> None:
    """Write to every table that a case may have moved."""
    place = "Town" if "node:Town" in graph.snapshot().entries else "City"
    graph.mutate(
        f'query q() {{ insert Person {{ name: "{name}" }} insert {place} {{ name: "{name}" }}'
        f' insert Knows {{ from: "{name}", to: "{name}" }}'
        f' insert LivesIn {{ from: "{name}", to: "{name}" }} }}',
        branch=branch,
    )
    rows = world.branches[branch]
    rows.people[name] = (None, None)
    rows.places.add(name)
    rows.knows.append((name, name, None))
    rows.lives_in.append((name, name))


def resume(child: Child) -> dict[str, object]:
    """Let a stopped child go on; return what it says in the end."""
    child.signal(signal.SIGCONT)
    while True:
        answer = child.receive()
        if answer.keys() & {"done", "failed", "opened"}:
            return answer


def check_converged(place: Place, world: World) -> None:
    graph = opened(place)
    assert read_content(graph) == world.content()
    check_sound(graph)
    audited = [record.operation_id for record in graph.recovery_list()]
    assert len(set(audited)) == len(audited)
    check_opening_changes_nothing(place)
    if list(world.branches) == ["main"]:
        graph.apply_schema(world.shape.text() + "node After { code: String @key }\n")
        assert "node:After" in graph.snapshot().entries


def pin_head(place: Place, world: World, pin: str) -> None:
    """Keep the version that a paused process starts from through every cleanup."""
    with place.open() as graph:
        if pin == "tag":
            graph.tag_create("pinned")
        elif pin == "branch":
            graph.branch_create("pinned")
            world.branches["pinned"] = world.branches["main"].copy()


def clean_up(graph: Graph) -> None:
    """Remove every version that nothing needs; nobody is writing who has not been overtaken."""
    result = graph.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)
    assert [each.error for each in result.datasets if each.error] == []


def arm(child: Child, point: str) -> None:
    """Let a child stop at a point."""
    if point == AT_PUBLISH:
        child.ask({"do": "stop_at_publish"})
    else:
        child.ask({"do": "arm", "points": f"{point}=stop"})


def pause_and_take_over(
    place: Place, nursery: Nursery, case: Case, point: str, pin: str = ""
) -> None:
    """Pause a writer; others write, and clean up if the head is pinned, before it is resumed."""
    world = prepare(place, case)
    pin_head(place, world, pin)
    landed = world.copy()
    case.change(landed)
    idle = opened(place)
    with nursery.child() as child:
        child.ask(message(place))
        arm(child, point)
        child.send({"do": "run", "number": 0, "operation": case.form})
        child.wait_until_stopped()
        other = opened(place)
        for number in range(2):
            for each in (world, landed):
                each.branches[case.branch].people[f"other{number}"] = (None, None)
            add_person(other, world.copy(), f"other{number}", case.branch)
        if pin:
            clean_up(other)
        answer = resume(child)
        # Whoever opens the graph now settles what the child could not finish.
        found = read_content(opened(place))
        is_there = found == landed.content()
        if not is_there:
            assert found == world.content(), "what came late is half there"
        if "done" in answer:
            assert is_there, "said to be done and is not"
        elif case.changes_content:
            assert not is_there or answer["is_unknown"], f"refused and done: {answer}"
        final = landed if is_there else world
        touch_everything(other, final, "later", case.branch)
        touch_everything(opened(place), final, "last", case.branch)
        touch_everything(idle, final, "idle", case.branch)
    check_converged(place, final)


@pytest.mark.slow
@pytest.mark.parametrize("pin", ["", "tag"], ids=["versions stay", "versions are removed"])
@pytest.mark.parametrize(
    ("case", "point"),
    [(case, point) for case in CASES for point in (*case.points, AT_PUBLISH)],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_paused_writer_that_was_taken_over_is_refused_or_tells_the_truth(
    s3_place: Place, nursery: Nursery, case: Case, point: str, pin: str
) -> None:
    pause_and_take_over(s3_place, nursery, case, point, pin)


@pytest.mark.parametrize(
    ("point", "pin"),
    [
        ("write.after_first_table", ""),
        ("write.post_phase_b_pre_manifest_commit", ""),
        ("write.after_first_table", "tag"),
        (AT_PUBLISH, "branch"),
        (AT_PUBLISH, "tag"),
    ],
)
def test_a_paused_insert_that_was_taken_over_is_refused_or_tells_the_truth(
    s3_place: Place, nursery: Nursery, point: str, pin: str
) -> None:
    pause_and_take_over(s3_place, nursery, CASES[0], point, pin)


def pause_a_recovery(place: Place, nursery: Nursery, crash: str, point: str, pin: str = "") -> None:
    """Stop a process that settles a dead one's write; another one settles it and writes on."""
    world = prepare(place, CASES[0])
    pin_head(place, world, pin)
    with nursery.child() as dying:
        dying.ask(message(place))
        dying.ask({"do": "arm", "points": f"{crash}=die"})
        dying.send({"do": "run", "number": 0, "operation": CASES[0].form})
        dying.wait()
    if crash == "write.post_phase_b_pre_manifest_commit":
        grown(world, "main")
    with nursery.child() as sweeper:
        # The lease of the dead one runs out first.
        place.store().objects.delete_prefix("__leases")
        sweeper.ask({"do": "arm", "points": f"{point}=stop"})
        sweeper.send(message(place))
        sweeper.wait_until_stopped()
        other = opened(place)
        for number in range(2):
            touch_everything(other, world, f"other{number}", "main")
        if pin:
            clean_up(other)
        resume(sweeper)
        assert read_content(other) == world.content()
        touch_everything(other, world, "later", "main")
        touch_everything(opened(place), world, "last", "main")
    check_converged(place, world)
    rows = [row for row in opened(place).recovery_list() if row.sidecar_writer_kind is not None]
    assert len(rows) == 1, "the dead write is settled once"


@pytest.mark.slow
@pytest.mark.parametrize("pin", ["", "tag"], ids=["versions stay", "versions are removed"])
@pytest.mark.parametrize(
    ("crash", "point"),
    [(crash, point) for crash, points in RECOVERY_POINTS.items() for point in points],
)
def test_a_paused_recovery_that_was_taken_over_does_no_harm(
    s3_place: Place, nursery: Nursery, crash: str, point: str, pin: str
) -> None:
    pause_a_recovery(s3_place, nursery, crash, point, pin)


def test_a_paused_roll_back_that_was_taken_over_does_no_harm(
    s3_place: Place, nursery: Nursery
) -> None:
    pause_a_recovery(s3_place, nursery, "write.after_first_table", "recovery.after_void")


@pytest.mark.parametrize(
    "point", ["recovery.sidecar_write", "write.post_phase_b_pre_manifest_commit"]
)
def test_on_a_local_disk_others_wait_for_a_paused_writer(
    local_place: Place, nursery: Nursery, point: str
) -> None:
    world = prepare(local_place, CASES[0])
    with nursery.child() as child:
        child.ask(message(local_place))
        child.ask({"do": "arm", "points": f"{point}=stop"})
        child.send({"do": "run", "number": 0, "operation": CASES[0].form})
        child.wait_until_stopped()
        other = opened(local_place)
        assert read_content(other) == world.content(), "readers are not disturbed"
        with pytest.raises(BranchLockTimeoutError):
            add_person(other, world.copy(), "other", "main")
        assert "done" in resume(child)
        grown(world, "main")
        add_person(other, world, "other", "main")
    check_converged(local_place, world)
