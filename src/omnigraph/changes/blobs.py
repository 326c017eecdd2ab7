"""When two blobs are equal, reading as few of them as possible.

Null, external and managed are three different things. External blobs are equal when they name the
same part of the same object; nothing is fetched. Managed ones of different sizes differ; of the
same size they are read and compared, a bounded number of bytes at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.compare import Mask, differing_values, to_mask
from omnigraph.store.datasets import DatasetHandle

BYTES_AT_ONCE: Final = 32 << 20


def differing_blobs(
    before: DatasetHandle,
    after: DatasetHandle,
    column: str,
    left: tuple[pa.Array, pa.Array],
    right: tuple[pa.Array, pa.Array],
) -> Mask:
    """Mark the rows whose blobs differ.

    Each side is the stored descriptions and the stable row ids of the same rows.
    """
    old, old_ids = left
    new, new_ids = right
    differ: Mask = to_mask(old.is_valid()) != to_mask(new.is_valid())
    differ |= differing_values(_uris(old), _uris(new))
    is_external = to_mask(_uris(old).is_valid())
    for part in ("position", "size"):
        differs = differing_values(pc.struct_field(old, part), pc.struct_field(new, part))
        differ |= differs if part == "size" else differs & is_external
    unread = np.flatnonzero(to_mask(old.is_valid()) & ~is_external & ~differ)
    sizes = pc.struct_field(old, "size").fill_null(0).to_numpy(zero_copy_only=False)
    for rows in _parts(unread, sizes):
        taken = pa.array(rows)
        old_bytes = before.read_blobs(column, old_ids.take(taken).to_pylist())
        new_bytes = after.read_blobs(column, new_ids.take(taken).to_pylist())
        differ[rows] = [one != other for one, other in zip(old_bytes, new_bytes, strict=True)]
    return differ


def _uris(described: pa.Array) -> pa.Array:
    """Return the addresses of external blobs; null for all others."""
    uris = pc.struct_field(described, "blob_uri")
    return pc.if_else(pc.not_equal(uris, "").fill_null(False), uris, None)


def _parts(
    rows: np.ndarray[tuple[int, ...], np.dtype[np.intp]],
    sizes: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.intp]]]:
    if not len(rows):
        return
    groups = np.cumsum(sizes[rows].astype(np.int64)) // BYTES_AT_ONCE
    yield from np.split(rows, np.flatnonzero(np.diff(groups)) + 1)
