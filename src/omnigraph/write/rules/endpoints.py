"""Edges end in nodes that exist: stored, written, and not removed.

Two ways to break that: an edge is written whose node is not there, or a node goes whose edges
stay. A mutation removes the edges of deleted nodes itself; what it could not see are edges that
somebody else adds before it commits, so the second rule runs again when such a table has moved.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType
from omnigraph.schema.values.row_errors import cut
from omnigraph.write.rules import codes
from omnigraph.write.rules.judgement import Judgement, position_at
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import concatenated, distinct, flat, is_in, without
from omnigraph.write.stage.delta import WriteMode

_RULE: Final = "endpoint"


def edge_ends(edge: EdgeType) -> tuple[tuple[str, str], ...]:
    """Return column and node type of both ends."""
    return ("src", edge.from_type), ("dst", edge.to_type)


def check_endpoints(edge: EdgeType, judgement: Judgement) -> None:
    """Check the ends of the edges that are written."""
    delta = judgement.of(edge.table_key)
    if delta is None or not delta.rows.num_rows:
        return
    for end, node_type in edge_ends(edge):
        missing = _missing(distinct(delta.rows[end]), TableKey.node(node_type), judgement)
        if len(missing):
            _add_missing(edge, end, missing, judgement)


def check_orphans(edge: EdgeType, judgement: Judgement) -> None:
    """Check that no stored edge stays behind whose node goes."""
    if judgement.is_overwritten(edge.table_key):
        return
    for end, node_type in edge_ends(edge):
        removed = removed_ids(TableKey.node(node_type), judgement)
        if len(removed):
            judgement.rest_on(edge.table_key)
            if judgement.stored.row_count(edge.table_key):
                _add_orphans(edge, end, removed, judgement)


def rest_on_edges_of_removed(edge: EdgeType, judgement: Judgement) -> None:
    """Remember that no other edges than those seen may end in a node that goes."""
    if any(len(removed_ids(TableKey.node(name), judgement)) for _, name in edge_ends(edge)):
        judgement.rest_on(edge.table_key)


def removed_ids(node_key: str, judgement: Judgement) -> pa.Array:
    """Return the stored ids of a node type that the change takes away."""
    delta = judgement.of(node_key)
    if delta is None:
        return pa.array([], pa.utf8())
    if delta.mode is not WriteMode.OVERWRITE:
        return flat(delta.deleted)
    known = judgement.removed.get(node_key)
    if known is None:
        parts = [
            without(slab["id"], delta.rows["id"])
            for slab in judgement.stored.scan(node_key, ("id",))
        ]
        known = concatenated(*parts)
        judgement.removed[node_key] = known
    return known


def _missing(wanted: pa.Array, node_key: str, judgement: Judgement) -> pa.Array:
    """Return the ids that will not be there when the change is made."""
    unwritten = without(wanted, judgement.written_ids(node_key))
    if not len(unwritten) or judgement.is_overwritten(node_key):
        return unwritten
    judgement.rest_on(node_key)
    is_there = judgement.stored.contains(node_key, unwritten)
    is_there &= ~is_in(unwritten, judgement.deleted_ids(node_key))
    return unwritten[:0] if is_there.all() else unwritten.filter(pa.array(~is_there))


def _add_missing(edge: EdgeType, end: str, missing: pa.Array, judgement: Judgement) -> None:
    delta = judgement.delta.tables[edge.table_key]
    rows = np.flatnonzero(is_in(delta.rows[end], missing))
    shown = rows[: judgement.log.room].tolist()
    for row in shown:
        node_id = delta.rows[end][row].as_py()
        judgement.log.add(missing_end(edge, end, node_id, position_at(delta, row)))
    judgement.log.count(_RULE, len(rows) - len(shown))


def _add_orphans(edge: EdgeType, end: str, removed: pa.Array, judgement: Judgement) -> None:
    found = judgement.stored.where(edge.table_key, end, removed, columns=("id", end))
    changed = is_in(found["id"], judgement.written_ids(edge.table_key))
    changed |= is_in(found["id"], judgement.deleted_ids(edge.table_key))
    orphans = found.filter(pa.array(~changed))
    shown = min(orphans.num_rows, judgement.log.room)
    for node_id in orphans[end].slice(0, shown).to_pylist():
        judgement.log.add(missing_end(edge, end, node_id, None))
    judgement.log.count(_RULE, orphans.num_rows - shown)


def missing_end(edge: EdgeType, end: str, node_id: str, position: int | None) -> Violation:
    """Say that an edge ends in a node that does not exist."""
    node_type = edge.from_type if end == "src" else edge.to_type
    return Violation(
        position=position,
        type=edge.name,
        property=end,
        value=cut(node_id),
        rule=_RULE,
        code=codes.ENDPOINT_NOT_FOUND,
        message=f"{end} '{cut(node_id)}' not found in {node_type}",
        table_key=edge.table_key,
    )
