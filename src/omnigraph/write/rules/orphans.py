"""No stored edge stays behind when its node is removed.

A mutation removes the edges of deleted nodes itself (`RuleCheck.cascades`). What it cannot see are
edges that another writer adds before it commits, so the rule runs again when an edge table has
moved.
"""

from __future__ import annotations

import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType, EntityType
from omnigraph.write.rules.check import RuleCheck
from omnigraph.write.rules.endpoints import ENDPOINT_RULE, edge_ends, missing_end
from omnigraph.write.stage.columns import is_in


def check_orphans(entity_type: EntityType, check: RuleCheck) -> None:
    """Check that no stored edge loses its node."""
    if not isinstance(entity_type, EdgeType):
        return
    for end, node_type in edge_ends(entity_type):
        if not len(check.removed_ids(TableKey.node(node_type))):
            continue
        check.depend_on(entity_type.table_key)
        if not check.cascades:
            _add_orphans(entity_type, end, check)


def orphans(edge: EdgeType, end: str, check: RuleCheck) -> pa.Table:
    """Return `id` and one end of the stored edges that stay although their node is removed."""
    node_type = edge.from_type if end == "src" else edge.to_type
    removed = check.removed_ids(TableKey.node(node_type))
    found = check.stored.where(edge.table_key, end, removed, columns=("id", end))
    changed = is_in(found["id"], check.written_ids(edge.table_key))
    changed |= is_in(found["id"], check.removed_ids(edge.table_key))
    return found.filter(pa.array(~changed))


def _add_orphans(edge: EdgeType, end: str, check: RuleCheck) -> None:
    if not check.stored.row_count(edge.table_key):
        return
    found = orphans(edge, end, check)
    shown = min(found.num_rows, check.log.room)
    for node_id in found[end].slice(0, shown).to_pylist():
        check.log.add(missing_end(edge, end, node_id, None))
    check.log.count(ENDPOINT_RULE, found.num_rows - shown)
