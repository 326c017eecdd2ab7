"""What the commands on the applied revision of a cluster share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.cli.address import Scope, storage_options

if TYPE_CHECKING:
    from omnigraph.cluster.applied import AppliedGraph, AppliedRevision


def applied_revision(scope: Scope) -> AppliedRevision:
    """Return the applied revision of a cluster that could be served, or raise why it could not."""
    from omnigraph.cluster.read_applied import read_applied  # noqa: PLC0415 a heavy room

    return read_applied(scope.target, storage_options()).require_ready()


def chosen_graphs(scope: Scope) -> list[AppliedGraph]:
    """Return the graph that was picked, else all; one that is quarantined cannot be picked."""
    from omnigraph.cluster.applied import (  # noqa: PLC0415 a heavy room
        ClusterNotReadyError,
        GraphNotAppliedError,
    )

    revision = applied_revision(scope)
    if scope.graph is None:
        return list(revision.graphs.values())
    if scope.graph in revision.quarantined:
        raise ClusterNotReadyError(revision.root, [revision.quarantined[scope.graph]])
    if scope.graph not in revision.graphs:
        raise GraphNotAppliedError(scope.graph, revision.root, tuple(revision.graphs))
    return [revision.graphs[scope.graph]]
