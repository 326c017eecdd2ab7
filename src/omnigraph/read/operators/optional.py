"""Optional blocks: left outer joins."""

from __future__ import annotations

import numpy as np

from omnigraph.names import TableKey
from omnigraph.query.plan.plan import AntiJoin, Expand, Filter, NodeScan, Operator, OptionalMatch
from omnigraph.read.context import Context
from omnigraph.read.operators.anti_join import ORDINAL, RunPipeline, tagged
from omnigraph.read.row_table import (
    NULL,
    Entities,
    RowTable,
    distinct_rows,
    repeats,
    slices,
)


def optional_match(
    context: Context, rows: RowTable, operator: OptionalMatch, run: RunPipeline
) -> RowTable:
    """Give each row its extensions, or nulls when it has none."""
    relevant = rows.only(operator.outer)
    first, kinds = distinct_rows(relevant)
    found = run(operator.pipeline, tagged(relevant, first))
    owners = found.row_ids(ORDINAL)
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=len(first))
    firsts = np.cumsum(counts) - counts
    # Unmatched rows index the appended row, in which every variable is null.
    behind = len(owners)
    wanted = np.maximum(counts, 1)[kinds]
    starts = np.where(counts > 0, firsts, behind)[kinds]
    context.guard.claim(
        "an optional block",
        rows=int(wanted.sum()),
        cells=rows.width + len(operator.introduces),
    )
    picks = slices(starts, wanted)
    widened = rows.at(repeats(wanted))
    keys = _table_keys(operator.pipeline)
    for name in operator.introduces:
        values = np.append(found.row_ids(name)[order], NULL)
        widened = widened.with_variable(name, Entities(keys[name], values[picks]))
    return widened


def _table_keys(pipeline: tuple[Operator, ...]) -> dict[str, str]:
    keys: dict[str, str] = {}
    for operator in pipeline:
        match operator:
            case NodeScan():
                keys[operator.variable] = TableKey.node(operator.type_name)
            case Expand():
                keys[operator.target] = TableKey.node(operator.target_type)
                if operator.edge_variable is not None:
                    keys[operator.edge_variable] = TableKey.edge(operator.edge)
            case OptionalMatch():
                keys |= _table_keys(operator.pipeline)
            case Filter() | AntiJoin():
                pass
    return keys
