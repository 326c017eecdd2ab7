"""`plan`: what `apply` would do; writes nothing but the lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from omnigraph.cluster.addresses import Kind
from omnigraph.cluster.commands.frame import Frame, Report, Workplace
from omnigraph.cluster.commands.lines import change_lines
from omnigraph.cluster.compare.classify import classify, with_used_parts
from omnigraph.cluster.compare.consent import REASON, Consent, consent_for, is_gated
from omnigraph.cluster.compare.diff import Change, diff, shape_of
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import warning
from omnigraph.cluster.stored.approvals import read_approvals
from omnigraph.errors import OmnigraphError
from omnigraph.records import Json, JsonObject, to_json


@dataclass(frozen=True)
class _Planned:
    changes: tuple[Change, ...] = ()
    consent: Consent = field(default_factory=lambda: Consent({}))


def plan(desired: Desired, work: Workplace) -> Report:
    """Compare the declared with the applied state."""
    frame = Frame(work, desired.diagnostics)
    found = frame.run_locked("plan", lambda: _planned(desired, frame), is_locked=desired.is_locked)
    planned = found or _Planned()
    members: JsonObject = {
        "desired_revision": desired_revision(desired),
        "resource_digests": {
            str(address): resource.digest
            for address, resource in sorted(desired.resources.items(), key=lambda at: str(at[0]))
        },
        "dependencies": _dependencies(desired),
        "state_observations": frame.observations(),
        "changes": shapes_of(planned.changes),
        "blast_radius": _blast_radius(desired, planned.changes),
        "approvals_required": [
            {
                "resource": change.resource,
                "reason": REASON,
                "satisfied": change.address.name in planned.consent.by_graph,
            }
            for change in planned.changes
            if is_gated(change)
        ],
    }
    lines = () if found is None else change_lines(planned.changes)
    return Report(tuple(frame.diagnostics), members, lines)


def desired_revision(desired: Desired) -> JsonObject:
    """Return what names the declared state."""
    return {} if desired.config_digest is None else {"config_digest": desired.config_digest}


def shapes_of(changes: Sequence[Change]) -> list[Json]:
    """Return changes as they are printed."""
    return [to_json(shape_of(change)) for change in changes]


def _planned(desired: Desired, frame: Frame) -> _Planned:
    frame.warn_of_intents()
    ledger = frame.read_ledger().ledger
    changes = diff(desired, ledger)
    approvals = read_approvals(frame.work.root)
    consent = consent_for(
        changes,
        approvals.records.values(),
        ledger=ledger,
        config_digest=desired.config_digest,
    )
    frame.diagnostics += (*approvals.diagnostics, *consent.diagnostics)
    changes = classify(
        changes, policy_targets=desired.policy_targets, approved_graphs=consent.by_graph
    )
    changes = with_used_parts(changes, ledger.entries)
    return _Planned(tuple(_previewed(change, desired, frame) for change in changes), consent)


def _previewed(change: Change, desired: Desired, frame: Frame) -> Change:
    """Add the migration of a schema update, as the live graph would see it."""
    if change.address.kind is not Kind.SCHEMA or change.operation != "update":
        return change
    graph_id = change.address.name
    try:
        found = frame.work.graphs.preview(graph_id, desired.graphs[graph_id].schema_source)
    except OmnigraphError as problem:
        frame.diagnostics.append(
            warning("schema_preview_unavailable", change.resource, str(problem))
        )
        return change
    steps = tuple(step.render() for step in found.steps)
    return replace(change, migration=found.to_json(), steps=steps)


def _dependencies(desired: Desired) -> list[Json]:
    return [{"from": str(each.source), "to": str(each.target)} for each in desired.dependencies]


def _blast_radius(desired: Desired, changes: Sequence[Change]) -> list[Json]:
    dependents = defaultdict(list)
    for each in desired.dependencies:
        dependents[each.target].append(str(each.source))
    return [
        {"resource": change.resource, "affected": [*sorted(dependents[change.address])]}
        for change in changes
        if dependents[change.address]
    ]
