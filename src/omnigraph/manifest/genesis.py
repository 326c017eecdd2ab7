"""Making a new graph.

The datasets of the types come first and `__manifest` last, in one Lance commit that holds the
registrations, the schema and the genesis commit. A crash before it leaves no graph, only empty
datasets, which the next `init` at this root replaces. A dataset that was ever written to is no such
leftover: it is refused, because its manifest may be missing for another reason.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from omnigraph.clock import Clock
from omnigraph.manifest.commits import GraphCommit
from omnigraph.manifest.errors import GraphExistsError
from omnigraph.manifest.format_stamp import STAMP_KEY
from omnigraph.manifest.layout import (
    MAIN_INCARNATION,
    MANIFEST,
    SCHEMA_FILES,
    dataset_location,
)
from omnigraph.manifest.locks.branch_lock import BranchLock
from omnigraph.manifest.rows import (
    MANIFEST_SCHEMA,
    AcceptedSchema,
    Entry,
    Head,
    Registration,
    rows_table,
)
from omnigraph.names import INTERNAL_SCHEMA_VERSION, TableKey
from omnigraph.schema import CompiledSchema
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import DatasetExistsError
from omnigraph.store.objects.protocol import ObjectStore

FIRST_VERSION: Final = 1


def require_empty(root: str, *, datasets: DatasetStore, objects: ObjectStore, force: bool) -> None:
    """Refuse a root that holds a graph, or schema files unless `force` allows to replace them."""
    if datasets.exists(MANIFEST):
        raise GraphExistsError(root, "a graph")
    leftovers = [name for name in SCHEMA_FILES if objects.head(name) is not None]
    if leftovers and not force:
        error = GraphExistsError(root, f"schema files ({', '.join(leftovers)})")
        error.hint = "`--force` replaces them; a graph is never replaced"
        raise error


def create_graph(
    root: str,
    schema: CompiledSchema,
    *,
    datasets: DatasetStore,
    objects: ObjectStore,
    clock: Clock,
    lock: BranchLock,
    actor_id: str | None,
) -> GraphCommit:
    """Create the datasets, then the manifest, under the lock of `main`."""
    registrations = [
        Registration(
            table.table_key,
            dataset_location(*TableKey(table.table_key).parts),
            table.type_id,
            table.table_incarnation_id,
        )
        for table in schema.ir.table_identities
    ]
    for registration in registrations:
        columns = _columns(schema, registration.table_key)
        try:
            datasets.commit_staged(datasets.stage_create(registration.location, columns))
        except DatasetExistsError:
            lock.check()
            _remove_leftover(root, registration.location, datasets=datasets, objects=objects)
            datasets.commit_staged(datasets.stage_create(registration.location, columns))
    lock.check()
    accepted = accepted_schema(schema)
    genesis = GraphCommit(
        graph_commit_id=clock.ulid(),
        manifest_branch=None,
        manifest_version=FIRST_VERSION,
        parent_commit_id=None,
        merged_parent_commit_id=None,
        actor_id=actor_id,
        created_at=clock.now_us(),
        operation="init",
    )
    rows = rows_table(
        [
            Head(genesis.graph_commit_id, accepted.schema_hash).row(),
            accepted.row(),
            *(registration.row() for registration in registrations),
            *(_first_entry(registration).row() for registration in registrations),
            genesis.row(),
        ]
    )
    stamped = MANIFEST_SCHEMA.with_metadata({STAMP_KEY: str(INTERNAL_SCHEMA_VERSION)})
    try:
        datasets.commit_staged(datasets.stage_create(MANIFEST, stamped, rows=rows))
    except DatasetExistsError as error:
        raise GraphExistsError(root, "a graph") from error
    return genesis


def _remove_leftover(
    root: str, location: str, *, datasets: DatasetStore, objects: ObjectStore
) -> None:
    handle = datasets.open(location)
    if handle.at.version != FIRST_VERSION or handle.count() > 0:
        error = GraphExistsError(root, f"a dataset with data and no manifest ({location})")
        error.hint = "restore `__manifest` from a backup, or move the datasets away"
        raise error
    objects.delete_prefix(location)
    datasets.forget(location)


def accepted_schema(schema: CompiledSchema) -> AcceptedSchema:
    """Return the form in which a compiled schema is stored."""
    return AcceptedSchema(
        schema.source.text, dict(schema.ir.to_json()), dict(schema.state.to_json())
    )


def _first_entry(registration: Registration) -> Entry:
    return Entry(
        table_key=registration.table_key,
        location=registration.location,
        table_branch=None,
        table_version=FIRST_VERSION,
        seq=FIRST_VERSION,
        row_count=0,
        owner_branch=MAIN_INCARNATION.text,
    )


def _columns(schema: CompiledSchema, table_key: str) -> pa.Schema:
    kind, name = TableKey(table_key).parts
    types = schema.catalog.node_types if kind == "node" else schema.catalog.edge_types
    return types[name].arrow_schema
