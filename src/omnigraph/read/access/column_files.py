"""Columns as files that processes of one machine map, so that each is in memory once.

```
 0  8  magic `OGCOLUM` and the format number, one byte
 8  8  checksum of the rest: the sum of its 64-bit words
16 48  zeros
64  …  an Arrow stream with one batch, uncompressed
```

1. A file is named by what it was made from: the files and the version of a dataset, the schema and
   the column. It never changes. It appears whole or not at all; of several processes that write it
   one succeeds, and all map that file.
2. Everything here is derived. A file that is absent, damaged or cannot be written costs time and
   memory; no query fails because of it, and any file may be deleted at any time.
3. Only columns of at least `BYTES_MIN` are written. The folder is bounded by bytes; the files that
   were written or mapped longest ago are deleted first. Who has them mapped keeps them.
4. The folder and its files can be read by their owner alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.search.topology.file import checksum

FOLDER: Final = "OMNIGRAPH_COLUMN_FOLDER"
BYTES_MIN: Final = 1 << 16
"""Smaller columns are not worth a file."""

_MAGIC: Final = b"OGCOLUM\x01"
_PREFIX: Final = struct.Struct("<8sQ")
_START: Final = 64
_SUFFIX: Final = ".column"
_PART_SUFFIX: Final = ".part"
_PART_AGE_S: Final = 3_600
"""A file that is still being written after so long was left by a process that was killed."""
_KEY_DIGITS: Final = 32

_log = logging.getLogger(__name__)


class ColumnFiles:
    """The files of one folder. Safe to share between threads and processes."""

    def __init__(self, folder: Path, bytes_max: int, *, bytes_min: int = BYTES_MIN) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._bytes_min = bytes_min

    @classmethod
    def of(cls, environment: Mapping[str, str], bytes_max: int) -> ColumnFiles | None:
        """Return the files of the folder that the environment names; None when it names none."""
        folder = environment.get(FOLDER, "").strip()
        return cls(Path(folder), bytes_max) if folder else None

    def shared(self, parts: tuple[str, ...], arrays: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return arrays of equal length from a mapped file, which is written if it is absent.

        `parts` is what they were made from. Without a file they are returned as they are.
        """
        if not self._bytes_min <= sum(array.nbytes for array in arrays.values()) <= self._bytes_max:
            return dict(arrays)
        path = self._path(parts)
        try:
            if not path.exists():
                self._write(path, arrays)
            return _mapped(path) or dict(arrays)
        except (OSError, pa.ArrowException) as error:
            _log.warning("could not share a column as %s: %s", path, error)
            return dict(arrays)

    def load(self, parts: tuple[str, ...]) -> dict[str, pa.Array] | None:
        """Return the arrays of a file; None when there is none, or it is damaged."""
        path = self._path(parts)
        try:
            found = _mapped(path)
            if found is None:
                path.unlink()
            else:
                os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            _log.warning("could not read the column %s: %s", path, error)
            return None
        return found

    def _path(self, parts: tuple[str, ...]) -> Path:
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_KEY_DIGITS]
        return self._folder / f"{key}{_SUFFIX}"

    def _write(self, path: Path, arrays: Mapping[str, pa.Array]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        batch = pa.record_batch(dict(arrays))
        self._make_room(batch.nbytes)
        handle, temporary = tempfile.mkstemp(_PART_SUFFIX, dir=self._folder)
        try:
            with os.fdopen(handle, "r+b") as file:
                file.write(bytes(_START))
                with pa.ipc.new_stream(file, batch.schema) as writer:
                    writer.write_batch(batch)
                file.seek(_START)
                total = checksum(np.frombuffer(file.read(), np.uint8))
                file.seek(0)
                file.write(_PREFIX.pack(_MAGIC, total))
            # Another process may have been quicker: its file stays.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            Path(temporary).unlink()

    def _make_room(self, needed: int) -> None:
        """Delete parts that were left, and the files used longest ago until another one fits."""
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_size, path))
        left_before_s = time.time() - _PART_AGE_S
        for path in self._folder.glob(f"*{_PART_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < left_before_s:
                    path.unlink()
        total = needed + sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._bytes_max:
                return
            path.unlink(missing_ok=True)
            total -= size


def _mapped(path: Path) -> dict[str, pa.Array] | None:
    """Map a file; None when it is damaged."""
    with pa.memory_map(str(path)) as source:
        content = source.read_buffer()
    if len(content) < _START:
        return None
    magic, expected = _PREFIX.unpack_from(content)
    whole = content.slice(_START)
    if magic != _MAGIC or checksum(np.frombuffer(whole, np.uint8)) != expected:
        return None
    batch = pa.ipc.open_stream(whole).read_next_batch()
    return dict(zip(batch.schema.names, batch.columns, strict=True))
