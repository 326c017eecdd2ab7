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
2. `sources`, `targets` and `edges` number live rows in order of stable row id; topologies of one
   snapshot agree on the dense ids of a node type (`omnigraph.search.topology.row_numbers`).
3. An edge whose source or target has no live node is in no adjacency; `dangling` counts them.
4. It is derived: the datasets alone answer every question, and losing it costs time only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from omnigraph.search.table_state import TableState
from omnigraph.search.topology.csr import Csr
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
class Topology:
    """Adjacency of one edge type, in both directions."""

    states: TopologyStates
    sources: Numbering
    targets: Numbering
    edges: Numbering
    out: Csr
    incoming: Csr
    dangling: int
    """Edges that lead from or to a node that does not exist."""

    @property
    def same_type(self) -> bool:
        """Whether both ends are of one node type, so that hops can follow each other."""
        return self.states.same_type

    def adjacency(self, direction: Direction) -> Adjacency:
        """Return the edges that a hop in this direction may take; `both` needs equal end types."""
        return self._adjacencies[direction]

    def ends(self, direction: Direction) -> tuple[Numbering, Numbering]:
        """Return the numbering of the nodes where hops start, and of those where they end."""
        if direction == "in":
            return self.targets, self.sources
        return self.sources, self.targets

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all arrays, those in memory-mapped files included."""
        numberings = {id(n): n.nbytes for n in (self.sources, self.targets, self.edges)}
        return sum(numberings.values()) + self.out.nbytes + self.incoming.nbytes

    @cached_property
    def _adjacencies(self) -> dict[str, Adjacency]:
        out, incoming = self.out, self.incoming
        found = {
            "out": Adjacency((out,), self.same_type, self.targets.count),
            "in": Adjacency((incoming,), self.same_type, self.sources.count),
        }
        if self.same_type:
            found["both"] = Adjacency((out, incoming), True, self.targets.count)
        return found
