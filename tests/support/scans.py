"""What a scan costs, how Lance plans it, and how far the index reaches that it uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.maintenance.build_indexes import find_index
from omnigraph.store import DatasetHandle
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.records import IndexKind, ScanRequest


@dataclass(frozen=True)
class ScanStatistics:
    """What a scan has cost."""

    bytes_read: int
    indexes_loaded: int


def scan_statistics(handle: DatasetHandle, request: ScanRequest) -> tuple[pa.Table, ScanStatistics]:
    """Read rows; return them with what the scan has cost."""
    assert isinstance(handle, LanceHandle)
    seen: list[Any] = []

    class Watched(LanceHandle):
        def _native_scanner(self, **options: Any) -> Any:
            return super()._native_scanner(**options, scan_stats_callback=seen.append)

    watched = Watched(handle.dataset, handle.at, missing=lambda _: None)
    table = watched._scanner(request).to_table()
    return table, ScanStatistics(seen[-1].bytes_read, seen[-1].indices_loaded)


def explain(handle: DatasetHandle, request: ScanRequest) -> str:
    """Return Lance's plan for a scan."""
    assert isinstance(handle, LanceHandle)
    return str(handle._scanner(request).explain_plan())


def coverage_of(handle: DatasetHandle, column: str) -> str | None:
    """Return why a probe of a BTREE column would have to scan; None when it would not."""
    if handle.schema.get_field_index(column) < 0:
        return f"column '{column}' not in schema"
    index = find_index(handle.indexes(), column, IndexKind.BTREE)
    if index is None:
        return f"no BTREE index on '{column}'"
    covered = {number for segment in index.segments for number in segment.fragment_ids}
    missing = sum(one.fragment_id not in covered for one in handle.fragments())
    return f"{missing} fragment(s) not covered by the index on '{column}'" if missing else None
