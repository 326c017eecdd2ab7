"""Judging a change against the snapshot that it was made on.

1. The rules run once, over the net change of a whole operation, before anything is staged.
2. All violations are collected: value rules first, then type by type in name order `@key` and
   `@unique`, endpoints, `@card`. Key conflicts are looked for when there are no violations.
3. Stored rows are read by index or by the columns that a rule needs, never whole.
4. The verdict holds as long as the tables stay where they were. Written tables are compared by the
   commit itself; the other ones that the verdict rests on are `Validated.reads`, and
   `Validated.revalidate` gives it again for those of them that moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from omnigraph.manifest import Entry, Snapshot
from omnigraph.manifest.state import ManifestState
from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EdgeType, EntityType, NodeType
from omnigraph.write.rules.cardinality import check_cardinality
from omnigraph.write.rules.endpoints import (
    check_endpoints,
    check_orphans,
    edge_ends,
    rest_on_edges_of_removed,
)
from omnigraph.write.rules.judgement import Judgement, Operation
from omnigraph.write.rules.unique import check_unique
from omnigraph.write.rules.values import check_values
from omnigraph.write.rules.violations import KeyConflict, KeyConflictError, ViolationLog
from omnigraph.write.stage.columns import repeated
from omnigraph.write.stage.delta import GraphDelta, TableDelta, WriteMode
from omnigraph.write.stage.stored_rows import StoredRows

__all__ = ["Operation", "Validated", "validate", "value_violations"]

PLACES: Final[dict[Operation, str]] = {"load": "line", "mutation": "statement"}
"""The unit in which positions count, unless the caller names another."""


@dataclass(frozen=True)
class Validated:
    """A change that breaks no rule.

    `reads` and `revalidate` go into the commit (`WriteJob.reads`, `Committer.commit`).
    """

    reads: Mapping[str, Entry | None]
    revalidate: Callable[[ManifestState, frozenset[str]], None]
    stored: StoredRows


def validate(
    delta: GraphDelta,
    snapshot: Snapshot,
    catalog: Catalog,
    *,
    operation: Operation,
    place: str | None = None,
    stored: StoredRows | None = None,
    log: ViolationLog | None = None,
) -> Validated:
    """Check every rule, or raise `ValidationError` with all violations, or `KeyConflictError`.

    `place` names the unit of positions in messages, by default `line` for loads and `statement`
    for mutations. `log` collects more violations than the error keeps. For a mutation, `delta`
    already removes the edges of the nodes that it deletes.
    """
    place = place or PLACES[operation]
    judgement = Judgement(
        delta, catalog, stored or StoredRows(snapshot), operation, log or ViolationLog()
    )
    value_violations(delta, catalog, judgement.log)
    for entity_type in _by_name(catalog):
        check_unique(entity_type, judgement)
        if isinstance(entity_type, EdgeType):
            check_endpoints(entity_type, judgement)
            if operation == "load":
                check_orphans(entity_type, judgement)
            else:
                rest_on_edges_of_removed(entity_type, judgement)
            check_cardinality(entity_type, judgement)
    judgement.log.require_clean(place)
    for entity_type in _by_name(catalog):
        _require_new_ids(entity_type, judgement)

    def revalidate(state: ManifestState, moved: frozenset[str]) -> None:
        again = Snapshot(snapshot.incarnation, state, snapshot.datasets)
        fresh = replace(judgement, stored=StoredRows(again), log=ViolationLog(), reads={})
        _judge_again(fresh, moved)
        fresh.log.require_clean(place)

    return Validated(judgement.reads, revalidate, judgement.stored)


def value_violations(delta: GraphDelta, catalog: Catalog, log: ViolationLog) -> None:
    """Check the rules of single values over all rows of a change."""
    for entity_type in _by_name(catalog):
        table = delta.tables.get(entity_type.table_key)
        if table is not None:
            check_values(entity_type, table.rows, table.positions, log)


def _judge_again(judgement: Judgement, moved: frozenset[str]) -> None:
    """Run the rules that rest on tables which have moved."""
    for entity_type in _by_name(judgement.catalog):
        if not isinstance(entity_type, EdgeType):
            continue
        if any(TableKey.node(name) in moved for _, name in edge_ends(entity_type)):
            check_endpoints(entity_type, judgement)
        if entity_type.table_key in moved:
            check_orphans(entity_type, judgement)


def _by_name(catalog: Catalog) -> list[EntityType]:
    entity_types: list[EntityType] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    return sorted(entity_types, key=lambda entity_type: (entity_type.name, entity_type.table_key))


def _require_new_ids(entity_type: EntityType, judgement: Judgement) -> None:
    """Refuse to insert an id twice; which ids may be stored depends on the mode."""
    delta = judgement.of(entity_type.table_key)
    if delta is None or delta.ids_are_new or delta.mode is WriteMode.MERGE:
        return
    is_keyed = isinstance(entity_type, NodeType) and bool(entity_type.key)
    if not is_keyed:
        # A repeated key was a violation already.
        again, _ = repeated([delta.rows["id"]])
        if len(again):
            first = delta.rows["id"][again[0]].as_py()
            raise _key_conflict(delta, first, len(again), is_stored=False)
    if delta.mode is WriteMode.APPEND:
        stored = np.flatnonzero(judgement.stored.contains(entity_type.table_key, delta.rows["id"]))
        if len(stored):
            first = delta.rows["id"][stored[0]].as_py()
            raise _key_conflict(delta, first, len(stored), is_stored=True)


def _key_conflict(
    delta: TableDelta, entity_id: str, total: int, *, is_stored: bool
) -> KeyConflictError:
    kind, type_name = TableKey(delta.table_key).parts
    first = KeyConflict(kind, type_name, entity_id, is_stored=is_stored)
    return KeyConflictError(first, total=total)
