"""Groups and aggregates.

1. Null is a group of its own. Without grouping keys there is exactly one group, even without rows.
2. Aggregates skip nulls; over nothing `count` is 0 and every other one is null.
3. `sum` and `avg` are doubles that do not depend on the order of the rows: whole numbers are added
   exactly, floats in ascending order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.query.plan.plan import AggregateValue, EntityId, PropertyValue, ReadPlan, Value
from omnigraph.query.plan.walk import value_variables
from omnigraph.read.access.value_codes import NULL_CODE, coded, group_codes
from omnigraph.read.context import Context
from omnigraph.read.operators.folded.channels import FoldedHops, channels_of
from omnigraph.read.operators.folded.paths import largest
from omnigraph.read.operators.project import fetch_together, values_of
from omnigraph.read.row_table import (
    NULL,
    Entities,
    RowTable,
    distinct_ids,
    first_positions,
    is_ascending,
)

_Codes = npt.NDArray[np.int64]
_LOW_BITS = 32
_EXACT_MAX: Final = 2**53


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group each row belongs to."""

    codes: _Codes
    count: int
    is_each: bool = False
    """Whether every row is a group of its own, in order."""

    @cached_property
    def first(self) -> npt.NDArray[np.intp]:
        """The first row of each group."""
        return self.codes.astype(np.intp) if self.is_each else first_positions(self.codes)

    def sums(self, numbers: _Codes) -> _Codes:
        """Add up one whole number per row; the total must fit 63 bits."""
        if self.is_each:
            return numbers
        if _is_exact_as_double(numbers, len(numbers)):
            found = np.bincount(self.codes, weights=numbers, minlength=self.count)
            return found.astype(np.int64)
        totals = np.zeros(self.count, np.int64)
        np.add.at(totals, self.codes, numbers)
        return totals


class GroupedResult:
    """The result of an aggregate query, one row per group; columns are made when asked for.

    The values of a grouping key are fetched only for the groups that are kept in the end.
    """

    def __init__(
        self, context: Context, rows: RowTable, plan: ReadPlan, hops: FoldedHops | None = None
    ) -> None:
        columns = [c for c in plan.columns if _needs_rows(c.expression, rows)]
        fetch_together(context, rows, tuple(columns))
        keys = [plan.columns[index].expression for index in plan.group_keys]
        self._context = context
        self._rows = rows
        self._plan = plan
        self._hops = hops
        self._groups = groups_of(context, rows, keys)
        self._aggregates: dict[int, pa.Array] = {}

    @property
    def count(self) -> int:
        """How many groups there are."""
        return self._groups.count

    def first_rows(self, variables: tuple[str, ...]) -> RowTable:
        """Return some variables of the first row of each group."""
        kept = self._rows.only(variables)
        return kept.at(self._groups.first) if variables else RowTable(self.count)

    def column(self, index: int, positions: npt.NDArray[np.intp]) -> pa.Array:
        """Return one column for some groups."""
        value = self._plan.columns[index].expression
        if not isinstance(value, AggregateValue):
            return values_of(self._context, self._rows.at(self._groups.first[positions]), value)
        if index not in self._aggregates:
            self._aggregates[index] = self._aggregated(value)
        return self._aggregates[index].take(pa.array(positions))

    def _aggregated(self, value: AggregateValue) -> pa.Array:
        if self._hops is not None:
            return _over_hops(self._context, self._rows, value, self._groups, self._hops)
        return _aggregated(self._context, self._rows, value, self._groups)


def _needs_rows(value: Value, rows: RowTable) -> bool:
    """Whether a column is needed for every row, and not only for the groups that are kept."""
    if isinstance(value, AggregateValue):
        if isinstance(value.argument, PropertyValue):
            return value.argument.variable in rows.entities
        return not isinstance(value.argument, EntityId) or value.function != "count"
    return not isinstance(value, EntityId)


def distinct_result(context: Context, rows: RowTable, plan: ReadPlan) -> RowTable:
    """Return one row for each distinct row of the result."""
    columns = tuple(c for c in plan.columns if _needs_rows(c.expression, rows))
    fetch_together(context, rows, columns)
    groups = groups_of(context, rows, [column.expression for column in plan.columns])
    return rows if groups.is_each else rows.at(np.sort(groups.first))


def groups_of(context: Context, rows: RowTable, keys: list[Value]) -> Groups:
    """Return the groups of rows that agree in some values."""
    if not keys:
        return Groups(np.zeros(rows.count, np.int64), 1)
    if (
        len(keys) == 1
        and isinstance(key := keys[0], EntityId)
        and is_ascending(rows.row_ids(key.variable))
    ):
        return Groups(np.arange(rows.count, dtype=np.int64), rows.count, is_each=True)
    codes = group_codes([_codes(context, rows, key) for key in keys], rows.count)
    return Groups(codes, int(codes.max(initial=-1)) + 1)


def _codes(context: Context, rows: RowTable, value: Value) -> _Codes:
    if isinstance(value, EntityId):
        # Row ids identify entities as well as id texts do, and null has one row id.
        return rows.row_ids(value.variable)
    if isinstance(value, PropertyValue):
        # Once per entity: texts are far more expensive than numbers.
        entities = rows.entities[value.variable]
        kept = context.tables.codes(entities.table_key, entities.row_ids, value.property)
        if kept is not None:
            return kept.codes
        present, kinds = distinct_ids(entities.row_ids)
        once = RowTable(len(present), {value.variable: Entities(entities.table_key, present)})
        return coded(values_of(context, once, value)).codes[kinds]
    return coded(values_of(context, rows, value)).codes


def _aggregated(
    context: Context, rows: RowTable, value: AggregateValue, groups: Groups
) -> pa.Array:
    if value.function == "count" and not value.distinct:
        return _count_values(_presence(context, rows, value.argument), groups)
    if value.function == "count":
        return _count_distinct(_codes(context, rows, value.argument), groups)
    column = values_of(context, rows, value.argument)
    codes, members = groups.codes, column
    if value.distinct:
        numbered = coded(column)
        first = first_positions(group_codes([codes, numbered.codes], rows.count))
        codes, members = codes[first], column.take(pa.array(first))
    if value.function in ("min", "max"):
        return extreme_of(members, codes, groups.count, is_largest=value.function == "max")
    sums, counts = _sums(members, codes, groups.count)
    if value.function == "avg":
        sums = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    return pa.array(sums, pa.float64(), mask=counts == 0)


def _over_hops(
    context: Context, rows: RowTable, value: AggregateValue, groups: Groups, hops: FoldedHops
) -> pa.Array:
    """Aggregate rows, each of which stands for as many as there are paths that continue it."""
    argument = value.argument
    if hops.variables.isdisjoint(value_variables(argument)):
        if value.distinct or value.function in ("min", "max"):
            return _aggregated(context, rows, value, groups)
        return _added(value, groups, *_repeated(context, rows, value, hops))
    channels = channels_of(value)
    if not channels:
        return pa.array(groups.sums(hops.counts))
    totals = [hops.totals[channel] for channel in channels]
    if channels[0].is_extreme:
        values = hops.values[channels[0].variable, channels[0].name]
        return _best(values, groups, totals[0], is_largest=value.function == "max")
    return _added(value, groups, totals[0], totals[-1])


def _repeated(
    context: Context, rows: RowTable, value: AggregateValue, hops: FoldedHops
) -> tuple[_Codes, _Codes]:
    """Return for each row its value times its number of paths, and how many paths have a value."""
    if value.function == "count":
        counts = hops.counts
        if tuple(value_variables(value.argument)):
            counts = counts * _presence(context, rows, value.argument)
        return counts, counts
    column = values_of(context, rows, value.argument)
    counts = hops.counts * column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) * counts, counts


def _added(value: AggregateValue, groups: Groups, numbers: _Codes, counts: _Codes) -> pa.Array:
    totals = groups.sums(counts)
    if value.function == "count":
        return pa.array(totals)
    added = groups.sums(numbers).astype(np.float64)
    if value.function == "avg":
        added = np.divide(added, totals, out=np.zeros_like(added), where=totals > 0)
    return pa.array(added, pa.float64(), mask=totals == 0)


def _best(values: pa.Array, groups: Groups, codes: _Codes, *, is_largest: bool) -> pa.Array:
    """Return the extreme value of each group; codes without a value are outside of `values`."""
    best = np.full(groups.count, NULL_CODE if is_largest else len(values), np.int64)
    (np.maximum if is_largest else np.minimum).at(best, groups.codes, codes)
    is_absent = (best < 0) | (best >= len(values))
    return pc.take(values, pa.array(np.where(is_absent, 0, best), mask=is_absent))


def _presence(context: Context, rows: RowTable, value: Value) -> npt.NDArray[np.bool_]:
    if isinstance(value, EntityId):
        present: npt.NDArray[np.bool_] = rows.row_ids(value.variable) != NULL
        return present
    column = values_of(context, rows, value)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _count_values(is_value: npt.NDArray[np.bool_], groups: Groups) -> pa.Array:
    members = groups.codes if is_value.all() else groups.codes[is_value]
    return pa.array(np.bincount(members, minlength=groups.count).astype(np.int64))


def _count_distinct(codes: _Codes, groups: Groups) -> pa.Array:
    is_value = codes != NULL_CODE
    if groups.count == 1 and bool((codes[1:] > codes[:-1]).all()):
        # A set of nodes is ascending: each node occurs once.
        return pa.array([int(is_value.sum())], pa.int64())
    members, values = groups.codes[is_value], codes[is_value]
    if not _are_ascending(members, values):
        members = members[first_positions(group_codes([members, values], len(members)))]
    return pa.array(np.bincount(members, minlength=groups.count).astype(np.int64))


def _are_ascending(first: _Codes, second: _Codes) -> bool:
    """Whether each pair is larger than the one before it, so that none repeats."""
    is_larger = first[1:] > first[:-1]
    is_larger |= (first[1:] == first[:-1]) & (second[1:] > second[:-1])
    return bool(is_larger.all())


def _sums(column: pa.Array, codes: _Codes, count: int) -> tuple[npt.NDArray[np.float64], _Codes]:
    members, present = codes, column
    if column.null_count:
        members = codes[column.is_valid().to_numpy(zero_copy_only=False)]
        present = column.drop_null()
    counts = np.bincount(members, minlength=count).astype(np.int64)
    if pa.types.is_integer(column.type):
        return _whole_sums(present, members, count), counts
    values = present.cast(pa.float64()).to_numpy(zero_copy_only=False)
    order = np.lexsort((values, members))
    sums = np.bincount(members[order], weights=values[order], minlength=count)
    return sums.astype(np.float64), counts


def _is_exact_as_double(values: npt.NDArray[Any], count: int) -> bool:
    """Whether sums of up to `count` of these whole numbers are exact as doubles."""
    return largest(values) * max(count, 1) < _EXACT_MAX


def _whole_sums(column: pa.Array, members: _Codes, count: int) -> npt.NDArray[np.float64]:
    """Add whole numbers exactly, and round once."""
    wide = column.cast(pa.uint64() if pa.types.is_unsigned_integer(column.type) else pa.int64())
    values = wide.to_numpy(zero_copy_only=False)
    if _is_exact_as_double(values, len(values)):
        return np.bincount(members, weights=values, minlength=count).astype(np.float64)
    # Added in two halves, neither of which can overflow.
    high = np.zeros(count, np.int64)
    low = np.zeros(count, np.int64)
    np.add.at(high, members, (values >> _LOW_BITS).astype(np.int64))
    np.add.at(low, members, (values & ((1 << _LOW_BITS) - 1)).astype(np.int64))
    pairs = zip(high.tolist(), low.tolist(), strict=True)
    return np.array([float((h << _LOW_BITS) + rest) for h, rest in pairs], np.float64)


def extreme_of(column: pa.Array, codes: _Codes, count: int, *, is_largest: bool) -> pa.Array:
    """Return the smallest or largest value of each group; null where there is none."""
    numbered = coded(column)
    is_value = numbered.codes != NULL_CODE
    members, values = codes[is_value], numbered.codes[is_value]
    if is_largest:
        best = np.full(count, NULL_CODE, np.int64)
        np.maximum.at(best, members, values)
    else:
        best = np.full(count, len(numbered.values), np.int64)
        np.minimum.at(best, members, values)
        best[best == len(numbered.values)] = NULL_CODE
    picks = pa.array(best, mask=best == NULL_CODE)
    return pc.take(numbered.values, picks)
