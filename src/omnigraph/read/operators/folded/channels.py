"""The numbers that are made along folded hops, and what they come to for each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.query.plan.plan import AggregateValue, PropertyValue
from omnigraph.read.access.value_codes import NULL_CODE

Totals: TypeAlias = npt.NDArray[np.int64]

TOTAL_MAX: Final = 2**62
"""Totals stay below it, so that they fit 63 bits."""

ChannelKind: TypeAlias = Literal["sum", "present", "min", "max"]


@dataclass(frozen=True)
class Channel:
    """A number that is made along the hops for an aggregate over a property."""

    kind: ChannelKind
    variable: str
    name: str
    """The property."""

    @property
    def nothing(self) -> int:
        """The number of a node without any path."""
        return {"min": TOTAL_MAX, "max": NULL_CODE}.get(self.kind, 0)

    @property
    def is_extreme(self) -> bool:
        """Whether it is the code of a value, and not a sum."""
        return self.kind in ("min", "max")

    @property
    def add(self) -> np.ufunc:
        """How the numbers of two paths become one."""
        return {"min": np.minimum, "max": np.maximum}.get(self.kind, np.add)


@dataclass(frozen=True, eq=False)
class FoldedHops:
    """What folded hops contribute to each row; rows that no path continues are left out."""

    variables: frozenset[str]
    """The variables of the paths."""
    counts: Totals
    """How many paths continue the row."""
    totals: Mapping[Channel, Totals]
    values: Mapping[tuple[str, str], pa.Array]
    """What the codes of a property stand for, ascending."""


def channels_of(value: AggregateValue) -> tuple[Channel, ...]:
    """Return what an aggregate over a property of a folded variable is made from."""
    argument = value.argument
    if not isinstance(argument, PropertyValue):
        return ()
    kinds: dict[str, tuple[ChannelKind, ...]] = {
        "count": ("present",),
        "sum": ("sum", "present"),
        "avg": ("sum", "present"),
        "min": ("min",),
        "max": ("max",),
    }
    return tuple(
        Channel(kind, argument.variable, argument.property) for kind in kinds[value.function]
    )
