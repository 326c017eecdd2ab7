"""What the failure of one change means for others; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from omnigraph.cluster.addresses import Address, Kind, graph_address, schema_address
from omnigraph.cluster.compare.classify import APPROVAL_REQUIRED, NOT_APPLIED
from omnigraph.cluster.compare.diff import Change
from omnigraph.cluster.diagnostics import Diagnostic, warning


def with_failures(
    changes: Sequence[Change],
    failures: Mapping[Address, str],
    *,
    policy_targets: Mapping[str, tuple[str, ...]],
) -> tuple[Change, ...]:
    """Return the changes with failed ones and their dependents blocked."""

    def result(change: Change) -> Change:
        if change.address in failures:
            return _blocked(change, failures[change.address])
        is_dependent = change.is_applied and _needs(change, policy_targets) & failures.keys()
        return _blocked(change, NOT_APPLIED) if is_dependent else change

    return tuple(result(change) for change in changes)


def warnings_of(changes: Sequence[Change], failures: Mapping[Address, str]) -> list[Diagnostic]:
    """Return a warning for every change that was not carried out and has no error of its own."""
    return [
        warning(
            "apply_unsupported_change"
            if change.disposition == "deferred"
            else "apply_dependency_blocked",
            change.resource,
            f"{change.operation} is not carried out: {change.reason}{_remedy(change)}",
        )
        for change in changes
        if change.disposition in ("deferred", "blocked") and change.address not in failures
    ]


def _remedy(change: Change) -> str:
    if change.reason != APPROVAL_REQUIRED or change.address.graph_id is None:
        return ""
    return f"; `omnigraph cluster approve {graph_address(change.address.graph_id)}` allows it"


def _blocked(change: Change, reason: str) -> Change:
    return replace(change, disposition="blocked", reason=reason)


def _needs(change: Change, policy_targets: Mapping[str, tuple[str, ...]]) -> set[Address]:
    """Return what must not have failed for a change to be carried out."""
    address = change.address
    if address.kind is Kind.POLICY and change.operation != "delete":
        bound = policy_targets.get(address.name, ())
        return {
            graph_address(target.removeprefix("graph."))
            for target in bound
            if target.startswith("graph.")
        }
    if address.graph_id is None or address.kind is Kind.GRAPH:
        return set()
    needed = {graph_address(address.graph_id)}
    if address.kind is Kind.QUERY and change.operation != "delete":
        needed.add(schema_address(address.graph_id))
    return needed
