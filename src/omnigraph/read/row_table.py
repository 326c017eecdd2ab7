"""The row table of a running query: one array of numbers per variable.

1. A variable holds stable row ids of its dataset, 64 bits each; `NULL` stands for the null of an
   optional block. Two rows hold the same node exactly when their numbers are equal.
2. Properties and id texts are not in the table: they are fetched for the rows that survive.
3. A row table is never changed; operators make new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.search.topology.csr import sorted_distinct

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
        """Drop variables."""
        kept = {name: values for name, values in self.entities.items() if name not in names}
        return RowTable(self.count, kept)

    def only(self, names: tuple[str, ...]) -> RowTable:
        """Keep only these variables."""
        return RowTable(self.count, {name: self.entities[name] for name in names})


_MARKS_PER_ROW_MAX: Final = 4
_MARKS_MIN: Final = 1 << 16
"""Marking is faster than sorting while there are not many more marks than rows."""

_ROWS_PER_CODE: Final = 256
_PACKED_BITS: Final = 63
_ROW_ID_BITS: Final = 35
_POSITION_BITS: Final = 63 - _ROW_ID_BITS

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
    if len(columns) == 1 and is_ascending(columns[0]):
        everything = np.arange(len(columns[0]), dtype=np.intp)
        return everything, everything
    kinds = dense_codes(columns[0] - NULL)
    for column in columns[1:]:
        # Both factors are below the number of rows, so the product fits.
        second = dense_codes(column - NULL)
        kinds = dense_codes(kinds * (int(second.max(initial=0)) + 1) + second)
    return first_positions(kinds), kinds.astype(np.intp)


def distinct_pairs(table: RowTable) -> RowTable | None:
    """Return the distinct rows of two variables, sorted; None if they do not fit 63 bits.

    Sorting packed pairs takes a fraction of the time that numbering them takes.
    """
    (first, left), (second, right) = table.entities.items()
    bits = int(right.row_ids.max(initial=0) - NULL).bit_length()
    if int(left.row_ids.max(initial=0) - NULL).bit_length() + bits > _PACKED_BITS:
        return None
    packed = sorted_distinct(((left.row_ids - NULL) << bits) | (right.row_ids - NULL))
    firsts, seconds = (packed >> bits) + NULL, (packed & ((1 << bits) - 1)) + NULL
    return RowTable(
        len(packed),
        {first: Entities(left.table_key, firsts), second: Entities(right.table_key, seconds)},
    )


def repeats(counts: Positions | RowIds) -> Positions:
    """Return each position as often as its count.

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


def dense_codes(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the distinct values numbered from 0, in ascending order; none may be negative.

    >>> dense_codes(np.array([7, 3, 7])).tolist()
    [1, 0, 1]
    """
    width = int(numbers.max(initial=-1)) + 1
    if width > _MARKS_PER_ROW_MAX * len(numbers) + _MARKS_MIN:
        return np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    marks = np.zeros(width, np.bool_)
    marks[numbers] = True
    if marks.all():
        return numbers.astype(np.int64, copy=False)
    return np.asarray((np.cumsum(marks, dtype=np.int64) - 1)[numbers], np.int64)


def first_positions(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return where each code of `0, 1, …` occurs first."""
    count = int(codes.max(initial=-1)) + 1
    # Few codes usually all occur among the first rows; then the others are not searched.
    for rows in (min(len(codes), count * _ROWS_PER_CODE), len(codes)):
        first = np.full(count, -1, np.intp)
        first[codes[:rows][::-1]] = np.arange(rows - 1, -1, -1)
        if not count or int(first.min()) >= 0:
            break
    return first


def pair_keys(starts: Positions, row_ids: RowIds) -> RowIds:
    """Pack a position and a row id into one number that sorts by position, then row id."""
    if len(starts) and (int(row_ids.max()) >> _ROW_ID_BITS or int(starts.max()) >> _POSITION_BITS):
        raise OverflowError(
            f"a row id above 2**{_ROW_ID_BITS} or a position above 2**{_POSITION_BITS}"
        )
    return np.asarray((starts.astype(np.int64) << _ROW_ID_BITS) | row_ids, np.int64)


def is_ascending(row_ids: RowIds) -> bool:
    """Whether each number is larger than the one before it, so that none repeats."""
    return len(row_ids) < 2 or bool((row_ids[1:] > row_ids[:-1]).all())


def ascending_ids(row_ids: RowIds) -> RowIds:
    """Return the distinct row ids, ascending.

    >>> ascending_ids(np.array([5, 2, 5])).tolist()
    [2, 5]
    """
    if is_ascending(row_ids):
        return row_ids
    return np.asarray(sorted_distinct(row_ids), np.int64)


def distinct_ids(row_ids: RowIds) -> tuple[RowIds, Positions]:
    """Return the distinct row ids, ascending, and which of them each row has.

    >>> distinct, kinds = distinct_ids(np.array([5, NULL, 5]))
    >>> distinct.tolist(), kinds.tolist()
    ([-1, 5], [1, 0, 1])
    """
    if is_ascending(row_ids):
        return row_ids, np.arange(len(row_ids), dtype=np.intp)
    if len(row_ids) < _MARKS_MIN:
        distinct, kinds = np.unique(row_ids, return_inverse=True)
        return distinct, kinds.astype(np.intp)
    kinds = dense_codes(row_ids - NULL)
    return row_ids[first_positions(kinds)], kinds.astype(np.intp)
