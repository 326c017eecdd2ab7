"""Removes rows from the view of a mutation by their ids."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.schema import Catalog
from omnigraph.write.mutate.pending_rows import PendingChanges
from omnigraph.write.mutate.predicates import has_value_in
from omnigraph.write.rules.endpoints import edge_ends


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
