"""Nodes of one type that pass filters, as row ids.

Filters that the store can express exactly are pushed to the store; the others are evaluated on
the columns that they need. Nothing else is read, except columns that the caller requests because
it needs them for all of these rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.names import TableKey
from omnigraph.query.bindings import Bindings
from omnigraph.query.plan.plan import (
    Compare,
    Constant,
    NodeScan,
    ParameterValue,
    Predicate,
    PropertyValue,
    TextMatch,
)
from omnigraph.read.access.key_lookup import key_lookup
from omnigraph.read.access.push_down import conjuncts, push_down
from omnigraph.read.column_names import stored_column
from omnigraph.read.context import Context
from omnigraph.read.operators.filter import stored_values, true_rows
from omnigraph.read.operators.memory_scan import rows_in_memory, text_matches
from omnigraph.read.row_table import Entities, RowIds, RowTable
from omnigraph.store.filters import AllOf, Comparison, Filter
from omnigraph.store.records import ROW_ID, ScanRequest


@dataclass(frozen=True)
class SplitFilters:
    """The filters of one variable, by where they are applied."""

    pushed: Filter | None
    texts: tuple[TextMatch, ...]
    """Full-text predicates that must hold, each answered by a search of its own."""
    residual: tuple[Predicate, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the store applies everything."""
        return not self.texts and not self.residual


def split_filters(predicates: tuple[Predicate, ...], bindings: Bindings) -> SplitFilters:
    """Decide where each filter of a variable is applied."""
    pushed: list[Filter] = []
    texts: list[TextMatch] = []
    residual: list[Predicate] = []
    for predicate in conjuncts(predicates):
        if isinstance(predicate, TextMatch):
            texts.append(predicate)
            continue
        # A short cut for the most common filter.
        lookup = _text_lookup(predicate, bindings)
        row_filter = push_down(predicate, bindings) if lookup is None else _is_text(*lookup)
        if row_filter is None:
            residual.append(predicate)
        else:
            pushed.append(row_filter)
    joined = None if not pushed else pushed[0] if len(pushed) == 1 else AllOf(tuple(pushed))
    return SplitFilters(joined, tuple(texts), tuple(residual))


def scan_nodes(context: Context, scan: NodeScan, prefetch: tuple[str, ...] = ()) -> RowIds:
    """Return the row ids of the nodes that pass the filters; keep `prefetch` columns for later."""
    table_key = TableKey.node(scan.type_name)
    if not scan.filters and context.tables.is_cached(table_key, prefetch):
        return context.tables.all_rows(table_key)
    known = context.found.get((scan.type_name, scan.filters))
    if known is not None:
        return known
    cached = _cached_rows(context, scan)
    if cached is not None:
        return cached
    return _scanned(context, scan, split_filters(scan.filters, context.bindings), prefetch)


def scan_columns(context: Context, scan: NodeScan, names: tuple[str, ...]) -> list[pa.Array]:
    """Return columns of the nodes that pass the filters, in any order of the nodes.

    Where the store applies all filters, its columns are the result.
    """
    table_key = TableKey.node(scan.type_name)
    row_ids = _cached_rows(context, scan)
    if row_ids is None:
        split = split_filters(scan.filters, context.bindings)
        if split.is_exact and split.pushed is not None:
            wanted = tuple(dict.fromkeys(names))
            columns = context.tables.columns(table_key, wanted, split.pushed)
            _note(context, split, wanted)
            if len(wanted) == len(names):
                return columns
            return [columns[wanted.index(name)] for name in names]
        row_ids = _scanned(context, scan, split, names)
    fetched = context.tables.fetch(table_key, row_ids, names)
    return [fetched[name] for name in names]


def _cached_rows(context: Context, scan: NodeScan) -> RowIds | None:
    """Return the rows of a scan from memory; None when it cannot be answered there."""
    found = _looked_up(context, scan) if context.tables.cache.has_lookups else None
    return rows_in_memory(context, scan) if found is None else found


def _looked_up(context: Context, scan: NodeScan) -> RowIds | None:
    """Return the rows of a look-up by text from memory; None when it cannot be answered there."""
    predicates = conjuncts(scan.filters)
    by_key = _rows_by_key(context, scan, predicates)
    if by_key is not None:
        return by_key
    for predicate in predicates:
        lookup = _text_lookup(predicate, context.bindings)
        if lookup is None:
            continue
        table_key = TableKey.node(scan.type_name)
        found = context.tables.find_text(table_key, *lookup)
        if found is not None:
            context.profile.note(resident=lookup[0])
            rest = tuple(other for other in predicates if other is not predicate)
            return _checked(context, scan, found, rest)
    return None


def _rows_by_key(
    context: Context, scan: NodeScan, predicates: tuple[Predicate, ...]
) -> RowIds | None:
    """Return the row of a look-up by key from memory; None when it cannot be answered there."""
    node_type = context.tables.snapshot.catalog.node_types.get(scan.type_name)
    lookup = None if node_type is None else key_lookup(predicates, context.bindings, node_type)
    if node_type is None or lookup is None:
        return None
    found = context.tables.find_key(TableKey.node(scan.type_name), lookup.key_id)
    if found is None:
        return None
    context.profile.note(resident=", ".join(node_type.key))
    return _checked(context, scan, found, lookup.rest_of(predicates))


def _checked(
    context: Context, scan: NodeScan, found: RowIds, rest: tuple[Predicate, ...]
) -> RowIds:
    """Keep the rows that pass the filters which a look-up has not answered."""
    if not rest:
        return found
    entities = Entities(TableKey.node(scan.type_name), found)
    return found[true_rows(context, RowTable(len(found), {scan.variable: entities}), rest)]


def _text_lookup(predicate: Predicate, bindings: Bindings) -> tuple[str, str] | None:
    """Return the column and the text of `property = text`."""
    match predicate:
        case Compare(PropertyValue(_, name), "=", Constant() | ParameterValue() as other):
            value = bindings.value_of(other).value
            return (name, value) if isinstance(value, str) else None
        case Compare(Constant() | ParameterValue() as other, "=", PropertyValue() as stored):
            return _text_lookup(Compare(stored, "=", other), bindings)
        case _:
            return None


def is_text_lookup(predicate: Predicate, bindings: Bindings) -> bool:
    """Whether a predicate is `property = text`."""
    return _text_lookup(predicate, bindings) is not None


def _is_text(column: str, text: str) -> Filter:
    return Comparison(column, "=", text)


def _scanned(
    context: Context, scan: NodeScan, split: SplitFilters, prefetch: tuple[str, ...]
) -> RowIds:
    table_key = TableKey.node(scan.type_name)
    allowed = text_matches(context, table_key, split.texts)
    if allowed is not None and not len(allowed):
        return allowed
    needed = {stored_column(value) for value in stored_values(split.residual)}
    columns = tuple(sorted({*needed, *prefetch}))
    request = ScanRequest(columns=columns, row_filter=split.pushed, with_row_id=True)
    table = context.tables.scan(table_key, request)
    if columns:
        is_whole = split.pushed is None
        row_ids = context.tables.remember(table_key, table, is_whole=is_whole)
    else:
        row_ids = np.sort(_numbers(table))
    if allowed is not None:
        row_ids = row_ids[np.isin(row_ids, allowed, assume_unique=True)]
    if split.residual:
        rows = RowTable(len(row_ids), {scan.variable: Entities(table_key, row_ids)})
        row_ids = row_ids[true_rows(context, rows, split.residual)]
    _note(context, split, columns)
    return row_ids


def _note(context: Context, split: SplitFilters, columns: Sequence[str]) -> None:
    if not context.profile.is_on:
        return
    context.profile.note(
        pushed=split.pushed is not None,
        residual_filters=len(split.residual),
        text_filters=len(split.texts),
        columns=list(columns),
    )


def _numbers(table: pa.Table) -> RowIds:
    return np.asarray(table[ROW_ID].to_numpy(), np.int64)


def passing(
    context: Context,
    variable: str,
    table_key: str,
    predicates: tuple[Predicate, ...],
    row_ids: RowIds,
) -> RowIds:
    """Return which of some distinct nodes pass filters, ascending.

    Few nodes are checked one by one. For many, the filters are applied to the whole dataset.
    """
    if not predicates or not len(row_ids):
        return row_ids
    if len(row_ids) * _SCAN_SHARE_MAX > context.tables.row_count(table_key):
        scan = NodeScan(variable, TableKey(table_key).type_name, predicates)
        return row_ids[np.isin(row_ids, scan_nodes(context, scan), assume_unique=True)]
    rows = RowTable(len(row_ids), {variable: Entities(table_key, row_ids)})
    return row_ids[true_rows(context, rows, predicates)]


_SCAN_SHARE_MAX = 8
"""Nodes are checked one by one while they are fewer than one in this many."""
