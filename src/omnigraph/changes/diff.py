"""The net difference of two snapshots, type by type.

Types are paired by identity: a rename is no change; a type that was dropped and created again is
all deletes and then all inserts. Rows that were rewritten with equal values are not reported. The
two sides may be on different branches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.selection import Op, Selection
from omnigraph.changes.table_changes import (
    RowChanges,
    RowRefs,
    differing_fragments,
    table_changes,
)
from omnigraph.display import Display, Displayed
from omnigraph.errors import ConflictError, NotFoundError
from omnigraph.manifest import Entry, Snapshot
from omnigraph.manifest.snapshot import open_entry
from omnigraph.names import TableKey
from omnigraph.schema import EntityType
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.errors import DatasetVersionNotFoundError
from omnigraph.store.records import ROW_ADDRESS, ROW_UPDATED, DatasetVersion, ScanRequest


class SchemaBoundaryError(ConflictError):
    """Rows on both sides of a schema change cannot be compared."""

    code = "OG-SCHEMA-BOUNDARY"
    hint = "compare two states with the same schema, or take a baseline"
    graph_commit_id: str
    type_name: str | None

    def _message(self) -> str:
        of_type = f" of type '{self.type_name}'" if self.type_name else ""
        return f"the columns{of_type} differ before and after {self.graph_commit_id}"

    @property
    def details(self) -> dict[str, object]:
        """Why the difference was rejected."""
        refusal: dict[str, object] = {
            "reason": "schema_boundary",
            "graph_commit_id": self.graph_commit_id,
        }
        if self.type_name is not None:
            refusal["type_name"] = self.type_name
        return {"change_diff_refusal": refusal}


class ChangeGapError(NotFoundError):
    """The changes of a commit are no longer known: cleanup has removed one of its versions."""

    code = "OG-CHANGE-GAP"
    hint = "take a new baseline: `omnigraph changes baseline`"
    template = "the versions that commit {graph_commit_id} compares were cleaned up"
    graph_commit_id: str
    cursor: str | None = None

    @property
    def details(self) -> dict[str, object]:
        """Where the gap begins."""
        gap = {"first_unreadable_commit_id": self.graph_commit_id}
        return {"change_feed_gap": gap if self.cursor is None else {"cursor": self.cursor, **gap}}


@dataclass(frozen=True)
class TypePair:
    """One type on both sides; a side that is None does not have it."""

    before: Entry | None
    after: Entry | None
    owner_before: EntityType | None
    owner_after: EntityType | None

    @property
    def entity_type(self) -> EntityType:
        """The type as the later side names it."""
        entity_type = self.owner_after or self.owner_before
        if entity_type is None:
            raise ValueError("a pair has at least one side")
        return entity_type

    @property
    def table_key(self) -> str:
        """The key as the later side names it."""
        return self.entity_type.table_key

    @property
    def versions(self) -> tuple[DatasetVersion | None, DatasetVersion | None]:
        """The published versions of both sides."""
        old, new = self.before, self.after
        return None if old is None else old.at, None if new is None else new.at

    @property
    def is_same(self) -> bool:
        """Whether both sides hold the same rows: of one version, or none at all."""
        if self.before is None or self.after is None:
            return all(entry is None or not entry.row_count for entry in (self.before, self.after))
        return self.before.at == self.after.at


@dataclass(frozen=True)
class TypeChanges:
    """What happened to the rows of one type."""

    pair: TypePair
    before: DatasetHandle | None
    after: DatasetHandle | None
    rows: RowChanges

    def of(self, op: Op) -> RowRefs:
        """Return the rows of one operation: of the later side, or of the earlier for deletes."""
        match op:
            case Op.INSERT:
                return self.rows.inserted
            case Op.UPDATE:
                return self.rows.updated_after
            case Op.DELETE:
                return self.rows.deleted


def type_pairs(before: Snapshot, after: Snapshot) -> list[TypePair]:
    """Pair the types of two snapshots by identity: by key, edges first, older ones first."""
    old, new = _entity_types(before), _entity_types(after)
    nowhere = (None, None)
    pairs = []
    for location in old.keys() | new.keys():
        old_entry, old_owner = old.get(location, nowhere)
        new_entry, new_owner = new.get(location, nowhere)
        pairs.append(TypePair(old_entry, new_entry, old_owner, new_owner))
    return sorted(pairs, key=lambda pair: (pair.table_key, pair.after is not None))


def changed_pairs(
    before: Snapshot, after: Snapshot, *, refuse_new_types: bool = False
) -> Iterator[TypePair]:
    """Yield the types whose published versions differ; reject those that cannot be compared."""
    for pair in type_pairs(before, after):
        if not pair.is_same:
            _require_same_columns(pair, after.commit_id, refuse_new_types=refuse_new_types)
            yield pair


def snapshot_changes(
    before: Snapshot, after: Snapshot, selection: Selection, *, refuse_new_types: bool = False
) -> Iterator[TypeChanges]:
    """Yield what differs, one type at a time; types without a difference are left out.

    A type that is not selected is still rejected when a schema change lies in between, because
    whether a difference exists must not depend on the filter. `refuse_new_types` also rejects
    types that were created or dropped with rows.
    """
    for pair in changed_pairs(before, after, refuse_new_types=refuse_new_types):
        if not selection.takes_type(pair.table_key):
            continue
        changes = _changes_of(pair, before, after)
        if not changes.rows.is_empty:
            yield changes


def differing_bytes(before: Snapshot, after: Snapshot, selection: Selection) -> int:
    """Return the size of the fragments that a comparison would read, from manifests alone."""
    return sum(
        differing_fragments(*handles_of(pair, before, after)).data_bytes
        for pair in changed_pairs(before, after)
        if selection.takes_type(pair.table_key)
    )


def _entity_types(snapshot: Snapshot) -> dict[str, tuple[Entry, EntityType]]:
    catalog = snapshot.catalog
    entity_types: list[EntityType] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    by_key: dict[str, EntityType] = {each.table_key: each for each in entity_types}
    return {
        entry.location: (entry, by_key[key])
        for key, entry in snapshot.entries.items()
        if key in by_key
    }


def _require_same_columns(pair: TypePair, commit_id: str, *, refuse_new_types: bool) -> None:
    """Reject sides with other user columns; on request, also types created or dropped with rows."""
    if pair.owner_before is None or pair.owner_after is None:
        if refuse_new_types:
            raise SchemaBoundaryError(commit_id, pair.entity_type.name)
        return
    if _columns(pair.owner_before) != _columns(pair.owner_after):
        raise SchemaBoundaryError(commit_id, pair.entity_type.name)


def _columns(entity_type: EntityType) -> frozenset[tuple[str, object, int | None]]:
    return frozenset(
        (name, prop.prop_type, prop.property_id) for name, prop in entity_type.properties.items()
    )


def handles_of(
    pair: TypePair, before: Snapshot, after: Snapshot
) -> tuple[DatasetHandle | None, DatasetHandle | None]:
    """Open both sides of a type; reject them when the rows of one were removed."""
    try:
        old = None if pair.before is None else open_entry(before.datasets, pair.before)
        new = None if pair.after is None else open_entry(after.datasets, pair.after)
    except DatasetVersionNotFoundError as error:
        if pair.before is None or pair.after is None:
            raise SchemaBoundaryError(after.commit_id, pair.entity_type.name) from error
        raise ChangeGapError(after.commit_id) from error
    return old, new


def _changes_of(pair: TypePair, before: Snapshot, after: Snapshot) -> TypeChanges:
    old, new = handles_of(pair, before, after)
    rows = table_changes(
        old,
        new,
        columns=pair.entity_type.arrow_schema.names,
        blobs=pair.entity_type.blob_properties,
    )
    return TypeChanges(pair, old, new, rows)


@dataclass(frozen=True, repr=False)
class Difference(Displayed):
    """The net difference of two snapshots, as ids."""

    from_manifest_version: int
    to_manifest_version: int
    graph_branch: str | None
    changes: tuple[dict[str, object], ...]

    def _display(self) -> Display:
        rows = [(change["op"], change["type_name"], change["id"]) for change in self.changes]
        between = f"versions {self.from_manifest_version} and {self.to_manifest_version}"
        return Display(f"{len(rows)} changes between {between}", ("op", "type", "id"), rows)

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        counts = {op: sum(change["op"] == op for change in self.changes) for op in Op}
        return {
            "from_graph_manifest_version": self.from_manifest_version,
            "to_graph_manifest_version": self.to_manifest_version,
            "graph_branch": self.graph_branch,
            "changes": list(self.changes),
            "stats": {
                "inserts": counts[Op.INSERT],
                "updates": counts[Op.UPDATE],
                "deletes": counts[Op.DELETE],
                "types_affected": sorted({str(change["type_name"]) for change in self.changes}),
            },
        }


def difference(before: Snapshot, after: Snapshot, selection: Selection) -> Difference:
    """Collect the net difference of two snapshots."""
    found: list[dict[str, object]] = []
    for changes in snapshot_changes(before, after, selection):
        for op in Op:
            if selection.takes_op(op):
                found += _described(changes, op)
    branch = str(after.branch)
    return Difference(
        before.manifest_version,
        after.manifest_version,
        None if branch == "main" else branch,
        tuple(found),
    )


def _described(changes: TypeChanges, op: Op) -> list[dict[str, object]]:
    refs = changes.of(op)
    handle = changes.before if op is Op.DELETE else changes.after
    if not len(refs) or handle is None:
        return []
    kind, type_name = TableKey(changes.pair.table_key).parts
    versions = _versions(changes, op, refs)
    ends = _ends(handle, refs) if kind == "edge" else [None] * len(refs)
    shapes: list[dict[str, object]] = []
    for entity_id, version, end in zip(refs.ids.to_pylist(), versions, ends, strict=True):
        shape: dict[str, object] = {
            "kind": kind,
            "type_name": type_name,
            "id": entity_id,
            "op": str(op),
            "published_dataset_version": version,
        }
        if end is not None:
            shape["endpoints"] = end
        shapes.append(shape)
    return shapes


def _versions(changes: TypeChanges, op: Op, refs: RowRefs) -> list[int]:
    """Return the version that last wrote each row; for deletes, the version of the later side."""
    entry = changes.pair.after or changes.pair.before
    if op is Op.DELETE or changes.after is None:
        return [0 if entry is None else entry.table_version] * len(refs)
    fragments = np.unique(refs.addresses >> np.uint64(32)).tolist()
    request = ScanRequest(
        columns=(ROW_UPDATED,), with_row_address=True, fragment_ids=tuple(fragments)
    )
    found = changes.after.scan(request).read_all()
    wanted = pa.array(refs.addresses, pa.uint64())
    positions = pc.index_in(wanted, value_set=found[ROW_ADDRESS].combine_chunks())
    return [int(version) for version in found[ROW_UPDATED].take(positions).to_pylist()]


def _ends(handle: DatasetHandle, refs: RowRefs) -> list[dict[str, str] | None]:
    rows = handle.take(pa.array(refs.row_ids, pa.uint64()), ["src", "dst"])
    return [dict(row) for row in rows.to_pylist()]
