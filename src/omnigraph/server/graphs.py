"""The graphs that a server serves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.graph import Graph, Registry
from omnigraph.server.access import Gate
from omnigraph.server.errors import RequestError, StreamBusyError, UnknownGraphError
from omnigraph.server.shared import Slot

_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_RESERVED: Final = frozenset({"policies", "healthz", "openapi", "graphs"})


def is_servable(graph_id: str) -> bool:
    """Whether a graph of this id can have routes."""
    return _ID.match(graph_id) is not None and graph_id not in _RESERVED


@dataclass(frozen=True)
class ServedGraph:
    """One graph with what decides about it."""

    graph_id: str
    graph: Graph
    gate: Gate
    queries: Registry
    export_slot: Slot
    is_in_cluster: bool = False
    external_blob_bases: tuple[str, ...] = ()
    """The folders outside of the graph from which writes may name Blobs."""

    @property
    def is_near(self) -> bool:
        """Whether storage answers without a network."""
        return "://" not in self.graph.uri or self.graph.uri.startswith("file://")

    def require_no_export(self) -> None:
        """Raise while an export or a baseline is open."""
        if self.export_slot.is_taken():
            raise StreamBusyError("stream_export_slots", 1, 2)


class Graphs:
    """The served graphs by id; replaced as a whole when a new revision is applied."""

    def __init__(self, served: Mapping[str, ServedGraph]) -> None:
        self._served = dict(sorted(served.items()))

    def get(self, graph_id: str) -> ServedGraph:
        """Return a graph, or raise."""
        if not is_servable(graph_id):
            raise RequestError(f"'{graph_id}' cannot be the id of a graph")
        found = self._served.get(graph_id)
        if found is None:
            raise UnknownGraphError(graph_id)
        return found

    def __iter__(self) -> Iterator[ServedGraph]:
        return iter(self._served.values())
