"""What appended rows claim, so that two appends can be compared without reading stored rows.

Two writes that only append rows keep every rule in either order, and on top of each other, when no
claim of one is a claim of the other:

| rule | why other appends cannot break it |
|---|---|
| values | it looks at one row |
| ids, keys | every id is claimed |
| `@unique` | every tuple without a null is claimed |
| ends of edges | appends remove no node |
| orphans | appends remove no node |
| `@card` | every source of a counted edge type is claimed |

A new rule that depends on stored rows needs a row here, and claims.
"""

from __future__ import annotations

from typing import Final

from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EntityType
from omnigraph.schema.values.ids import spell
from omnigraph.write.commit.job import Claim, Claims
from omnigraph.write.rules.cardinality import has_cardinality
from omnigraph.write.rules.unique import unique_tuples
from omnigraph.write.stage.columns import flat
from omnigraph.write.stage.delta import GraphDelta, TableDelta

_ROWS_MAX: Final = 1_000
"""Above it a write takes long enough to be prepared again instead."""


def claims_of(delta: GraphDelta, catalog: Catalog) -> Claims | None:
    """Return what the rows of a change claim; None when it is more than a few new rows."""
    tables = delta.tables.values()
    if any(len(table.deleted) for table in tables):
        return None
    if sum(table.rows.num_rows for table in tables) > _ROWS_MAX:
        return None
    return {key: _claims(table, _type_of(key, catalog)) for key, table in delta.tables.items()}


def _type_of(table_key: str, catalog: Catalog) -> EntityType:
    key = TableKey(table_key)
    return catalog.edge_types[key.type_name] if key.is_edge else catalog.node_types[key.type_name]


def _claims(delta: TableDelta, entity_type: EntityType) -> frozenset[Claim]:
    rows = delta.rows
    claims: set[Claim] = {("id", row_id) for row_id in rows["id"].to_pylist()}
    for members in unique_tuples(entity_type):
        spelled = (spell(flat(rows[name])).to_pylist() for name in members)
        values = zip(*spelled, strict=True)
        claims |= {("unique", *members, *value) for value in values if None not in value}
    if has_cardinality(entity_type):
        claims |= {("source", source) for source in rows["src"].to_pylist()}
    return frozenset(claims)
