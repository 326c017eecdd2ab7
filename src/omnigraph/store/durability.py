"""Makes new files survive a power failure.

Lance never calls fsync, and neither does a plain rename: an acknowledged write can vanish, and a
file can come back empty. So on local disks everything new is flushed before anybody relies on it.

1. A file is durable when its bytes, its entry in its directory and the entries of all directories
   above it, up to the graph's root, have been flushed, in that order.
2. Flushing is per file named: nothing else of the disk waits.
3. A directory's own entry needs flushing once per process; after that only its content changes.
4. `process` skips all of it: such writes survive a crash of the process, not of the machine.
5. Object stores are durable by contract and need no flusher.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, Protocol

from omnigraph.store.errors import WriteOutcomeUnknownError
from omnigraph.store.uri import Root

Durability = Literal["full", "process"]
"""`full` survives a power failure, `process` only a crash of the process."""


class Flusher(Protocol):
    """Makes files of a local root durable."""

    def files(self, paths: Iterable[Path]) -> None:
        """Flush these files, their directories and every new directory above them."""
        ...

    def contents(self, path: Path) -> None:
        """Flush the bytes of a file that is about to be renamed."""
        ...

    def directories(self, paths: Iterable[Path]) -> None:
        """Flush directories whose entries have changed."""
        ...


class NoFlusher:
    """Flushes nothing: `process` durability and object stores."""

    def files(self, paths: Iterable[Path]) -> None:
        """Do nothing."""

    def contents(self, path: Path) -> None:
        """Do nothing."""

    def directories(self, paths: Iterable[Path]) -> None:
        """Do nothing."""


_REMEMBERED_MAX: Final = 10_000
"""A process may run for months: only the last flushes are remembered."""


class DiskFlusher:
    """Flushes with fsync and counts what it did. Safe to share between threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._settled: set[Path] = set()
        self._flush_count = 0
        self._flushed_files: deque[Path] = deque(maxlen=_REMEMBERED_MAX)
        self._flushed_directories: deque[Path] = deque(maxlen=_REMEMBERED_MAX)

    @property
    def flushed_files(self) -> tuple[Path, ...]:
        """The files flushed lately, in order, repetitions included."""
        with self._lock:
            return tuple(self._flushed_files)

    @property
    def flushed_directories(self) -> tuple[Path, ...]:
        """The directories flushed lately, in order, repetitions included."""
        with self._lock:
            return tuple(self._flushed_directories)

    @property
    def flush_count(self) -> int:
        """How many times fsync was called."""
        with self._lock:
            return self._flush_count

    def files(self, paths: Iterable[Path]) -> None:
        """Flush these files, their directories and every new directory above them."""
        parents: dict[Path, None] = {}
        for path in paths:
            self.contents(path)
            parents[path.parent] = None
        self.directories(parents)

    def contents(self, path: Path) -> None:
        """Flush the bytes of a file that is about to be renamed."""
        _fsync(path)
        with self._lock:
            self._flush_count += 1
            self._flushed_files.append(path)

    def directories(self, paths: Iterable[Path]) -> None:
        """Flush directories whose entries have changed."""
        for path in paths:
            self._flush_directory(path)
            self._settle(path)

    def _settle(self, directory: Path) -> None:
        """Flush the entry of `directory` in its parent, and so on upwards, once each."""
        while directory != directory.parent:
            with self._lock:
                if directory in self._settled:
                    return
            parent = directory.parent
            if directory == self._root:
                self._flush_above_root(parent)
            else:
                self._flush_directory(parent)
            with self._lock:
                self._settled.add(directory)
            if directory == self._root:
                return
            directory = parent

    def _flush_above_root(self, directory: Path) -> None:
        try:
            self._flush_directory(directory)
        except PermissionError:
            # Whoever made the root had rights here that this process does not need.
            return

    def _flush_directory(self, directory: Path) -> None:
        _fsync(directory)
        with self._lock:
            self._flush_count += 1
            self._flushed_directories.append(directory)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flusher_for(root: Path | None, durability: Durability) -> DiskFlusher | NoFlusher:
    """Return what a store at this root needs; `None` is an object store."""
    if root is None or durability == "process":
        return NoFlusher()
    return DiskFlusher(root)


class PathFlusher:
    """Flushes things named by their path under a root; does nothing for object stores."""

    def __init__(self, root: Root, flusher: Flusher) -> None:
        self._root = root
        self._flusher = flusher

    def files(self, paths: Iterable[str]) -> None:
        """Flush files and the directories that lead to them."""
        if not self._root.is_local:
            return
        named = list(paths)
        if named:
            with _flush_failures(named[0]):
                self._flusher.files(self._root.local_path(path) for path in named)

    def directory_of(self, path: str) -> None:
        """Flush the directory from which `path` has just gone."""
        if self._root.is_local:
            with _flush_failures(path):
                self._flusher.directories([self._root.local_path(path).parent])


@contextmanager
def _flush_failures(path: str) -> Iterator[None]:
    """Translate a failed fsync, after which nobody knows what is on the disk."""
    try:
        yield
    except OSError as error:
        raise WriteOutcomeUnknownError(path=path, reason=f"flushing failed: {error}") from error
