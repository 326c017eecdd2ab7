"""Filters of one node type, evaluated on columns that are in memory.

1. Cheap predicates come first, and the columns of the first one are in memory: numbers from the
   first filter on, texts when queries have used them several times (`column_cache.py`).
2. Each further predicate sees only the rows that the ones before it have left, and only these are
   read: the texts of most rows are not looked at when a number decides.
3. Columns with an index that answers a filter stay with the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import TableKey
from omnigraph.query.plan.plan import (
    AllOf,
    AnyOf,
    Compare,
    EntityId,
    InList,
    IsNull,
    ListContains,
    NodeScan,
    Not,
    Predicate,
    Prefix,
    PropertyValue,
    Substring,
    TextMatch,
)
from omnigraph.query.plan.walk import predicate_values
from omnigraph.read.access.push_down import conjuncts
from omnigraph.read.column_names import column_name, stored_column
from omnigraph.read.context import Context
from omnigraph.read.operators.filter import stored_values
from omnigraph.read.operators.predicates import evaluate
from omnigraph.read.row_table import RowIds
from omnigraph.store.records import IndexKind
from omnigraph.values import Scalar

_SCALAR_INDEXES: Final = (IndexKind.BTREE, IndexKind.BITMAP)
_TEXT_COST: Final = 2
_NUMBERS_READ_MIN: Final = 1 << 15
_NUMBERS_READ_MAX: Final = 1 << 24
"""Of types of this size the first filter over a column of numbers reads it as a whole."""


def text_matches(context: Context, table_key: str, texts: tuple[TextMatch, ...]) -> RowIds | None:
    """Return the rows that match all full-text predicates, ascending; None without any."""
    found = [context.texts.matches(table_key, predicate, context.bindings) for predicate in texts]
    if not found:
        return None
    none = np.empty(0, np.int64)
    sets = [none if matches is None else matches for matches in found]
    return reduce(lambda a, b: a[np.isin(a, b, assume_unique=True)], sets)


def rows_in_memory(context: Context, scan: NodeScan) -> RowIds | None:
    """Return the nodes that pass the filters of a scan, ascending; None to ask the store."""
    predicates = conjuncts(scan.filters)
    texts = tuple(one for one in predicates if isinstance(one, TextMatch))
    others = sorted(
        (one for one in predicates if not isinstance(one, TextMatch)), key=predicate_cost
    )
    table_key = TableKey.node(scan.type_name)
    if not others or not is_evaluated_here(others) or not _columns_of(others[0]):
        return None
    if not _is_resident(context, table_key, others[0]) or _is_indexed(context, table_key, others):
        return None
    live = _first_rows(context, table_key, others[0])
    allowed = text_matches(context, table_key, texts)
    if allowed is not None:
        live = live[np.isin(live, allowed, assume_unique=True)]
    for predicate in others[1:]:
        context.guard.check()
        live = _narrowed(context, table_key, predicate, live)
    names = sorted({name for predicate in others for name in _columns_of(predicate)})
    context.profile.note(in_memory=names, text_filters=len(texts))
    return live


def _first_rows(context: Context, table_key: str, predicate: Predicate) -> RowIds:
    """Return the rows that pass the first predicate, whose columns are in memory."""
    row_ids, columns = context.tables.whole(table_key, _columns_of(predicate))
    return _passed(context, predicate, columns, row_ids)


def _narrowed(context: Context, table_key: str, predicate: Predicate, live: RowIds) -> RowIds:
    """Return the rows that pass a predicate, of those that are left: only these are read."""
    columns = context.tables.fetch(table_key, live, _columns_of(predicate))
    return _passed(context, predicate, columns, live)


def _passed(
    context: Context, predicate: Predicate, columns: dict[str, pa.Array], live: RowIds
) -> RowIds:
    needed = {
        column_name(value): columns[stored_column(value)] for value in stored_values([predicate])
    }
    # A table without columns would not know how many rows it has.
    table = pa.table(needed or {"": pa.nulls(len(live))})
    found = pc.indices_nonzero(evaluate(predicate, table, context.bindings)).to_numpy()
    return live if len(found) == len(live) else live[found]


def _columns_of(predicate: Predicate) -> tuple[str, ...]:
    return tuple(sorted({stored_column(value) for value in stored_values([predicate])}))


def is_evaluated_here(predicates: Iterable[Predicate]) -> bool:
    """Whether predicates need nothing but columns that can be cached."""
    if any(map(_searches_text, predicates)):
        return False
    kinds = [value.prop_type for value in stored_values(predicates)]
    return not any(kind.is_list or kind.scalar in (Scalar.VECTOR, Scalar.BLOB) for kind in kinds)


def _searches_text(predicate: Predicate) -> bool:
    match predicate:
        case AllOf(operands) | AnyOf(operands):
            return any(map(_searches_text, operands))
        case Not(operand):
            return _searches_text(operand)
        case _:
            return isinstance(predicate, TextMatch)


def _is_resident(context: Context, table_key: str, predicate: Predicate) -> bool:
    """Whether the columns of the first predicate are in memory, or should be from now on.

    Numbers take a few bytes each, and a scan by the store would read all of them as well. Texts are
    read as a whole when they have been used several times.
    """
    names = _columns_of(predicate)
    tables = context.tables
    if tables.is_cached(table_key, names):
        return True
    if not tables.cache.has_lookups:
        return False
    entry = tables.snapshot.entry(table_key)
    is_due = tables.cache.is_due(entry, names)
    if all(_is_number(value) for value in stored_values([predicate])):
        is_due |= _NUMBERS_READ_MIN <= entry.row_count <= _NUMBERS_READ_MAX
    if is_due:
        tables.whole(table_key, names)
    return is_due


def _is_number(value: PropertyValue | EntityId) -> bool:
    return value.prop_type.scalar is not Scalar.STRING


def _is_indexed(context: Context, table_key: str, predicates: Iterable[Predicate]) -> bool:
    indexes = context.indexes.of(context.tables.snapshot, table_key)
    return any(
        indexes.on(stored_column(value), *_answering(predicate)) is not None
        for predicate in predicates
        for value in stored_values([predicate])
    )


def _answering(predicate: Predicate) -> tuple[IndexKind, ...]:
    """Return the kinds of indexes that can answer a predicate."""
    match predicate:
        case Compare(_, operator, _):
            return () if operator == "!=" else _SCALAR_INDEXES
        case InList(_, _, negated):
            return () if negated else _SCALAR_INDEXES
        case Prefix():
            return _SCALAR_INDEXES
        case Substring():
            return (IndexKind.NGRAM,)
        case _:
            return ()


def predicate_cost(predicate: Predicate) -> int:
    """Return how expensive a predicate is for a row, from 0.

    >>> from omnigraph.query.plan.plan import EntityId
    >>> predicate_cost(IsNull(EntityId("c"), negated=False))
    0
    """
    match predicate:
        case IsNull():
            return 0
        case AllOf(operands) | AnyOf(operands):
            return 1 + max(map(predicate_cost, operands), default=0)
        case Not(operand):
            return predicate_cost(operand)
        case Substring():
            return _TEXT_COST + 2
        case Prefix() | ListContains():
            return _TEXT_COST + 1
        case _:
            values = predicate_values(predicate)
            return max((_value_cost(value) for value in values), default=0)


def _value_cost(value: object) -> int:
    is_text = isinstance(value, PropertyValue) and value.prop_type.scalar is Scalar.STRING
    return _TEXT_COST if is_text else 0
