"""Two writers that must not both have their way, many times.

Never a dangling edge, never a type that comes back, never a branch that is stuck. A write against a
schema apply that keeps its type is in `tests/write/test_schema_apply.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from crash.checks import check_no_dangling_edges, check_sound
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
from omnigraph.write.violations import ValidationError
from support.places import Place, ids

QUICK = 10
MANY = 200
ROUNDS = [pytest.param(QUICK, id="quick"), pytest.param(MANY, id="slow", marks=pytest.mark.slow)]
Act = Callable[[], object]


class Rivals:
    """Starts two acts at the same moment, and counts what came of them."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self.outcomes: Counter[tuple[str, str]] = Counter()

    def meet(self, first: Act, second: Act) -> tuple[str, str]:
        """Return for each act `done` or the name of its error."""
        start = Barrier(2)
        one, two = (self._pool.submit(self._try, act, start) for act in (first, second))
        outcome = (one.result(), two.result())
        self.outcomes[outcome] += 1
        return outcome

    @staticmethod
    def _try(act: Act, start: Barrier) -> str:
        start.wait()
        try:
            act()
        except OmnigraphError as error:
            return type(error).__name__
        return "done"

    def allow(self, first: set[type[OmnigraphError]], second: set[type[OmnigraphError]]) -> None:
        """Check that nothing else has gone wrong than what a race may cause."""
        for number, allowed in enumerate((first, second)):
            names = {"done", *(error.__name__ for error in allowed)}
            assert {outcome[number] for outcome in self.outcomes} <= names, self.outcomes


def mutate(graph: Graph, statement: str, branch: str | None = None) -> None:
    graph.mutate(f"query q() {{ {statement} }}", branch=branch)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_an_edge_against_the_delete_of_its_node_never_dangles(
    local_place: Place, rounds: int
) -> None:
    with local_place.init(Shape().text()) as graph, ThreadPoolExecutor(2) as pool:
        one, two = local_place.open(), local_place.open()
        rivals = Rivals(pool)
        for number in range(rounds):
            a, b = f"a{number}", f"b{number}"
            mutate(graph, f'insert Person {{ name: "{a}" }} insert Person {{ name: "{b}" }}')
            inserted, deleted = rivals.meet(
                lambda a=a, b=b: mutate(one, f'insert Knows {{ from: "{a}", to: "{b}" }}'),
                lambda b=b: mutate(two, f'delete Person where name = "{b}"'),
            )
            assert "done" in (inserted, deleted), "somebody gets through"
        rivals.allow(
            {ValidationError, ExpectedVersionMismatchError}, {ExpectedVersionMismatchError}
        )
        check_no_dangling_edges(graph)
        check_sound(local_place.open())


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_first_write_against_the_delete_of_its_branch_leaves_no_branch_stuck(
    local_place: Place, rounds: int
) -> None:
    with local_place.init(Shape().text()) as graph, ThreadPoolExecutor(2) as pool:
        one, two = local_place.open(), local_place.open()
        rivals = Rivals(pool)
        for number in range(rounds):
            graph.branch_create("draft")
            name = f"p{number}"
            _, deleted = rivals.meet(
                lambda name=name: mutate(one, f'insert Person {{ name: "{name}" }}', "draft"),
                lambda: two.branch_delete("draft"),
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
def test_a_load_against_the_drop_of_its_type_does_not_bring_it_back(
    local_place: Place, rounds: int
) -> None:
    without, within = Shape(), Shape(extras=frozenset({"Extra0"}))
    record = b'{"type": "Extra0", "data": {"code": "x"}}\n'
    with local_place.init(without.text()) as graph, ThreadPoolExecutor(2) as pool:
        one, two = local_place.open(), local_place.open()
        rivals = Rivals(pool)
        for _ in range(rounds):
            graph.apply_schema(within.text())
            assert ids(graph.snapshot(), "node:Extra0") == [], "rows of another life"
            _, dropped = rivals.meet(
                lambda: one.load(record, mode="append"),
                lambda: two.apply_schema(without.text()),
            )
            assert dropped == "done"
            assert "node:Extra0" not in graph.snapshot().entries
        refused = {ValidationError, SchemaMovedError, SchemaApplyInProgressError, SourceError}
        rivals.allow({*refused, ExpectedVersionMismatchError}, set())
        check_sound(local_place.open())
