"""No stored edge stays behind when its node is removed.

A mutation, and an overwrite with `cascade`, remove the edges of removed nodes themselves. What they
cannot see are edges that another writer adds before they commit, so the rule runs again when an
edge table has moved.
"""

from __future__ import annotations

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType, EntityType
from omnigraph.write.rules.check import RuleCheck
from omnigraph.write.rules.endpoints import ENDPOINT_RULE, edge_ends, missing_end


def check_orphans(entity_type: EntityType, check: RuleCheck) -> None:
    """Check that no stored edge loses its node."""
    if not isinstance(entity_type, EdgeType):
        return
    for end, node_type in edge_ends(entity_type):
        if not check.removes_nodes(entity_type, TableKey.node(node_type)):
            continue
        check.depend_on(entity_type.table_key)
        if check.cascade(entity_type, end):
            continue
        found = check.orphans(entity_type, end)
        for node_id in found.first:
            check.findings.add_unfixable(missing_end(entity_type, end, node_id, None))
        check.findings.count(ENDPOINT_RULE, found.total - len(found.first))
