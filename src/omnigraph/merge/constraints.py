"""The rules of the schema, applied to what a merge writes.

The evaluator is that of loads and mutations, over the delta alone: rows that only the target has
are not judged again. Vectors and blobs are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from omnigraph.manifest import Snapshot
from omnigraph.merge.conflicts import Conflict, ConflictKind
from omnigraph.merge.parts import Part, StoredPart, TableWork
from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EntityType
from omnigraph.write.rules.validate import Validated, validate
from omnigraph.write.rules.violations import ValidationError, Violation, ViolationLog
from omnigraph.write.stage.columns import is_in
from omnigraph.write.stage.delta import GraphDelta, TableDelta, WriteMode
from omnigraph.write.stage.stored_rows import StoredRows

_UNBOUNDED: Final = 1 << 62
_KINDS: Final = {
    "key": ConflictKind.UNIQUE_VIOLATION,
    "unique": ConflictKind.UNIQUE_VIOLATION,
    "endpoint": ConflictKind.ORPHAN_EDGE,
    "cardinality": ConflictKind.CARDINALITY_VIOLATION,
}
_ORDER: Final = (
    ConflictKind.VALUE_CONSTRAINT_VIOLATION,
    ConflictKind.UNIQUE_VIOLATION,
    ConflictKind.ORPHAN_EDGE,
    ConflictKind.CARDINALITY_VIOLATION,
)


def check_constraints(
    work: Mapping[str, TableWork], snapshot: Snapshot, catalog: Catalog, stored: StoredRows
) -> tuple[Validated | None, list[Conflict]]:
    """Judge a merge; either it breaks no rule, or all conflicts come back in their order."""
    delta = GraphDelta({key: _delta(each) for key, each in work.items()})
    log = ViolationLog(_UNBOUNDED)
    try:
        return validate(delta, snapshot, catalog, operation="load", stored=stored, log=log), []
    except ValidationError:
        found = [_conflict(one, delta) for one in log.kept if not _is_left_behind(one)]
        orphans = _orphans(log.kept, delta, catalog, stored)
        return None, sorted([*found, *orphans], key=_place)


def _delta(work: TableWork) -> TableDelta:
    columns = _judged(work.entity_type)
    rows = pa.concat_tables(
        [_scalars(part, columns, work.entity_type) for part in (*work.inserted, *work.updated)]
        or [_schema_of(work.entity_type, columns).empty_table()]
    )
    return TableDelta(
        table_key=work.entity_type.table_key,
        mode=WriteMode.MERGE,
        rows=rows,
        deleted=work.deleted,
        positions=pa.array(range(rows.num_rows), pa.int64()),
    )


def _judged(entity_type: EntityType) -> list[str]:
    """Return the columns that rules look at: all but vectors and blobs."""
    heavy = {
        name
        for name, prop in entity_type.properties.items()
        if prop.prop_type.scalar == "Blob" or pa.types.is_fixed_size_list(prop.arrow_field.type)
    }
    return [name for name in entity_type.arrow_schema.names if name not in heavy]


def _schema_of(entity_type: EntityType, columns: list[str]) -> pa.Schema:
    return pa.schema([entity_type.arrow_schema.field(name) for name in columns])


def _scalars(part: Part, columns: list[str], entity_type: EntityType) -> pa.Table:
    schema = _schema_of(entity_type, columns)
    if isinstance(part, StoredPart):
        found = part.handle.take(pa.array(part.refs.row_ids, pa.uint64()), columns)
        return found.cast(schema)
    return part.rows.select(columns).cast(schema)


def _is_left_behind(violation: Violation) -> bool:
    """Whether it is about an edge of the target; the merge need not write to that table at all."""
    return violation.rule == "endpoint" and violation.position is None


def _conflict(violation: Violation, delta: GraphDelta) -> Conflict:
    """Return the conflict of rows that the merge writes."""
    key = violation.table_key
    if key is None:
        raise AssertionError(f"rule '{violation.rule}' does not name its table")
    kind = _KINDS.get(violation.rule, ConflictKind.VALUE_CONSTRAINT_VIOLATION)
    entity_id = None
    if kind in (ConflictKind.UNIQUE_VIOLATION, ConflictKind.ORPHAN_EDGE):
        entity_id = delta.tables[key].rows["id"][violation.position].as_py()
    return Conflict(key, kind, violation.message, entity_id)


def _orphans(
    violations: list[Violation], delta: GraphDelta, catalog: Catalog, stored: StoredRows
) -> Iterator[Conflict]:
    """Name the edges of the target that would lose their node."""
    left_behind = {
        (str(found.type), str(found.property)) for found in violations if _is_left_behind(found)
    }
    for type_name, end in sorted(left_behind):
        edge = catalog.edge_types[type_name]
        node_key = TableKey.node(edge.from_type if end == "src" else edge.to_type)
        removed = delta.tables[node_key].deleted
        edges = stored.where(edge.table_key, end, removed, columns=("id", end))
        own = delta.tables.get(edge.table_key)
        if own is not None:
            leaving = is_in(edges["id"], own.rows["id"]) | is_in(edges["id"], own.deleted)
            edges = edges.filter(pa.array(~leaving))
        for edge_id, node_id in zip(edges["id"].to_pylist(), edges[end].to_pylist(), strict=True):
            message = f"{end} '{node_id}' not found in {node_key.partition(':')[2]}"
            yield Conflict(edge.table_key, ConflictKind.ORPHAN_EDGE, message, edge_id)


def _place(conflict: Conflict) -> tuple[bool, bool, str, int, str]:
    """Order: values; then types of nodes, then of edges, each by name, rule and id."""
    is_value = conflict.kind is ConflictKind.VALUE_CONSTRAINT_VIOLATION
    return (
        not is_value,
        TableKey(conflict.table_key).is_edge,
        conflict.table_key,
        _ORDER.index(conflict.kind),
        conflict.entity_id or "",
    )
