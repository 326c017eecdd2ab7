"""Topologies as files next to the graph: `_topology/<dataset>/<state>.topo`.

1. The name of a file is the physical state of the edge dataset, so readers of the same edge files
   find the same topology. The node states that it was made for are in its header and are compared.
2. A file appears whole or not at all. The process that builds the topology writes it; several
   writers replace each other's file by an equal one. A graph opened read-only writes nothing.
3. If a file is absent, damaged or does not fit, the topology is built again.
4. No failure to read or write a file ever fails a query; it is logged.
5. Nothing refers to a file. `cleanup` may delete any of them at any time; readers that have one
   mapped keep it.
"""

from __future__ import annotations

import itertools
import logging
import mmap
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from omnigraph.errors import OmnigraphError
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.build import TopologyHandles, build_topology
from omnigraph.search.topology.extend import extend_topology
from omnigraph.search.topology.file import DamagedTopologyError, TopologyFile, topology_pieces
from omnigraph.search.topology.topology import Topology, TopologyStates
from omnigraph.search.topology.traverse import Guard
from omnigraph.store import Store
from omnigraph.store.errors import ObjectNotFoundError
from omnigraph.store.objects.protocol import ObjectInfo

FOLDER: Final = "_topology"
_SUFFIX: Final = ".topo"
_BASES_MAX: Final = 4
"""How many files of other states are tried before building from scratch."""
EDGES_MIN: Final = 10_000
"""Below this many edges, building is faster than reading and writing a file."""
NEW_SHARE_MIN: Final = 0.05
"""A topology that differs less from a stored one is extended from that one again."""

_log = logging.getLogger(__name__)


class TopologyStore:
    """Reads, extends and writes the topology files of one graph."""

    def __init__(self, store: Store, *, is_writable: bool, edges_min: int = EDGES_MIN) -> None:
        self._store = store
        self._is_writable = is_writable
        self._edges_min = edges_min

    def has(self, states: TopologyStates) -> bool:
        """Whether there is a file of this edge state."""
        try:
            return self._store.objects.head(topology_path(states.edge)) is not None
        except OmnigraphError:
            return False

    def has_any(self, edge: TableState) -> bool:
        """Whether there is a file of any state of this edge dataset."""
        try:
            return bool(self._store.objects.list(_folder(edge.at.location)))
        except OmnigraphError:
            return False

    def local_base(self, edge: TableState) -> Topology | None:
        """Map the file of these edges that fits best; None when there is none, or it is far away.

        Files of object stores are not mapped but read, which takes longer than a few look-ups.
        """
        if not self._store.settings.root.is_local:
            return None
        found = itertools.chain(self._stored(edge), self._stored_bases(edge))
        return next(found, None)

    def load_or_build(
        self,
        handles: TopologyHandles,
        states: TopologyStates,
        *,
        bases: Iterable[Topology] = (),
        guard: Guard,
    ) -> Topology:
        """Return the topology: loaded, extended from a similar one, or built.

        `bases` are topologies in memory that may be extended; they are tried before files.
        """
        # A base with the same edges and other nodes fits at once; other edges cost more than a
        # file.
        known = list(bases)
        same = [base for base in known if base.states.edge.key == states.edge.key]
        others = [base for base in known if base.states.edge.key != states.edge.key]
        tried = itertools.chain(
            same, self._stored(states.edge), others, self._stored_bases(states.edge)
        )
        for base in tried:
            extended = extend_topology(base, handles, states, guard=guard)
            if extended is not None:
                self.save_if_far(extended, base)
                return extended
        built = build_topology(handles, states, guard=guard)
        self.save(built)
        return built

    def save_if_far(self, topology: Topology, base: Topology) -> None:
        """Write the file of a topology, unless it differs little from that of another state."""
        if _is_far_from(topology, base):
            self.save(topology)

    def save(self, topology: Topology) -> bool:
        """Write the file of a topology, unless it is small; return whether it was written."""
        if not self._is_writable or topology.edges.count < self._edges_min:
            return False
        path = topology_path(topology.states.edge)
        try:
            self._store.objects.put_pieces(path, topology_pieces(topology))
        except OmnigraphError as error:
            _log.warning("could not store the topology %s: %s", path, error)
            return False
        return True

    def _stored(self, edge: TableState) -> Iterator[Topology]:
        """Load the file of exactly this edge state."""
        topology = self._load(topology_path(edge))
        if topology is not None and topology.states.edge.key == edge.key:
            yield topology

    def _stored_bases(self, edge: TableState) -> Iterator[Topology]:
        """Load the newest files of other states of the same dataset."""
        try:
            listed = self._store.objects.list(_folder(edge.at.location))
        except OmnigraphError as error:
            _log.warning("could not list topologies: %s", error)
            return
        path = topology_path(edge)
        others = sorted(listed, key=lambda info: info.modified_us, reverse=True)
        for info in [info for info in others if info.path != path][:_BASES_MAX]:
            base = self._load(info.path)
            if base is not None:
                yield base

    def _load(self, path: str) -> Topology | None:
        try:
            return TopologyFile.parse(_read(self._store, path)).topology()
        except (ObjectNotFoundError, FileNotFoundError):
            return None
        except DamagedTopologyError as error:
            _log.warning("the topology %s is damaged and will be made anew: %s", path, error)
        except (OmnigraphError, OSError) as error:
            _log.warning("could not read the topology %s: %s", path, error)
        return None


def _read(store: Store, path: str) -> bytes | mmap.mmap:
    root = store.settings.root
    if not root.is_local:
        return store.objects.get(path).data
    with root.local_path(path).open("rb") as file:
        if file.seek(0, 2) == 0:
            raise DamagedTopologyError("the file is empty")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def topology_problem(store: Store, path: str) -> str | None:
    """Return what is wrong with a file by its own checksums; None when it is intact or gone."""
    try:
        topology = TopologyFile.parse(_read(store, path)).topology()
    except (ObjectNotFoundError, FileNotFoundError):
        return None
    except (DamagedTopologyError, OmnigraphError, OSError) as error:
        return str(error)
    is_own = path.endswith(f"/{topology.states.edge.key}{_SUFFIX}")
    return None if is_own else "the file holds the topology of other edges"


def topology_path(edge: TableState) -> str:
    """Return the path of the file of an edge state."""
    return f"{_folder(edge.at.location)}/{edge.key}{_SUFFIX}"


def stale_topologies(store: Store, live: Collection[TableState]) -> tuple[ObjectInfo, ...]:
    """List the files that no state in `live` uses, for `cleanup` to delete."""
    wanted = {topology_path(state) for state in live}
    return tuple(info for info in store.objects.list(FOLDER) if info.path not in wanted)


def _folder(location: str) -> str:
    return f"{FOLDER}/{location.replace('/', '-')}"


def _is_far_from(topology: Topology, base: Topology) -> bool:
    if base.states.edge.key == topology.states.edge.key:
        return False
    known = {fragment.data_identity for fragment in base.states.edge.fragments}
    is_new = [f for f in topology.states.edge.fragments if f.data_identity not in known]
    difference = abs(topology.edges.count - base.edges.count)
    return bool(is_new) and difference > NEW_SHARE_MIN * max(base.edges.count, 1)
