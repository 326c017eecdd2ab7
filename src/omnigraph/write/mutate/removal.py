"""Removes rows from the view of a mutation by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from omnigraph.errors import InvalidInputError
from omnigraph.names import TableKey, nearest_name
from omnigraph.schema import Catalog
from omnigraph.texts import is_encodable
from omnigraph.write.mutate.pending_rows import PendingChanges
from omnigraph.write.mutate.predicates import has_value_in
from omnigraph.write.rules.endpoints import edge_ends


class RowIdsError(InvalidInputError):
    """What should name rows by their ids does not."""

    code = "OG-ROW-IDS"
    hint = """give lists of ids by type: `{{"node:Person": ["ann"], "edge:Knows": []}}`"""
    template = "{problem}"
    problem: str


def checked_ids(ids: object, catalog: Catalog) -> dict[TableKey, pa.Array]:
    """Return the ids of rows by their table, or raise `RowIdsError`."""
    if not isinstance(ids, Mapping):
        raise RowIdsError(f"rows are named by ids by type, not by a {type(ids).__name__}")
    known = [
        *(TableKey.node(name) for name in catalog.node_types),
        *(TableKey.edge(name) for name in catalog.edge_types),
    ]
    return {_table_key(key, known): _id_column(key, given) for key, given in ids.items()}


def _table_key(key: object, known: list[TableKey]) -> TableKey:
    if key in known:
        return TableKey(str(key))
    meant = nearest_name(str(key), known)
    raise RowIdsError(f"there is no type '{key}'" + (f": did you mean '{meant}'?" if meant else ""))


def _id_column(key: object, ids: object) -> pa.Array:
    # The letters of a text would be ids too.
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise RowIdsError(f"{key}: {ids!r} is one {_kind(ids)}, not a list of ids")
    found = list(ids)
    for each in found:
        if not isinstance(each, str) or not is_encodable(each):
            raise RowIdsError(f"{key}: {each!r} is not the id of a row")
    return pa.array(found, pa.utf8())


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else type(value).__name__


def remove_rows(
    pending: PendingChanges, catalog: Catalog, table_key: TableKey, ids: pa.Array
) -> int:
    """Remove rows, and the edges at removed nodes; return how many of the named ones were there."""
    kind, name = table_key.parts
    table = pending.node(name) if kind == "node" else pending.edge(name)
    matches = table.match(has_value_in(("id",), ids))
    if matches.count == 0:
        return 0
    found = table.ids_of(matches)
    table.remove(matches)
    if kind == "node":
        for edge in catalog.edge_types.values():
            ends = tuple(column for column, node_type in edge_ends(edge) if node_type == name)
            if ends:
                incident = pending.edge(edge.name)
                incident.remove(incident.match(has_value_in(ends, found), decides=False))
    return matches.count
