"""Totals over the steps of one hop, added up at either end of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.read.operators.folded.channels import TOTAL_MAX, Channel, Totals
from omnigraph.read.operators.folded.paths import NotFoldedError, Paths, carried, largest
from omnigraph.search.topology import traverse
from omnigraph.search.topology.csr import Ints, Mask
from omnigraph.search.topology.path_sums import Walk, arrived_totals, step_totals

FAR_SHARE: Final = 4
"""All nodes of a type are looked at when a hop has at least one step for this many of them."""

_ByEnd: TypeAlias = Callable[[Ints], npt.NDArray[Any]]
"""The number of each end of a step."""


@dataclass(frozen=True, eq=False)
class Edges:
    """Which edge records a hop may take, all when None, and what they contribute."""

    is_kept: Mask | None
    totals: Mapping[Channel, Totals]

    @property
    def are_read(self) -> bool:
        """Whether it matters which records a step takes."""
        return self.is_kept is not None or bool(self.totals)


def check_steps(far: Paths, edges: Edges, adjacency: traverse.Adjacency, walk: Walk) -> None:
    """Raise when a sum over the steps of a node might not fit."""
    counts = 1 if far.counts is None else largest(far.counts)
    sums = [largest(n) for c, n in far.totals.items() if not c.is_extreme]
    sums += [largest(n) * counts for c, n in edges.totals.items() if not c.is_extreme]
    most = max([counts, *sums])
    steps = adjacency.edge_count * len(adjacency.parts)
    if walk.is_single and most * steps >= TOTAL_MAX:
        steps = int(traverse.degrees(adjacency).max(initial=0))
    if most * (steps if walk.is_single else adjacency.target_count) >= TOTAL_MAX:
        raise NotFoldedError


@dataclass(frozen=True, eq=False)
class Leaving:
    """Adds up over the steps that leave each node."""

    adjacency: traverse.Adjacency
    far: Paths
    edges: Edges
    walk: Walk
    guard: traverse.Guard
    steps: int

    def totals(self, nodes: Ints | None) -> Paths:
        """Return the totals of some nodes over their steps."""
        counts = self._by_end(self.far.counts, 0)
        found = {
            channel: self._channel(nodes, channel, self._by_end(numbers, channel.nothing))
            for channel, numbers in self.far.totals.items()
        }
        found |= {
            channel: self._edge_channel(nodes, channel, counts) for channel in self.edges.totals
        }

        def worth(ends: Ints, records: Ints | None) -> npt.NDArray[Any] | None:
            return self._kept(None if counts is None else counts(ends), records, 0)

        return Paths(nodes, self._summed(nodes, worth, np.add, 0), found)

    def _channel(self, nodes: Ints | None, channel: Channel, numbers: _ByEnd | None) -> Totals:
        def worth(ends: Ints, records: Ints | None) -> npt.NDArray[Any] | None:
            found = None if numbers is None else numbers(ends)
            return self._kept(found, records, channel.nothing)

        return self._summed(nodes, worth, channel.add, channel.nothing)

    def _edge_channel(self, nodes: Ints | None, channel: Channel, counts: _ByEnd | None) -> Totals:
        numbers = self.edges.totals[channel]

        def worth(ends: Ints, records: Ints | None) -> npt.NDArray[Any] | None:
            found = numbers[_known(records)]
            if counts is not None:
                found = carried(channel, found, counts(ends))
            return self._kept(found, records, channel.nothing)

        return self._summed(nodes, worth, channel.add, channel.nothing)

    def _kept(
        self, found: npt.NDArray[Any] | None, records: Ints | None, nothing: int
    ) -> npt.NDArray[Any] | None:
        if self.edges.is_kept is None or records is None:
            return found
        is_kept = self.edges.is_kept[records]
        # A plain number would be cut to the width of the others.
        return is_kept if found is None else np.where(is_kept, found, np.int64(nothing))

    def _summed(self, nodes: Ints | None, worth: Any, add: np.ufunc, nothing: int) -> Totals:
        return step_totals(
            self.adjacency,
            nodes,
            self.walk,
            worth,
            add=add,
            nothing=nothing,
            with_edges=self.edges.are_read,
            guard=self.guard,
        )

    def _by_end(self, numbers: Totals | None, nothing: int) -> _ByEnd | None:
        """Return how the number of an end is found; None when each has one path."""
        nodes = self.far.nodes
        if nodes is None:
            return None if numbers is None else _array_look_up(_narrowed(numbers))
        if self.steps * FAR_SHARE < self.adjacency.target_count:
            return _sorted_look_up(nodes, numbers, nothing)
        if numbers is None:
            mask = np.zeros(self.adjacency.target_count, np.bool_)
            mask[nodes] = True
            return _array_look_up(mask)
        dense = np.full(self.adjacency.target_count, nothing, np.int64)
        dense[nodes] = numbers
        return _array_look_up(_narrowed(dense))


def _array_look_up(numbers: npt.NDArray[Any]) -> _ByEnd:
    return lambda ends: np.take(numbers, ends)


def _sorted_look_up(nodes: Ints, numbers: Totals | None, nothing: int) -> _ByEnd:
    """Look few ends up in an ascending list, so that no array of all nodes is made."""

    def find(ends: Ints) -> npt.NDArray[Any]:
        if not len(nodes):
            return np.full(len(ends), nothing, np.int64)
        places = np.minimum(np.searchsorted(nodes, ends), len(nodes) - 1)
        is_there = nodes[places] == ends
        return is_there if numbers is None else np.where(is_there, numbers[places], nothing)

    return find


@dataclass(frozen=True, eq=False)
class Arriving:
    """Adds up at the other end of the steps of the few nodes at the far end of a hop."""

    adjacency: traverse.Adjacency
    """Against the direction of the hop."""
    far: Paths
    edges: Edges
    walk: Walk
    guard: traverse.Guard

    def totals(self, nodes: Ints | None) -> Paths:
        """Return the totals of some nodes over their steps."""
        counts = self.far.counts
        ones = np.ones(len(_known(self.far.nodes)), np.int64) if counts is None else counts
        found = {
            channel: self._summed(numbers, None, channel)
            for channel, numbers in self.far.totals.items()
        }
        found |= {
            channel: self._summed(ones, numbers, channel)
            for channel, numbers in self.edges.totals.items()
        }
        everywhere = Paths(None, self._summed(ones, None, None), found)
        return everywhere if nodes is None else everywhere.at(nodes, nodes)

    def _summed(self, numbers: Totals, records: Totals | None, channel: Channel | None) -> Totals:
        nothing = 0 if channel is None else channel.nothing

        def worth(starts: Ints, taken: Ints | None) -> npt.NDArray[Any]:
            found = numbers[starts]
            if taken is None:
                return found
            if records is not None and channel is not None:
                found = carried(channel, records[taken], found)
            if self.edges.is_kept is not None:
                found = np.where(self.edges.is_kept[taken], found, nothing)
            return found

        return arrived_totals(
            self.adjacency,
            _known(self.far.nodes),
            self.walk,
            worth,
            add=np.add if channel is None else channel.add,
            nothing=nothing,
            with_edges=self.edges.are_read,
            guard=self.guard,
        )


def _known(numbers: Ints | None) -> Ints:
    if numbers is None:
        raise LookupError("these are asked for only where they are read")
    return numbers


def _narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return whole numbers in the narrowest signed type; those beyond 63 bits stay as they are."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for width in (np.int8, np.int16, np.int32, np.int64):
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            return values.astype(width, copy=False)
    return values
