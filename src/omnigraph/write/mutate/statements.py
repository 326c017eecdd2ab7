"""Runs the statements of a mutation, in order, on its pending changes.

| statement | effect on the view | counts |
|---|---|---|
| insert node | a whole row; with a key it replaces the row of that id | 1 node |
| create | the same as insert, but with a key a row of that id is an error | 1 entity |
| upsert | the row of that key with some properties changed, else a whole new row | 1 entity |
| insert edge | a new row; with a key it replaces the row of that id | 1 edge |
| update | every row for which the predicate is true, some properties changed | matching rows |
| delete node | those rows and all their edges are removed | removed nodes and edges |
| delete edge | those rows are removed | matching rows |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.query.bindings import Bindings
from omnigraph.query.plan.plan import (
    DeleteRows,
    End,
    EntityKind,
    IncidentEdge,
    InsertEdge,
    InsertNode,
    PlannedStatement,
    UpdateRows,
    UpsertEdge,
    UpsertNode,
)
from omnigraph.schema.values.ids import derive_ids
from omnigraph.write.mutate.pending_rows import Matches, Origin, PendingChanges, PendingTable
from omnigraph.write.mutate.predicates import condition_of, has_value_in
from omnigraph.write.mutate.rows import (
    AssignedColumns,
    UpsertIncompleteError,
    assign,
    complete_row,
    is_changed,
)
from omnigraph.write.stage.columns import Column
from omnigraph.write.stage.external_blobs import ExternalBlobs

_END_COLUMNS: Final[dict[End, str]] = {"from": "src", "to": "dst"}


@dataclass(frozen=True)
class Affected:
    """How many entities a statement has changed."""

    nodes: int = 0
    edges: int = 0

    def __add__(self, other: Affected) -> Affected:
        return Affected(self.nodes + other.nodes, self.edges + other.edges)


class StatementRunner:
    """Runs statements with the values of one request."""

    def __init__(
        self,
        pending: PendingChanges,
        bindings: Bindings,
        clock: Clock,
        *,
        makes_vectors: bool = False,
        external_blobs: ExternalBlobs | None = None,
    ) -> None:
        self._pending = pending
        self._bindings = bindings
        self._clock = clock
        self._makes_vectors = makes_vectors
        self._external_blobs = external_blobs or ExternalBlobs()

    def run(self, statement: PlannedStatement, number: int) -> Affected:
        """Run one statement, the `number`th of its query, counted from 1."""
        match statement:
            case InsertNode():
                return self._insert_node(statement, number)
            case UpsertNode():
                return self._upsert(statement, number)
            case InsertEdge():
                return self._insert_edge(statement, number)
            case UpsertEdge():
                return self._upsert_edge(statement, number)
            case UpdateRows():
                return self._update(statement, number)
            case DeleteRows():
                return self._delete(statement)

    # -- new rows -------------------------------------------------------------------------------

    def _insert_node(self, statement: InsertNode, number: int) -> Affected:
        table = self._pending.node(statement.type_name)
        assigned = self._assigned(statement.type_name, number)
        if not self._makes_vectors:
            assigned.require_vectors(statement.embeds)
        given = assigned.of((*statement.assignments, *statement.defaults))
        given["id"], origin = self._id_of(statement, table, given)
        table.put(complete_row(table.entity, given), statement=number, origin=origin)
        return Affected(nodes=1)

    def _insert_edge(self, statement: InsertEdge, number: int) -> Affected:
        table = self._pending.edge(statement.type_name)
        assigned = self._assigned(statement.type_name, number)
        given = assigned.of((*statement.assignments, *statement.defaults))
        given |= self._ends(statement, assigned)
        given["id"], origin = self._id_of(statement, table, given)
        table.put(complete_row(table.entity, given), statement=number, origin=origin)
        return Affected(edges=1)

    def _upsert_edge(self, statement: UpsertEdge, number: int) -> Affected:
        table = self._pending.edge(statement.type_name)
        assigned = self._assigned(statement.type_name, number)
        given = assigned.of(statement.assignments) | self._ends(statement, assigned)
        ids = _key_id(statement.key, given, statement.type_name)
        if not self._change_row(table, ids, given, statement.required, number):
            given |= assigned.of(statement.defaults)
            given["id"] = ids
            table.put(complete_row(table.entity, given), statement=number, origin=Origin.UNKNOWN)
        return Affected(edges=1)

    def _id_of(
        self,
        statement: InsertNode | InsertEdge,
        table: PendingTable,
        given: Mapping[str, pa.Array],
    ) -> tuple[pa.Array, Origin]:
        """Return the id of an inserted row, and whether a stored row may have it."""
        if not statement.key:
            return self._new_id(), Origin.NEW
        ids = _key_id(statement.key, given, statement.type_name)
        if statement.must_be_new:
            table.require_new(ids)
        return ids, Origin.UNKNOWN

    def _ends(
        self, statement: InsertEdge | UpsertEdge, assigned: AssignedColumns
    ) -> dict[str, pa.Array]:
        """Return the ids at the ends of an edge, by column."""
        ends = (("src", "from", statement.from_id), ("dst", "to", statement.to_id))
        found = {
            column: assigned.endpoint(end, self._bindings.value_of(value).value)
            for column, end, value in ends
        }
        return {column: pa.array([end], pa.utf8()) for column, end in found.items()}

    def _upsert(self, statement: UpsertNode, number: int) -> Affected:
        table = self._pending.node(statement.type_name)
        assigned = self._assigned(statement.type_name, number)
        given = assigned.of(statement.assignments)
        ids = _key_id(statement.key, given, statement.type_name)
        if self._change_row(table, ids, given, statement.required, number):
            return Affected(nodes=1)
        if not self._makes_vectors:
            assigned.require_vectors(statement.embeds)
        given |= assigned.of(statement.defaults)
        given["id"] = ids
        table.put(complete_row(table.entity, given), statement=number, origin=Origin.UNKNOWN)
        return Affected(nodes=1)

    def _change_row(
        self,
        table: PendingTable,
        ids: pa.Array,
        given: Mapping[str, pa.Array],
        required: tuple[str, ...],
        number: int,
    ) -> bool:
        """Change the row of an id; return whether there is one. A new one needs `required`."""
        matches = table.match_whole(has_value_in(("id",), ids), unread=table.unread(given))
        if matches.count:
            _rewrite(table, matches, given, number)
        elif required:
            raise UpsertIncompleteError(
                statement=number,
                type_name=table.entity.name,
                entity_id=str(ids[0]),
                missing=required,
            )
        return matches.count > 0

    # -- existing rows --------------------------------------------------------------------------

    def _update(self, statement: UpdateRows, number: int) -> Affected:
        table = self._table(statement.kind, statement.type_name)
        given = self._assigned(statement.type_name, number).of(statement.assignments)
        matches = table.match_whole(
            condition_of(statement.where, self._bindings), unread=table.unread(given)
        )
        _rewrite(table, matches, given, number)
        return _affected(statement.kind, matches.count)

    def _delete(self, statement: DeleteRows) -> Affected:
        table = self._table(statement.kind, statement.type_name)
        matches = table.match(condition_of(statement.where, self._bindings))
        if matches.count == 0:
            return Affected()
        ids = table.ids_of(matches)
        table.remove(matches)
        cascaded = sum(self._cascade(incident, ids) for incident in statement.cascades)
        return _affected(statement.kind, matches.count) + Affected(edges=cascaded)

    def _cascade(self, incident: IncidentEdge, node_ids: Column) -> int:
        table = self._pending.edge(incident.type_name)
        ends = tuple(_END_COLUMNS[end] for end in incident.ends)
        matches = table.match(has_value_in(ends, node_ids), decides=False)
        table.remove(matches)
        return matches.count

    # -- parts ----------------------------------------------------------------------------------

    def _assigned(self, type_name: str, number: int) -> AssignedColumns:
        return AssignedColumns(
            self._bindings,
            statement=number,
            type_name=type_name,
            external_blobs=self._external_blobs,
        )

    def _table(self, kind: EntityKind, type_name: str) -> PendingTable:
        return self._pending.node(type_name) if kind == "node" else self._pending.edge(type_name)

    def _new_id(self) -> pa.Array:
        return pa.array([self._clock.ulid()], pa.utf8())


def _rewrite(
    table: PendingTable, matches: Matches, given: Mapping[str, pa.Array], number: int
) -> None:
    """Write the matching rows, with some columns changed."""
    if pc.any(matches.is_pending_hit).as_py():
        pending = table.pending.filter(matches.is_pending_hit)
        rows = assign(pending, given)
        changed = is_changed(pending, rows, given)
        table.replace_pending(matches.is_pending_hit, rows, changed, statement=number)
    if matches.stored.num_rows:
        rows = assign(matches.stored, given)
        changed = is_changed(matches.stored, rows, given)
        table.put_changed(rows, changed, statement=number)


def _key_id(key: tuple[str, ...], given: Mapping[str, pa.Array], type_name: str) -> pa.Array:
    return derive_ids([(member, given[member]) for member in key], type_name=type_name).ids


def _affected(kind: EntityKind, count: int) -> Affected:
    return Affected(nodes=count) if kind == "node" else Affected(edges=count)
