"""From the stored description of blobs to their contents.

External blobs stay references and are never opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import ROW_ID
from omnigraph.values import BLOB_STORAGE

BLOB_DESCRIPTION: Final = pa.struct(
    [
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("blob_id", pa.uint32(), nullable=False),
        pa.field("blob_uri", pa.utf8(), nullable=False),
    ]
)
"""What a scan returns in place of a blob."""
BLOB_BATCH_ROWS: Final = 1024
BLOB_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024


def with_blobs(
    handle: DatasetHandle, batch: pa.RecordBatch, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Exchange the descriptions of blobs for their contents, a bounded number of bytes at once."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in names:
        sizes += _sizes(batch[name])
    for start, stop in blob_slices(sizes):
        part = batch.slice(start, stop - start)
        for name in names:
            column = blob_contents(handle, name, part[name], part[ROW_ID])
            part = part.set_column(part.schema.get_field_index(name), name, column)
        yield part


def blob_slices(
    sizes: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> Iterator[tuple[int, int]]:
    """Split rows so that the contents of a part stay below the bound; at least one row each."""
    if not len(sizes):
        return
    groups = np.cumsum(sizes) // BLOB_BATCH_BYTES_MAX
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    yield from zip(starts.tolist(), [*starts[1:].tolist(), len(sizes)], strict=True)


def _sizes(described: pa.Array) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    managed = pc.and_(described.is_valid(), pc.invert(is_external(described)))
    sizes = pc.if_else(managed, pc.cast(pc.struct_field(described, "size"), pa.int64()), 0)
    return np.asarray(sizes.fill_null(0))


def is_external(described: pa.Array) -> pa.Array:
    """Mark the blobs that are objects outside of the graph."""
    return pc.not_equal(pc.struct_field(described, "blob_uri"), "").fill_null(False)


def blob_contents(
    handle: DatasetHandle, name: str, described: pa.Array, row_ids: pa.Array
) -> pa.Array:
    """Return blobs in the form in which they are written; external ones stay references."""
    outside = is_external(described)
    is_managed = pc.and_(described.is_valid(), pc.invert(outside))
    wanted = row_ids.filter(is_managed).to_pylist()
    found = iter(handle.read_blobs(name, wanted))
    data = pa.array([next(found) if managed else None for managed in is_managed.to_pylist()])
    uris = pc.if_else(outside, pc.struct_field(described, "blob_uri"), None)
    return pa.StructArray.from_arrays(
        [data.cast(pa.large_binary()), uris.cast(pa.utf8())],
        fields=list(BLOB_STORAGE),
        mask=described.is_null(),
    )
