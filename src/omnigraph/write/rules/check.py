"""What a rule looks at: the rows of one write, whatever holds them, and the stored rows they meet.

A rule is one file of this folder. It says which columns it reads, when rows break it, and what the
violation is. It does not say how rows are found that may break it: that is a question to the
`RuleCheck`, which answers from tables in memory (`delta_check.py`) or from hashes of a load that is
larger than memory (`write/load/check/load_check.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Final, Generic, Never, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EdgeType, EntityType
from omnigraph.write.rules.findings import Findings
from omnigraph.write.stage.columns import Integers


@dataclass(frozen=True, eq=False)
class FoundRows:
    """The first rows that were found, in ascending order, and how many there are in all.

    `others` has, for each of them, the row that it was compared with, where there is one.
    """

    rows: Integers
    total: int
    others: Integers = field(default_factory=lambda: np.zeros(0, np.int64))


NO_ROWS: Final = FoundRows(np.zeros(0, np.int64), 0)


Item_co = TypeVar("Item_co", covariant=True)


@dataclass(frozen=True)
class Found(Generic[Item_co]):
    """The first of what was found, in order, and how many there are in all."""

    first: Sequence[Item_co]
    total: int


NOTHING: Final[Found[Never]] = Found((), 0)


@dataclass(frozen=True, eq=False)
class Source:
    """A node that has `count` edges of a type, after the write.

    `edges` are the written rows that start at it, in ascending order; `leaving` those that started
    at it before, where no other does.
    """

    node_id: str
    count: int
    edges: Integers
    leaving: Integers = field(default_factory=lambda: np.zeros(0, np.int64))


class WrittenRows(Protocol):
    """The rows that a write puts into one table; they are numbered from 0."""

    @property
    def entity_type(self) -> EntityType:
        """Their type."""
        ...

    def pick(self, rows: Integers, columns: Sequence[str]) -> pa.Table:
        """Read some columns of some rows, given in ascending order."""
        ...

    def positions(self, rows: Integers) -> Sequence[int | None]:
        """Return where rows came from."""
        ...


class RuleCheck(Protocol):
    """One run of the rules over one write, against one snapshot.

    Every question returns at most as many rows as `findings` wants in full, and the number of all.
    """

    @property
    def catalog(self) -> Catalog:
        """The schema."""
        ...

    @property
    def findings(self) -> Findings:
        """What was found so far."""
        ...

    def rows(self, entity_type: EntityType) -> WrittenRows | None:
        """Return the rows of a type that are written, or None if there are none."""
        ...

    def depend_on(self, table_key: TableKey) -> None:
        """Record that the result depends on the stored rows of a table."""
        ...

    def both_positions(self, first: int | None, second: int | None) -> str:
        """Name the positions of two rows that were compared, where messages do that."""
        ...

    def unchecked_values(
        self, entity_type: EntityType
    ) -> Iterable[tuple[pa.RecordBatch, pa.Array | None]]:
        """Return batches whose values were not checked yet, with the positions of their rows."""
        ...

    def repeated_ids(self, rows: WrittenRows) -> FoundRows:
        """Find rows whose id an earlier row has and does not give up to them."""
        ...

    def stored_ids(self, rows: WrittenRows) -> FoundRows:
        """Find rows to insert whose id is stored."""
        ...

    def repeated(self, rows: WrittenRows, members: tuple[str, ...]) -> FoundRows:
        """Find rows whose tuple an earlier row has; a null member exempts a row."""
        ...

    def held(self, rows: WrittenRows, members: tuple[str, ...]) -> Found[tuple[int, str]]:
        """Find rows whose tuple a stored row has that stays, each with the id of that."""
        ...

    def without_node(self, rows: WrittenRows, end: str, node_key: TableKey) -> FoundRows:
        """Find edges one of whose ends will not be there."""
        ...

    def removes_nodes(self, edge: EdgeType, node_key: TableKey) -> bool:
        """Whether nodes are removed that stored edges of a type may end in."""
        ...

    def cascade(self, edge: EdgeType, end: str) -> bool:
        """Remove the stored edges of removed nodes too, if the write does that."""
        ...

    def orphans(self, edge: EdgeType, end: str) -> Found[str]:
        """Find stored edges that stay although their node is removed; return its id for each."""
        ...

    def sources(self, edge: EdgeType) -> Found[Source]:
        """Find affected sources with too few or too many edges (`cardinality.is_outside`)."""
        ...


Rule: TypeAlias = Callable[[EntityType, RuleCheck], None]
"""Checks the rows of one type, and adds what it finds to the findings of the check."""


def types_by_name(catalog: Catalog) -> list[EntityType]:
    """Return all types in the order in which rules look at them."""
    entity_types: list[EntityType] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    return sorted(entity_types, key=lambda entity_type: (entity_type.name, entity_type.table_key))
