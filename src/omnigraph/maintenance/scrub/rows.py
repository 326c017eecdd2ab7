"""Finds which rows of a table a damaged file holds, from the files that are not damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from omnigraph.maintenance.scrub.report import DamagedRows
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import FileKind, ScanRequest


def rows_file_of(blob: str) -> str:
    """Return the file of rows that a file of large values belongs to."""
    return blob.rpartition("/")[0] + ".lance"


def _fragment_rows(handle: DatasetHandle, path: str) -> DamagedRows | None:
    name = path.rpartition("/")[2]
    for fragment in handle.fragments():
        if any(file.endswith(name) for file in fragment.files):
            ids = handle.row_ids(fragment.fragment_id)
            return DamagedRows(
                (fragment.fragment_id,),
                fragment.physical_rows,
                first_row_id=ids[0].as_py() if len(ids) else None,
                last_row_id=ids[-1].as_py() if len(ids) else None,
            )
    return None


def _blob_rows(handle: DatasetHandle, path: str) -> DamagedRows | None:
    """Describe the rows of damaged large values; their ids lie in an undamaged file."""
    found = _fragment_rows(handle, rows_file_of(path))
    if found is None:
        return None
    request = ScanRequest(columns=("id",), fragment_ids=found.fragment_ids)
    ids = handle.scan(request).read_all()["id"]
    first, last = (ids[0].as_py(), ids[-1].as_py()) if len(ids) else (None, None)
    return DamagedRows(found.fragment_ids, found.rows, first_id=first, last_id=last)


def _index_rows(handle: DatasetHandle, path: str) -> DamagedRows | None:
    uuid = path.split("/")[-2]
    for index in handle.indexes():
        for segment in index.segments:
            if segment.uuid == uuid:
                covered = set(segment.fragment_ids)
                rows = sum(f.rows for f in handle.fragments() if f.fragment_id in covered)
                return DamagedRows(segment.fragment_ids, rows)
    return None


ROWS_BY_KIND: Final[Mapping[FileKind, Callable[[DatasetHandle, str], DamagedRows | None]]] = {
    FileKind.ROWS: _fragment_rows,
    FileKind.DELETIONS: _fragment_rows,
    FileKind.BLOBS: _blob_rows,
    FileKind.INDEX: _index_rows,
}
