"""Reads the metadata of a graph: commits, recoveries, datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.spark.source.options import (
    SourceOptionError,
    SourceOptions,
    SystemTable,
    refuse_options,
)
from omnigraph.spark.source.pin import open_pinned
from omnigraph.spark.source.query import graph_of
from omnigraph.spark.source.scan import Pin
from omnigraph.spark.types import MOMENT

_TEXTS: Final = pa.map_(pa.utf8(), pa.utf8())

_SCHEMAS: Final[dict[SystemTable, pa.Schema]] = {
    SystemTable.COMMITS: pa.schema(
        [
            pa.field("graph_commit_id", pa.utf8(), nullable=False),
            pa.field("graph_branch", pa.utf8()),
            pa.field("graph_manifest_version", pa.int64(), nullable=False),
            pa.field("parent_commit_id", pa.utf8()),
            pa.field("merged_parent_commit_id", pa.utf8()),
            pa.field("actor_id", pa.utf8()),
            pa.field("created_at", MOMENT, nullable=False),
            pa.field("operation", pa.utf8(), nullable=False),
            pa.field("message", pa.utf8()),
            pa.field("properties", _TEXTS, nullable=False),
        ]
    ),
    SystemTable.RECOVERIES: pa.schema(
        [
            pa.field("operation_id", pa.utf8(), nullable=False),
            pa.field("graph_commit_id", pa.utf8()),
            pa.field("recovery_kind", pa.utf8(), nullable=False),
            pa.field("recovery_for_actor", pa.utf8()),
            pa.field("sidecar_writer_kind", pa.utf8()),
            pa.field("transaction_ids", pa.list_(pa.field("element", pa.utf8())), nullable=False),
            pa.field("created_at", MOMENT, nullable=False),
        ]
    ),
    SystemTable.DATASETS: pa.schema(
        [
            pa.field("entity_kind", pa.utf8(), nullable=False),
            pa.field("type_name", pa.utf8(), nullable=False),
            pa.field("dataset_path", pa.utf8(), nullable=False),
            pa.field("published_dataset_version", pa.int64(), nullable=False),
            pa.field("native_dataset_branch", pa.utf8()),
            pa.field("entity_count", pa.int64(), nullable=False),
        ]
    ),
}


@dataclass(frozen=True)
class SystemScan:
    """A system table as the pinned snapshot shows it."""

    pin: Pin
    table: SystemTable

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return _SCHEMAS[self.table]


def plan_system(name: str, pin: Pin, options: SourceOptions) -> SystemScan:
    """Find a system table by name."""
    refuse_options(options, "system", ("columns", "filter", "fragmentsPerPartition"))
    try:
        return SystemScan(pin, SystemTable(name.lower()))
    except ValueError:
        known = ", ".join(SystemTable)
        raise SourceOptionError("system", f"is one of {known}; found '{name}'") from None


def read_system(scan: SystemScan) -> Iterable[pa.RecordBatch]:
    """Return the rows of a system table."""
    rows = _READERS[scan.table](scan.pin)
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in scan.schema]
    return [pa.RecordBatch.from_arrays(columns, schema=scan.schema)] if rows else []


def _commits(pin: Pin) -> list[dict[str, Any]]:
    return [
        {
            **commit.to_json(),
            "operation": commit.operation,
            "message": commit.message,
            "properties": list(commit.properties.items()),
        }
        for commit in open_pinned(pin).state.commits()
    ]


def _recoveries(pin: Pin) -> list[dict[str, Any]]:
    return [
        {
            **vars(record),
            "recovery_kind": str(record.recovery_kind),
            "transaction_ids": list(record.transaction_ids),
        }
        for record in graph_of(pin).recovery_list()
    ]


def _datasets(pin: Pin) -> list[dict[str, Any]]:
    entries = sorted(open_pinned(pin).entries.items())
    return [
        {
            "entity_kind": TableKey(key).kind,
            "type_name": TableKey(key).type_name,
            "dataset_path": entry.location,
            "published_dataset_version": entry.table_version,
            "native_dataset_branch": entry.table_branch,
            "entity_count": entry.row_count,
        }
        for key, entry in entries
    ]


_READERS: Final[dict[SystemTable, Callable[[Pin], list[dict[str, Any]]]]] = {
    SystemTable.COMMITS: _commits,
    SystemTable.RECOVERIES: _recoveries,
    SystemTable.DATASETS: _datasets,
}
