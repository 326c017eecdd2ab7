"""Topologies of a graph: in memory, on disk, or made anew, in this order.

1. A topology is looked up by the physical state of its three datasets, so branches and commits
   that share files share it. What a published entry's state is, is read once and remembered.
2. Memory is bounded by bytes: the least recently used topologies go first; one that is larger than
   the bound by itself is answered and not kept. A query holds what it uses.
3. Of several threads that want the same topology one makes it and the others wait for it.
4. Persisting never fails a query: a topology that cannot be stored is used from memory.
"""

from __future__ import annotations

from typing import Final

from omnigraph.cache import BoundedCache, SingleFlight
from omnigraph.manifest.snapshot import Snapshot
from omnigraph.names import TableKey
from omnigraph.schema import EdgeType
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.build import TopologyHandles, build_topology
from omnigraph.search.topology.extend import extend_topology
from omnigraph.search.topology.store import TopologyStore
from omnigraph.search.topology.topology import Topology, TopologyStates
from omnigraph.search.topology.traverse import UNGUARDED, Guard

MEMORY_MAX_BYTES: Final = 2 << 30
_STATES_MAX: Final = 4_096
_BASES_MAX: Final = 4


class Topologies:
    """Gives queries the topologies of one graph. Safe to share between threads.

    ```python
    topologies = Topologies(TopologyStore(store, is_writable=True))
    knows = topologies.get(snapshot, catalog.edge_types["Knows"])
    ```
    """

    def __init__(
        self, store: TopologyStore | None = None, *, bytes_max: int = MEMORY_MAX_BYTES
    ) -> None:
        self._store = store
        self._kept: BoundedCache[Topology] = BoundedCache(bytes_max)
        self._states: BoundedCache[TableState] = BoundedCache(_STATES_MAX)
        self._absent: BoundedCache[bool] = BoundedCache(_STATES_MAX)
        self._flights = SingleFlight()

    def get(self, snapshot: Snapshot, edge: EdgeType, *, guard: Guard = UNGUARDED) -> Topology:
        """Return the topology of an edge type in a snapshot, making it if it has to be."""
        states = self._states_of(snapshot, edge)
        kept = self._kept.get(states.key)
        if kept is not None:
            return kept
        with self._flights.alone(states.key, guard.check):
            kept = self._kept.get(states.key)
            if kept is not None:
                return kept
            topology = self._loaded_or_built(snapshot, edge, states, guard)
            self._absent.drop(states.edge.key)
            self._kept.put(states.key, topology, topology.nbytes)
            return topology

    def peek(self, snapshot: Snapshot, edge: EdgeType) -> Topology | None:
        """Return the topology if it is in memory; for planners. Makes nothing."""
        return self._kept.get(self._states_of(snapshot, edge).key)

    def is_stored(self, snapshot: Snapshot, edge: EdgeType) -> bool:
        """Whether a file holds the topology, so that using it costs no look-up of ids."""
        if self._store is None:
            return False
        return self._store.has(self._states_of(snapshot, edge))

    def is_at_hand(self, snapshot: Snapshot, edge: EdgeType) -> bool:
        """Whether the topology is in memory or in a file, so that nothing has to be looked up.

        That there is no file is remembered until a topology of this state is made.
        """
        states = self._states_of(snapshot, edge)
        if self._kept.get(states.key) is not None:
            return True
        if self._store is None or self._absent.get(states.edge.key) is not None:
            return False
        if self._store.has(states):
            return True
        self._absent.put(states.edge.key, True, 1)
        return False

    def has_base(self, snapshot: Snapshot, edge: EdgeType) -> bool:
        """Whether a topology of some state of these edges is in memory, to be extended."""
        location = snapshot.entry(edge.table_key).location
        return any(one.states.edge.at.location == location for one in self._kept.values())

    def forget(self) -> None:
        """Drop everything from memory; files stay."""
        self._kept.clear()
        self._states.clear()
        self._absent.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of the topologies in memory."""
        return self._kept.size

    def _loaded_or_built(
        self, snapshot: Snapshot, edge: EdgeType, states: TopologyStates, guard: Guard
    ) -> Topology:
        handles = TopologyHandles(*(snapshot.open(key) for key in _table_keys(edge)))
        bases = self._bases(states)
        if self._store is not None:
            return self._store.load_or_build(handles, states, bases=bases, guard=guard)
        for base in bases:
            extended = extend_topology(base, handles, states, guard=guard)
            if extended is not None:
                return extended
        return build_topology(handles, states, guard=guard)

    def _bases(self, states: TopologyStates) -> list[Topology]:
        """Return what is in memory of the same edge dataset, most recently used first."""
        location = states.edge.at.location
        kept = [one for one in self._kept.values() if one.states.edge.at.location == location]
        return kept[:_BASES_MAX]

    def _states_of(self, snapshot: Snapshot, edge: EdgeType) -> TopologyStates:
        return TopologyStates(*(self._state_of(snapshot, key) for key in _table_keys(edge)))

    def _state_of(self, snapshot: Snapshot, table_key: str) -> TableState:
        entry = snapshot.entry(table_key)
        key = entry.at
        state = self._states.get(key)
        if state is None:
            state = TableState.of(snapshot.open(table_key))
            self._states.put(key, state, 1)
        return state


def _table_keys(edge: EdgeType) -> tuple[str, str, str]:
    return edge.table_key, TableKey.node(edge.from_type), TableKey.node(edge.to_type)
