"""What becomes of a change: the first row of a table that fits.

*Pending* is a graph with an intent that the sweep could not decide: nothing about it moves. *Alone*
is a schema that is created or deleted without its graph, which no command does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.cluster.addresses import Address, Kind, graph_address, schema_address
from omnigraph.cluster.compare.diff import Change, Disposition, Operation
from omnigraph.cluster.stored.ledger import Entry

RECOVERY_PENDING: Final = "cluster_recovery_pending"
APPROVAL_REQUIRED: Final = "approval_required"
UNSUPPORTED_KIND: Final = "apply_unsupported_kind"
NOT_APPLIED: Final = "dependency_not_applied"


@dataclass(frozen=True)
class Situation:
    """What decides about one change, besides its kind and operation."""

    is_pending: bool = False
    """Whether its graph, or a graph that it is bound to, is pending."""
    is_approved: bool = False
    graph: Operation | None = None
    """What happens to the graph that it belongs to."""
    schema: Operation | None = None
    """What happens to the schema of that graph."""

    @property
    def is_schema_alone(self) -> bool:
        """Whether the schema comes or goes without its graph."""
        return (self.schema == "create" and self.graph != "create") or (
            self.schema == "delete" and self.graph != "delete"
        )


When = Callable[[Situation], bool]


def always(_: Situation) -> bool:
    """Fit every situation."""
    return True


def pending(at: Situation) -> bool:
    """Fit if the graph has an undecided intent."""
    return at.is_pending


def approved(at: Situation) -> bool:
    """Fit if a person has agreed to the deletion."""
    return at.is_approved


def schema_alone(at: Situation) -> bool:
    """Fit if the schema is created or deleted without its graph."""
    return at.is_schema_alone


def graph_created(at: Situation) -> bool:
    """Fit if the graph is created in the same run."""
    return at.graph == "create"


@dataclass(frozen=True)
class Row:
    """Changes of some kinds and operations, in some situation, and what becomes of them."""

    kinds: tuple[Kind, ...]
    operations: tuple[Operation, ...]
    when: When
    disposition: Disposition
    reason: str | None = None


_GRAPH, _SCHEMA, _QUERY = (Kind.GRAPH,), (Kind.SCHEMA,), (Kind.QUERY,)
_POLICY = (Kind.POLICY,)
_REST = (Kind.POLICY, Kind.EMBEDDING_PROVIDER, Kind.PIPELINE)
_EVERY: Final[tuple[Operation, ...]] = ("create", "update", "delete")
_WRITES: Final[tuple[Operation, ...]] = ("create", "update")

DELETE_ROWS: Final[tuple[Row, ...]] = (
    Row(_GRAPH, ("delete",), pending, "blocked", RECOVERY_PENDING),
    Row(_GRAPH, ("delete",), approved, "applied"),
    Row(_GRAPH, ("delete",), always, "blocked", APPROVAL_REQUIRED),
)
"""What becomes of a graph that is no longer declared, and of everything that belongs to it."""

TABLE: Final[tuple[Row, ...]] = (
    Row(_GRAPH, ("create",), pending, "blocked", RECOVERY_PENDING),
    Row(_GRAPH, ("create",), always, "applied"),
    Row(_GRAPH, ("update",), schema_alone, "deferred", UNSUPPORTED_KIND),
    Row(_GRAPH, ("update",), always, "derived"),
    *DELETE_ROWS,
    Row(_SCHEMA, ("create",), pending, "blocked", RECOVERY_PENDING),
    Row(_SCHEMA, ("create",), graph_created, "applied"),
    Row(_SCHEMA, ("create",), always, "blocked", RECOVERY_PENDING),
    Row(_SCHEMA, ("update",), pending, "blocked", RECOVERY_PENDING),
    Row(_SCHEMA, ("update",), always, "applied"),
    Row(_SCHEMA, ("delete",), always, "deferred", UNSUPPORTED_KIND),
    Row(_QUERY, _WRITES, pending, "blocked", RECOVERY_PENDING),
    Row(_QUERY, _WRITES, schema_alone, "blocked", NOT_APPLIED),
    Row(_QUERY, _WRITES, always, "applied"),
    Row(_QUERY, ("delete",), always, "applied"),
    Row(_POLICY, _WRITES, pending, "blocked", RECOVERY_PENDING),
    Row(_REST, _EVERY, always, "applied"),
)
"""Rows in order: the first that fits decides. Parts of a deleted graph follow `DELETE_ROWS`."""


def classify(
    changes: Sequence[Change],
    *,
    policy_targets: Mapping[str, tuple[str, ...]],
    pending_graphs: Collection[str] = (),
    approved_graphs: Collection[str] = (),
) -> tuple[Change, ...]:
    """Return the changes with what becomes of each."""
    operations = {change.address: change.operation for change in changes}

    def situation(address: Address) -> Situation:
        if address.kind is Kind.POLICY:
            bound = policy_targets.get(address.name, ())
            blocked = {str(graph_address(graph_id)) for graph_id in pending_graphs}
            return Situation(is_pending=not blocked.isdisjoint(bound))
        graph_id = address.graph_id
        if graph_id is None:
            return Situation()
        return Situation(
            is_pending=graph_id in pending_graphs,
            is_approved=graph_id in approved_graphs,
            graph=operations.get(graph_address(graph_id)),
            schema=operations.get(schema_address(graph_id)),
        )

    return tuple(_classified(change, situation(change.address)) for change in changes)


def waiting_graphs(changes: Sequence[Change]) -> frozenset[Address]:
    """Return the graphs that are no longer declared, and not deleted yet."""
    return frozenset(
        change.address
        for change in changes
        if change.address.kind is Kind.GRAPH and change.operation == "delete" and change.is_blocked
    )


def with_used_parts(
    changes: Sequence[Change], applied: Mapping[Address, Entry]
) -> tuple[Change, ...]:
    """Return the changes with deletions blocked of what a graph needs until it is deleted.

    Without its provider no server could serve the cluster; without its policy every token could
    read the graph.
    """
    waiting = waiting_graphs(changes)
    providers = {applied[graph].embedding_provider for graph in waiting}
    targets = {str(graph) for graph in waiting}

    def is_used(change: Change) -> bool:
        if change.address.kind is Kind.EMBEDDING_PROVIDER:
            return change.resource in providers
        is_policy = change.address.kind is Kind.POLICY
        return is_policy and not targets.isdisjoint(applied[change.address].applies_to or ())

    return tuple(
        replace(change, disposition="blocked", reason=NOT_APPLIED)
        if change.operation == "delete" and is_used(change)
        else change
        for change in changes
    )


def _classified(change: Change, at: Situation) -> Change:
    row = row_for(change.address.kind, change.operation, at)
    return replace(change, disposition=row.disposition, reason=row.reason)


def row_for(kind: Kind, operation: Operation, at: Situation) -> Row:
    """Return the row that decides about a change."""
    rows = TABLE
    if operation == "delete" and at.graph == "delete" and kind in (Kind.SCHEMA, Kind.QUERY):
        kind, rows = Kind.GRAPH, DELETE_ROWS
    return next(
        row for row in rows if kind in row.kinds and operation in row.operations and row.when(at)
    )
