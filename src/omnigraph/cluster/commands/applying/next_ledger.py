"""The ledger after a run: a pure function of the old one and of what was carried out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from omnigraph.cluster.addresses import Address, Kind, graph_address, schema_address
from omnigraph.cluster.compare.classify import RECOVERY_PENDING, waiting_graphs
from omnigraph.cluster.compare.composites import Composer, applied_bases
from omnigraph.cluster.compare.diff import Change, diff
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.stored.approvals import Approval
from omnigraph.cluster.stored.ledger import (
    ApprovalRecord,
    Entry,
    GraphObservation,
    Ledger,
    Status,
    Tombstone,
)
from omnigraph.cluster.sweep import without_graph


@dataclass(frozen=True)
class Carried:
    """What a run has done."""

    changes: tuple[Change, ...]
    deleted: Mapping[str, tuple[Approval, ...]]
    """Graphs that are deleted, and the approvals for that."""
    observed: Mapping[str, GraphObservation]
    """Graphs that were made or migrated, as they are now."""
    pending: Collection[str]
    """Graphs that the sweep could not decide about."""
    at: str
    actor: str | None


def next_ledger(ledger: Ledger, desired: Desired, done: Carried) -> Ledger:
    """Return the ledger after a run, with the revision that it had before."""
    ledger = _without_deleted(ledger, done)
    resources = dict(ledger.resources)
    for change in done.changes:
        if not change.is_applied or change.address.kind is Kind.GRAPH:
            continue
        if change.operation == "delete":
            resources.pop(change.resource, None)
        else:
            recorded = resources.get(change.resource)
            entry = _entry(change.address, desired)
            resources[change.resource] = _still_bound(entry, recorded, done.changes)
    _compose_graphs(resources, desired, done.changes)
    after = ledger.with_resources(resources, config_digest=ledger.config_digest)
    observed = {found.address: found for found in done.observed.values()}
    after = replace(
        after,
        resource_statuses=_statuses(after, desired, done),
        observations={**after.observations, **observed},
    )
    if is_converged(after, desired):
        after = after.with_resources(resources, config_digest=desired.config_digest)
    return after


def is_converged(ledger: Ledger, desired: Desired) -> bool:
    """Whether everything is applied as it is declared."""
    return not diff(desired, ledger)


def _without_deleted(ledger: Ledger, done: Carried) -> Ledger:
    for graph_id, approvals in done.deleted.items():
        used = approvals[0].approval_id
        tombstone = Tombstone(deleted_at=done.at, approval_id=used, actor=done.actor)
        ledger = without_graph(ledger, graph_id, tombstone)
        records = {each.approval_id: ApprovalRecord(done.at, "apply") for each in approvals}
        ledger = replace(ledger, approval_records={**ledger.approval_records, **records})
    return ledger


def _entry(address: Address, desired: Desired) -> Entry:
    entry = Entry(desired.resources[address].digest)
    if address.kind is Kind.POLICY:
        return replace(entry, applies_to=desired.policy_targets[address.name])
    if address.kind is Kind.EMBEDDING_PROVIDER:
        return replace(entry, embedding_profile=desired.providers[address.name])
    return entry


def _still_bound(entry: Entry, recorded: Entry | None, changes: Sequence[Change]) -> Entry:
    """Return an entry that keeps the bindings to graphs that are not deleted yet."""
    if recorded is None or not recorded.applies_to or entry.applies_to is None:
        return entry
    waiting = {str(address) for address in waiting_graphs(changes)}
    kept = waiting.intersection(recorded.applies_to)
    return replace(entry, applies_to=tuple(sorted({*entry.applies_to, *kept})))


def _compose_graphs(
    resources: dict[str, Entry], desired: Desired, changes: Sequence[Change]
) -> None:
    """Compute the entries of all graphs anew, from the parts that are recorded now."""
    created = {change.address.name for change in changes if _is_created(change)}
    composer = Composer(resources)
    stuck = {
        change.address.graph_id
        for change in changes
        if change.address.kind in (Kind.GRAPH, Kind.SCHEMA)
        and change.disposition in ("blocked", "deferred")
    }
    for graph_id in created.union(composer.graph_ids):
        text = str(graph_address(graph_id))
        declared = desired.graphs.get(graph_id)
        if declared is None:
            resources[text] = composer.recomposed(graph_id)
            continue
        # What may be read from outside goes with the schema that reads it.
        applied = applied_bases(resources.get(text))
        resources[text] = composer.composed(
            graph_id,
            provider=declared.embedding_provider,
            blob_bases=applied if graph_id in stuck else declared.blob_bases,
        )


def _is_created(change: Change) -> bool:
    is_create = change.address.kind is Kind.GRAPH and change.operation == "create"
    return is_create and change.is_applied


def _statuses(ledger: Ledger, desired: Desired, done: Carried) -> dict[str, Status]:
    by_resource = {change.resource: change for change in done.changes}
    pending = {str(at(name)) for name in done.pending for at in (graph_address, schema_address)}
    statuses = {}
    for text, status in ledger.resource_statuses.items():
        is_known = text in ledger.resources or text in by_resource
        if is_known and text not in by_resource:
            # It is as declared: an earlier run may have said otherwise.
            is_over = status.status in ("blocked", "drifted") and text not in pending
            statuses[text] = Status("applied") if is_over else status
        elif is_known:
            statuses[text] = status
    for change in done.changes:
        found = _status_of(change, ledger, desired)
        if found is not None:
            statuses[change.resource] = found
        elif change.operation == "delete" and change.resource not in ledger.resources:
            statuses.pop(change.resource, None)
    return statuses


def _status_of(change: Change, ledger: Ledger, desired: Desired) -> Status | None:
    if change.is_blocked:
        is_swept = change.reason == RECOVERY_PENDING
        return None if is_swept else Status("blocked", (str(change.reason),))
    if change.operation == "delete" or change.disposition == "deferred":
        return None
    recorded, wanted = ledger.resources.get(change.resource), desired.resources[change.address]
    is_reached = recorded is not None and recorded.digest == wanted.digest
    return Status("applied") if is_reached else None
