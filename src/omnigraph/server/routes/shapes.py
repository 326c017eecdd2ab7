"""JSON forms that several routes answer with."""

from __future__ import annotations

from typing import Any, Final, overload

from omnigraph.graph import GraphCommit, MigrationPlan

NAMESPACE: Final = "http"
"""Where the lineage of commits has the jobs of a server."""


@overload
def commit_shape(commit: GraphCommit) -> dict[str, Any]: ...
@overload
def commit_shape(commit: None) -> None: ...
def commit_shape(commit: GraphCommit | None) -> dict[str, Any] | None:
    """Return a commit as every answer shows it: with what it did, and why."""
    if commit is None:
        return None
    shape: dict[str, Any] = {**commit.to_json(), "operation": commit.operation}
    if commit.message is not None:
        shape["message"] = commit.message
    if commit.properties:
        shape["properties"] = dict(commit.properties)
    return shape


def steps_shape(plan: MigrationPlan) -> list[dict[str, Any]]:
    """Return the steps of a plan, each with its line for people."""
    return [{**step.to_json(), "text": step.render()} for step in plan.steps]
