"""Two writers that must not both have their way, many times: as threads and as processes.

Never a dangling edge, never a type that comes back, never a branch that is stuck. Between meetings
somebody else optimizes and cleans up, while both handles are idle. A write against a schema apply
that keeps its type is in `tests/write/test_schema_apply.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Barrier

import pytest

from crash.cases import message
from crash.checks import check_no_dangling_edges, check_sound
from crash.child import Form, run_operation
from crash.nursery import Child, Nursery
from crash.world import Shape
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.manifest import ReadTarget
from omnigraph.manifest.errors import (
    BranchGoneError,
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    SchemaApplyInProgressError,
    SchemaMovedError,
)
from omnigraph.syntax.diagnostics import SourceError
from omnigraph.write.rules.violations import ValidationError
from support.places import Place, ids

QUICK = 10
MANY = 200
ROUNDS = [pytest.param(QUICK, id="quick"), pytest.param(MANY, id="slow", marks=pytest.mark.slow)]
UPKEEP_EVERY = 4
Meet = Callable[[Form, Form], tuple[str, str]]
"""Runs two operations at the same moment; `done` or the name of the error for each."""


@contextmanager
def as_threads(place: Place, nursery: Nursery) -> Iterator[Meet]:
    """Two handles in one process, whose locks are handed over inside it."""
    graphs = place.open(), place.open()

    def act(graph: Graph, form: Form, start: Barrier) -> str:
        start.wait()
        try:
            run_operation(graph, form)
        except OmnigraphError as error:
            return type(error).__name__
        return "done"

    def meet(first: Form, second: Form) -> tuple[str, str]:
        start = Barrier(2)
        acts = zip(graphs, (first, second), strict=True)
        one, two = (pool.submit(act, graph, form, start) for graph, form in acts)
        return one.result(), two.result()

    with ThreadPoolExecutor(2) as pool:
        yield meet


@contextmanager
def as_processes(place: Place, nursery: Nursery) -> Iterator[Meet]:
    """Two processes, between whom only storage decides."""
    chance = random.Random(0)
    with nursery.child() as first_child, nursery.child() as second_child:
        children = first_child, second_child
        for child in children:
            child.ask(message(place))

        def meet(first: Form, second: Form) -> tuple[str, str]:
            runs = [
                (child, {"do": "run", "number": 0, "operation": form})
                for child, form in zip(children, (first, second), strict=True)
            ]
            for child, run in chance.sample(runs, 2):
                child.send(run)
            return outcome_of(first_child), outcome_of(second_child)

        yield meet


def outcome_of(child: Child) -> str:
    assert child.receive() == {"begin": 0}
    answer = child.receive()
    return "done" if "done" in answer else str(answer["kind"])


WAYS: dict[str, Callable[[Place, Nursery], AbstractContextManager[Meet]]] = {
    "threads": as_threads,
    "processes": as_processes,
}


class Rivals:
    """Counts what comes of meetings."""

    def __init__(self, meet: Meet) -> None:
        self._meet = meet
        self.outcomes: Counter[tuple[str, str]] = Counter()

    def meet(self, first: Form, second: Form) -> tuple[str, str]:
        """Return for each operation `done` or the name of its error."""
        outcome = self._meet(first, second)
        self.outcomes[outcome] += 1
        return outcome

    def allow(self, first: set[type[OmnigraphError]], second: set[type[OmnigraphError]]) -> None:
        """Check that nothing else has gone wrong than what a race may cause."""
        for number, allowed in enumerate((first, second)):
            names = {"done", *(error.__name__ for error in allowed)}
            assert {outcome[number] for outcome in self.outcomes} <= names, self.outcomes


def keep_up(place: Place, number: int) -> None:
    """Let somebody else pin a version, optimize and remove what nothing needs, now and then."""
    if number % UPKEEP_EVERY:
        return
    with place.open() as other:
        other.tag_create(f"round{number}")
        mutate(other, f'insert City {{ name: "round{number}" }}')
        other.optimize()
        other.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)


def mutation(statement: str, branch: str = "main") -> Form:
    return {"kind": "mutate", "branch": branch, "text": f"query q() {{ {statement} }}"}


def mutate(graph: Graph, statement: str, branch: str = "main") -> None:
    run_operation(graph, mutation(statement, branch))


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("way", list(WAYS))
def test_an_edge_against_the_delete_of_its_node_never_dangles(
    local_place: Place, nursery: Nursery, way: str, rounds: int
) -> None:
    with local_place.init(Shape().text()) as graph, WAYS[way](local_place, nursery) as meet:
        rivals = Rivals(meet)
        for number in range(rounds):
            keep_up(local_place, number)
            a, b = f"a{number}", f"b{number}"
            mutate(graph, f'insert Person {{ name: "{a}" }} insert Person {{ name: "{b}" }}')
            inserted, deleted = rivals.meet(
                mutation(f'insert Knows {{ from: "{a}", to: "{b}" }}'),
                mutation(f'delete Person where name = "{b}"'),
            )
            assert "done" in (inserted, deleted), "somebody gets through"
        rivals.allow(
            {ValidationError, ExpectedVersionMismatchError}, {ExpectedVersionMismatchError}
        )
        check_no_dangling_edges(graph)
        check_sound(local_place.open())


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("way", list(WAYS))
def test_a_first_write_against_the_delete_of_its_branch_leaves_no_branch_stuck(
    local_place: Place, nursery: Nursery, way: str, rounds: int
) -> None:
    with local_place.init(Shape().text()) as graph, WAYS[way](local_place, nursery) as meet:
        rivals = Rivals(meet)
        for number in range(rounds):
            keep_up(local_place, number)
            graph.branch_create("draft")
            name = f"p{number}"
            _, deleted = rivals.meet(
                mutation(f'insert Person {{ name: "{name}" }}', "draft"),
                {"kind": "branch_delete", "name": "draft"},
            )
            assert deleted == "done"
            assert local_place.open().branch_list() == ["main"]
            graph.branch_create("draft")
            assert ids(graph.snapshot_of(ReadTarget.branch("draft"))) == [], "of another life"
            mutate(graph, f'insert Person {{ name: "{name}" }}', "draft")
            assert ids(graph.snapshot_of(ReadTarget.branch("draft"))) == [name]
            graph.branch_delete("draft")
        rivals.allow({BranchGoneError, BranchNotFoundError}, set())
        reopened = local_place.open()
        check_sound(reopened)
        assert ids(reopened.snapshot()) == []
        audited = [record.operation_id for record in reopened.recovery_list()]
        assert len(set(audited)) == len(audited)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("way", list(WAYS))
def test_a_load_against_the_drop_of_its_type_does_not_bring_it_back(
    local_place: Place, nursery: Nursery, way: str, rounds: int
) -> None:
    without, within = Shape(), Shape(extras=frozenset({"Extra0"}))
    record = {"type": "Extra0", "data": {"code": "x"}}
    with local_place.init(without.text()) as graph, WAYS[way](local_place, nursery) as meet:
        rivals = Rivals(meet)
        for number in range(rounds):
            keep_up(local_place, number)
            graph.apply_schema(within.text())
            assert ids(graph.snapshot(), "node:Extra0") == [], "rows of another life"
            _, dropped = rivals.meet(
                {"kind": "load", "mode": "append", "branch": "main", "records": [record]},
                {"kind": "schema", "text": without.text(), "allow_data_loss": False},
            )
            assert dropped == "done"
            assert "node:Extra0" not in graph.snapshot().entries
        refused = {ValidationError, SchemaMovedError, SchemaApplyInProgressError, SourceError}
        rivals.allow({*refused, ExpectedVersionMismatchError}, set())
        check_sound(local_place.open())
