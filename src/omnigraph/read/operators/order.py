"""The total order of a result, and its first rows.

Null is the smallest value. Keys are fetched only for rows that can still be among those kept, so
`limit 10` of many rows reads the first key of all, and every other key of few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.plan.plan import ReadPlan, ResultColumn, RrfRanking, Score, SortKey
from omnigraph.read.access.value_codes import coded
from omnigraph.read.context import Context
from omnigraph.read.operators.project import values_of
from omnigraph.read.row_table import Positions, RowTable
from omnigraph.values import Scalar

SortCodes: TypeAlias = npt.NDArray[np.int64]
KeyCodes: TypeAlias = Callable[[int, Positions], SortCodes]
"""Returns the codes of a key, by its position in the order, for some rows."""


def order_rows(context: Context, rows: RowTable, plan: ReadPlan) -> RowTable:
    """Sort the rows of a plain query and keep the wanted page."""
    if not plan.order and plan.limit is None and plan.offset is None:
        return rows

    first = plan.order[0] if plan.order else None
    if first is not None and _is_cut(rows.count, plan) and _is_text(first):
        column = values_of(context, rows, first.expression)
        wanted = (plan.offset or 0) + (plan.limit or 0)
        rows = rows.at(_best_texts(column, wanted, descending=first.descending))

    def codes(key: int, positions: Positions) -> SortCodes:
        return _row_codes(context, rows.at(positions), plan.order[key])

    return rows.at(page(rows.count, len(plan.order), codes, plan))


def _is_cut(count: int, plan: ReadPlan) -> bool:
    """Whether at least one row is kept and at least one is not."""
    return plan.limit is not None and 0 < (plan.offset or 0) + plan.limit < count


def _is_text(key: SortKey) -> bool:
    prop_type = key.expression.prop_type
    return prop_type.scalar is Scalar.STRING and not prop_type.is_list


def order_result(
    count: int, plan: ReadPlan, column_at: Callable[[int, Positions], pa.Array]
) -> Positions:
    """Return the positions of the wanted page of a result table.

    `column_at` returns one column of it for some rows.
    """

    def codes(key: int, positions: Positions) -> SortCodes:
        sort_key = plan.order[key]
        if not isinstance(sort_key.expression, ResultColumn):
            raise TypeError(f"{sort_key.expression!r} is no column of the result")
        column = column_at(sort_key.expression.index, positions)
        return _directed(_sort_codes(column), sort_key)

    return page(count, len(plan.order), codes, plan)


def page(count: int, keys: int, codes: KeyCodes, plan: ReadPlan) -> Positions:
    """Return the positions of the rows to keep, in order."""
    skipped = plan.offset or 0
    wanted = count if plan.limit is None else min(skipped + plan.limit, count)
    everything = np.arange(count, dtype=np.intp)
    candidates = _best_by_first(everything, codes, wanted) if keys else everything
    columns = [codes(key, candidates) for key in range(keys)]
    order = np.lexsort(columns[::-1]) if columns else np.arange(len(candidates))
    return candidates[order][skipped:wanted]


def _best_texts(column: pa.Array, wanted: int, *, descending: bool) -> Positions:
    """Return the rows that hold the `wanted` first texts and what ties with the last of them.

    Finding a bound is linear, where numbering all texts would sort them.
    """
    count = len(column)
    pivot = count - wanted if descending else wanted - 1
    order = pc.partition_nth_indices(column, pivot=pivot, null_placement="at_start")
    bound = column[order[pivot].as_py()]
    is_null = column.is_null()
    if not bound.is_valid:
        # The bound lies among the nulls: ascending, only nulls are needed; descending, all rows.
        kept = pa.repeat(pa.scalar(True), count) if descending else is_null
    elif descending:
        kept = pc.fill_null(pc.greater_equal(column, bound), False)
    else:
        kept = pc.or_(is_null, pc.fill_null(pc.less_equal(column, bound), False))
    return np.flatnonzero(kept.to_numpy(zero_copy_only=False)).astype(np.intp)


def _best_by_first(everything: Positions, codes: KeyCodes, wanted: int) -> Positions:
    """Drop the rows that the first key alone sorts after the wanted ones."""
    if wanted >= len(everything):
        return everything
    if wanted == 0:
        return everything[:0]
    first = codes(0, everything)
    bound = np.partition(first, wanted - 1)[wanted - 1]
    return np.asarray(everything[first <= bound], np.intp)


def _row_codes(context: Context, rows: RowTable, key: SortKey) -> SortCodes:
    value = key.expression
    if isinstance(value, Score) and isinstance(value.ranking, RrfRanking):
        # The rank includes the score and its tie-breaker.
        return context.scores[value.ranking].ranks_of(rows.row_ids(value.ranking.variable))
    return _directed(_sort_codes(values_of(context, rows, value)), key)


def _sort_codes(column: pa.Array) -> SortCodes:
    """Return numbers that sort as the values do; whole numbers sort as they are."""
    if column.null_count == 0 and pa.types.is_signed_integer(column.type):
        numbers: SortCodes = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        # The smallest integer cannot be negated: it would overflow.
        if not len(numbers) or int(numbers.min()) > np.iinfo(np.int64).min:
            return numbers
    return coded(column).codes


def _directed(codes: SortCodes, key: SortKey) -> SortCodes:
    directed: SortCodes = -codes if key.descending else codes
    return directed
