"""The row table of a running query: one array of numbers per variable.

1. A variable holds stable row ids of its dataset, 64 bits each; `NULL` stands for the null of an
   optional block. Two rows hold the same node exactly when their numbers are equal.
2. Properties and id texts are not in the table: they are fetched for the rows that survive.
3. A row table is never changed; operators make new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

RowIds: TypeAlias = npt.NDArray[np.int64]
Positions: TypeAlias = npt.NDArray[np.intp]
Mask: TypeAlias = npt.NDArray[np.bool_]

NULL: Final = -1
"""The row id of a variable without a value."""


@dataclass(frozen=True, eq=False)
class Entities:
    """The values of one variable: rows of one dataset."""

    table_key: str
    row_ids: RowIds

    def at(self, positions: Positions | Mask) -> Entities:
        """Return the values at some rows."""
        return Entities(self.table_key, self.row_ids[positions])


@dataclass(frozen=True, eq=False)
class RowTable:
    """Rows over variables."""

    count: int
    entities: Mapping[str, Entities] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return len(self.entities)

    def at(self, positions: Positions) -> RowTable:
        """Return some rows, in the order given and as often as given."""
        kept = {name: values.at(positions) for name, values in self.entities.items()}
        return RowTable(len(positions), kept)

    def where(self, mask: Mask) -> RowTable:
        """Return the rows at which the mask is true."""
        if mask.all():
            return self
        return self.at(np.flatnonzero(mask))

    def row_ids(self, variable: str) -> RowIds:
        """Return the numbers of one variable."""
        return self.entities[variable].row_ids

    def with_variable(self, name: str, values: Entities) -> RowTable:
        """Add a variable."""
        return RowTable(self.count, {**self.entities, name: values})

    def without(self, *names: str) -> RowTable:
        """Forget variables."""
        kept = {name: values for name, values in self.entities.items() if name not in names}
        return RowTable(self.count, kept)

    def only(self, names: tuple[str, ...]) -> RowTable:
        """Forget all variables but these."""
        return RowTable(self.count, {name: self.entities[name] for name in names})


ONE_ROW: Final = RowTable(1)
"""Where every pipeline starts: one row without columns."""


def distinct_rows(table: RowTable) -> tuple[Positions, Positions]:
    """Find the distinct rows of a table.

    Returns the position of the first row of each kind, and the kind of each row.
    """
    if table.count == 0 or not table.entities:
        kinds = np.zeros(table.count, np.intp)
        return np.zeros(min(table.count, 1), np.intp), kinds
    return distinct_tuples([values.row_ids for values in table.entities.values()])


def distinct_tuples(columns: list[RowIds]) -> tuple[Positions, Positions]:
    """Find the distinct tuples of some columns of equal length, at least one.

    Returns the position of the first of each kind, and the kind of each.
    """
    kinds = _kinds(columns[0])
    for column in columns[1:]:
        # Both factors are below the number of rows, so the product fits.
        beside = _kinds(column)
        kinds = _kinds(kinds * (int(beside.max(initial=0)) + 1) + beside)
    _, first, inverse = np.unique(kinds, return_index=True, return_inverse=True)
    return first.astype(np.intp), inverse.astype(np.intp)


def _kinds(column: RowIds) -> RowIds:
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def repeats(counts: Positions | RowIds) -> Positions:
    """Return each position as often as its count says.

    >>> repeats(np.array([2, 0, 1])).tolist()
    [0, 0, 2]
    """
    return np.repeat(np.arange(len(counts), dtype=np.intp), counts)


def slices(starts: Positions | RowIds, counts: Positions | RowIds) -> Positions:
    """Return the numbers of consecutive ranges, one after the other.

    >>> slices(np.array([5, 1]), np.array([2, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    shift = np.repeat(starts - (ends - counts), counts)
    return np.asarray(np.arange(total, dtype=np.int64) + shift, np.intp)
