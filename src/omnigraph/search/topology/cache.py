"""Topologies of a graph: from memory, from a file, or built, in this order.

1. A topology is looked up by the physical state of its three datasets, so branches and commits
   that share files share it. The state of a published entry is read once.
2. Memory is bounded by bytes: the least recently used topologies are evicted first; one that is
   larger than the bound is returned and not cached. Of one lineage of edges only the
   `RECENT_VERSIONS_MAX` topologies that were used last stay. A query holds what it uses.
3. Of several threads that need the same topology one builds it and the others wait.
4. Persisting never fails a query: a topology that cannot be stored is used from memory.
"""

from __future__ import annotations

from typing import Final

from omnigraph.cache import RECENT_VERSIONS_MAX, BoundedCache, SingleFlight
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
        self._cached: BoundedCache[Topology] = BoundedCache(bytes_max)
        self._states: BoundedCache[TableState] = BoundedCache(_STATES_MAX)
        self._absent: BoundedCache[bool] = BoundedCache(_STATES_MAX)
        self._flights = SingleFlight()

    def get(self, snapshot: Snapshot, edge: EdgeType, *, guard: Guard = UNGUARDED) -> Topology:
        """Return the topology of an edge type in a snapshot, building it if necessary."""
        states = self._states_of(snapshot, edge)
        cached = self._cached.get(states.key)
        if cached is not None:
            return cached
        with self._flights.alone(states.key, guard.check):
            cached = self._cached.get(states.key)
            if cached is not None:
                return cached
            topology = self._loaded_or_built(snapshot, edge, states, guard)
            self._absent.drop(states.edge.key)
            self._cached.put(states.key, topology, topology.nbytes)
            self._keep_recent(topology.states.edge.at.lineage)
            return topology

    def is_at_hand(self, snapshot: Snapshot, edge: EdgeType) -> bool:
        """Whether the topology is in memory or in a file, so that nothing has to be looked up.

        The absence of a file is cached until a topology of this state is built.
        """
        states = self._states_of(snapshot, edge)
        if self._cached.get(states.key) is not None:
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
        return any(one.states.edge.at.location == location for one in self._cached.values())

    def forget(self) -> None:
        """Drop everything from memory; files stay."""
        self._cached.clear()
        self._states.clear()
        self._absent.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of the topologies in memory."""
        return self._cached.size

    def _keep_recent(self, lineage: tuple[str, str | None]) -> None:
        """Drop the topologies of older states of the same edges."""
        self._cached.keep_recent(
            RECENT_VERSIONS_MAX,
            lambda key, topology: key if topology.states.edge.at.lineage == lineage else None,
        )

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
        """Return the cached topologies of the same edge dataset, most recently used first."""
        location = states.edge.at.location
        cached = [one for one in self._cached.values() if one.states.edge.at.location == location]
        return cached[:_BASES_MAX]

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
