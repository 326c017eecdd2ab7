"""`status` and `force-unlock`: what is stored; neither needs files that can be loaded."""

from __future__ import annotations

from omnigraph.cluster.commands.blobs import blob_findings
from omnigraph.cluster.commands.frame import Frame, Report, Workplace
from omnigraph.cluster.diagnostics import DiagnosedError, Diagnostic, warning
from omnigraph.cluster.stored.ledger import LEDGER_PATH, Ledger
from omnigraph.cluster.stored.lock import remove
from omnigraph.records import JsonObject, to_json


def status(work: Workplace, diagnostics: tuple[Diagnostic, ...] = ()) -> Report:
    """Show ledger, lock, unfinished operations and blobs; never locks, never writes."""
    frame = Frame(work, diagnostics)
    frame.look_at_lock()
    try:
        if not frame.read_ledger().is_found:
            message = "there is no ledger: `omnigraph cluster import` makes one"
            frame.diagnostics.append(warning("state_missing", LEDGER_PATH, message))
    except DiagnosedError as problem:
        frame.diagnostics.append(problem.diagnostic)
    frame.warn_of_intents()
    findings = blob_findings(work.root, frame.stored.ledger)
    frame.diagnostics += [found.diagnostic for found in findings]
    members = {"state_observations": frame.observations(), **shown_state(frame.stored.ledger)}
    return Report(tuple(frame.diagnostics), members, _lines(frame))


def force_unlock(work: Workplace, lock_id: str, diagnostics: tuple[Diagnostic, ...] = ()) -> Report:
    """Remove the lock that has an id; its holder must be known to be gone."""
    frame = Frame(work, diagnostics)
    is_removed = False
    try:
        frame.look_at_lock()
        remove(work.root, lock_id)
        is_removed = True
    except DiagnosedError as problem:
        # What was only worth a warning before is what keeps the command from its work.
        frame.diagnostics = [
            found for found in frame.diagnostics if found.code != problem.diagnostic.code
        ]
        frame.diagnostics.append(problem.diagnostic)
    try:
        frame.read_ledger()
    except DiagnosedError as problem:
        found = problem.diagnostic
        frame.diagnostics.append(warning(found.code, found.path, found.message))
    members: JsonObject = {
        "state_observations": frame.observations(),
        "lock_removed": is_removed,
    }
    lines = (f"removed lock {lock_id}",) if is_removed else ()
    return Report(tuple(frame.diagnostics), members, lines)


def shown_state(ledger: Ledger) -> JsonObject:
    """Return digests, statuses and observations of a ledger, by address."""
    return {
        "resource_digests": dict(ledger.digests),
        "resource_statuses": {
            name: to_json(found) for name, found in sorted(ledger.resource_statuses.items())
        },
        "observations": {
            name: to_json(found) for name, found in sorted(ledger.observations.items())
        },
    }


def state_lines(ledger: Ledger) -> tuple[str, ...]:
    """Return a line for each resource that the ledger knows something about."""
    names = sorted({*ledger.resources, *ledger.resource_statuses})
    lines = []
    for name in names:
        found = ledger.resource_statuses.get(name)
        state = "applied" if found is None else ", ".join((found.status, *found.conditions))
        lines.append(f"  {name} [{state}]")
    return tuple(lines or ["  no resources"])


def _lines(frame: Frame) -> tuple[str, ...]:
    revision = frame.stored.ledger.state_revision
    head = f"revision {revision}" if frame.stored.is_found else "no ledger"
    return (head, *state_lines(frame.stored.ledger))
