"""Following the edges of one type from many nodes, over one of three access paths.

1. All paths answer the same questions with the same rows; only the cost differs. *Topology* works
   on the adjacency over dense numbers of `omnigraph.search.topology`. *Indexed* and *scan* ask the
   edge dataset for what the hops can touch (`omnigraph.read.access.edge_probes`), with and without
   the help of an index, and arrange that in the same form.
2. Nodes and edges are stable row ids everywhere; start nodes may repeat, and every answer carries
   the position of the start node that it belongs to, ascending.
3. The rules of hops are those of `omnigraph.search.topology.traverse`: a node comes once per start,
   distances are shortest ones, and a self-loop may be the last step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.query.plan.plan import Direction
from omnigraph.read.access.edge_probes import Edges, Probes
from omnigraph.read.limits import Guard
from omnigraph.read.row_table import Mask, Positions, RowIds, ascending_ids
from omnigraph.search.topology import traverse
from omnigraph.search.topology.csr import build_csr
from omnigraph.search.topology.row_numbers import Numbering, numbering_of
from omnigraph.search.topology.topology import AnyTopology, OverlaidTopology, Topology

AccessPath: TypeAlias = Literal["indexed", "scan", "topology"]
LoopEnd: TypeAlias = Literal["target", "source"]


@dataclass(frozen=True, eq=False)
class Pairs:
    """What was reached: the position of a start node, and a node."""

    starts: Positions
    nodes: RowIds


@dataclass(frozen=True, eq=False)
class EdgeSteps:
    """Edge records: the position of a start node, the node at the other end, the edge."""

    starts: Positions
    nodes: RowIds
    edges: RowIds


# -- views --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class View:
    """Adjacency over dense numbers, and what these stand for."""

    adjacency: traverse.Adjacency
    sources: Numbering
    targets: Numbering
    records: Numbering


class Hops(ABC):
    """The edges of one type in one direction, over an adjacency in memory.

    Each class below gets that adjacency in its own way.
    """

    guard: Guard
    path: AccessPath

    @abstractmethod
    def view(self, nodes: RowIds, depth: int, *, with_records: bool = False) -> View:
        """Return all edges of the nodes that are less than `depth` hops from these."""

    def reach(self, nodes: RowIds, *, min_hops: int, max_hops: int, loop_end: LoopEnd) -> Pairs:
        """Return the distinct nodes at the wanted distances of each start."""
        view = self.view(nodes, max_hops)
        found = traverse.reach(
            view.adjacency,
            view.sources.positions(nodes),
            min_hops=min_hops,
            max_hops=max_hops,
            loop_end=loop_end,
            guard=self.guard,
        )
        return Pairs(found.rows.astype(np.intp), _row_ids(view.targets, found.nodes))

    def reach_set(
        self, nodes: RowIds, *, min_hops: int, max_hops: int, loop_end: LoopEnd
    ) -> RowIds:
        """Return the distinct nodes that any start reaches, ascending."""
        view = self.view(nodes, max_hops)
        starts = view.sources.positions(nodes)
        if max_hops == 1 and min_hops == 1:
            found = traverse.neighbour_set(view.adjacency, starts, guard=self.guard)
        else:
            found = traverse.reach_set(
                view.adjacency,
                starts,
                min_hops=min_hops,
                max_hops=max_hops,
                loop_end=loop_end,
                guard=self.guard,
            )
        return _row_ids(view.targets, found)

    def steps(self, nodes: RowIds) -> EdgeSteps:
        """Return every edge record of each start; by start, then edge."""
        view = self.view(nodes, 1, with_records=True)
        found = traverse.steps(view.adjacency, view.sources.positions(nodes), guard=self.guard)
        return EdgeSteps(
            found.rows.astype(np.intp),
            _row_ids(view.targets, found.nodes),
            view.records.row_ids(found.edges).astype(np.int64),
        )

    def has_neighbour(self, nodes: RowIds) -> Mask:
        """Return for each start whether it has any edge."""
        view = self.view(nodes, 1)
        return traverse.has_neighbour(view.adjacency, view.sources.positions(nodes))

    def leads(self, nodes: RowIds, others: RowIds) -> Mask:
        """Return for each pair whether an edge leads from the first to the second."""
        view = self.view(nodes, 1)
        starts, ends = view.sources.positions(nodes), view.targets.positions(others)
        return traverse.has_edge(view.adjacency, starts, ends)


def _row_ids(numbering: Numbering, dense: npt.NDArray[np.signedinteger]) -> RowIds:
    if numbering.listed is None and numbering.is_plain:
        wide = dense.astype(np.int64, copy=False)
        return wide + numbering.first if numbering.first else wide
    return numbering.row_ids(dense).astype(np.int64)


# -- topology -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TopologyHops(Hops):
    """Hops over a topology."""

    known: AnyTopology
    """May have gaps in its numbering; nodes and edges are named by row id where that matters."""
    direction: Direction
    guard: Guard
    fold: Callable[[OverlaidTopology], Topology]
    """Makes a topology without gaps and overlay from one with them."""
    path: AccessPath = "topology"

    @property
    def topology(self) -> Topology:
        """The topology as plain arrays, in which dense ids are positions among the live rows.

        Costs a copy of them right after a write.
        """
        return self.known if isinstance(self.known, Topology) else self.fold(self.known)

    def view(
        self,
        nodes: RowIds,  # noqa: ARG002 - everything is there, whatever is asked for
        depth: int,  # noqa: ARG002 - as above
        *,
        with_records: bool = False,  # noqa: ARG002 - as above
    ) -> View:
        """Return the whole topology."""
        sources, targets = self.known.ends(self.direction)
        adjacency = self.known.adjacency(self.direction)
        return View(adjacency, sources, targets, self.known.edges)


# -- dataset ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DatasetHops(Hops):
    """Hops over the edges that the dataset has for some nodes: by its indexes, or by a scan."""

    probes: Probes
    guard: Guard
    path: AccessPath
    asked: Callable[[], object]
    """Called each time that the dataset is asked."""

    def view(self, nodes: RowIds, depth: int, *, with_records: bool = False) -> View:
        """Ask for the edges."""
        self.asked()
        is_chain = self.probes.source_key == self.probes.target_key
        starts = ascending_ids(nodes)
        edges = self.probes.around(starts, depth if is_chain else 1, with_records=with_records)
        return _view_of(edges, starts, is_chain=is_chain)


def _view_of(edges: Edges, starts: RowIds, *, is_chain: bool) -> View:
    if len(edges.records):
        # Steps come in the order of their records, and a step is numbered by its position.
        order = np.argsort(edges.records, kind="stable")
        edges = Edges(edges.near[order], edges.far[order], edges.records[order])
    sources = _numbered(starts, edges.near, edges.far if is_chain else starts[:0])
    targets = sources if is_chain else _numbered(edges.far)
    csr = build_csr(
        sources.positions(edges.near),
        targets.positions(edges.far),
        counts=(sources.count, targets.count),
        same_type=is_chain,
    )
    records = Numbering(len(edges.records), listed=edges.records.astype(np.uint64))
    return View(traverse.Adjacency((csr,), is_chain, targets.count), sources, targets, records)


def _numbered(*nodes: RowIds) -> Numbering:
    return numbering_of(ascending_ids(np.concatenate(nodes)).astype(np.uint64))
