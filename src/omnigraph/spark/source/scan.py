"""What tasks read, and how: the part of the source that runs on every executor.

Spark imports this module in each task, so it imports little: storage and types. What a filter needs
beyond storage is imported by the tasks that have such a filter, and Lance when a store is opened,
because it does not survive a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from omnigraph.spark.types import travelling
from omnigraph.store import StoreSettings, open_store
from omnigraph.store.filters import Filter
from omnigraph.store.records import DatasetVersion, ScanRequest

if TYPE_CHECKING:
    from omnigraph.query.plan.plan import Predicate

BLOB_BATCH_ROWS: Final = 16
"""Blobs may be large, and a batch of them must fit into memory several times."""


@dataclass(frozen=True)
class Pin:
    """A snapshot by name: enough to open it anywhere."""

    settings: StoreSettings
    branch: str
    commit_id: str


@dataclass(frozen=True)
class TableScan:
    """What the tasks of one read have in common."""

    settings: StoreSettings
    at: DatasetVersion
    columns: tuple[str, ...]
    schema: pa.Schema
    row_filter: Filter | None = None
    """What storage decides about rows."""
    rest: Predicate | None = None
    """What is left to decide about the rows that storage returns."""
    rest_columns: tuple[str, ...] = ()
    has_blobs: bool = False
    batch_rows: int | None = None
    """How many rows travel together; None leaves that to storage."""

    def request(self, fragment_ids: tuple[int, ...] | None = None) -> ScanRequest:
        """Return what a task asks of storage."""
        extra = (name for name in self.rest_columns if name not in self.columns)
        return ScanRequest(
            columns=(*self.columns, *extra),
            row_filter=self.row_filter,
            fragment_ids=fragment_ids,
            blobs_as_bytes=self.has_blobs,
            batch_rows=self.batch_rows,
        )


@dataclass(frozen=True)
class TablePlan:
    """A read that has been planned."""

    scan: TableScan
    parts: tuple[tuple[int, ...], ...]
    """The fragments of each task."""


class FragmentsPartition(InputPartition):
    """What one task reads: fragments of one version of one dataset, some columns, some rows."""

    def __init__(self, scan: TableScan, fragment_ids: tuple[int, ...]) -> None:
        super().__init__(fragment_ids)
        self.scan = scan
        self.fragment_ids = fragment_ids


class TypeReader(DataSourceReader):
    """Reads a node or edge type, a group of fragments per task."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan

    def with_nullable(self, names: Collection[str]) -> TypeReader:
        """Return a reader whose batches allow nulls in these columns, and in no others."""
        scan = self._plan.scan
        fields = [field.with_nullable(field.name in names) for field in scan.schema]
        return TypeReader(replace(self._plan, scan=replace(scan, schema=pa.schema(fields))))

    def partitions(self) -> list[InputPartition]:
        """Return one partition per group of fragments; one that is empty when there are none."""
        parts = self._plan.parts or ((),)
        return [FragmentsPartition(self._plan.scan, part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FragmentsPartition):
            raise TypeError(f"expected fragments to read, got {type(partition).__name__}")
        return read_fragments(partition.scan, partition.fragment_ids)


class OneTaskReader(DataSourceReader):
    """Reads in one task what `rows` returns there."""

    def __init__(self, rows: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is only one
        return iter(self._rows())


def read_fragments(scan: TableScan, fragment_ids: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some fragments, in the form in which they travel to Spark."""
    if not fragment_ids:
        return
    datasets = open_store(scan.settings).datasets
    handle = datasets.open(scan.at.location, branch=scan.at.branch, version=scan.at.version)
    for batch in handle.scan(scan.request(fragment_ids)):
        kept = batch if scan.rest is None else _kept(batch, scan.rest)
        if kept.num_rows:
            yield travelling(kept, scan.schema)


def _kept(batch: pa.RecordBatch, rest: Predicate) -> pa.RecordBatch:
    from omnigraph.write.mutate.predicates import (  # noqa: PLC0415 - paid by tasks that need it
        constant_condition,
    )

    mask = constant_condition(rest).holds(pa.Table.from_batches([batch]))
    return batch.filter(mask, null_selection_behavior="drop")
