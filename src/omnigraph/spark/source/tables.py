"""Plans the read of one node or edge type.

1. The plan of a read is made once, on the pinned snapshot: a dataset version, the columns, the
   checked filter, and which fragments each task reads. Tasks look at nothing else of the graph.
2. Partitions follow fragments: neighbours are read together until they have `PARTITION_ROWS` rows,
   or by `fragmentsPerPartition`. A fragment in which an index finds no match is not read at all.
   Batches have about `BATCH_BYTES`, because each of them costs Spark as much as thousands of rows.
3. What storage can decide exactly is decided there; the rest of a filter is evaluated on the rows
   that it returns, by the rules of queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.manifest.errors import TypeNotFoundError
from omnigraph.names import nearest_name
from omnigraph.query.row_filter import SourceError, compile_row_filter
from omnigraph.schema import EntityType
from omnigraph.spark.source.options import (
    SourceOptionError,
    SourceOptions,
    column_names,
    positive_integer,
)
from omnigraph.spark.source.pin import open_pinned
from omnigraph.spark.source.scan import BLOB_BATCH_ROWS, Pin, TablePlan, TableScan
from omnigraph.spark.types import default_columns, entity_schema
from omnigraph.store import StoreSettings
from omnigraph.store.filters import filter_columns
from omnigraph.store.records import ROW_ADDRESS, FragmentInfo, ScanRequest
from omnigraph.write.mutate.predicates import constant_condition

if TYPE_CHECKING:
    from omnigraph.manifest import Snapshot
    from omnigraph.query.plan.plan import Predicate
    from omnigraph.store import DatasetHandle
PARTITION_ROWS: Final = 1_000_000
"""The size of a full fragment: smaller ones share a task."""
BATCH_BYTES: Final = 8 << 20
BATCH_ROWS_MIN: Final = 256
BATCH_ROWS_MAX: Final = 1 << 16

_MATCHES_LOOKED_UP_MAX: Final = 100_000
"""Fragments are left out when an index finds at most so many matching rows."""


def plan_table(kind: str, name: str, pin: Pin, options: SourceOptions) -> TablePlan:
    """Plan the read of a type on a pinned snapshot."""
    snapshot = open_pinned(pin)
    scan = table_scan(snapshot, find_type(snapshot, kind, name), pin.settings, options)
    handle = snapshot.open(f"{kind}:{name}")
    together = positive_integer(options, "fragmentsPerPartition")
    batch_rows = BLOB_BATCH_ROWS if scan.has_blobs else rows_per_batch(handle.fragments())
    return TablePlan(replace(scan, batch_rows=batch_rows), partitions(handle, scan, together))


def find_type(snapshot: Snapshot, kind: str, name: str) -> EntityType:
    """Return a type of the snapshot's schema."""
    catalog = snapshot.catalog
    known = catalog.node_types if kind == "node" else catalog.edge_types
    entity_type: EntityType | None = known.get(name)
    if entity_type is None:
        near = nearest_name(name, known)
        hint = f"did you mean `{near}`?" if near else f"there are {', '.join(sorted(known))}"
        raise SourceOptionError(kind, f"names no {kind} type of this graph: `{name}`; {hint}")
    if entity_type.table_key not in snapshot.entries:
        raise TypeNotFoundError(entity_type.table_key, snapshot.manifest_version)
    return entity_type


def table_scan(
    snapshot: Snapshot, entity_type: EntityType, settings: StoreSettings, options: SourceOptions
) -> TableScan:
    """Check columns and filter, and return what tasks read."""
    columns = columns_of(options, entity_type)
    text = options["filter"]
    entry = snapshot.entry(entity_type.table_key)
    scan = TableScan(
        settings=settings,
        at=entry.at,
        columns=columns,
        schema=entity_schema(entity_type, columns),
        has_blobs=bool(set(columns) & set(entity_type.blob_properties)),
    )
    return scan if text is None else _filtered(scan, _predicate(text, entity_type))


def columns_of(options: SourceOptions, entity_type: EntityType) -> tuple[str, ...]:
    """Return the columns of a type that a read names, or those that it has by default."""
    columns = column_names(options) or default_columns(entity_type)
    known = entity_type.arrow_schema.names
    for column in columns:
        if column not in known:
            near = nearest_name(column, known)
            hint = f"did you mean `{near}`?" if near else f"there are {', '.join(known)}"
            raise SourceOptionError(
                "columns", f"names no column of `{entity_type.name}`: `{column}`; {hint}"
            )
    return columns


def _filtered(scan: TableScan, predicate: Predicate) -> TableScan:
    condition = constant_condition(predicate)
    pushed = condition.pushed
    if condition.rest is None:
        return replace(scan, row_filter=pushed)
    # Rows that storage returns are tested against the whole filter, for which its columns are read.
    seen = condition.rest_columns | (filter_columns(pushed) if pushed else frozenset())
    return replace(scan, row_filter=pushed, rest=predicate, rest_columns=tuple(sorted(seen)))


def _predicate(text: str, entity_type: EntityType) -> Predicate:
    try:
        return compile_row_filter(text, entity_type)
    except SourceError as error:
        # Spark shows only the message of an error, so the position is part of it.
        raise SourceOptionError("filter", f"cannot be read:\n{error.render()}") from error


# -- which task reads what ------------------------------------------------------------------------


def partitions(
    handle: DatasetHandle, scan: TableScan, together: int | None
) -> tuple[tuple[int, ...], ...]:
    """Return the fragments of each task."""
    fragments: Sequence[FragmentInfo] = [one for one in handle.fragments() if one.rows]
    matching = _matching_fragments(handle, scan)
    if matching is not None:
        fragments = [one for one in fragments if one.fragment_id in matching]
    if together is not None:
        ids = [one.fragment_id for one in fragments]
        return tuple(tuple(ids[at : at + together]) for at in range(0, len(ids), together))
    return grouped_by_rows(fragments)


def grouped_by_rows(fragments: Sequence[FragmentInfo]) -> tuple[tuple[int, ...], ...]:
    """Put neighbours together until they have `PARTITION_ROWS` rows.

    >>> few = [FragmentInfo(number, 600_000, 0, 0, "") for number in range(3)]
    >>> grouped_by_rows(few)
    ((0, 1), (2,))
    """
    groups: list[list[int]] = []
    rows = PARTITION_ROWS
    for fragment in fragments:
        if rows >= PARTITION_ROWS:
            groups.append([])
            rows = 0
        groups[-1].append(fragment.fragment_id)
        rows += fragment.rows
    return tuple(map(tuple, groups))


def rows_per_batch(fragments: Sequence[FragmentInfo]) -> int:
    """Return how many rows have about `BATCH_BYTES`, by the size of all columns in storage.

    >>> rows_per_batch([FragmentInfo(0, 1_000, 0, 3_000_000, "")])
    2796
    """
    rows = sum(fragment.physical_rows for fragment in fragments)
    size = sum(fragment.data_bytes for fragment in fragments)
    fitting = BATCH_BYTES * rows // max(size, 1)
    return max(BATCH_ROWS_MIN, min(fitting, BATCH_ROWS_MAX))


def _matching_fragments(handle: DatasetHandle, scan: TableScan) -> frozenset[int] | None:
    """Ask the indexes which fragments hold a match; None when that would cost a scan."""
    if scan.row_filter is None:
        return None
    indexed = {column for index in handle.indexes() for column in index.columns}
    if not filter_columns(scan.row_filter) <= indexed:
        return None
    request = ScanRequest(
        columns=(),
        row_filter=scan.row_filter,
        with_row_address=True,
        limit=_MATCHES_LOOKED_UP_MAX + 1,
    )
    addresses = handle.scan(request).read_all()[ROW_ADDRESS]
    if len(addresses) > _MATCHES_LOOKED_UP_MAX:
        return None
    numbers = pc.unique(pc.shift_right(addresses.cast(pa.uint64()), pa.scalar(32, pa.uint64())))
    return frozenset(numbers.to_pylist())
