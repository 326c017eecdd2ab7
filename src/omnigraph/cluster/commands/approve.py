"""`approve`: a person's consent to the deletion of a graph, bound to what it is now."""

from __future__ import annotations

from omnigraph.cluster.addresses import graph_address
from omnigraph.cluster.commands.frame import Frame, Report, Workplace
from omnigraph.cluster.compare.consent import REASON, is_gated
from omnigraph.cluster.compare.diff import Change, diff
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import DiagnosedError, Diagnostic, error
from omnigraph.cluster.stored.approvals import VERSION, Approval, write_approval
from omnigraph.cluster.stored.json_objects import moment
from omnigraph.failpoints import hit
from omnigraph.records import JsonObject


def approve(desired: Desired, work: Workplace, resource: str, *, actor: str) -> Report:
    """Allow the next `apply` to delete a graph that is no longer declared."""
    frame = Frame(work, desired.diagnostics)
    given = frame.run_locked(
        "approve", lambda: _approve(desired, frame, resource, actor), is_locked=desired.is_locked
    )
    if given is None:
        return Report(tuple(frame.diagnostics), {})
    members: JsonObject = {
        "approval_id": given.approval_id,
        "resource": given.resource,
        "operation": given.operation,
        "approved_by": given.approved_by,
    }
    line = f"approved: {given.operation} {given.resource} by {given.approved_by}"
    return Report(tuple(frame.diagnostics), members, (f"{line} ({given.approval_id})",))


def _approve(desired: Desired, frame: Frame, resource: str, actor: str) -> Approval:
    work = frame.work
    changes = diff(desired, frame.require_ledger().ledger)
    change = next((each for each in changes if each.resource == resource), None)
    if change is None or not is_gated(change):
        raise DiagnosedError(_not_required(resource, change))
    given = Approval(
        schema_version=VERSION,
        approval_id=work.clock.ulid(),
        resource=change.resource,
        operation=change.operation,
        reason=REASON,
        bound_config_digest=desired.config_digest,
        bound_before_digest=change.before,
        bound_after_digest=change.after,
        approved_by=actor,
        created_at=moment(work.clock),
    )
    hit("cluster_approve.before_approval_write")
    write_approval(work.root, given)
    hit("cluster_approve.after_approval_write")
    return given


def _not_required(resource: str, change: Change | None) -> Diagnostic:
    if change is None:
        found = f"the plan has no change of {resource}"
    elif change.operation == "delete" and change.address.graph_id is not None:
        graph = graph_address(change.address.graph_id)
        found = f"an approval of {graph} covers what belongs to it"
    else:
        found = f"the {change.operation} of {resource} needs none"
    message = f"only the deletion of a graph needs an approval: {found}"
    return error("approval_not_required", resource, message)
