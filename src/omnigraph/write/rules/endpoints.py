"""Edges end in nodes that exist: stored or written, and not removed."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType, EntityType
from omnigraph.schema.values.row_errors import cut
from omnigraph.write.rules import codes
from omnigraph.write.rules.check import RuleCheck
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import distinct, is_in, without

ENDPOINT_RULE: Final = "endpoint"


def edge_ends(edge: EdgeType) -> tuple[tuple[str, str], ...]:
    """Return column and node type of both ends."""
    return ("src", edge.from_type), ("dst", edge.to_type)


def check_endpoints(entity_type: EntityType, check: RuleCheck) -> None:
    """Check the ends of the edges that are written."""
    delta = check.of(entity_type.table_key)
    if not isinstance(entity_type, EdgeType) or delta is None or not delta.rows.num_rows:
        return
    for end, node_type in edge_ends(entity_type):
        missing = _missing(distinct(delta.rows[end]), TableKey.node(node_type), check)
        if len(missing):
            _add_missing(entity_type, end, missing, check)


def _missing(wanted: pa.Array, node_key: str, check: RuleCheck) -> pa.Array:
    """Return the ids that do not exist once the change is made."""
    unwritten = without(wanted, check.written_ids(node_key))
    if not len(unwritten):
        return unwritten
    check.depend_on(node_key)
    exists = check.stored.contains(node_key, unwritten)
    exists &= ~is_in(unwritten, check.removed_ids(node_key))
    return unwritten[:0] if exists.all() else unwritten.filter(pa.array(~exists))


def _add_missing(edge: EdgeType, end: str, missing: pa.Array, check: RuleCheck) -> None:
    delta = check.delta.tables[edge.table_key]
    rows = np.flatnonzero(is_in(delta.rows[end], missing))
    shown = rows[: check.log.room].tolist()
    for row in shown:
        node_id = delta.rows[end][row].as_py()
        check.log.add(missing_end(edge, end, node_id, delta.position(row)))
    check.log.count(ENDPOINT_RULE, len(rows) - len(shown))


def missing_end(edge: EdgeType, end: str, node_id: str, position: int | None) -> Violation:
    """Return the violation of an edge that ends in a node that does not exist."""
    node_type = edge.from_type if end == "src" else edge.to_type
    return Violation(
        position=position,
        type=edge.name,
        property=end,
        value=cut(node_id),
        rule=ENDPOINT_RULE,
        code=codes.ENDPOINT_NOT_FOUND,
        message=f"{end} '{cut(node_id)}' not found in {node_type}",
        table_key=edge.table_key,
    )
