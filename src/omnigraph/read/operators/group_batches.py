"""The groups of an aggregate that was made batch by batch.

1. A batch leaves one row for each of its groups, over the variables of the grouping keys, and its
   aggregates. Groups of several batches are found again by these rows.
2. `count` and sums are added, extremes compared. An average is a sum and a count until the end.
   Other aggregates can only be put together where no two batches have a group in common.
3. Sums are doubles. `is_exact` says whether the whole numbers that were added fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.query.language.tree import Aggregate
from omnigraph.query.plan.plan import AggregateValue, OutputColumn, ReadPlan
from omnigraph.query.plan.walk import value_variables
from omnigraph.read.context import Context
from omnigraph.read.operators.aggregate import GroupedResult, extreme_of, groups_of
from omnigraph.read.operators.project import values_of
from omnigraph.read.row_table import Entities, Positions, RowTable

_EXACT_MAX: Final = 2.0**53
_PENDING_MAX: Final = 1 << 20
"""Groups of batches that wait until they are put together."""

Columns: TypeAlias = tuple[pa.Array, ...]


@dataclass(frozen=True, eq=False)
class MadeGroups:
    """Groups whose columns are there."""

    columns: Columns

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.columns[0])

    def column(self, index: int, positions: Positions) -> pa.Array:
        """Return one column for some groups."""
        return self.columns[index].take(pa.array(positions))


def all_columns(groups: GroupedResult, plan: ReadPlan) -> Columns:
    """Return every column of a result."""
    everything = np.arange(groups.count, dtype=np.intp)
    return tuple(groups.column(index, everything) for index in range(len(plan.columns)))


def joined(batches: Sequence[Columns]) -> MadeGroups:
    """Put batches together that have no group in common."""
    return MadeGroups(tuple(pa.concat_arrays(columns) for columns in zip(*batches, strict=True)))


# -- groups that several batches share ----------------------------------------------------------


def with_partial_columns(plan: ReadPlan) -> ReadPlan:
    """Return a plan whose aggregates can be put together: an average becomes a sum and a count."""
    averages = [
        column
        for column in plan.columns
        if isinstance(value := column.expression, AggregateValue) and value.function == "avg"
    ]
    sums = [_with_function(c, "sum") if c in averages else c for c in plan.columns]
    counts = [_with_function(column, "count") for column in averages]
    return replace(plan, columns=(*sums, *counts), order=(), limit=None, offset=None)


def _with_function(column: OutputColumn, function: Aggregate) -> OutputColumn:
    if not isinstance(column.expression, AggregateValue):
        return column
    return replace(column, expression=replace(column.expression, function=function))


@dataclass(eq=False)
class GroupTotals:
    """The groups of all batches so far."""

    context: Context
    plan: ReadPlan
    """With partial columns."""
    is_exact: bool = True
    _rows: list[RowTable] = field(default_factory=list)
    _columns: list[Columns] = field(default_factory=list)

    def add(self, groups: GroupedResult) -> None:
        """Take the groups of one batch."""
        names = tuple(
            dict.fromkeys(
                name
                for index in self.plan.group_keys
                for name in value_variables(self.plan.columns[index].expression)
            )
        )
        self._rows.append(groups.first_rows(names))
        self._columns.append(self._aggregates(groups))
        if len(self._rows) > 1 and sum(rows.count for rows in self._rows) > _PENDING_MAX:
            self._merge()

    def _aggregates(self, groups: GroupedResult) -> Columns:
        everything = np.arange(groups.count, dtype=np.intp)
        return tuple(groups.column(index, everything) for index in self._aggregate_places)

    @property
    def _aggregate_places(self) -> list[int]:
        keys = self.plan.group_keys
        return [index for index in range(len(self.plan.columns)) if index not in keys]

    def _merge(self) -> None:
        rows = _stacked(self._rows)
        keys = [self.plan.columns[index].expression for index in self.plan.group_keys]
        groups = groups_of(self.context, rows, keys)
        merged: list[pa.Array] = []
        for place, parts in zip(
            self._aggregate_places, zip(*self._columns, strict=True), strict=True
        ):
            value = self.plan.columns[place].expression
            column = pa.concat_arrays(parts)
            if isinstance(value, AggregateValue) and value.function in ("min", "max"):
                is_largest = value.function == "max"
                merged.append(extreme_of(column, groups.codes, groups.count, is_largest=is_largest))
            else:
                merged.append(self._added(column, groups.codes, groups.count))
        self._rows = [rows.at(groups.first) if keys else RowTable(1)]
        self._columns = [tuple(merged)]

    def _added(self, column: pa.Array, codes: npt.NDArray[np.int64], count: int) -> pa.Array:
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        if float(np.abs(numbers).sum()) >= _EXACT_MAX:
            self.is_exact = False
        sums = np.bincount(codes, weights=numbers, minlength=count)
        is_value = column.is_valid().to_numpy(zero_copy_only=False)
        is_absent = np.bincount(codes[is_value], minlength=count) == 0
        return pa.array(sums, pa.float64(), mask=is_absent).cast(column.type)

    def result(self, plan: ReadPlan) -> MadeGroups:
        """Return the columns of the plan that the totals were made for."""
        self._merge()
        (rows,), (found,) = self._rows, self._columns
        aggregates = dict(zip(self._aggregate_places, found, strict=True))
        counts = iter(range(len(plan.columns), len(self.plan.columns)))
        columns: list[pa.Array] = []
        for index, column in enumerate(plan.columns):
            value = column.expression
            if not isinstance(value, AggregateValue):
                columns.append(values_of(self.context, rows, value))
            elif value.function == "avg":
                columns.append(_average(aggregates[index], aggregates[next(counts)]))
            else:
                columns.append(aggregates[index])
        return MadeGroups(tuple(columns))


def _average(sums: pa.Array, counts: pa.Array) -> pa.Array:
    totals = counts.to_numpy(zero_copy_only=False)
    added = sums.fill_null(0.0).to_numpy(zero_copy_only=False)
    found = np.divide(added, totals, out=np.zeros_like(added), where=totals > 0)
    return pa.array(found, pa.float64(), mask=totals == 0)


def _stacked(tables: Sequence[RowTable]) -> RowTable:
    count = sum(table.count for table in tables)
    entities = {
        name: Entities(values.table_key, np.concatenate([table.row_ids(name) for table in tables]))
        for name, values in tables[0].entities.items()
    }
    return RowTable(count, entities)
