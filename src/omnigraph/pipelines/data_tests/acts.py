"""What a test does: each act on a branch of its own, and the facts that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from omnigraph.errors import OmnigraphError
from omnigraph.graph import (
    Graph,
    MergeConflictError,
    QueryResult,
    ReadTarget,
    Registry,
    Snapshot,
)
from omnigraph.pipelines.data_tests.fixtures import json_lines
from omnigraph.pipelines.data_tests.model import (
    Apply,
    Ask,
    Load,
    Merge,
    Mutate,
    Row,
    Wanted,
)
from omnigraph.query import QueryDecl, QueryText, parse_queries
from omnigraph.query.select import select_query
from omnigraph.values import PropType, Scalar

_PLACEHOLDERS: Final[dict[Scalar, object]] = {
    Scalar.STRING: "",
    Scalar.BOOL: False,
    Scalar.DATE: "1970-01-01",
    Scalar.DATETIME: "1970-01-01T00:00:00Z",
}


@dataclass(frozen=True)
class Failure:
    """An error that an act ended with: its message and its codes."""

    message: str
    codes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, error: OmnigraphError) -> Failure:
        """Return what a test sees of an error."""
        diagnostics = getattr(error, "diagnostics", ())
        return cls(str(error), frozenset({error.code, *(one.code for one in diagnostics)}))

    def is_what(self, expected: str) -> bool:
        """Whether a text is one of the codes, or a part of the message."""
        return expected in self.codes or expected in self.message


@dataclass(frozen=True)
class Facts:
    """What an act has left; None where the act says nothing about it."""

    failure: Failure | None = None
    answer: QueryResult | None = None
    is_ordered: bool = False
    explained: QueryResult | None = None
    affected_nodes: int | None = None
    affected_edges: int | None = None
    conflicts: tuple[Row, ...] | None = None
    steps: tuple[str, ...] | None = None
    rejected: int | None = None


@dataclass(frozen=True)
class TestBranch:
    """A graph and the branch on which a test works."""

    graph: Graph
    registry: Registry
    new_path: Callable[[str], Path]
    """Returns a path in the temporary folder that nothing uses yet."""
    name: str = "main"
    engine: str = "local"
    pinned: Snapshot | None = None
    """The snapshot of a branch that has no writer, so that reads need not look for its head."""

    @property
    def snapshot(self) -> Snapshot:
        """What reads of the test look at."""
        if self.pinned is not None:
            return self.pinned
        return self.graph.snapshot_of(ReadTarget.branch(self.name))

    def cut(self, name: str) -> TestBranch:
        """Return the same graph on a new branch."""
        self.graph.branches.create_from(self.name, name)
        return replace(self, name=name, pinned=None)

    def data(self, rows: Sequence[Row]) -> bytes | list[str]:
        """Return rows in the form that the engine loads: tasks of Spark read files only."""
        if self.engine != "spark":
            return json_lines(rows)
        path = self.new_path("rows.jsonl")
        path.write_bytes(json_lines(rows))
        return [str(path)]

    def rows(self) -> Mapping[str, int]:
        """Return how many rows each type has, by the key of the type."""
        return {key: entry.row_count for key, entry in self.snapshot.entries.items()}


# -- reads ----------------------------------------------------------------------------------------


def ask(branch: TestBranch, act: Ask, wanted: Wanted) -> Facts:
    """Run a read, or look at its plan, or both: what is expected decides."""
    needs_rows = (wanted.rows, wanted.snapshot, wanted.error)
    graph, name, snapshot = branch.graph, act.query, branch.snapshot
    try:
        text, decl = _query_of(branch.registry, act)
        answer = explained = None
        if any(one is not None for one in needs_rows):
            answer = graph.query(text, name, act.params, target=snapshot)
        if wanted.plan is not None:
            params = _filled(decl, act)
            explained = graph.query(text, name, params, target=snapshot, explain=True)
        return Facts(answer=answer, explained=explained, is_ordered=_is_ordered(decl))
    except OmnigraphError as error:
        return Facts(failure=Failure.of(error))


def _query_of(registry: Registry, act: Ask) -> tuple[QueryText, QueryDecl]:
    if act.query is not None:
        stored = registry.find(act.query)
        return stored.source, stored.query
    assert act.text is not None  # noqa: S101 - a read has a name or a text
    return act.text, select_query(parse_queries(act.text))


def _is_ordered(decl: QueryDecl) -> bool:
    return not isinstance(decl.body, tuple) and bool(decl.body.order)


def _filled(decl: QueryDecl, act: Ask) -> Row:
    """Return parameters for a plan: those that the test leaves out have some value of their type.

    A plan depends on which values are known, hardly on what they are.
    """
    return {one.name: placeholder(one.prop_type) for one in decl.parameters} | act.params


def placeholder(prop_type: PropType) -> object:
    """Return some value of a type, as JSON has it."""
    if prop_type.enum_values:
        return prop_type.enum_values[0]
    if prop_type.dimension is not None:
        return [0.0] * prop_type.dimension
    if prop_type.is_list:
        return []
    return _PLACEHOLDERS.get(prop_type.scalar, 0)


# -- writes ---------------------------------------------------------------------------------------


def mutate(branch: TestBranch, act: Mutate) -> Facts:
    """Run a mutation."""
    source = branch.registry.find(act.query).source
    try:
        done = branch.graph.mutate(source, act.query, act.params, branch=branch.name)
    except OmnigraphError as error:
        return Facts(failure=Failure.of(error))
    return Facts(affected_nodes=done.affected_nodes, affected_edges=done.affected_edges)


def load(branch: TestBranch, act: Load) -> Facts:
    """Load rows."""
    try:
        branch.graph.load(
            branch.data(act.rows), mode=act.mode, branch=branch.name, engine=branch.engine
        )
    except OmnigraphError as error:
        return Facts(failure=Failure.of(error))
    return Facts()


def merge(ours: TestBranch, theirs: TestBranch, act: Merge) -> Facts:
    """Change two branches, then merge the second one into the first."""
    for branch, side in ((ours, act.ours), (theirs, act.theirs)):
        done = load(branch, side) if isinstance(side, Load) else mutate(branch, side)
        if done.failure is not None:
            return done
    try:
        ours.graph.branches.merge(theirs.name, ours.name, strategy=act.strategy, engine=ours.engine)
    except MergeConflictError as error:
        found = [one.to_json() for one in error.conflicts]
        return Facts(
            failure=Failure.of(error),
            conflicts=tuple(
                {
                    "type": one["type_name"],
                    "id": one["entity_id"],
                    "kind": one["kind"],
                    "message": one["message"],
                }
                for one in found
            ),
        )
    except OmnigraphError as error:
        return Facts(failure=Failure.of(error))
    return Facts(conflicts=())


def apply(branch: TestBranch, act: Apply) -> Facts:
    """Apply a schema to a graph that has no branch but `main`."""
    try:
        done = branch.graph.schema.apply(act.schema, allow_data_loss=act.allow_data_loss)
    except OmnigraphError as error:
        return Facts(failure=Failure.of(error))
    return Facts(steps=tuple(step.kind for step in done.plan.steps))
