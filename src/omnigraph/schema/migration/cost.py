"""What a migration step costs, and the rules that decide it.

| tier | what apply does |
|---|---|
| `metadata` | stores the new schema; datasets stay as they are |
| `rewrite` | writes one new version of the dataset |
| `validated` | reads the stored rows first, and fails when one of them breaks the new rule |
| `destructive` | takes data out of the current version |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from omnigraph.schema.catalog import Cardinality
from omnigraph.schema.ir.model import ConstraintIdentity
from omnigraph.schema.language.shape import Bound
from omnigraph.values import PropType, Scalar

Tier = Literal["metadata", "rewrite", "validated", "destructive"]

TIERS: Final[tuple[Tier, ...]] = ("metadata", "rewrite", "validated", "destructive")
"""From the cheapest to the most expensive."""


@dataclass(frozen=True)
class Price:
    """The tier of a step, the dataset that it touches as of now, and that dataset's rows."""

    tier: Tier
    table_key: str | None = None
    row_count: int | None = None


_WIDENINGS: Final = frozenset(
    {
        (Scalar.I32, Scalar.I64),
        (Scalar.U32, Scalar.U64),
        (Scalar.U32, Scalar.I64),
        (Scalar.F32, Scalar.F64),
        (Scalar.DATE, Scalar.DATETIME),
    }
)

_RESPELLING_WIDENINGS: Final = frozenset({(Scalar.F32, Scalar.F64), (Scalar.DATE, Scalar.DATETIME)})


def is_widening(old: PropType, new: PropType) -> bool:
    """Whether every stored value has an exact counterpart in the new type.

    >>> is_widening(PropType(Scalar.U32), PropType(Scalar.I64))
    True
    >>> is_widening(PropType(Scalar.I32), PropType(Scalar.F64))
    False
    """
    return not old.is_list and not new.is_list and (old.scalar, new.scalar) in _WIDENINGS


def changes_spelling(old: PropType, new: PropType) -> bool:
    """Whether a widening changes how values are spelled in ids that are derived from them.

    0.1 as F32 is 0.10000000149011612 as F64; a Date counts days, a DateTime milliseconds.
    """
    return (old.scalar, new.scalar) in _RESPELLING_WIDENINGS


def is_loosened(old: Cardinality, new: Cardinality) -> bool:
    """Whether every number of edges that was legal stays legal.

    >>> is_loosened(Cardinality(1, 3), Cardinality(0, None))
    True
    """
    fits_below = new.max is None or (old.max is not None and old.max <= new.max)
    return new.min <= old.min and fits_below


def is_implied(added: ConstraintIdentity, accepted: Iterable[ConstraintIdentity]) -> bool:
    """Whether rows that obey the accepted constraints obey the added one too."""
    return any(_implies(known, added) for known in accepted)


def _implies(known: ConstraintIdentity, added: ConstraintIdentity) -> bool:
    if added.kind == "unique":
        # Tuples that contain a distinct part are distinct. Key members are never null, and a null
        # in a unique tuple exempts the row from the longer tuple as well.
        return known.kind in ("key", "unique") and known.members <= added.members
    if added.kind == "range" and known.kind == "range" and known.members == added.members:
        return _at_most(added.min, known.min) and _at_most(known.max, added.max, open_end="max")
    return known == added


def _at_most(
    low: Bound | None, high: Bound | None, *, open_end: Literal["min", "max"] = "min"
) -> bool:
    """Compare two bounds of the same end, where an open one is infinite in its direction."""
    unbounded = low if open_end == "min" else high
    if unbounded is None:
        return True
    return low is not None and high is not None and low.value <= high.value
