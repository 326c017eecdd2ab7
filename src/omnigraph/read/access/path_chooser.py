"""Which access path an expansion takes.

With F rows now, E edges, V nodes of the type at the keyed end, and `hops` the longest distance:

- topology when `hops` or F is beyond its bound;
- else the cost of *indexed* is `hops * F * E / V` when the index covers every fragment of each
  column that is probed, else `hops * E`; that of *topology* is 0 when it is in memory or in a
  file, which is mapped and not read, `0.15 * E` when one of an earlier state is in memory and can
  be extended, else `1.5 * E`. Indexed wins when it is strictly cheaper.

The first comparison assumes coverage and costs no I/O; coverage is read only when indexed would
win.

Repeated probes cost in the end what building the topology costs once. The cost of the indexed
expansions of one edge version is therefore added up (`spent`) and subtracted from the cost of
building: a topology is built at the latest when it would have paid for itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from omnigraph.cache import BoundedCounter
from omnigraph.errors import InvalidInputError
from omnigraph.names import TableKey
from omnigraph.query.plan.plan import Direction, Expand
from omnigraph.read.access.adjacency import AccessPath, Hops, IndexedHops, TopologyHops
from omnigraph.read.access.edge_probes import SCAN_SHARE, Probes
from omnigraph.read.access.table_reader import TableReader
from omnigraph.read.column_names import SOURCE, TARGET
from omnigraph.read.limits import Guard
from omnigraph.read.profile import Profile
from omnigraph.schema.catalog import EdgeType
from omnigraph.search.coverage import IndexFacts
from omnigraph.search.topology.cache import Topologies
from omnigraph.store.records import DatasetVersion

TRAVERSAL_MODE: Final = "OMNIGRAPH_TRAVERSAL_MODE"
INDEXED_MAX_HOPS: Final = "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS"
INDEXED_MAX_FRONTIER: Final = "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER"

_BUILD_FACTOR: Final = 1.5
_EXTEND_FACTOR: Final = 0.15
PROBE_COST: Final = 5_000
"""The fixed cost of one probe, in edges that building handles in the same time."""
STATES_MAX: Final = 256
_MODES: Final[dict[str, AccessPath]] = {
    "indexed": "indexed",
    "csr": "topology",
    "topology": "topology",
}
_LOG: Final = logging.getLogger(__name__)
# Without logging set up by the caller, warnings are not printed.
_LOG.addHandler(logging.NullHandler())


class TraversalSettingError(InvalidInputError):
    """An environment variable for traversal has an invalid value."""

    code = "OG-TRAVERSAL-SETTING"
    hint = "unset it, or give such a value"
    template = "{name} must be {expected}, and is '{value}'"
    name: str
    value: str
    expected: str


@dataclass(frozen=True)
class TraversalSettings:
    """The bounds and weights of the choice."""

    forced: AccessPath | None = None
    hops_max: int = 6
    frontier_max: int = 1024
    scan_share: int = SCAN_SHARE
    """Indexed hops read all edges from one in this many of the nodes on."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> TraversalSettings:
        """Read the settings; an empty value is no value.

        >>> TraversalSettings.from_environment({TRAVERSAL_MODE: "csr"}).forced
        'topology'
        """
        mode = environment.get(TRAVERSAL_MODE, "").strip()
        if mode and mode not in _MODES:
            raise TraversalSettingError(
                name=TRAVERSAL_MODE, value=mode, expected="'indexed' or 'csr'"
            )
        return cls(
            forced=_MODES.get(mode),
            hops_max=_bound(environment, INDEXED_MAX_HOPS, cls.hops_max),
            frontier_max=_bound(environment, INDEXED_MAX_FRONTIER, cls.frontier_max),
        )


def _bound(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit():
        raise TraversalSettingError(name=name, value=text, expected="a whole number")
    return int(text)


@dataclass(frozen=True)
class ExpandFacts:
    """The facts that the choice for one expansion depends on."""

    hops: int
    frontier: int
    edges: int
    nodes: int
    is_warm: bool
    """Whether the topology is in memory or in a file already."""
    is_extendable: bool = False
    """Whether the topology of another state of these edges is in memory."""
    spent: float = 0.0
    """What indexed expansions of these edges have cost so far."""

    @property
    def looked_up(self) -> float:
        """How many edges indexed hops are expected to look up."""
        return self.hops * self.frontier * self.edges / max(self.nodes, 1)

    @property
    def probe_cost(self) -> float:
        """What an indexed expansion costs: the edges that it looks up, and the fixed cost."""
        return self.looked_up + PROBE_COST


def choose_path(
    settings: TraversalSettings, facts: ExpandFacts, is_covered: Callable[[], bool]
) -> AccessPath:
    """Choose the access path; `is_covered` is called only when it matters."""
    if settings.forced is not None:
        return settings.forced
    if facts.hops > settings.hops_max or facts.frontier > settings.frontier_max:
        return "topology"
    factor = _EXTEND_FACTOR if facts.is_extendable else _BUILD_FACTOR
    build = 0.0 if facts.is_warm else factor * facts.edges - facts.spent
    if facts.looked_up >= build:
        return "topology"
    if is_covered() or facts.hops * facts.edges < build:
        return "indexed"
    return "topology"


@dataclass(eq=False)
class PathChooser:
    """Gives each expansion of one query its edges."""

    tables: TableReader
    topologies: Topologies
    indexes: IndexFacts
    given: TraversalSettings | None
    """None reads the environment, once per query that has a hop."""
    guard: Guard
    profile: Profile
    spent: BoundedCounter
    """What indexed expansions have cost, by version of the edges."""

    @cached_property
    def settings(self) -> TraversalSettings:
        """The settings, given or from the environment."""
        return self.given or TraversalSettings.from_environment()

    def hops(self, expand: Expand, frontier: int) -> Hops:
        """Return the edges that an expansion from `frontier` rows follows."""
        edge = _edge_type(expand)
        facts = self._facts(expand, edge, frontier)
        path = self._choose(expand, facts)
        self.profile.note(access_path=path, frontier=frontier)
        if path == "topology":
            topology = self.topologies.get(self.tables.snapshot, edge, guard=self.guard)
            return TopologyHops(topology, expand.direction, self.guard)
        self.spent.add(self._version(edge), facts.probe_cost)
        probes = Probes(
            self.tables,
            self.guard,
            TableKey.edge(expand.edge),
            TableKey.node(expand.source_type),
            TableKey.node(expand.target_type),
            expand.direction,
            self.settings.scan_share,
        )
        return IndexedHops(probes, self.guard)

    def path(self, expand: Expand, frontier: int) -> AccessPath:
        """Return which access path an expansion from `frontier` rows would take."""
        return self._choose(expand, self._facts(expand, _edge_type(expand), frontier))

    def _choose(self, expand: Expand, facts: ExpandFacts) -> AccessPath:
        return choose_path(self.settings, facts, lambda: self._is_covered(expand))

    def _facts(self, expand: Expand, edge: EdgeType, frontier: int) -> ExpandFacts:
        return ExpandFacts(
            hops=expand.max if expand.source_type == expand.target_type else 1,
            frontier=frontier,
            edges=self.tables.row_count(edge.table_key),
            nodes=self.tables.row_count(TableKey.node(expand.source_type)),
            is_warm=self.topologies.is_at_hand(self.tables.snapshot, edge),
            is_extendable=self.topologies.has_base(self.tables.snapshot, edge),
            spent=self.spent.of(self._version(edge)),
        )

    def _version(self, edge: EdgeType) -> DatasetVersion:
        return self.tables.snapshot.entry(edge.table_key).at

    def _is_covered(self, expand: Expand) -> bool:
        indexes = self.indexes.of(self.tables.snapshot, TableKey.edge(expand.edge))
        columns = probed_columns(expand.direction)
        gaps = [gap for gap in map(indexes.btree_gap, columns) if gap is not None]
        for gap in gaps:
            _LOG.warning("edge type '%s': %s", expand.edge, gap)
        return not gaps


def probed_columns(direction: Direction) -> tuple[str, ...]:
    """Return the columns of the edge dataset that an expansion looks nodes up in."""
    if direction == "both":
        return SOURCE, TARGET
    return (SOURCE,) if direction == "out" else (TARGET,)


def _edge_type(expand: Expand) -> EdgeType:
    if expand.direction == "in":
        return EdgeType(expand.edge, expand.target_type, expand.source_type)
    return EdgeType(expand.edge, expand.source_type, expand.target_type)
