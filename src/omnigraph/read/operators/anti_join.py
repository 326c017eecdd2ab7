"""Negation: rows that an inner pipeline cannot extend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from omnigraph.query.plan.plan import AntiJoin, Expand, Operator
from omnigraph.read.context import Context
from omnigraph.read.operators.expand import has_neighbour
from omnigraph.read.row_table import Entities, Mask, RowTable, distinct_rows

RunPipeline: TypeAlias = Callable[[tuple[Operator, ...], RowTable], RowTable]

ORDINAL: Final = ""
"""The column with the outer row of each inner row; no variable can have this name."""


def anti_join(context: Context, rows: RowTable, operator: AntiJoin, run: RunPipeline) -> RowTable:
    """Drop the rows that the inner pipeline extends to at least one row."""
    if operator.is_existence_test and isinstance(operator.pipeline[0], Expand):
        return rows.where(~has_neighbour(context, rows, operator.pipeline[0]))
    return rows.where(~_extended(rows, operator, run))


def _extended(rows: RowTable, operator: AntiJoin, run: RunPipeline) -> Mask:
    # Rows that agree in what the block mentions share one answer.
    relevant = rows.only(operator.outer)
    first, kinds = distinct_rows(relevant)
    found = run(operator.pipeline, tagged(relevant, first))
    has_solution = np.zeros(len(first), np.bool_)
    has_solution[found.row_ids(ORDINAL)] = True
    return has_solution[kinds]


def tagged(rows: RowTable, first: np.ndarray[tuple[int], np.dtype[np.intp]]) -> RowTable:
    """Return some rows with their ordinal, which every operator carries along."""
    ordinals = np.arange(len(first), dtype=np.int64)
    return rows.at(first).with_variable(ORDINAL, Entities("", ordinals))
