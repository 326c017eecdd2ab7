"""What commands that write do about earlier runs: before their own work, and after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.cluster.commands.frame import Frame, Workplace
from omnigraph.cluster.diagnostics import DiagnosedError, Diagnostic, warning
from omnigraph.cluster.stored.approvals import read_approvals, write_approval
from omnigraph.cluster.stored.ledger import Ledger
from omnigraph.cluster.sweep import Swept, sweep
from omnigraph.errors import OmnigraphError


def settle(frame: Frame, ledger: Ledger) -> Swept:
    """Decide what the intents of dead runs mean."""
    work = frame.work
    swept = sweep(ledger, frame.require_intents(), graphs=work.graphs, clock=work.clock)
    frame.diagnostics += swept.diagnostics
    return swept


def retire(frame: Frame, paths: Iterable[str]) -> None:
    """Delete intents that the stored ledger makes superfluous, and mark used approvals.

    Neither is needed for what is right, so a failure is a warning and the next run tries again.
    """
    frame.diagnostics += remove_intents(frame.work, paths)
    frame.diagnostics += _mark_used(frame.work, frame.stored.ledger)


def remove_intents(work: Workplace, paths: Iterable[str]) -> list[Diagnostic]:
    """Delete intents; one that stays is settled by the next sweep."""
    found = []
    for path in paths:
        try:
            work.root.objects.delete(path)
        except OmnigraphError as problem:
            found.append(warning("recovery_sidecar_cleanup_failed", path, str(problem)))
    return found


def _mark_used(work: Workplace, ledger: Ledger) -> list[Diagnostic]:
    """Note in approvals what the ledger says of their use."""
    if not ledger.approval_records:
        return []
    found = []
    for approval in read_approvals(work.root).records.values():
        record = ledger.approval_records.get(approval.approval_id)
        if record is None or approval.consumed_at is not None:
            continue
        used = replace(
            approval,
            consumed_at=record.consumed_at,
            consumed_by_operation=record.consumed_by_operation,
        )
        try:
            write_approval(work.root, used)
        except DiagnosedError as problem:
            cause = problem.diagnostic
            found.append(warning(cause.code, cause.path, cause.message))
    return found
