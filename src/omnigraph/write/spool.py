"""Rows on their way in: kept in memory while they are few, in a file when they are many.

A load has to see all of its input before it can judge it, and must not hold it. Rows beyond a
budget go to files in a directory of the system's, which are mapped into memory when they are read
again, and removed with the `SpoolRoom`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

MEMORY_MAX: Final = 128 << 20
"""Rows of one load that stay in memory, in bytes."""

_CHUNK_BYTES: Final = 4 << 20
_BATCH_BYTES_MIN: Final = 1 << 20
"""Smaller batches are put together before they are written."""


class SpoolRoom:
    """The budget and the files of one load."""

    def __init__(self, bytes_in_memory_max: int = MEMORY_MAX) -> None:
        self._budget = bytes_in_memory_max
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._directory is not None:
            self._directory.cleanup()

    def spool(self, schema: pa.Schema) -> Spool:
        """Open a place for the rows of one table."""
        return Spool(self, schema)

    def reserve(self, size: int) -> bool:
        """Take memory from the budget; false when there is not enough left."""
        if size > self._budget:
            return False
        self._budget -= size
        return True

    def new_file(self) -> Path:
        """Return the path of a file that does not exist yet."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="omnigraph-load-")
        self._files += 1
        return Path(self._directory.name) / f"{self._files}.arrow"


class Spool:
    """The rows of one table, in the order in which they came."""

    def __init__(self, room: SpoolRoom, schema: pa.Schema) -> None:
        self._room = room
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._path: Path | None = None
        self._sink: pa.NativeFile | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if not batch.num_rows:
            return
        self._batches.append(batch)
        if self._writer is None and self._room.reserve(batch.nbytes):
            return
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= _CHUNK_BYTES:
            self._write_out()

    def finish(self) -> pa.Table:
        """Return everything that was added; nothing can be added afterwards."""
        if self._writer is None:
            return pa.Table.from_batches(self._batches, self._schema)
        self._write_out()
        self._writer.close()
        if self._sink is not None:
            self._sink.close()
        return pa.ipc.open_file(pa.memory_map(str(self._path))).read_all()

    def _write_out(self) -> None:
        if self._writer is None:
            self._path = self._room.new_file()
            self._sink = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_file(self._sink, self._schema)
        rows = pa.Table.from_batches(self._batches, self._schema)
        is_fine = self._pending_bytes < len(self._batches) * _BATCH_BYTES_MIN
        self._writer.write_table(rows.combine_chunks() if is_fine else rows)
        self._batches, self._pending_bytes = [], 0
