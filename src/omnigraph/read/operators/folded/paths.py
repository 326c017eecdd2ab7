"""Totals of nodes: how many paths lie behind each, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.read.operators.folded.channels import TOTAL_MAX, Channel, Totals
from omnigraph.read.row_table import Positions
from omnigraph.search.topology.csr import Ints

_LIVE_SHARE: Final = 4
"""Nodes without a path are left out when at most one node in this many has a path."""


class NotFoldedError(Exception):
    """The rows must be written out; never leaves `fold_hops`."""


@dataclass(frozen=True, eq=False)
class Paths:
    """Totals of some nodes, by their position; `counts` is None when each has exactly one path."""

    nodes: Ints | None
    """Dense ids, ascending; None for all nodes of the type."""
    counts: Totals | None
    totals: Mapping[Channel, Totals] = field(default_factory=dict)

    def times(self, other: Paths) -> Paths:
        """Combine with the totals of another hop from the same nodes."""
        counts = _product(self.counts, other.counts)
        totals = {
            channel: carried(channel, numbers, other.counts)
            for channel, numbers in self.totals.items()
        }
        totals |= {
            channel: carried(channel, numbers, self.counts)
            for channel, numbers in other.totals.items()
        }
        return Paths(self.nodes, counts, totals)

    def live(self) -> Paths:
        """Leave nodes without a path out where most have none."""
        if self.counts is None:
            return self
        is_live = self.counts > 0
        if int(np.count_nonzero(is_live)) * _LIVE_SHARE > len(is_live):
            return self
        picks = np.flatnonzero(is_live)
        nodes = picks if self.nodes is None else self.nodes[picks]
        return self.at(picks, nodes)

    def at(self, positions: Positions, nodes: Ints | None) -> Paths:
        """Return the totals at some positions, as those of `nodes`."""
        counts = None if self.counts is None else self.counts[positions]
        totals = {channel: numbers[positions] for channel, numbers in self.totals.items()}
        return Paths(nodes, counts, totals)


def _product(left: Totals | None, right: Totals | None) -> Totals | None:
    if left is None or right is None:
        return right if left is None else left
    _check_product(left, right)
    return left * right


def carried(channel: Channel, numbers: Totals, counts: Totals | None) -> Totals:
    """Return the totals of a channel where each path continues in `counts` ways."""
    if counts is None:
        return numbers
    if channel.is_extreme:
        return np.where(counts > 0, numbers, np.int64(channel.nothing))
    _check_product(numbers, counts)
    return numbers * counts


def _check_product(left: Totals, right: Totals) -> None:
    if largest(left) * largest(right) >= TOTAL_MAX:
        raise NotFoldedError


def largest(numbers: npt.NDArray[Any]) -> int:
    """Return how far a number is from zero at most; 0 without numbers."""
    return max(abs(int(numbers.max())), abs(int(numbers.min()))) if len(numbers) else 0
