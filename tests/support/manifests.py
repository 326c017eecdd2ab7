"""Manifest states and commit histories made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from omnigraph.manifest.commits import GraphCommit
from omnigraph.manifest.rows import (
    AcceptedSchema,
    Entry,
    Head,
    ManifestRow,
    Registration,
    rows_table,
)
from omnigraph.manifest.state import ManifestState
from omnigraph.store.records import ROW_ADDRESS, ROW_CREATED, ROW_ID

PATH = "/data/graph/__manifest"
HASH = "sha256:abc"


def schema(schema_hash: str = HASH) -> AcceptedSchema:
    """An accepted schema of which only the hash matters."""
    return AcceptedSchema("node Person { name: String @key }", {}, {"schema_ir_hash": schema_hash})


def registration(table_key: str = "node:Person", location: str = "nodes/p") -> Registration:
    """A registered table."""
    return Registration(table_key, location, type_id=1, table_incarnation_id=2)


def entry(
    seq: int,
    *,
    table_version: int = 1,
    table_branch: str | None = None,
    table_key: str = "node:Person",
    location: str = "nodes/p",
    owner: str = "main",
) -> Entry:
    """A published version."""
    return Entry(
        table_key, location, table_branch, table_version, seq, row_count=0, owner_branch=owner
    )


def commit(
    commit_id: str,
    parent: str | None = None,
    *,
    merged: str | None = None,
    version: int = 1,
    operation: str = "load",
    created_at: int = 0,
    actor_id: str | None = None,
) -> GraphCommit:
    """A commit of which only its place in history matters."""
    return GraphCommit(
        graph_commit_id=commit_id,
        manifest_branch=None,
        manifest_version=version,
        parent_commit_id=parent,
        merged_parent_commit_id=merged,
        actor_id=actor_id,
        created_at=created_at,
        operation=operation,
    )


def state(
    *rows: ManifestRow,
    version: int = 9,
    head: Head | None = None,
    created: Mapping[str, int] | None = None,
) -> ManifestState:
    """A state with a head and a schema; `created` says in which version a row appeared."""
    standard = (head or Head("C0", HASH)).row(), schema().row()
    return raw_state((*standard, *rows), version=version, created=created)


def raw_state(
    rows: Iterable[ManifestRow],
    *,
    version: int = 9,
    created: Mapping[str, int] | None = None,
    replaced: Mapping[str, Sequence[object]] | None = None,
) -> ManifestState:
    """A state of exactly these rows; `replaced` puts other values into whole columns."""
    rows = list(rows)
    table = rows_table(rows)
    for name, values in (replaced or {}).items():
        index = table.schema.get_field_index(name)
        column = pa.array(values, table.schema.field(name).type)
        table = table.set_column(index, pa.field(name, column.type), column)
    versions = [(created or {}).get(row.object_id, 1) for row in rows]
    numbers = pa.array(range(len(rows)), pa.uint64())
    table = table.append_column(ROW_CREATED, pa.array(versions, pa.uint64()))
    table = table.append_column(ROW_ID, numbers).append_column(ROW_ADDRESS, numbers)
    return ManifestState(PATH, version, table)
