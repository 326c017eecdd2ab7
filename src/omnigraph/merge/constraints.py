"""The rules of the schema, applied to what a merge writes.

The rules are those of mutations (`omnigraph.write.rules.validate.RULES`), over the rows that the
merge writes: rows that only the target has are not checked again, unless a rule is new to the
target. Vectors and blobs are not read, but where they are required now and were not before.

Across schemas a required property must have a value, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from omnigraph.manifest import Entry
from omnigraph.manifest.requirements import Revalidate
from omnigraph.merge.conflicts import Conflict, ConflictKind, value_conflict
from omnigraph.merge.parts import Part, StoredPart, TableWork
from omnigraph.merge.sides import Sides, TargetTables
from omnigraph.merge.tables import MergedTable
from omnigraph.names import TableKey
from omnigraph.schema import EntityType
from omnigraph.write.rules.cardinality import CARDINALITY_RULE
from omnigraph.write.rules.delta_check import DeltaCheck
from omnigraph.write.rules.endpoints import ENDPOINT_RULE, missing_end_message
from omnigraph.write.rules.findings import UNLIMITED, Findings
from omnigraph.write.rules.unique import UNIQUE_RULE
from omnigraph.write.rules.validate import Validated, run_rules
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.delta import GraphDelta, TableDelta
from omnigraph.write.stage.stored_rows import StoredRows

_KINDS: Final = {
    UNIQUE_RULE: ConflictKind.UNIQUE_VIOLATION,
    ENDPOINT_RULE: ConflictKind.ORPHAN_EDGE,
    CARDINALITY_RULE: ConflictKind.CARDINALITY_VIOLATION,
}
_ORDER: Final = (
    ConflictKind.VALUE_CONSTRAINT_VIOLATION,
    ConflictKind.UNIQUE_VIOLATION,
    ConflictKind.ORPHAN_EDGE,
    ConflictKind.CARDINALITY_VIOLATION,
)


@dataclass(frozen=True)
class Checked:
    """The rules that a merge breaks, in their order; with none, what its commit depends on."""

    conflicts: list[Conflict]
    stored: StoredRows
    reads: Mapping[str, Entry | None] = field(default_factory=dict)
    revalidate: Revalidate | None = None


def check_constraints(work: Mapping[str, TableWork], sides: Sides) -> Checked:
    """Check a merge; all conflicts are returned, in their order."""
    # Without a schema change the snapshot itself can be looked up again, when a table has moved.
    stored = StoredRows(sides.target if sides.has_one_schema else TargetTables(sides))
    missing = [] if sides.has_one_schema else list(_missing(work, sides))
    if missing:
        return Checked(missing, stored)
    delta = GraphDelta({key: _delta(each) for key, each in work.items()})
    findings = Findings(limit=UNLIMITED)
    check = DeltaCheck(delta, sides.schemas.catalog, stored, cascades=False, findings=findings)
    run_rules(check)
    if findings.log.total:
        written = [_conflict(found, delta) for found in findings.log.kept if not _is_orphan(found)]
        return Checked(sorted([*written, *_orphans(check)], key=_sort_key), stored)
    if not sides.has_one_schema:
        # The commit requires the exact head that was merged into: no table of it can have moved.
        return Checked([], stored)
    validated = Validated(check, sides.target)
    return Checked([], stored, validated.reads, validated.revalidate)


def unchecked(sides: Sides) -> Checked:
    """Return what a merge depends on whose result is the source: its writes were checked.

    The commit requires the exact head that was merged into: no table of it can have moved.
    """
    return Checked([], StoredRows(sides.target))


# -- values under another schema -------------------------------------------------------------------


def _missing(work: Mapping[str, TableWork], sides: Sides) -> Iterator[Conflict]:
    """Find values that are required by the merged schema, and missing."""
    for key in sorted(work):
        yield from _nulls(work[key], sides.tables[key])


def _nulls(work: TableWork, table: MergedTable) -> Iterator[Conflict]:
    sides = [side.entity_type for side in (table.source, table.target) if side is not None]
    views = [view for view in (table.views.source, table.views.target) if view is not None]
    optional = {
        column.field.name
        for view, stored in zip(views, sides, strict=True)
        for column in view.columns
        if column.stored is None or stored.arrow_schema.field(column.stored).nullable
    }
    required = [
        name
        for name, prop in table.entity_type.properties.items()
        if name in optional and not prop.prop_type.nullable
    ]
    for name in required:
        ids: list[str] = []
        for part in (*work.inserted, *work.updated):
            rows = _columns(part, ["id", name])
            ids += rows["id"].filter(rows[name].is_null()).to_pylist()
        if ids:
            yield value_conflict(
                table.table_key, f"{table.entity_type.name}.{name} is required", ids
            )


# -- the rules of the schema -----------------------------------------------------------------------


def _delta(work: TableWork) -> TableDelta:
    columns = _checked_columns(work.entity_type)
    rows = pa.concat_tables(
        [_scalars(part, columns, work.entity_type) for part in (*work.inserted, *work.updated)]
        or [_schema_of(work.entity_type, columns).empty_table()]
    )
    return TableDelta(
        table_key=work.entity_type.table_key,
        rows=rows,
        deleted=work.deleted,
        positions=pa.array(range(rows.num_rows), pa.int64()),
    )


def _checked_columns(entity_type: EntityType) -> list[str]:
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
    return _columns(part, columns).cast(_schema_of(entity_type, columns))


def _columns(part: Part, columns: list[str]) -> pa.Table:
    if isinstance(part, StoredPart):
        return part.handle.take(pa.array(part.refs.row_ids, pa.uint64()), columns)
    return part.rows.select(columns)


def _is_orphan(violation: Violation) -> bool:
    """Whether an edge of the target loses its node; the merge need not write to its table."""
    return violation.rule == ENDPOINT_RULE and violation.position is None


def _conflict(violation: Violation, delta: GraphDelta) -> Conflict:
    """Return the conflict of rows that the merge writes."""
    key = violation.checked_table()
    kind = _KINDS.get(violation.rule, ConflictKind.VALUE_CONSTRAINT_VIOLATION)
    entity_id = None
    if kind in (ConflictKind.UNIQUE_VIOLATION, ConflictKind.ORPHAN_EDGE):
        entity_id = delta.tables[key].rows["id"][violation.position].as_py()
    return Conflict(key, kind, violation.message, entity_id)


def _orphans(check: DeltaCheck) -> Iterator[Conflict]:
    """Yield a conflict for each edge of the target that would lose its node."""
    found = {
        (one.checked_table(), one.property or "")
        for one in check.findings.log.kept
        if _is_orphan(one)
    }
    for table_key, end in sorted(found):
        edge = check.catalog.edge_types[table_key.type_name]
        edges = check.orphan_edges(edge, end)
        for edge_id, node_id in zip(edges["id"].to_pylist(), edges[end].to_pylist(), strict=True):
            message = missing_end_message(edge, end, node_id)
            yield Conflict(edge.table_key, ConflictKind.ORPHAN_EDGE, message, edge_id)


def _sort_key(conflict: Conflict) -> tuple[bool, bool, str, int, str, bool]:
    """Sort by: values first; then node types, then edge types, each by name, rule and id.

    An edge that loses both nodes has two conflicts, that of `src` first: which of them is found
    first depends on the side that wrote the edge.
    """
    is_value = conflict.kind is ConflictKind.VALUE_CONSTRAINT_VIOLATION
    return (
        not is_value,
        TableKey(conflict.table_key).is_edge,
        conflict.table_key,
        _ORDER.index(conflict.kind),
        conflict.entity_id or "",
        conflict.kind is ConflictKind.ORPHAN_EDGE and conflict.message.startswith("dst "),
    )
