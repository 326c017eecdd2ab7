"""The graphs that a server serves."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from omnigraph.cluster.diagnostics import Diagnostic
from omnigraph.graph import EmbeddingConfig, Graph, Registry, graph_identity
from omnigraph.names import is_servable
from omnigraph.server.access import Gate, Mode
from omnigraph.server.errors import RequestError, StreamBusyError, UnknownGraphError
from omnigraph.server.shared import Slot


class OpenedGraph:
    """A graph that was opened for a cluster, and what it was opened with.

    It is closed when no revision and no request has it any more.
    """

    def __init__(self, graph: Graph, embedding: EmbeddingConfig | None) -> None:
        self.graph = graph
        self._embedding = embedding
        self._identity = graph_identity(graph.uri)
        # The process ends without waiting for maintenance: the next one does it.
        weakref.finalize(self, _close, graph).atexit = False

    def serves(self, uri: str, embedding: EmbeddingConfig | None) -> bool:
        """Whether it is the graph that is at a root now, opened with this provider.

        A graph that was deleted and made again is another one.
        """
        is_as_opened = (self.graph.uri, self._embedding) == (uri, embedding)
        return is_as_opened and graph_identity(uri) == self._identity


def _close(graph: Graph) -> None:
    """Close a graph in a thread: closing waits for maintenance, and the last request must not."""
    threading.Thread(target=graph.close, name="omnigraph-close", daemon=True).start()


@dataclass(frozen=True)
class ServedGraph:
    """One graph with what decides about it."""

    graph_id: str
    graph: Graph
    gate: Gate
    queries: Registry
    export_slot: Slot
    is_in_cluster: bool = False
    digest: str = ""
    """Of a graph in a cluster: equal digests mean that nothing changed."""
    opened: OpenedGraph | None = None
    """Of a graph in a cluster: keeps it open."""

    @property
    def is_near(self) -> bool:
        """Whether storage answers without a network."""
        return "://" not in self.graph.uri or self.graph.uri.startswith("file://")

    def is_of(self, digest: str, mode: Mode) -> bool:
        """Whether nothing that decides about the graph has changed."""
        return self.digest == digest and self.gate.mode is mode

    def require_no_export(self) -> None:
        """Raise while an export or a baseline is open."""
        if self.export_slot.is_taken():
            raise StreamBusyError("stream_export_slots", 1, 2)


@dataclass(frozen=True)
class ServedRevision:
    """The applied revision of a cluster that is served, and which of its graphs are not."""

    number: int
    identity: str
    quarantined: Mapping[str, Diagnostic] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Equal for workers that serve the same graphs of the same revision."""
        return " ".join((self.identity, *sorted(self.quarantined)))


class Graphs:
    """The served graphs by id, and who may list them; replaced as a whole by a new revision."""

    def __init__(
        self,
        served: Mapping[str, ServedGraph],
        gate: Gate,
        revision: ServedRevision | None = None,
    ) -> None:
        self._served = dict(sorted(served.items()))
        self.gate = gate
        """Decides about the actions on the server."""
        self.revision = revision

    @property
    def quarantined(self) -> Mapping[str, Diagnostic]:
        """The graphs of the revision that are not served, and why."""
        return {} if self.revision is None else self.revision.quarantined

    def get(self, graph_id: str) -> ServedGraph:
        """Return a graph, or raise."""
        if not is_servable(graph_id):
            raise RequestError(f"'{graph_id}' cannot be the id of a graph")
        found = self.find(graph_id)
        if found is None:
            raise UnknownGraphError(graph_id)
        return found

    def find(self, graph_id: str) -> ServedGraph | None:
        """Return a graph, none if it is not served."""
        return self._served.get(graph_id)

    def __iter__(self) -> Iterator[ServedGraph]:
        return iter(self._served.values())

    def __len__(self) -> int:
        return len(self._served)
