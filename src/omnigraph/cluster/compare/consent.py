"""Which approvals allow which deletions.

Only the deletion of a graph needs one. An approval allows exactly the change that it was given for:
the same config, and the same state of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph.cluster.addresses import Kind
from omnigraph.cluster.compare.diff import Change
from omnigraph.cluster.diagnostics import Diagnostic, warning
from omnigraph.cluster.stored.approvals import Approval
from omnigraph.cluster.stored.ledger import Ledger

REASON: Final = "deleting a graph removes all of its data"


@dataclass(frozen=True)
class Consent:
    """The approvals that hold for some changes, by graph, and warnings about those that do not."""

    by_graph: dict[str, tuple[Approval, ...]]
    diagnostics: tuple[Diagnostic, ...] = ()


def is_gated(change: Change) -> bool:
    """Whether a change needs an approval."""
    return change.address.kind is Kind.GRAPH and change.operation == "delete"


def consent_for(
    changes: Sequence[Change],
    approvals: Iterable[Approval],
    *,
    ledger: Ledger,
    config_digest: str | None,
) -> Consent:
    """Return which of the gated changes are allowed."""
    gated = {change.resource: change for change in changes if is_gated(change)}
    by_graph: dict[str, tuple[Approval, ...]] = {}
    stale = []
    for approval in approvals:
        if is_used(approval, ledger):
            continue
        change = gated.get(approval.resource)
        if change is None or not _holds(approval, change, config_digest):
            stale.append(_stale(approval))
        else:
            name = change.address.name
            by_graph[name] = (*by_graph.get(name, ()), approval)
    return Consent(by_graph, tuple(stale))


def is_used(approval: Approval, ledger: Ledger) -> bool:
    """Whether an approval has been used, also if only the ledger says so."""
    return approval.consumed_at is not None or approval.approval_id in ledger.approval_records


def _holds(approval: Approval, change: Change, config_digest: str | None) -> bool:
    bound = (
        approval.operation,
        approval.bound_config_digest,
        approval.bound_before_digest,
        approval.bound_after_digest,
    )
    return bound == (change.operation, config_digest, change.before, change.after)


def _stale(approval: Approval) -> Diagnostic:
    return warning(
        "approval_stale",
        approval.path,
        f"the approval of {approval.approved_by} for {approval.resource} was given for another"
        " state; it allows nothing, approve again if it is still wanted",
    )
