"""Topology: the edges of one type in one snapshot, as adjacency over dense ids.

How a query uses it:

```python
topology = topologies.get(snapshot, edge_type)                # warm: two look-ups, no I/O
start = topology.sources.dense(scanned["_rowid"])             # rows of a node scan -> dense ids
friends = neighbour_set(topology.adjacency("out"), start)     # omnigraph.search.topology.traverse
rows = people.take(topology.targets.row_ids(friends), ["name"])
```

Invariants:

1. A topology is a function of the rows of three datasets at published versions: `src` and `dst` of
   the edge dataset and `id` of its two node datasets. It is never changed once it is made.
2. `sources`, `targets` and `edges` number rows in order of stable row id
   (`omnigraph.search.topology.row_numbers`).
3. An edge whose source or target has no live node is in no adjacency; `dangling` counts them.
4. It is derived: the datasets alone answer every question, and losing it costs time only.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.csr import Csr
from omnigraph.search.topology.patched import Part, PatchedCsr
from omnigraph.search.topology.row_numbers import Numbering
from omnigraph.search.topology.traverse import Adjacency

Direction: TypeAlias = Literal["out", "in", "both"]


@dataclass(frozen=True)
class TopologyStates:
    """What a topology was made from."""

    edge: TableState
    source: TableState
    target: TableState

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for equal topologies."""
        return self.edge.key, self.source.key, self.target.key

    @property
    def same_type(self) -> bool:
        """Whether both ends are of one node type."""
        return self.source.at.location == self.target.at.location


@dataclass(frozen=True, eq=False)
class _BothDirections:
    """Numberings and adjacency of one edge type."""

    states: TopologyStates
    sources: Numbering
    targets: Numbering
    edges: Numbering

    @property
    def same_type(self) -> bool:
        """Whether both ends are of one node type, so that hops can follow each other."""
        return self.states.same_type

    def ends(self, direction: Direction) -> tuple[Numbering, Numbering]:
        """Return the numbering of the nodes where hops start, and of those where they end."""
        if direction == "in":
            return self.targets, self.sources
        return self.sources, self.targets

    def _directions(self, out: Part, incoming: Part) -> dict[str, Adjacency]:
        found = {
            "out": Adjacency((out,), self.same_type, self.targets.count),
            "in": Adjacency((incoming,), self.same_type, self.sources.count),
        }
        if self.same_type:
            found["both"] = Adjacency((out, incoming), True, self.targets.count)
        return found

    def _numbering_bytes(self) -> int:
        numberings = {id(n): n.nbytes for n in (self.sources, self.targets, self.edges)}
        return sum(numberings.values())


@dataclass(frozen=True, eq=False)
class Topology(_BothDirections):
    """Adjacency of one edge type, in both directions."""

    out: Csr
    incoming: Csr
    dangling: int
    """Edges that lead from or to a node that does not exist."""

    def adjacency(self, direction: Direction) -> Adjacency:
        """Return the edges that a hop in this direction may take; `both` needs equal end types."""
        return self._adjacencies[direction]

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all arrays, those in memory-mapped files included."""
        return self._numbering_bytes() + self.out.nbytes + self.incoming.nbytes

    @cached_property
    def _adjacencies(self) -> dict[str, Adjacency]:
        return self._directions(self.out, self.incoming)


@dataclass(frozen=True, eq=False)
class OverlaidTopology(_BothDirections):
    """A topology of another state, with what differs in an overlay."""

    base: Topology
    out: Part
    incoming: Part
    dangling: int
    """Edges that lead from or to a node that does not exist."""
    changes: int
    """How many rows the overlay was made from."""
    is_rewritten: bool
    """Whether rows were moved by a compaction, so that each further overlay takes long."""

    def adjacency(self, direction: Direction) -> Adjacency:
        """Return the edges that a hop in this direction may take; `both` needs equal end types."""
        return self._adjacencies[direction]

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the overlay alone."""
        parts = [one for one in (self.out, self.incoming) if isinstance(one, PatchedCsr)]
        base = (self.base.sources, self.base.targets, self.base.edges)
        own = {id(n): n for n in (self.sources, self.targets, self.edges)}
        changed = sum(n.tail.nbytes + n.gone.nbytes for n in own.values() if n not in base)
        return changed + sum(one.nbytes for one in parts)

    @cached_property
    def _adjacencies(self) -> dict[str, Adjacency]:
        return self._directions(self.out, self.incoming)


AnyTopology: TypeAlias = Topology | OverlaidTopology
