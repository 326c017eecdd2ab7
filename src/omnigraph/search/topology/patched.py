"""Adjacency with a few changes: a large `Csr` that stays, and new steps of the nodes that differ.

1. Every node whose steps are other than in the base, and every node that the base does not have,
   is *touched*. All steps of touched nodes are in `patch`, those of all others in `base`.
2. A step is named by a position, as in a `Csr`: from 0 on the steps of the base, behind them those
   of the patch.
3. `has_parallel` may be true although the last parallel edge is gone; it is never falsely false.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.dataclass import dataclass
from omnigraph.search.topology.csr import (
    Csr,
    Ints,
    Mask,
    arranged_csr,
    find_in_csr,
    id_type,
    spread,
    spread_positions,
)


@dataclass(frozen=True, eq=False)
class PatchedCsr:
    """The edges of one type in one direction: those of a base, except for some nodes."""

    base: Csr
    touched: Ints
    """Nodes whose steps are in `patch`, ascending; node `touched[i]` is node `i` there."""
    patch: Csr
    node_count: int
    edge_count: int
    loops: Ints

    @property
    def has_parallel(self) -> bool:
        """Whether some node may have the same neighbour twice."""
        return self.base.has_parallel or self.patch.has_parallel

    @property
    def nbytes(self) -> int:
        """Bytes of what differs from the base."""
        return self.touched.nbytes + self.patch.nbytes + self.loops.nbytes

    def spans(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return where the steps of nodes begin, and how many each has."""
        places, is_touched = self.places(nodes)
        if not is_touched.any():
            return self.base.spans(nodes)
        untouched = ~is_touched
        starts = np.empty(len(nodes), id_type(self._steps_max))
        counts = np.empty(len(nodes), id_type(self._steps_max))
        starts[untouched], counts[untouched] = self.base.spans(nodes[untouched])
        first, more = self.patch.spans(places[is_touched])
        starts[is_touched] = first.astype(starts.dtype) + self.base.edge_count
        counts[is_touched] = more
        return starts, counts

    def ends_at(self, positions: Ints) -> Ints:
        """Return the neighbours that steps lead to."""
        return self._at(positions, self.base.neighbours, self.patch.neighbours)

    def edges_at(self, positions: Ints) -> Ints:
        """Return the edges of steps."""
        return self._at(positions, self.base.edges, self.patch.edges)

    def ends_of(self, node: int) -> Ints:
        """Return the neighbours of one node."""
        place = int(self.touched.searchsorted(node))
        if place < len(self.touched) and self.touched[place] == node:
            return self.patch.ends_of(place)
        return self.base.ends_of(node)

    def degrees(self, nodes: Ints | None) -> Ints:
        """Count the steps of nodes, of all when `None`."""
        if nodes is not None:
            return self.spans(nodes)[1]
        found = np.zeros(self.node_count, self.base.indptr.dtype)
        found[: self.base.node_count] = self.base.degrees(None)
        found[self.touched] = self.patch.degrees(None)
        return found

    def pair_counts(self, sources: Ints, targets: Ints) -> NDArray[np.int64]:
        """Count the edges that lead from each source to its target."""
        places, is_touched = self.places(sources)
        untouched = ~is_touched
        found = np.empty(len(sources), np.int64)
        found[untouched] = self.base.pair_counts(sources[untouched], targets[untouched])
        found[is_touched] = self.patch.pair_counts(places[is_touched], targets[is_touched])
        return found

    @cached_property
    def _steps_max(self) -> int:
        return self.base.edge_count + self.patch.edge_count

    def places(self, nodes: Ints) -> tuple[Ints, Mask]:
        """Return where nodes are in the patch, and whether they are there."""
        places = self.touched.searchsorted(nodes)
        places[places == len(self.touched)] = 0
        return places, self.touched[places] == nodes

    def _at(self, positions: Ints, base: Ints, patch: Ints) -> Ints:
        is_patch = positions >= len(base)
        if not is_patch.any():
            return base[positions]
        found = np.empty(len(positions), np.promote_types(base.dtype, patch.dtype))
        is_base = ~is_patch
        found[is_base] = base[positions[is_base]]
        found[is_patch] = patch[positions[is_patch] - len(base)]
        return found


Part: TypeAlias = Csr | PatchedCsr
"""Adjacency in one direction, whole or with changes."""


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Some edges: start, end and number of each."""

    starts: Ints
    ends: Ints
    edges: Ints

    def turned(self) -> EdgeList:
        """Return the edges in the opposite direction."""
        return EdgeList(self.ends, self.starts, self.edges)

    def where(self, mask: Mask) -> EdgeList:
        """Return some of them."""
        return EdgeList(self.starts[mask], self.ends[mask], self.edges[mask])


@dataclass(frozen=True, eq=False)
class Patch:
    """What differs from a base."""

    removed: EdgeList
    added: EdgeList
    nodes: Ints
    """Touched in any case: all nodes that the base does not have, and those that are gone."""


def patched_csr(base: Part, patch: Patch, *, node_count: int, same_type: bool) -> Part:
    """Return adjacency without some edges of a base, and with others.

    If the base has changes already, all of them are in the result.
    """
    removed, added = patch.removed, patch.added
    touched = np.unique(np.concatenate([removed.starts, added.starts, patch.nodes]))
    if not len(touched):
        return base
    kept = _steps_of(base, touched)
    if len(removed.edges):
        kept = kept.where(~np.isin(kept.edges, removed.edges))
    steps = _arranged(kept, added, touched)
    loops = base.loops
    if same_type:
        own = steps.step_starts()
        looped = touched[np.unique(own[touched[own] == steps.neighbours])]
        rest = loops[~np.isin(loops, touched, assume_unique=True)]
        loops = np.sort(np.concatenate([rest, looped])).astype(loops.dtype, copy=False)
    edge_count = base.edge_count - len(removed.edges) + len(added.edges)
    if isinstance(base, PatchedCsr):
        touched, steps = _united(base, touched, steps)
        base = base.base
    return PatchedCsr(base, touched, steps, node_count, edge_count, loops)


def find_steps(part: Part, sources: Ints, targets: Ints, edges: Ints) -> NDArray[np.int64]:
    """Return the position of each edge among the steps from its source to its target, or -1."""
    if isinstance(part, Csr):
        return find_in_csr(part, sources, targets, edges)
    places, is_touched = part.places(sources)
    found = np.empty(len(sources), np.int64)
    rest = ~is_touched
    found[rest] = find_in_csr(part.base, sources[rest], targets[rest], edges[rest])
    found[is_touched] = find_in_csr(
        part.patch, places[is_touched], targets[is_touched], edges[is_touched]
    )
    return found


def _steps_of(base: Part, touched: Ints) -> EdgeList:
    """Return the steps that the base has of some nodes."""
    known = touched[touched < base.node_count]
    owners, positions = spread(*base.spans(known))
    return EdgeList(known[owners], base.ends_at(positions), base.edges_at(positions))


def _arranged(kept: EdgeList, added: EdgeList, touched: Ints) -> Csr:
    starts = np.searchsorted(touched, np.concatenate([kept.starts, added.starts]))
    ends = np.concatenate([kept.ends, added.ends])
    edges = np.concatenate([kept.edges, added.edges])
    order = np.lexsort((edges, ends, starts))
    # Nodes are numbered by their place here, so self-loops are found by the caller.
    return arranged_csr(
        starts[order], ends[order], edges[order], start_count=len(touched), same_type=False
    )


def _united(base: PatchedCsr, touched: Ints, steps: Csr) -> tuple[Ints, Csr]:
    """Put new steps of some nodes into the patch that there is."""
    union = np.union1d(base.touched, touched)
    old, new = np.searchsorted(base.touched, union), np.searchsorted(touched, union)
    new[new == len(touched)] = 0
    is_new = touched[new] == union
    old[is_new] = 0
    starts, counts = base.patch.spans(old)
    first, more = steps.spans(new)
    starts = np.where(is_new, first.astype(np.int64) + base.patch.edge_count, starts)
    counts = np.where(is_new, more, counts)
    places = spread_positions(starts, counts)
    indptr = np.zeros(len(union) + 1, id_type(len(places)))
    np.cumsum(counts, out=indptr[1:])
    return union, Csr(
        indptr,
        np.concatenate([base.patch.neighbours, steps.neighbours])[places],
        np.concatenate([base.patch.edges, steps.edges])[places],
        steps.loops,
        base.patch.has_parallel or steps.has_parallel,
    )
