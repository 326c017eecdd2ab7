"""Edges end in nodes that exist: stored or written, and not removed."""

from __future__ import annotations

from typing import Final

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType, EntityType
from omnigraph.schema.values.row_errors import cut
from omnigraph.write.rules import codes
from omnigraph.write.rules.check import RuleCheck
from omnigraph.write.rules.violations import Violation

ENDPOINT_RULE: Final = "endpoint"


def edge_ends(edge: EdgeType) -> tuple[tuple[str, str], ...]:
    """Return column and node type of both ends."""
    return ("src", edge.from_type), ("dst", edge.to_type)


def check_endpoints(entity_type: EntityType, check: RuleCheck) -> None:
    """Check the ends of the edges that are written."""
    if not isinstance(entity_type, EdgeType):
        return
    rows = check.rows(entity_type)
    if rows is None:
        return
    for end, node_type in edge_ends(entity_type):
        found = check.without_node(rows, end, TableKey.node(node_type))
        if not found.total:
            continue
        node_ids = rows.pick(found.rows, (end,))[end].to_pylist()
        positions = rows.positions(found.rows)
        for row, node_id, position in zip(found.rows.tolist(), node_ids, positions, strict=True):
            check.findings.add(row, missing_end(entity_type, end, node_id, position))
        check.findings.count(ENDPOINT_RULE, found.total - len(found.rows))


def missing_end(edge: EdgeType, end: str, node_id: str, position: int | None) -> Violation:
    """Return the violation of an edge that ends in a node that does not exist."""
    return Violation(
        position=position,
        type=edge.name,
        property=end,
        value=cut(node_id),
        rule=ENDPOINT_RULE,
        code=codes.ENDPOINT_NOT_FOUND,
        message=missing_end_message(edge, end, cut(node_id)),
        table_key=edge.table_key,
    )


def missing_end_message(edge: EdgeType, end: str, node_id: str) -> str:
    """Return the sentence about an edge that ends in a node that does not exist."""
    return f"{end} '{node_id}' not found in {dict(edge_ends(edge))[end]}"
