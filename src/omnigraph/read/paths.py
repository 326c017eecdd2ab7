"""Which access path an expansion takes.

With F rows now, E edges, V nodes of the type at the keyed end, and `hops` the longest distance:

- topology when `hops` or F is beyond its bound;
- else the cost of *indexed* is `hops * F * E / V` when the index covers every fragment of each
  column that is probed, else `hops * E`; that of *topology* is 0 when it is in memory, else
  `1.5 * E`. Indexed wins when it is strictly cheaper.

The first look assumes coverage and costs no I/O; coverage is read only when indexed would win.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.errors import InvalidInputError
from omnigraph.query.plan.plan import Direction, Expand
from omnigraph.read.adjacency import AccessPath, Hops, IndexedHops, TopologyHops
from omnigraph.read.columns import SOURCE, TARGET
from omnigraph.read.limits import Guard
from omnigraph.read.profile import Profile
from omnigraph.read.table_keys import edge_key, node_key
from omnigraph.read.tables import TableReader
from omnigraph.schema.catalog import EdgeType
from omnigraph.search.coverage import IndexFacts
from omnigraph.search.topology_cache import Topologies

TRAVERSAL_MODE: Final = "OMNIGRAPH_TRAVERSAL_MODE"
INDEXED_MAX_HOPS: Final = "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS"
INDEXED_MAX_FRONTIER: Final = "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER"

_BUILD_FACTOR: Final = 1.5
_MODES: Final[dict[str, AccessPath]] = {
    "indexed": "indexed",
    "csr": "topology",
    "topology": "topology",
}
_LOG: Final = logging.getLogger(__name__)
# Whoever wants to see warnings sets up logging; without that they stay quiet.
_LOG.addHandler(logging.NullHandler())


class TraversalSettingError(InvalidInputError):
    """An environment variable that steers traversal has a value that means nothing."""

    code = "OG-TRAVERSAL-SETTING"

    def __init__(self, *, name: str, value: str, expected: str) -> None:
        self.name = name
        self.value = value
        self.expected = expected
        super().__init__(f"{name} must be {expected}, and is '{value}'")


@dataclass(frozen=True)
class TraversalSettings:
    """What steers the choice."""

    forced: AccessPath | None = None
    hops_max: int = 6
    frontier_max: int = 1024

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
    """What the manifest says about an expansion."""

    hops: int
    frontier: int
    edges: int
    nodes: int
    is_warm: bool
    """Whether the topology is in memory already."""


def choose_path(
    settings: TraversalSettings, facts: ExpandFacts, is_covered: Callable[[], bool]
) -> AccessPath:
    """Choose the access path; `is_covered` is asked only when it matters."""
    if settings.forced is not None:
        return settings.forced
    if facts.hops > settings.hops_max or facts.frontier > settings.frontier_max:
        return "topology"
    build = 0.0 if facts.is_warm else _BUILD_FACTOR * facts.edges
    probes = facts.hops * facts.frontier * facts.edges / max(facts.nodes, 1)
    if probes >= build:
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
    settings: TraversalSettings
    guard: Guard
    profile: Profile

    def hops(self, expand: Expand, frontier: int) -> Hops:
        """Return the edges that an expansion from `frontier` rows follows."""
        path = self.path(expand, frontier)
        self.profile.note(access_path=path, frontier=frontier)
        if path == "topology":
            edge = _edge_type(expand)
            topology = self.topologies.get(self.tables.snapshot, edge, guard=self.guard)
            return TopologyHops(topology, expand.direction, self.guard)
        return IndexedHops(
            self.tables,
            self.guard,
            edge_key(expand.edge),
            node_key(expand.source_type),
            node_key(expand.target_type),
            expand.direction,
        )

    def path(self, expand: Expand, frontier: int) -> AccessPath:
        """Say which access path an expansion from `frontier` rows would take."""
        facts = self._facts(expand, _edge_type(expand), frontier)
        return choose_path(self.settings, facts, lambda: self._is_covered(expand))

    def _facts(self, expand: Expand, edge: EdgeType, frontier: int) -> ExpandFacts:
        return ExpandFacts(
            hops=expand.max if expand.source_type == expand.target_type else 1,
            frontier=frontier,
            edges=self.tables.row_count(edge.table_key),
            nodes=self.tables.row_count(node_key(expand.source_type)),
            is_warm=self.topologies.peek(self.tables.snapshot, edge) is not None,
        )

    def _is_covered(self, expand: Expand) -> bool:
        indexes = self.indexes.of(self.tables.snapshot, edge_key(expand.edge))
        columns = probed_columns(expand.direction)
        gaps = [gap for gap in map(indexes.btree, columns) if not gap.is_indexed]
        for gap in gaps:
            _LOG.warning("edge type '%s': %s", expand.edge, gap.reason)
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
