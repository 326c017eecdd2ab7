"""The rows of `__manifest`.

| object_type | object_id | says |
|---|---|---|
| `graph_head` | `graph_head` | the branch's newest commit and schema; every change rewrites it |
| `table` | `node:Person` | a dataset is registered: where it is, which type it holds |
| `table_version` | `node:Person$<seq>` | a version of that dataset is published |
| `table_tombstone` | `node:Person$tombstone$<seq>` | the type does not exist from this publish on |
| `schema` | `schema` | the accepted schema |
| `graph_commit` | the commit's ULID | the commit record, in the same Lance commit as its versions |
| `voided_commit` | the commit's ULID | recovery rolled that operation back; the id can never be
published |
| `tag` | `tag:<name>` | a named commit |
| `identity_counter` | `identity_counter` | the next free number of a type, property or table;
only the row of `main` counts |

`seq` is the manifest version that the publish creates, written with 20 digits. Of several
`table_version` rows of one table the one with the highest `seq` wins: versions of different
lineages of a dataset do not compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.records import member
from omnigraph.schema import EntityType, SchemaIR, read_ir
from omnigraph.store.records import DatasetVersion
from omnigraph.values import PRIMARY_KEY

GRAPH_HEAD: Final = "graph_head"
TABLE: Final = "table"
TABLE_VERSION: Final = "table_version"
TABLE_TOMBSTONE: Final = "table_tombstone"
SCHEMA: Final = "schema"
GRAPH_COMMIT: Final = "graph_commit"
VOIDED_COMMIT: Final = "voided_commit"
TAG: Final = "tag"
IDENTITY_COUNTER: Final = "identity_counter"

MANIFEST_SCHEMA: Final = pa.schema(
    [
        pa.field("object_id", pa.utf8(), nullable=False, metadata={PRIMARY_KEY: b"true"}),
        pa.field("object_type", pa.utf8(), nullable=False),
        pa.field("location", pa.utf8()),
        pa.field("metadata", pa.utf8()),
        pa.field("base_objects", pa.list_(pa.field("item", pa.utf8()))),
        pa.field("table_key", pa.utf8()),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.utf8()),
        pa.field("row_count", pa.uint64()),
    ]
)

_SEQ_DIGITS: Final = 20


@dataclass(frozen=True)
class ManifestRow:
    """One row, with its metadata as a mapping."""

    object_id: str
    object_type: str
    metadata: dict[str, Any]
    location: str | None = None
    table_key: str | None = None
    table_version: int | None = None
    table_branch: str | None = None
    row_count: int | None = None


@dataclass(frozen=True)
class Registration:
    """A dataset that belongs to the graph, and the type identity that it holds."""

    table_key: str
    location: str
    type_id: int
    table_incarnation_id: int

    @classmethod
    def of(cls, declared: EntityType, location: str) -> Registration:
        """Register the dataset of a type of an accepted schema."""
        if declared.type_id is None or declared.table_incarnation_id is None:
            raise ValueError(f"{declared.table_key} has no identity")
        return cls(declared.table_key, location, declared.type_id, declared.table_incarnation_id)

    def row(self) -> ManifestRow:
        """Return the `table` row."""
        return ManifestRow(
            self.table_key,
            TABLE,
            {"type_id": self.type_id, "table_incarnation_id": self.table_incarnation_id},
            location=self.location,
            table_key=self.table_key,
        )


@dataclass(frozen=True)
class Entry:
    """A published version of one dataset: what a reader opens.

    `table_branch` is None for the dataset's main lineage, else the name of a fork. `owner_branch`
    is the branch incarnation that may write to this lineage.
    """

    table_key: str
    location: str
    table_branch: str | None
    table_version: int
    seq: int
    row_count: int
    owner_branch: str = field(metadata=member("owner"))

    @cached_property
    def at(self) -> DatasetVersion:
        """The version to open."""
        return DatasetVersion(self.location, self.table_branch, self.table_version)

    @property
    def state(self) -> tuple[str, str | None, int, int]:
        """What makes two entries the same published state."""
        return self.location, self.table_branch, self.table_version, self.seq

    def at_seq(self, seq: int) -> Entry:
        """Return the entry as published by manifest version `seq`."""
        return replace(self, seq=seq)

    def row(self) -> ManifestRow:
        """Return the `table_version` row."""
        return ManifestRow(
            f"{self.table_key}${self.seq:0{_SEQ_DIGITS}d}",
            TABLE_VERSION,
            {"owner": self.owner_branch},
            location=self.location,
            table_key=self.table_key,
            table_version=self.table_version,
            table_branch=self.table_branch,
            row_count=self.row_count,
        )


@dataclass(frozen=True)
class Head:
    """The mutable row of a manifest branch: its newest commit, and the hash of its schema."""

    commit_id: str
    schema_hash: str

    def row(self) -> ManifestRow:
        """Return the `graph_head` row."""
        return ManifestRow(
            GRAPH_HEAD, GRAPH_HEAD, {"commit_id": self.commit_id, "schema_hash": self.schema_hash}
        )


@dataclass(frozen=True)
class AcceptedSchema:
    """The accepted schema of a branch: source text, compiled form and state, as stored."""

    source: str
    ir: dict[str, Any]
    state: dict[str, Any]

    @property
    def schema_hash(self) -> str:
        """The hash that publishes compare."""
        return str(self.state["schema_ir_hash"])

    @cached_property
    def compiled(self) -> SchemaIR:
        """The compiled form, which is checked while it is read; that takes long for many types."""
        return read_ir(self.ir)

    def row(self) -> ManifestRow:
        """Return the `schema` row."""
        return ManifestRow(
            SCHEMA, SCHEMA, {"source": self.source, "ir": self.ir, "state": self.state}
        )


@dataclass(frozen=True)
class Tag:
    """A named commit. `pin` is the name of the Lance tags that keep its versions."""

    name: str
    commit_id: str
    created_at: int
    pin: str
    actor_id: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the form in which results show a tag."""
        return {
            "name": self.name,
            "graph_commit_id": self.commit_id,
            "actor_id": self.actor_id,
            "created_at": self.created_at,
        }

    def row(self) -> ManifestRow:
        """Return the `tag` row."""
        metadata = {
            "commit_id": self.commit_id,
            "created_at": self.created_at,
            "pin": self.pin,
            "actor_id": self.actor_id,
        }
        return ManifestRow(tag_object_id(self.name), TAG, metadata)


def tag_object_id(name: str) -> str:
    """Return the object id of a tag's row."""
    return f"tag:{name}"


def tombstone_row(table_key: str, seq: int) -> ManifestRow:
    """Return the row that ends a type at manifest version `seq`."""
    object_id = f"{table_key}$tombstone${seq:0{_SEQ_DIGITS}d}"
    return ManifestRow(object_id, TABLE_TOMBSTONE, {}, table_key=table_key)


def voided_row(commit_id: str, operation_id: str) -> ManifestRow:
    """Return the row that voids a commit id, so that its writer can never publish it."""
    return ManifestRow(commit_id, VOIDED_COMMIT, {"operation_id": operation_id})


def identity_counter_row(following: int) -> ManifestRow:
    """Return the row that says which number is the next free one."""
    return ManifestRow(IDENTITY_COUNTER, IDENTITY_COUNTER, {"next": following})


def seq_of(object_id: str) -> int:
    """Read the manifest version out of the id of a version or tombstone row.

    >>> seq_of("node:Person$00000000000000000007")
    7
    """
    return int(object_id[-_SEQ_DIGITS:])


def rows_table(rows: Iterable[ManifestRow]) -> pa.Table:
    """Build the Arrow table that is written to `__manifest`."""
    forms = [{**vars(row), "metadata": orjson.dumps(row.metadata).decode()} for row in rows]
    return pa.Table.from_pylist(forms, schema=MANIFEST_SCHEMA)
