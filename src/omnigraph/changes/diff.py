"""The net difference of two snapshots, type by type.

Types are paired by identity: a rename is no change; a type that was dropped and created again is
all deletes and then all inserts. Rows that were rewritten with equal values are not reported. The
two sides may be on different branches and have different schemas: the earlier rows are then read as
the later schema sees them. So a row is no difference because a property was added, dropped, renamed
or widened; it is one where an added property has another value than the schema change gave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

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
from omnigraph.changes.type_pairs import TypePair, recreated, schema_changes, type_pairs
from omnigraph.display import Display, Displayed
from omnigraph.errors import ConflictError, NotFoundError
from omnigraph.manifest import Snapshot
from omnigraph.manifest.snapshot import open_entry
from omnigraph.names import TableKey
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.errors import DatasetVersionNotFoundError
from omnigraph.store.records import ROW_ADDRESS, ROW_UPDATED, ScanRequest


class SchemaBoundaryError(ConflictError):
    """Rows on both sides of a schema change cannot be compared."""

    code = "OG-SCHEMA-BOUNDARY"
    hint = "poll with `--schema-changes deliver`, or compare the states: `omnigraph diff`"
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


class Boundary(Enum):
    """Which schema changes a comparison goes across."""

    OPEN = "open"
    """All: a type that was dropped and created again is all deletes and then all inserts."""
    MATCHED = "matched"
    """All but a type that was dropped with rows, or created with rows, under a name that another
    type has on the other side."""
    CLOSED = "closed"
    """None that changed the columns of a table with changes, or a type with rows."""


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
class TypeChanges:
    """What happened to the rows of one type."""

    pair: TypePair
    before: DatasetHandle | None
    after: DatasetHandle | None
    """Both sides as they are stored."""
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


def changed_pairs(
    before: Snapshot, after: Snapshot, *, boundary: Boundary = Boundary.OPEN
) -> Iterator[TypePair]:
    """Yield the types whose published versions differ; reject those that cannot be compared."""
    pairs = type_pairs(before, after)
    _require_comparable(pairs, after.commit_id, boundary)
    yield from (pair for pair in pairs if not pair.is_same)


def snapshot_changes(
    before: Snapshot, after: Snapshot, selection: Selection, *, boundary: Boundary = Boundary.OPEN
) -> Iterator[TypeChanges]:
    """Yield what differs, one type at a time; types without a difference are left out.

    A type that is not selected is still rejected at a boundary, because whether a difference exists
    must not depend on the filter.
    """
    for pair in changed_pairs(before, after, boundary=boundary):
        if not selection.takes_type(pair.table_key):
            continue
        changes = _changes_of(pair, before, after)
        if not changes.rows.is_empty:
            yield changes


def differing_bytes(before: Snapshot, after: Snapshot, selection: Selection) -> int:
    """Return the size of the fragments that a comparison would read, from manifests alone."""
    return sum(
        differing_fragments(*views_of(pair, before, after)).data_bytes
        for pair in changed_pairs(before, after)
        if selection.takes_type(pair.table_key)
    )


def _require_comparable(pairs: list[TypePair], commit_id: str, boundary: Boundary) -> None:
    """Reject what the kind of comparison does not show."""
    if boundary is Boundary.MATCHED:
        for pair in recreated(pairs):
            raise SchemaBoundaryError(commit_id, pair.entity_type.name)
    if boundary is Boundary.CLOSED:
        for pair in pairs:
            if not pair.is_same and not pair.has_same_columns:
                raise SchemaBoundaryError(commit_id, pair.entity_type.name)


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


def views_of(
    pair: TypePair, before: Snapshot, after: Snapshot
) -> tuple[DatasetHandle | None, DatasetHandle | None]:
    """Open both sides of a type, the earlier one as the later schema sees it."""
    old, new = handles_of(pair, before, after)
    return None if old is None else pair.sides.view(old), new


def _changes_of(pair: TypePair, before: Snapshot, after: Snapshot) -> TypeChanges:
    old, new = handles_of(pair, before, after)
    rows = table_changes(
        None if old is None else pair.sides.view(old),
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
    schema_changes: tuple[dict[str, Any], ...] = ()

    def _display(self) -> Display:
        rows = [(change["op"], change["type_name"], change["id"]) for change in self.changes]
        between = f"versions {self.from_manifest_version} and {self.to_manifest_version}"
        return Display(f"{len(rows)} changes between {between}", ("op", "type", "id"), rows)

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        counts = {op: sum(change["op"] == op for change in self.changes) for op in Op}
        header = {"schema_changes": list(self.schema_changes)} if self.schema_changes else {}
        return {
            **header,
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
        schema_changes(before, after),
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
