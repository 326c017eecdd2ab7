"""Keeping the rows for which predicates are true."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from omnigraph.query.plan.plan import EntityId, Predicate, PropertyValue, SameId
from omnigraph.query.plan.walk import predicate_values, predicate_variables
from omnigraph.read.context import Context
from omnigraph.read.operators.predicates import evaluate
from omnigraph.read.row_table import NULL, Mask, RowTable, distinct_ids


def stored_values(predicates: Iterable[Predicate]) -> tuple[PropertyValue | EntityId, ...]:
    """Return the values of variables that predicates mention, each once."""
    found = (
        value
        for predicate in predicates
        for value in predicate_values(predicate)
        if isinstance(value, PropertyValue | EntityId)
    )
    return tuple(dict.fromkeys(found))


def filter_rows(context: Context, rows: RowTable, predicates: tuple[Predicate, ...]) -> RowTable:
    """Keep the rows for which all predicates are true."""
    return rows.where(true_rows(context, rows, predicates))


def true_rows(context: Context, rows: RowTable, predicates: tuple[Predicate, ...]) -> Mask:
    """Return the mask of the rows for which all predicates are true."""
    mask = np.ones(rows.count, np.bool_)
    for predicate in predicates:
        mask &= _true_rows(context, rows, predicate)
    return mask


def _true_rows(context: Context, rows: RowTable, predicate: Predicate) -> Mask:
    if isinstance(predicate, SameId):
        left, right = rows.row_ids(predicate.left), rows.row_ids(predicate.right)
        same: Mask = (left == right) & (left != NULL)
        return same
    variables = predicate_variables(predicate)
    if len(variables) == 1:
        return _by_entity(context, rows, next(iter(variables)), predicate)
    return _evaluated(context, rows, predicate)


def _by_entity(context: Context, rows: RowTable, variable: str, predicate: Predicate) -> Mask:
    """Evaluate once per distinct entity, however many rows hold it."""
    entities = rows.entities[variable]
    distinct, inverse = distinct_ids(entities.row_ids)
    if len(distinct) == rows.count:
        return _evaluated(context, rows.only((variable,)), predicate)
    once = RowTable(len(distinct), {variable: type(entities)(entities.table_key, distinct)})
    return _evaluated(context, once, predicate)[inverse]


def _evaluated(context: Context, rows: RowTable, predicate: Predicate) -> Mask:
    table = context.columns(rows, stored_values((predicate,)))
    result = evaluate(predicate, table, context.bindings, context.text_rows(rows))
    mask: Mask = result.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
