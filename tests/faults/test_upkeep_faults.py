"""A fault at every storage effect, and at every named point, of schema apply and optimize.

After each the graph is opened again: the operation is there wholly or not at all, every head is
what the manifest says, nothing is pending, a second open changes nothing, and the operation
succeeds when it is tried again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.repository import assemble
from omnigraph.recovery import failpoints
from omnigraph.store.faults import FaultMode, FaultPlan, SimulatedDeath, faulty, sweep
from support.places import PERSON, SCHEMA, Place, add, ids, repository_of, tree

RENAMED = (
    SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {')
    .replace("Person -> Person", "Human -> Human")
    .replace("age: I32?\n}\n\nnode City", "years: I64? @rename_from(age)\n}\n\nnode City")
    .replace("node City {", 'node Town @rename_from("City") {')
) + "\nnode Extra { code: String @key }\n"
ANOTHER = "\nnode Later { code: String @key }\n"


@dataclass(frozen=True)
class Operation:
    """Something that is done once, and how to see whether it has been."""

    name: str
    run: Callable[[Graph], object]
    is_done: Callable[[Graph], bool]


OPERATIONS = [
    Operation(
        "schema apply",
        lambda graph: graph.apply_schema(RENAMED),
        lambda graph: "node:Human" in graph.snapshot().entries,
    ),
    Operation(
        "optimize",
        lambda graph: graph.optimize(),
        lambda graph: len(graph.snapshot().open(PERSON).fragments()) == 1,
    ),
]
POINTS = [point for point in failpoints.FAILPOINTS if point.startswith(("write.", "schema_apply."))]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = Place(str(tmp_path_factory.mktemp("template") / "graph"))
    graph = place.init()
    add(graph, "ann")
    add(graph, "bob")
    graph.ensure_indices()
    add(graph, "cas")
    return Path(place.uri)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def copies(template: Path, target: Path) -> Iterator[Place]:
    for number in range(1_000):
        root = target / f"step{number}"
        shutil.copytree(template, root)
        yield Place(str(root))
        shutil.rmtree(root)


def broken_graph(place: Place, plan: FaultPlan) -> Graph:
    return Graph(
        assemble(faulty(place.store(), plan), SystemClock()),
        mode=OpenMode.READ_WRITE,
        incarnation=MAIN_INCARNATION,
        auto_optimize=False,
    )


def attempt(graph: Graph, operation: Operation) -> BaseException | None:
    try:
        operation.run(graph)
    except (OmnigraphError, failpoints.FailpointError, SimulatedDeath) as error:
        return error
    return None


def check_after(place: Place, operation: Operation) -> bool:
    """Check a reopened graph; return whether the operation was done."""
    graph = place.open()
    done = operation.is_done(graph)
    snapshot = graph.snapshot()
    datasets = repository_of(graph).store.datasets
    for key, entry in snapshot.entries.items():
        assert datasets.head_version(entry.location, branch=entry.table_branch) == (
            entry.table_version
        )
        assert snapshot.open(key).count() == entry.row_count
    people = "node:Human" if "node:Human" in snapshot.entries else PERSON
    assert ids(snapshot, people) == ["ann", "bob", "cas"]
    is_applied = graph.schema_source() == RENAMED
    assert is_applied is ("node:Extra" in snapshot.entries) is ("node:Town" in snapshot.entries)
    assert graph.recovery_status() == []
    audited = [record.operation_id for record in graph.recovery_list()]
    assert len(set(audited)) == len(audited)
    before = tree(Path(place.uri))
    place.open()
    assert tree(Path(place.uri)) == before, "a second open changes nothing"
    if not done:
        operation.run(graph)
        assert operation.is_done(place.open())
    again = place.open()
    again.apply_schema(again.schema_source() + ANOTHER)
    assert "node:Later" in again.snapshot().entries
    return done


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_a_failure_at_a_named_point_leaves_all_or_nothing(
    template: Path, tmp_path: Path, operation: Operation, point: str
) -> None:
    place = next(copies(template, tmp_path))
    failpoints.arm(point)
    error = attempt(place.open(), operation)
    failpoints.disarm()
    done = check_after(place, operation)
    published = ("write.published", "write.sidecar_deleted", "schema_apply.published")
    if error is None:
        assert done, "the point is not on the way of this operation"
    elif point in published or point == "write.phase_b_done":
        assert done, "what is complete is rolled forward"
    elif point in ("write.post_stage", "write.turn_taken", "schema_apply.locked"):
        assert not done


def check_fault(place: Place, operation: Operation, plan: FaultPlan, mode: FaultMode) -> None:
    error = attempt(broken_graph(place, plan), operation)
    done = check_after(place, operation)
    if mode in (FaultMode.FAIL_BEFORE, FaultMode.FAIL_AFTER) and error is None:
        assert done, f"said to be done and is not, after {plan.effects[-1]}"
    if isinstance(error, OmnigraphError) and done and mode is FaultMode.FAIL_AFTER:
        assert isinstance(error, OutcomeUnknownError), f"refused and done: {error}"


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(FaultMode))
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_a_fault_at_any_effect_leaves_all_or_nothing(
    template: Path, tmp_path: Path, operation: Operation, mode: FaultMode
) -> None:
    places = copies(template, tmp_path)
    for plan in sweep(mode, effects_max=200):
        check_fault(next(places), operation, plan, mode)


@pytest.mark.parametrize("mode", [FaultMode.DIE_AFTER, FaultMode.FAIL_AFTER])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_a_fault_at_the_effects_that_matter_most_leaves_all_or_nothing(
    template: Path, tmp_path: Path, operation: Operation, mode: FaultMode
) -> None:
    places = copies(template, tmp_path)
    whole = FaultPlan()
    operation.run(broken_graph(next(places), whole))
    commits = [e.number for e in whole.effects if e.name == "datasets.commit_staged"]
    for number in commits[:4]:
        check_fault(next(places), operation, FaultPlan(at=number, mode=mode), mode)
