"""A query after the type check and before lowering: resolved, typed, still in its blocks.

Variables have their spelling of the plan; each wildcard has one of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.query.plan.plan import (
    BoundVariable,
    Direction,
    OutputColumn,
    PlanParameter,
    Predicate,
    Ranking,
    SortKey,
)


@dataclass(frozen=True, slots=True)
class CheckedBinding:
    """A typed variable, and what its inline properties ask for."""

    variable: str
    type_name: str
    filters: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class CheckedHop:
    """A hop whose direction is decided: `out` follows the edge from `source` to `target`."""

    source: str
    source_type: str
    target: str
    target_type: str
    edge: str
    direction: Direction
    min: int
    max: int
    edge_variable: str | None


@dataclass(frozen=True, slots=True)
class CheckedBlock:
    """The clauses of one block by kind, each kind in its order in the text.

    `introduces` lists the variables that are new in this block or in an optional block of it.
    """

    bindings: tuple[CheckedBinding, ...]
    hops: tuple[CheckedHop, ...]
    filters: tuple[Predicate, ...]
    optionals: tuple[CheckedBlock, ...]
    nots: tuple[CheckedBlock, ...]
    introduces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedRead:
    """A read without mistakes."""

    name: str
    parameters: tuple[PlanParameter, ...]
    block: CheckedBlock
    variables: tuple[BoundVariable, ...]
    columns: tuple[OutputColumn, ...]
    ranking: Ranking | None
    candidates: int | None
    distinct: bool
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int | None
