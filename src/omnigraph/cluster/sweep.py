"""Recovery: what the intents of dead commands mean, read off the graphs.

Operations on graphs are atomic, so a sweep changes no graph. It moves the ledger forward, retires
an intent, or refuses. What it changes is written together with the work of its command, and a
retired intent is deleted only after that.

| finding | meaning |
|---|---|
| `absent` | there is no graph, or one that was never finished |
| `present` | there is something (distinguished only for a deletion) |
| `recorded` | the schema is the recorded one, or the one from before the operation |
| `intended` | the schema is the one that the operation wanted |
| `other` | the graph opens and has another schema |
| `broken` | the graph does not open |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from omnigraph.clock import Clock
from omnigraph.cluster.addresses import graph_address, schema_address
from omnigraph.cluster.compare.composites import Composer
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.cluster.graphs import Graphs, Look
from omnigraph.cluster.stored.intents import Intent, IntentKind
from omnigraph.cluster.stored.json_objects import moment
from omnigraph.cluster.stored.ledger import (
    ApprovalRecord,
    Entry,
    GraphObservation,
    Ledger,
    RecoveryRecord,
    State,
    Status,
    Tombstone,
)

Finding: TypeAlias = Literal["absent", "present", "recorded", "intended", "other", "broken"]
Verdict: TypeAlias = Literal["retire", "roll_forward", "wait"]


@dataclass(frozen=True)
class Row:
    """A finding about an intent, and what follows from it."""

    kind: IntentKind
    finding: Finding
    verdict: Verdict
    status: State | None = None
    condition: str | None = None
    warning: str | None = None
    error: str | None = None


_PENDING: Final = "cluster_recovery_pending"
_FORWARD: Final = "cluster_recovery_rolled_forward"
_UNCLEAR: Final = "actual_applied_state_pending"
_INCOMPLETE: Final = "graph_create_incomplete"

TABLE: Final = (
    Row("graph_create", "absent", "retire"),
    Row("graph_create", "recorded", "retire"),
    Row("graph_create", "intended", "roll_forward", warning=_FORWARD),
    Row("graph_create", "other", "wait", "drifted", _UNCLEAR, warning=_PENDING),
    Row("graph_create", "broken", "wait", "error", _INCOMPLETE, error=_INCOMPLETE),
    Row("schema_apply", "recorded", "retire"),
    Row("schema_apply", "intended", "roll_forward", warning=_FORWARD),
    Row("schema_apply", "other", "wait", "drifted", _UNCLEAR, warning=_PENDING),
    Row("schema_apply", "broken", "wait", warning=_PENDING),
    Row("graph_delete", "present", "retire", warning="graph_delete_incomplete"),
    Row("graph_delete", "recorded", "retire"),
    Row("graph_delete", "absent", "roll_forward", warning=_FORWARD),
)
"""Exactly one row for each kind of intent and each finding that it can have.

For a deletion `recorded` means that neither storage nor the ledger has the graph.
"""

_MESSAGES: Final[dict[str, str]] = {
    _FORWARD: "the operation had succeeded; it is recorded now",
    _PENDING: (
        "what the operation did cannot be told; nothing about the graph is changed until it has"
        " the recorded or the declared schema, or somebody deletes the intent in"
        " __cluster/recoveries"
    ),
    _INCOMPLETE: "the graph was not made in full and does not open: remove its root by hand",
    "graph_delete_incomplete": "the deletion was not finished; it is tried again",
}


@dataclass(frozen=True)
class Swept:
    """The ledger after a sweep, and what to do about the intents once it is written."""

    ledger: Ledger
    diagnostics: tuple[Diagnostic, ...] = ()
    retired: tuple[str, ...] = ()
    """Paths of intents that are done with."""
    pending: frozenset[str] = field(default_factory=frozenset)
    """Graphs with an intent that stays: nothing about them is changed."""


def sweep(ledger: Ledger, intents: Sequence[Intent], *, graphs: Graphs, clock: Clock) -> Swept:
    """Decide every intent, in the order of their names."""
    swept = Swept(ledger)
    for intent in intents:
        graph_id = intent.graph_id
        if graph_id is None:
            found = warning(
                "cluster_recovery_unattributed", intent.path, "the intent names no graph"
            )
            swept = replace(swept, diagnostics=(*swept.diagnostics, found))
            continue
        finding, look = _observe(intent, graph_id, swept.ledger, graphs)
        case = _Case(intent, graph_id, row_for(intent.kind, finding), look)
        swept = _decided(swept, case, clock)
    return swept


def row_for(kind: IntentKind, finding: Finding) -> Row:
    """Return the row for a finding."""
    return next(row for row in TABLE if row.kind == kind and row.finding == finding)


def _observe(intent: Intent, graph_id: str, ledger: Ledger, graphs: Graphs) -> tuple[Finding, Look]:
    look = graphs.look(graph_id)
    if intent.kind == "graph_delete":
        return _deletion(graph_id, ledger, look), look
    if look.is_open:
        return _live(intent, graph_id, ledger, look, graphs), look
    is_unborn = intent.kind == "graph_create" and look.state != "broken"
    return ("absent" if is_unborn else "broken"), look


def _live(intent: Intent, graph_id: str, ledger: Ledger, look: Look, graphs: Graphs) -> Finding:
    if look.has_schema(_recorded_schema(ledger, graph_id)):
        return "recorded"
    if look.has_schema(intent.desired_schema_digest):
        return "intended"
    is_unmoved = intent.kind == "schema_apply" and _is_unmoved(intent, graph_id, look, graphs)
    return "recorded" if is_unmoved else "other"


def _deletion(graph_id: str, ledger: Ledger, look: Look) -> Finding:
    if look.state != "absent":
        return "present"
    return "absent" if str(graph_address(graph_id)) in ledger.resources else "recorded"


def _is_unmoved(intent: Intent, graph_id: str, look: Look, graphs: Graphs) -> bool:
    """Whether the schema is the one that the graph had when the operation began.

    The recorded digest does not show it where an earlier edit has changed comments alone: the
    engine does not store such a text.
    """
    version = intent.observed_manifest_version
    return version is not None and graphs.schema_digest_at(graph_id, version) == look.schema_digest


def _recorded_schema(ledger: Ledger, graph_id: str) -> str | None:
    entry = ledger.resources.get(str(schema_address(graph_id)))
    return None if entry is None else entry.digest


@dataclass(frozen=True)
class _Case:
    """An intent with what was found about it."""

    intent: Intent
    graph_id: str
    row: Row
    look: Look


def _decided(swept: Swept, case: _Case, clock: Clock) -> Swept:
    ledger = swept.ledger
    if case.row.verdict == "roll_forward":
        ledger = _FORWARDS[case.intent.kind](ledger, case, clock)
    ledger = _with_status(ledger, case)
    waits = case.row.verdict == "wait"
    return Swept(
        ledger,
        (*swept.diagnostics, *_findings(case)),
        swept.retired if waits else (*swept.retired, case.intent.path),
        swept.pending | {case.graph_id} if waits else swept.pending,
    )


def _findings(case: _Case) -> list[Diagnostic]:
    row, path = case.row, str(graph_address(case.graph_id))
    said = f"{case.intent.kind} {case.intent.operation_id}: "
    detail = f" ({case.look.message})" if case.look.message and row.verdict == "wait" else ""
    found = []
    if row.warning is not None:
        found.append(warning(row.warning, path, f"{said}{_MESSAGES[row.warning]}{detail}"))
    if row.error is not None:
        found.append(error(row.error, path, f"{said}{_MESSAGES[row.error]}{detail}"))
    return found


def _with_status(ledger: Ledger, case: _Case) -> Ledger:
    row = case.row
    if row.status is None or row.condition is None:
        return ledger
    status = Status(row.status, (row.condition,), case.look.message or None)
    statuses = {**ledger.resource_statuses, str(graph_address(case.graph_id)): status}
    return replace(ledger, resource_statuses=statuses)


def _record_schema(ledger: Ledger, case: _Case, clock: Clock) -> Ledger:
    graph_id, digest = case.graph_id, case.intent.desired_schema_digest or ""
    graph, schema = str(graph_address(graph_id)), str(schema_address(graph_id))
    resources = dict(ledger.resources)
    resources[schema] = Entry(digest)
    resources[graph] = Composer(resources).recomposed(graph_id)
    applied = Status("applied")
    seen = GraphObservation(
        address=graph,
        graph_uri=case.intent.graph_uri or "",
        observed_at=moment(clock),
        exists=True,
        graph_manifest_version=case.look.manifest_version,
        schema_digest=case.look.schema_digest,
        desired_schema_digest=digest,
        schema_matches_desired=True,
    )
    ledger = replace(
        ledger.with_resources(resources, config_digest=ledger.config_digest),
        resource_statuses={**ledger.resource_statuses, graph: applied, schema: applied},
        observations={**ledger.observations, graph: seen},
    )
    return _audited(ledger, case, clock)


def _record_deletion(ledger: Ledger, case: _Case, clock: Clock) -> Ledger:
    intent, graph_id = case.intent, case.graph_id
    ledger = without_graph(
        ledger,
        graph_id,
        Tombstone(deleted_at=moment(clock), approval_id=intent.approval_id, actor=intent.actor),
    )
    if intent.approval_id is not None:
        record = ApprovalRecord(moment(clock), intent.operation_id)
        records = {**ledger.approval_records, intent.approval_id: record}
        ledger = replace(ledger, approval_records=records)
    return _audited(ledger, case, clock)


_FORWARDS: Final[dict[IntentKind, Callable[[Ledger, _Case, Clock], Ledger]]] = {
    "graph_create": _record_schema,
    "schema_apply": _record_schema,
    "graph_delete": _record_deletion,
}


def without_graph(ledger: Ledger, graph_id: str, tombstone: Tombstone) -> Ledger:
    """Return a ledger without a graph and everything in it, and with a tombstone for it."""
    graph, schema = str(graph_address(graph_id)), str(schema_address(graph_id))

    def belongs(text: str) -> bool:
        return text in (graph, schema) or text.startswith(f"query.{graph_id}.")

    resources = {text: entry for text, entry in ledger.resources.items() if not belongs(text)}
    statuses = {t: status for t, status in ledger.resource_statuses.items() if not belongs(t)}
    return replace(
        ledger.with_resources(resources, config_digest=ledger.config_digest),
        resource_statuses=statuses,
        observations={**ledger.observations, graph: tombstone},
    )


def _audited(ledger: Ledger, case: _Case, clock: Clock) -> Ledger:
    intent = case.intent
    record = RecoveryRecord(
        kind=intent.kind, graph_id=case.graph_id, recovered_at=moment(clock), actor=intent.actor
    )
    return replace(
        ledger, recovery_records={**ledger.recovery_records, intent.operation_id: record}
    )
