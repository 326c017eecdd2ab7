"""A query after the type check and before lowering: resolved, typed, still in its blocks.

Variables have their spelling of the plan; each wildcard has one of its own.
"""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.query.plan.plan import Expand, Predicate, ReadPlan


@dataclass(frozen=True, slots=True)
class CheckedBinding:
    """A typed variable, and what its inline properties ask for."""

    variable: str
    type_name: str
    filters: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class CheckedBlock:
    """The clauses of one block by kind, each kind in its order in the text.

    The direction of a hop is decided; where it stands and what it filters is not.
    `introduces` lists the variables that are new in this block or in an optional block of it.
    """

    bindings: tuple[CheckedBinding, ...]
    hops: tuple[Expand, ...]
    filters: tuple[Predicate, ...]
    optionals: tuple[CheckedBlock, ...]
    nots: tuple[CheckedBlock, ...]
    introduces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedRead:
    """A read without mistakes: its plan without a pipeline, and the block to make that from."""

    plan: ReadPlan
    block: CheckedBlock
