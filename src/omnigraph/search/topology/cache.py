"""Topologies of a graph: from memory, as an overlay, from a file, or built, in this order.

1. A topology is looked up by the physical state of its three datasets, so branches and commits
   that share files share it. The state of a published entry is read once.
2. Where a topology of a similar state is in memory or in a local file, it becomes the base of an
   overlay (`omnigraph.search.topology.overlay`). An overlay of many rows is used, and folded into a
   new base in the background.
3. Memory is bounded by bytes: the least recently used topologies are evicted first; one that is
   larger than the bound is returned and not cached. Of one lineage of edges only the
   `RECENT_VERSIONS_MAX` topologies, and as many overlays, that were used last stay. An overlay
   counts with what differs, and is dropped with its base; there are at most `OVERLAYS_MAX`. A query
   holds what it uses.
4. Of several threads that need the same topology one builds it and the others wait.
5. Persisting never fails a query: a topology that cannot be stored is used from memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omnigraph.cache import RECENT_VERSIONS_MAX, BoundedCache, SingleFlight
from omnigraph.manifest.snapshot import Snapshot
from omnigraph.names import TableKey
from omnigraph.schema import EdgeType
from omnigraph.search.table_delta import ROWS_MAX, TableDeltas
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.build import NodeIds, TopologyHandles, build_topology
from omnigraph.search.topology.extend import extend_topology
from omnigraph.search.topology.overlay import Ends, Overlays, fold_overlay
from omnigraph.search.topology.store import TopologyStore
from omnigraph.search.topology.topology import (
    AnyTopology,
    OverlaidTopology,
    Topology,
    TopologyStates,
)
from omnigraph.search.topology.traverse import UNGUARDED, Guard
from omnigraph.store.background import Background, InThreads
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import DatasetVersion

MEMORY_MAX_BYTES: Final = 2 << 30
_STATES_MAX: Final = 4_096
_BASES_MAX: Final = 4
OVERLAY_BYTES_MAX: Final = 128 << 20
_OVERLAY_SHARE: Final = 8
OVERLAYS_MAX: Final = 1_024
"""A small overlay takes ten times its arrays, and every branch that wrote has some of its own."""
FOLD_ROWS: Final = 4_096
"""An overlay of more rows is folded into a new base."""


class Topologies:
    """Gives queries the topologies of one graph. Safe to share between threads.

    ```python
    topologies = Topologies(TopologyStore(store, is_writable=True))
    knows = topologies.get(snapshot, catalog.edge_types["Knows"])
    ```
    """

    def __init__(
        self,
        store: TopologyStore | None = None,
        *,
        deltas: TableDeltas | None = None,
        background: Background | None = None,
        bytes_max: int = MEMORY_MAX_BYTES,
    ) -> None:
        self._store = store
        self.deltas = deltas or TableDeltas()
        """The rows in which states differ; also for other data that is derived from tables."""
        self._background = background or InThreads(1, "omnigraph-topology")
        overlay_bytes_max = min(OVERLAY_BYTES_MAX, bytes_max // _OVERLAY_SHARE)
        self._cached: BoundedCache[Topology] = BoundedCache(bytes_max - overlay_bytes_max)
        self._overlays: BoundedCache[OverlaidTopology] = BoundedCache(
            overlay_bytes_max, entries_max=OVERLAYS_MAX
        )
        self._absent: BoundedCache[bool] = BoundedCache(_STATES_MAX)
        self._filed: BoundedCache[bool] = BoundedCache(_STATES_MAX)
        self._folding: BoundedCache[bool] = BoundedCache(_STATES_MAX)
        self._loaded: BoundedCache[bool] = BoundedCache(_STATES_MAX)
        self._flights = SingleFlight()

    def get(
        self,
        snapshot: Snapshot,
        edge: EdgeType,
        *,
        guard: Guard = UNGUARDED,
        ends: Ends | None = None,
    ) -> AnyTopology:
        """Return the topology of an edge type in a snapshot, building it if necessary.

        `ends` looks up nodes of the snapshot by id, if that is possible faster than by reading.
        """
        states = self._states_of(snapshot, edge)
        cached = self._in_memory(states)
        if cached is not None:
            return cached
        with self._flights.alone(states.key, guard.check):
            cached = self._in_memory(states)
            if cached is not None:
                return cached
            handles = TopologyHandles(*(snapshot.open(key) for key in table_keys(edge)))
            overlaid = self._overlaid(snapshot, handles, states, ends or _ends(handles))
            if overlaid is not None:
                return overlaid
            topology = self._loaded_or_built(handles, states, guard)
            self._absent.drop(states.edge.key)
            self._keep(topology)
            return topology

    def prepare(self, snapshot: Snapshot, edge: EdgeType, ends: Ends) -> None:
        """Make the overlay of a snapshot if a topology of these edges is in memory."""
        location = snapshot.entry(edge.table_key).location
        if not any(one.states.edge.at.location == location for one in self._cached.values()):
            return
        states = self._states_of(snapshot, edge)
        if self._in_memory(states) is None:
            handles = TopologyHandles(*(snapshot.open(key) for key in table_keys(edge)))
            self._overlaid(snapshot, handles, states, ends)

    def folded(self, overlaid: OverlaidTopology) -> Topology:
        """Return the topology of an overlay as plain arrays; reads nothing."""
        known = self._cached.get(overlaid.states.key)
        if known is None:
            known = fold_overlay(overlaid)
            self._keep(known)
        return known

    def is_at_hand(self, snapshot: Snapshot, edge: EdgeType) -> bool:
        """Whether the topology is in memory, in a file or a small overlay over one that is.

        The absence of a file is cached until a topology of this state is built.
        """
        states = self._states_of(snapshot, edge)
        if self._in_memory(states) is not None:
            return True
        if self._store is not None and self._absent.get(states.edge.key) is None:
            if self._store.has(states):
                return True
            self._absent.put(states.edge.key, True, 1)
        return self._is_near(snapshot, edge, states)

    def has_base(self, snapshot: Snapshot, edge: EdgeType) -> bool:
        """Whether a topology of some state of these edges is in memory or in a file.

        Whether there is a file is looked up once for each state of the edges.
        """
        location = snapshot.entry(edge.table_key).location
        if any(one.states.edge.at.location == location for one in self._cached.values()):
            return True
        if self._store is None:
            return False
        state = self._states_of(snapshot, edge).edge
        known = self._filed.get(state.key)
        if known is None:
            known = self._store.has_any(state)
            self._filed.put(state.key, known, 1)
        return known

    def forget(self) -> None:
        """Drop everything from memory, and let threads end; files stay."""
        self._background.end_threads()
        self._cached.clear()
        self._overlays.clear()
        self.deltas.forget()
        self._loaded.clear()
        self._absent.clear()
        self._filed.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of the topologies in memory, overlays included."""
        return self._cached.size + self._overlays.size

    def _in_memory(self, states: TopologyStates) -> AnyTopology | None:
        whole = self._cached.get(states.key)
        if whole is not None:
            return whole
        overlaid = self._overlays.get(states.key)
        if overlaid is None:
            return None
        # Using an overlay uses its base; one without it would hold memory that nobody counts.
        is_held = self._cached.get(overlaid.base.states.key) is overlaid.base
        return overlaid if is_held else None

    def _keep(self, topology: Topology) -> None:
        """Cache a topology; drop those of older states of the same edges."""
        lineage = topology.states.edge.lineage
        self._cached.put(topology.states.key, topology, topology.nbytes)
        self._cached.keep_recent(
            RECENT_VERSIONS_MAX,
            lambda key, one: key if one.states.edge.lineage == lineage else None,
        )

    def _loaded_or_built(
        self, handles: TopologyHandles, states: TopologyStates, guard: Guard
    ) -> Topology:
        bases = self._bases(states)
        if self._store is not None:
            return self._store.load_or_build(handles, states, bases=bases, guard=guard)
        for base in bases:
            extended = extend_topology(base, handles, states, guard=guard)
            if extended is not None:
                return extended
        return build_topology(handles, states, guard=guard)

    # -- overlays ----------------------------------------------------------------------------------

    def _is_near(self, snapshot: Snapshot, edge: EdgeType, states: TopologyStates) -> bool:
        """Whether the state of the edges differs from a base in memory by few rows."""
        self._load_base(states.edge)
        counts = {one.fragment_id: one.rows for one in snapshot.open(edge.table_key).fragments()}
        for base in self._bases(states):
            known = base.states.edge.by_data
            others = (f for f in states.edge.fragments if f.data_identity not in known)
            if sum(counts[fragment.fragment_id] for fragment in others) <= ROWS_MAX:
                return True
        return False

    def _load_base(self, edge: TableState) -> None:
        """Map the newest file of these edges, once, if no topology of them is in memory."""
        location = edge.at.location
        if self._store is None or self._loaded.get(location) is not None:
            return
        self._loaded.put(location, True, 1)
        if any(one.states.edge.at.location == location for one in self._cached.values()):
            return
        base = self._store.local_base(edge)
        if base is not None:
            self._keep(base)

    def _overlaid(
        self, snapshot: Snapshot, handles: TopologyHandles, states: TopologyStates, ends: Ends
    ) -> AnyTopology | None:
        overlays = Overlays(self.deltas, _opener(snapshot))
        self._load_base(states.edge)
        bases: list[AnyTopology] = [*self._near_overlays(states), *self._bases(states)]
        for base in bases:
            found = overlays.over(base, handles, states, ends)
            if found is None:
                continue
            self._keep_overlay(found)
            if found.changes > FOLD_ROWS or found.is_rewritten:
                self._fold_later(found)
            return found
        return None

    def _keep_overlay(self, overlaid: OverlaidTopology) -> None:
        lineage = overlaid.states.edge.lineage
        self._overlays.put(overlaid.states.key, overlaid, max(overlaid.nbytes, 1))
        self._overlays.keep_recent(
            RECENT_VERSIONS_MAX,
            lambda key, one: key if one.states.edge.lineage == lineage else None,
        )

    def _fold_later(self, overlaid: OverlaidTopology) -> None:
        location = overlaid.states.edge.at.location
        if self._folding.get(location) is None:
            self._folding.put(location, True, 1)
            self._background.start(lambda: self._fold(overlaid))

    def _fold(self, overlaid: OverlaidTopology) -> None:
        """Make a base of an overlay, and store it where it differs much from the stored one."""
        try:
            topology = self.folded(overlaid)
            if self._store is not None:
                self._store.save_if_far(topology, overlaid.base)
        finally:
            self._folding.drop(overlaid.states.edge.at.location)

    def _near_overlays(self, states: TopologyStates) -> list[OverlaidTopology]:
        """Return the newest overlay of the same lineage, if it is of an earlier state."""
        edge = states.edge
        found = [
            one
            for one in self._overlays.values()
            if one.states.edge.lineage == edge.lineage
            and one.states.edge.at.version <= edge.at.version
            and not one.is_rewritten
            and self._in_memory(one.states) is one
        ]
        return sorted(found, key=lambda one: -one.states.edge.at.version)[:1]

    def _bases(self, states: TopologyStates) -> list[Topology]:
        """Return the cached topologies of the same edge dataset, the most similar first."""
        edge = states.edge

        def distance(one: Topology) -> tuple[bool, bool, int]:
            at = one.states.edge.at
            later = at.version > edge.at.version
            return at.lineage != edge.lineage, later, abs(edge.at.version - at.version)

        cached = [c for c in self._cached.values() if c.states.edge.at.location == edge.at.location]
        return sorted(cached, key=distance)[:_BASES_MAX]

    def _states_of(self, snapshot: Snapshot, edge: EdgeType) -> TopologyStates:
        return TopologyStates(*(self._state_of(snapshot, key) for key in table_keys(edge)))

    def _state_of(self, snapshot: Snapshot, table_key: str) -> TableState:
        return self.deltas.state_of(snapshot.open(table_key))


def _opener(snapshot: Snapshot) -> Callable[[DatasetVersion], DatasetHandle]:
    def opened(at: DatasetVersion) -> DatasetHandle:
        return snapshot.datasets.open(at.location, branch=at.branch, version=at.version)

    return opened


def _ends(handles: TopologyHandles) -> Ends:
    """Look up nodes by reading."""
    return Ends(NodeIds(handles.source).row_ids, NodeIds(handles.target).row_ids)


def table_keys(edge: EdgeType) -> tuple[str, str, str]:
    """Return the tables that a topology is made from: edges, sources, targets."""
    return edge.table_key, TableKey.node(edge.from_type), TableKey.node(edge.to_type)
