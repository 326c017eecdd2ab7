"""How many nodes pass filters, where finding out costs little.

| the type | what is done |
|---|---|
| small | the filters are evaluated, and the scan of the query uses the rows that were found |
| large, a text is looked up | the look-up, if it is in memory |
| large, columns in memory | the filters are evaluated on a sample |
| a full-text predicate | the search is run; every later use of it has the result |
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import TableKey
from omnigraph.query.plan.plan import NodeScan, Predicate, TextMatch
from omnigraph.query.plan.walk import predicate_variables
from omnigraph.read.access.push_down import conjuncts
from omnigraph.read.column_names import column_name, stored_column
from omnigraph.read.context import Context
from omnigraph.read.operators.filter import stored_values
from omnigraph.read.operators.memory_scan import is_evaluated_here, text_matches
from omnigraph.read.operators.predicates import evaluate
from omnigraph.read.operators.scan import is_text_lookup, scan_nodes
from omnigraph.read.planner import Measured

ROWS_EVALUATED_MAX: Final = 10_000
_SAMPLE_ROWS: Final = 2_048


def measured_nodes(
    context: Context, type_name: str, filters: tuple[Predicate, ...]
) -> Measured | None:
    """Count the nodes that pass filters, or those of a sample; None when that is not cheap."""
    table_key = TableKey.node(type_name)
    rows = context.tables.row_count(table_key)
    if rows <= ROWS_EVALUATED_MAX:
        return float(len(_evaluated(context, type_name, filters))), "counted"
    predicates = conjuncts(filters)
    if any(is_text_lookup(one, context.bindings) for one in predicates):
        # The look-up is exact and costs less than a sample, or an index answers it.
        return _looked_up(context, type_name, filters)
    texts = tuple(one for one in predicates if isinstance(one, TextMatch))
    others = tuple(one for one in predicates if not isinstance(one, TextMatch))
    matches = text_matches(context, table_key, texts)
    found = float(rows if matches is None else len(matches))
    if not others:
        return found, "counted"
    share = _sampled_share(context, table_key, others)
    if share is not None:
        return found * share, "sampled"
    return None if matches is None else (found, "guessed")


def _looked_up(context: Context, type_name: str, filters: tuple[Predicate, ...]) -> Measured | None:
    entry = context.tables.snapshot.entry(TableKey.node(type_name))
    names = {stored_column(value) for value in stored_values(filters)}
    if all(context.tables.cache.text_lookup(entry, name) is None for name in names):
        return None
    return float(len(_evaluated(context, type_name, filters))), "counted"


def _evaluated(
    context: Context, type_name: str, filters: tuple[Predicate, ...]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    key = (type_name, filters)
    if key not in context.found:
        variable = next(iter(sorted(set().union(*map(predicate_variables, filters)))), "")
        context.found[key] = scan_nodes(context, NodeScan(variable, type_name, filters))
    return context.found[key]


def _sampled_share(
    context: Context, table_key: str, predicates: tuple[Predicate, ...]
) -> float | None:
    """Return which share of evenly spaced rows passes.

    None when the columns are not in memory, or when no row passes: a guess is as good then.
    """
    values = stored_values(predicates)
    names = tuple(sorted({stored_column(value) for value in values}))
    if not names or not is_evaluated_here(predicates):
        return None
    if not context.tables.is_cached(table_key, names):
        return None
    columns = context.tables.whole(table_key, names)[1]
    count = len(columns[names[0]])
    picks = pa.array(np.linspace(0, count - 1, min(_SAMPLE_ROWS, count)).astype(np.int64))
    table = pa.table({column_name(v): columns[stored_column(v)].take(picks) for v in values})
    passed = pa.array(np.ones(len(picks), np.bool_))
    for predicate in predicates:
        passed = pc.and_kleene(passed, evaluate(predicate, table, context.bindings))
    hits = len(pc.indices_nonzero(passed))
    return hits / len(picks) if hits else None
