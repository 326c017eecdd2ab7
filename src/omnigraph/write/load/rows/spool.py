"""What a load keeps until it has read all of its input: in memory up to a budget, then in files.

1. Whole rows that wait (those of a merge, and those that may still be rejected) and numbers per row
   share one budget of memory. What exceeds it is spilled to a temporary directory, which is removed
   when the `SpoolBudget` closes.
2. Files are read in batches and never mapped: memory stays bounded by a batch, and the operating
   system counts nothing of them as memory of this process.
3. Where files find no space the load ends with `StorageFullError`.
"""

from __future__ import annotations

import errno
import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from io import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.store.errors import StorageFullError
from omnigraph.write.load.memory import release_memory, returned_memory

MEMORY_MAX: Final = 64 << 20
"""What one load keeps in memory, in bytes."""
_BYTES_PER_SORTED_ROW: Final = 32
"""About what it costs to sort hashes or to index them."""

_CHUNK_BYTES: Final = 4 << 20
_BATCH_BYTES_MIN: Final = 1 << 20
"""Smaller batches are put together before they are written."""
_SLAB_NUMBERS: Final = 1 << 18
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)

Columns: TypeAlias = tuple[npt.NDArray[Any], ...]


class SpoolBudget:
    """The budget and the files of one load."""

    def __init__(self, bytes_in_memory_max: int = MEMORY_MAX) -> None:
        self._bytes_left = bytes_in_memory_max
        self.rows_at_once = max(1, bytes_in_memory_max // _BYTES_PER_SORTED_ROW)
        """How many rows may have their hashes in memory together while a rule looks at them."""
        self.streams = 0
        """How many tables are written while more rows are read."""
        self.waiting_bytes = 0
        """Rows that may still be streamed, and are in no spool."""
        self._large = ExitStack()
        self._is_large = False
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0
        self._opened: list[BinaryIO] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *trace: object
    ) -> None:
        for file in self._opened:
            # Closing flushes the buffer. A failure does not matter: the file is removed next.
            with suppress(OSError):
                file.close()
        if self._directory is not None:
            self._directory.cleanup()
        self._large.close()
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            reason = f"{os.strerror(error.errno)}; TMPDIR can name another place for waiting rows"
            raise StorageFullError(path=tempfile.gettempdir(), reason=reason) from error

    def spool(self, schema: pa.Schema) -> Spool:
        """Return a spool for the rows of one table."""
        return Spool(self, schema)

    def numbers(self, kind: npt.DTypeLike, width: int = 1) -> NumberSpool:
        """Return a spool for one number per row, or several."""
        return NumberSpool(self, np.dtype(kind), width)

    def reserve(self, size: int) -> bool:
        """Take memory from the budget; false when there is not enough left."""
        if size > self._bytes_left:
            return False
        self._bytes_left -= size
        return True

    def release(self, size: int) -> None:
        """Return memory to the budget."""
        self._bytes_left += size

    def begin_stream(self) -> None:
        """Count a table that is written while more rows are read."""
        self.streams += 1
        self._become_large()

    def end_stream(self) -> None:
        """Count a table whose rows are all written."""
        self.streams -= 1

    def release_memory(self) -> None:
        """Return freed memory to the system, if the load is large."""
        if self._is_large:
            release_memory()

    def _become_large(self) -> None:
        if not self._is_large:
            self._is_large = True
            self._large.enter_context(returned_memory())

    def new_file(self) -> Path:
        """Return the path of a file that does not exist yet."""
        self._become_large()
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="omnigraph-load-")
        self._files += 1
        return Path(self._directory.name) / str(self._files)

    def open_file(self) -> BinaryIO:
        """Open a new file for writing and reading; it is closed with the budget."""
        file = self.new_file().open("w+b")
        self._opened.append(file)
        return file

    def discard_file(self, file: BinaryIO) -> None:
        """Close and remove a file that is not needed any more."""
        self._opened.remove(file)
        file.close()
        Path(file.name).unlink()


class Spool:
    """The rows of one table, in the order in which they came."""

    def __init__(self, budget: SpoolBudget, schema: pa.Schema) -> None:
        self._budget = budget
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
        if self._writer is None and self._budget.reserve(batch.nbytes):
            return
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= _CHUNK_BYTES:
            self._write_out()

    def finish(self) -> None:
        """Close the file, if there is one; nothing can be added afterwards."""
        if self._writer is None:
            return
        self._write_out()
        self._writer.close()
        self._writer = None
        if self._sink is not None:
            self._sink.close()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read everything that was added, after `finish`; of a file only the asked columns."""
        if self._path is None:
            for batch in self._batches:
                yield batch if columns is None else batch.select(list(columns))
            return
        names = self._schema.names if columns is None else list(columns)
        places = sorted(self._schema.get_field_index(name) for name in names)
        options = pa.ipc.IpcReadOptions(included_fields=places)
        with pa.OSFile(str(self._path)) as file:
            reader = pa.ipc.open_file(file, options=options)
            schema = pa.schema([self._schema.field(name) for name in names])
            for number in range(reader.num_record_batches):
                columns_read = reader.get_batch(number).select(names).columns
                yield pa.RecordBatch.from_arrays(columns_read, schema=schema)

    def _write_out(self) -> None:
        if not self._batches:
            return
        if self._writer is None:
            self._path = self._budget.new_file()
            self._sink = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_file(self._sink, _plain(self._schema))
        rows = pa.Table.from_batches(self._batches, self._schema).cast(_plain(self._schema))
        is_fine = rows.nbytes < len(self._batches) * _BATCH_BYTES_MIN
        self._writer.write_table(rows.combine_chunks() if is_fine else rows)
        self._batches, self._pending_bytes = [], 0


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the types alone: a file that names Lance's blobs is read back as other arrays."""
    return pa.schema([pa.field(field.name, field.type, field.nullable) for field in schema])


class NumberSpool:
    """One number per row, or several, in row order."""

    def __init__(self, budget: SpoolBudget, kind: np.dtype[Any], width: int) -> None:
        self._budget = budget
        self._kind = kind
        self._width = width
        self._parts: list[Columns] = []
        self._starts: list[int] = []
        self._files: list[BinaryIO] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, *columns: npt.NDArray[Any]) -> None:
        """Add numbers."""
        own = tuple(np.ascontiguousarray(column, self._kind) for column in columns)
        start = self._count
        self._count += len(own[0])
        if not self._files:
            # All columns stay or go together, so that they are read in the same pieces.
            if self._budget.reserve(sum(column.nbytes for column in own)):
                self._parts.append(own)
                self._starts.append(start)
                return
            self._files = [self._budget.open_file() for _ in range(self._width)]
            for part in self._parts:
                self._write(part)
                self._budget.release(sum(column.nbytes for column in part))
            self._parts = []
        self._write(own)

    def slabs(self) -> Iterator[Columns]:
        """Read everything in pieces, a tuple of columns each."""
        if not self._files:
            yield from self._parts
            return
        for start in range(0, self._count, _SLAB_NUMBERS):
            yield tuple(self._read(file, start) for file in self._files)

    def whole(self, column: int = 0) -> npt.NDArray[Any]:
        """Read one column into one array."""
        if not self._files and len(self._parts) == 1:
            return self._parts[0][column]
        whole = np.empty(self._count, self._kind)
        start = 0
        for slab in self.slabs():
            whole[start : start + len(slab[column])] = slab[column]
            start += len(slab[column])
        return whole

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Read the first column of some rows, in any order; only the pieces that they are in."""
        if not self._files:
            return self.whole()[rows]
        taken = np.empty(len(rows), self._kind)
        entity_types = rows // _SLAB_NUMBERS
        for entity_type in np.unique(entity_types).tolist():
            own = entity_types == entity_type
            start = entity_type * _SLAB_NUMBERS
            taken[own] = self._read(self._files[0], start)[rows[own] - start]
        return taken

    def between(self, low: int, high: int) -> npt.NDArray[Any]:
        """Read the first column of consecutive rows."""
        if self._files:
            self._files[0].seek(low * self._kind.itemsize)
            size = max(0, high - low) * self._kind.itemsize
            return np.frombuffer(self._files[0].read(size), self._kind)
        pieces = [np.zeros(0, self._kind)]
        number = max(0, bisect_right(self._starts, low) - 1)
        while number < len(self._starts) and self._starts[number] < high:
            start = self._starts[number]
            pieces.append(self._parts[number][0][max(0, low - start) : high - start])
            number += 1
        return pieces[1] if len(pieces) == 2 else np.concatenate(pieces)

    def close(self) -> None:
        """Give memory back and remove the files; nothing can be read any more."""
        self._budget.release(sum(column.nbytes for part in self._parts for column in part))
        for file in self._files:
            self._budget.discard_file(file)
        self._parts, self._starts, self._files, self._count = [], [], [], 0

    def _write(self, columns: Columns) -> None:
        for file, column in zip(self._files, columns, strict=True):
            file.seek(0, SEEK_END)
            file.write(column.data)

    def _read(self, file: BinaryIO, start: int) -> npt.NDArray[Any]:
        file.seek(start * self._kind.itemsize)
        return np.frombuffer(file.read(_SLAB_NUMBERS * self._kind.itemsize), self._kind)
