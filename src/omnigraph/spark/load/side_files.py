"""Files that tasks of one operation write for each other, under `__staging/<operation>/`.

1. A file has a new name for every attempt of a task; only those that a returned outcome names are
   ever read. They are not needed after the load, so they are not flushed to disk.
2. A file is fetched once per host and mapped into memory, not copied into every worker.
"""

from __future__ import annotations

import fcntl
import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.clock import SystemClock
from omnigraph.store.connect import StoreSettings, open_objects

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STAGING: Final = "__staging"
_OPEN_MAX: Final = 256


@dataclass(frozen=True)
class SideFiles:
    """The side files of one operation: picklable, so that tasks and driver share them."""

    settings: StoreSettings
    operation_id: str
    """Its id, or `id/part`: files of a part can be removed before those of the operation."""

    @property
    def folder(self) -> str:
        """Where they are, relative to the graph."""
        return f"{_STAGING}/{self.operation_id}"

    def write(self, kind: str, table: pa.Table) -> str:
        """Write a table as a new file; return its path."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        return self.write_bytes(kind, sink.getvalue().to_pybytes())

    def write_bytes(self, kind: str, content: bytes) -> str:
        """Write a new file; return its path."""
        path = self._new(kind)
        open_objects(self._unflushed()).put(path, content)
        return path

    def write_arrays(self, kind: str, *arrays: NDArray[Any]) -> str:
        """Write plain arrays one after another as a new file; return its path."""
        path = self._new(kind)
        pieces = (array.view(np.uint8).data for array in arrays if len(array))
        open_objects(self._unflushed()).put_pieces(path, pieces)
        return path

    def array(self, path: str, kind: np.dtype[Any], count: int, *, offset: int = 0) -> NDArray[Any]:
        """Map an array of a file that `write_arrays` has written, from a byte on."""
        if not count:
            return np.empty(0, kind)
        return np.memmap(self.local(path), kind, mode="r", offset=offset, shape=(count,))

    def _new(self, kind: str) -> str:
        return f"{self.folder}/{kind}-{SystemClock().ulid()}"

    def read_bytes(self, path: str) -> bytes:
        """Read a file whole."""
        return open_objects(self._unflushed()).get(path).data

    def named(self, kind: str) -> list[str]:
        """Return the files under a folder of their own, in the order in which they were made."""
        listed = open_objects(self._unflushed()).list(f"{self.folder}/{kind}")
        return [info.path for info in listed]

    def read(self, path: str) -> pa.Table:
        """Map a file into memory."""
        return mapped(self.local(path))

    def remove(self) -> None:
        """Remove all of them, here and in storage."""
        open_objects(self._unflushed()).delete_prefix(self.folder)
        fetched = self._fetched_folder()
        if fetched.is_dir():
            for file in fetched.iterdir():
                file.unlink(missing_ok=True)
            fetched.rmdir()

    def _unflushed(self) -> StoreSettings:
        return replace(self.settings, durability="process")

    def _fetched_folder(self) -> Path:
        name = self.operation_id.replace("/", "-")
        return Path(tempfile.gettempdir()) / f"omnigraph-sets-{name}"

    def local(self, path: str) -> Path:
        """Return where a file lies on this host, fetching it when need be."""
        if self.settings.root.is_local:
            return self.settings.root.local_path(path)
        return self._fetched(path)

    def _fetched(self, path: str) -> Path:
        """Bring a file to this host, unless another worker has done it."""
        folder = self._fetched_folder()
        folder.mkdir(exist_ok=True)
        target = folder / path.rpartition("/")[2]
        if target.exists():
            return target
        with (folder / f"{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                part = target.with_suffix(".part")
                part.write_bytes(open_objects(self._unflushed()).get(path).data)
                part.rename(target)
        return target


@lru_cache(maxsize=_OPEN_MAX)
def mapped(path: Path) -> pa.Table:
    """Map an Arrow file into memory; its name is never used for another content."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
