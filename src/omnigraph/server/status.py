"""What a server says about itself to those who watch it: counts only, no names of graphs."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.server.call import Serving


def ready_shape(serving: Serving) -> dict[str, object]:
    """Return the answer of `/readyz`."""
    graphs = serving.graphs
    shape: dict[str, object] = {"status": "ready", "graphs": len(graphs)}
    if graphs.revision is not None:
        shape |= {"revision": graphs.revision.number, "quarantined": len(graphs.quarantined)}
    if serving.refused_revision is not None:
        shape["refused_revision"] = serving.refused_revision
    return shape


def status_lines(serving: Serving) -> Iterator[str]:
    """Yield the gauges of a server that follows a cluster."""
    graphs = serving.graphs
    if graphs.revision is None:
        return
    yield from _gauge(
        "omnigraph_cluster_revision",
        "The applied revision of the cluster that is served.",
        graphs.revision.number,
    )
    yield from _gauge(
        "omnigraph_cluster_quarantined_graphs",
        "Graphs of the revision that are not served.",
        len(graphs.quarantined),
    )
    yield from _gauge(
        "omnigraph_cluster_revision_refused",
        "1 if the newest revision cannot be served, and an older one still is.",
        int(serving.refused_revision is not None),
    )


def _gauge(name: str, text: str, value: int) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    yield f"{name} {value}"
