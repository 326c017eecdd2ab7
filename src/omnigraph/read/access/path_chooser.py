"""Which access path an expansion takes.

With F rows now, E edges, V nodes of the type at the keyed end, and `hops` the longest distance:

- topology when `hops` or F is beyond its bound;
- else the cost of asking the edge dataset is `hops * F * E / V`, and `hops` times the edges in
  fragments that no index of a probed column covers, because those are scanned; that of *topology*
  is 0 when it is in memory or in a file, which is mapped and not read, `0.15 * E` when one of an
  earlier state is in memory or in a file and can be extended, else `1.5 * E`. The dataset is asked
  when that is strictly cheaper.

Asking the dataset is called *indexed* while indexes cover at least half of the edges, and *scan*
otherwise.

The first comparison assumes coverage and costs no I/O; coverage is read only when the dataset would
be asked.

Repeated probes cost in the end what building the topology costs once. The cost of the expansions of
one edge version that asked the dataset, with what they scanned, is therefore added up (`spent`) and
subtracted from the cost of building: a topology is built at the latest when it would have paid for
itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Final

from omnigraph.cache import BoundedCounter
from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.names import TableKey
from omnigraph.query.plan.plan import Direction, Expand
from omnigraph.read.access.adjacency import AccessPath, DatasetHops, Hops, TopologyHops
from omnigraph.read.access.edge_probes import SCAN_SHARE, Probes
from omnigraph.read.access.table_reader import TableReader
from omnigraph.read.column_names import SOURCE, TARGET
from omnigraph.read.limits import Guard
from omnigraph.read.profile import Profile
from omnigraph.schema.catalog import EdgeType
from omnigraph.search.coverage import IndexFacts
from omnigraph.search.topology.cache import Topologies
from omnigraph.search.topology.overlay import Ends
from omnigraph.store.records import DatasetVersion

TRAVERSAL_MODE: Final = "OMNIGRAPH_TRAVERSAL_MODE"
INDEXED_MAX_HOPS: Final = "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS"
INDEXED_MAX_FRONTIER: Final = "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER"

_BUILD_FACTOR: Final = 1.5
_EXTEND_FACTOR: Final = 0.15
PROBE_COST: Final = 5_000
"""The fixed cost of one probe, in edges that building handles in the same time."""
_INDEXED_SHARES: Final = 2
"""From one in this many edges on that are scanned, the path is called a scan."""
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
    """Whether the topology of another state of these edges is in memory or in a file."""
    spent: float = 0.0
    """What expansions that asked the dataset of these edges have cost so far."""

    @property
    def looked_up(self) -> float:
        """How many edges hops are expected to look up in an index."""
        return self.hops * self.frontier * self.edges / max(self.nodes, 1)

    def probe_cost(self, uncovered: int) -> float:
        """Return what asking the dataset costs: edges looked up or scanned, and the fixed cost."""
        return self.looked_up + self.hops * uncovered + PROBE_COST


@dataclass(frozen=True)
class Choice:
    """The access path of one expansion, and what it costs."""

    path: AccessPath
    cost: float = 0
    """In edges, each time that the dataset is asked; a topology asks nothing."""


_TOPOLOGY: Final = Choice("topology")


def choose_path(
    settings: TraversalSettings, facts: ExpandFacts, uncovered: Callable[[], int]
) -> Choice:
    """Choose the access path; `uncovered` counts edges that a hop scans, if that matters."""
    if settings.forced is not None:
        return Choice(settings.forced, facts.probe_cost(0))
    if facts.hops > settings.hops_max or facts.frontier > settings.frontier_max:
        return _TOPOLOGY
    factor = _EXTEND_FACTOR if facts.is_extendable else _BUILD_FACTOR
    build = 0.0 if facts.is_warm else factor * facts.edges - facts.spent
    if facts.looked_up >= build:
        return _TOPOLOGY
    scanned = uncovered()
    if scanned and facts.looked_up + facts.hops * scanned >= build:
        return _TOPOLOGY
    is_scan = scanned * _INDEXED_SHARES > facts.edges
    return Choice("scan" if is_scan else "indexed", facts.probe_cost(scanned))


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
    """What expansions that asked the dataset have cost, by version of the edges."""

    @cached_property
    def settings(self) -> TraversalSettings:
        """The settings, given or from the environment."""
        return self.given or TraversalSettings.from_environment()

    def hops(self, expand: Expand, frontier: int) -> Hops:
        """Return the edges that an expansion from `frontier` rows follows."""
        edge = _edge_type(expand)
        facts = self._facts(expand, edge, frontier)
        choice = self._choose(expand, facts)
        self.profile.note(access_path=choice.path, frontier=frontier)
        if choice.path == "topology":
            ends = ends_of(self.tables, edge)
            topology = self.topologies.get(self.tables.snapshot, edge, guard=self.guard, ends=ends)
            return TopologyHops(topology, expand.direction, self.guard, self.topologies.folded)
        probes = Probes(
            self.tables,
            self.guard,
            TableKey.edge(expand.edge),
            TableKey.node(expand.source_type),
            TableKey.node(expand.target_type),
            expand.direction,
            self.settings.scan_share,
        )
        spend = partial(self.spent.add, self._version(edge), choice.cost)
        return DatasetHops(probes, self.guard, choice.path, spend)

    def path(self, expand: Expand, frontier: int) -> AccessPath:
        """Return which access path an expansion from `frontier` rows would take."""
        return self._choose(expand, self._facts(expand, _edge_type(expand), frontier)).path

    def _choose(self, expand: Expand, facts: ExpandFacts) -> Choice:
        return choose_path(self.settings, facts, lambda: self._uncovered(expand))

    def _facts(self, expand: Expand, edge: EdgeType, frontier: int) -> ExpandFacts:
        is_warm = self.topologies.is_at_hand(self.tables.snapshot, edge)
        return ExpandFacts(
            hops=expand.max if expand.source_type == expand.target_type else 1,
            frontier=frontier,
            edges=self.tables.row_count(edge.table_key),
            nodes=self.tables.row_count(TableKey.node(expand.source_type)),
            is_warm=is_warm,
            is_extendable=not is_warm and self.topologies.has_base(self.tables.snapshot, edge),
            spent=self.spent.of(self._version(edge)),
        )

    def _version(self, edge: EdgeType) -> DatasetVersion:
        return self.tables.snapshot.entry(edge.table_key).at

    def _uncovered(self, expand: Expand) -> int:
        """Count the edges that one hop scans, because no index of a probed column has them."""
        indexes = self.indexes.of(self.tables.snapshot, TableKey.edge(expand.edge))
        columns = probed_columns(expand.direction)
        for gap in map(indexes.btree_gap, columns):
            if gap is not None:
                _LOG.warning("edge type '%s': %s", expand.edge, gap)
        return max(indexes.btree_missing_rows(column) for column in columns)


def ends_of(tables: TableReader, edge: EdgeType) -> Ends:
    """Return what looks up the nodes at both ends of edges."""
    return Ends(
        partial(tables.row_ids_of, TableKey.node(edge.from_type)),
        partial(tables.row_ids_of, TableKey.node(edge.to_type)),
    )


def probed_columns(direction: Direction) -> tuple[str, ...]:
    """Return the columns of the edge dataset that an expansion looks nodes up in."""
    if direction == "both":
        return SOURCE, TARGET
    return (SOURCE,) if direction == "out" else (TARGET,)


def _edge_type(expand: Expand) -> EdgeType:
    if expand.direction == "in":
        return EdgeType(expand.edge, expand.target_type, expand.source_type)
    return EdgeType(expand.edge, expand.source_type, expand.target_type)
