"""A disk that forgets: what is left of a directory after the power went, by the log of its flushes.

A file's bytes survive as they were when the file was last flushed; its name survives as it was when
its directory was last flushed. Everything else may or may not be there. `Shadow` follows a store's
flushes and can build two extreme images at any moment:

- `FORGETFUL`: nothing survives that was not flushed: new names are gone, removed names are back;
- `TORN`: every name is as the process saw it, but bytes that were not flushed are missing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from omnigraph.store import Store
from omnigraph.store.durability import DiskFlusher, fsync_path
from omnigraph.store.lance import packing
from omnigraph.store.lance.layout import manifest_path, transaction_summary
from omnigraph.store.records import OperationKind

HINT = "latest_version_hint.json"
_INLINE_KINDS = (OperationKind.APPEND, OperationKind.UPDATE)


class Loss(StrEnum):
    """What a power failure takes."""

    FORGETFUL = "forgetful"
    TORN = "torn"


@dataclass(frozen=True)
class Image:
    """What a disk holds after a power failure: files by path under the root."""

    files: dict[str, bytes]


@dataclass
class Shadow:
    """Follows the flushes of one store. Everything that is there at the start is durable."""

    store: Store
    on_flush: Callable[[Path], None] | None = None
    """Called before each flush counts."""
    flushed: list[Path] = field(default_factory=list)
    """Everything that was flushed, in order, repetitions included."""

    def __post_init__(self) -> None:
        assert isinstance(self.store.flusher, DiskFlusher)
        self.root = self.store.settings.root.local_path()
        self._guard = threading.Lock()
        self._names: dict[Path, dict[str, int]] = {}
        """Durable entries of each directory: name to inode."""
        self._bytes: dict[int, bytes] = {}
        """Durable content by inode."""
        self._inodes: dict[Path, int] = {}
        self._held: dict[int, int] = {}
        """Open descriptors by inode: what is held open keeps its inode to itself."""
        weakref.finalize(self, _close_all, self._held)
        if self.root.exists():
            for path in (self.root, *sorted(self.root.rglob("*"))):
                self._settle(path)
        self.store.flusher.sync = self._sync

    def _sync(self, name: str) -> None:
        fsync_path(name)
        path = Path(name)
        with self._guard:
            if self.on_flush is not None:
                self.on_flush(path)
            self.flushed.append(path)
            self._settle(path)

    def _settle(self, path: Path) -> None:
        if path.is_dir():
            self._names[path] = {entry.name: self._hold(entry) for entry in path.iterdir()}
            self._inodes[path] = self._hold(path)
        else:
            self._bytes[self._hold(path)] = path.read_bytes()

    def _hold(self, path: Path) -> int:
        inode = path.stat().st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
        return inode

    def image(self, loss: Loss) -> Image:
        """Return what a power failure at this moment leaves."""
        files: dict[str, bytes] = {}
        if loss is Loss.TORN:
            for path in self.root.rglob("*"):
                if path.is_file():
                    files[self._name(path)] = self._bytes.get(path.stat().st_ino, b"")
        else:
            self._remembered(self.root, files)
        return Image(files)

    def unflushed(self) -> set[str]:
        """Files that a power failure would take or tear and that somebody would miss."""
        kept = self.image(Loss.FORGETFUL).files
        return {
            name
            for path in self.root.rglob("*")
            if path.is_file()
            and not _is_expendable(path)
            and kept.get(name := self._name(path)) != path.read_bytes()
        }

    def _remembered(self, directory: Path, files: dict[str, bytes]) -> None:
        for name, inode in self._names.get(directory, {}).items():
            path = directory / name
            if self._inodes.get(path) == inode:
                self._remembered(path, files)
            elif inode in self._bytes:
                files[self._name(path)] = self._bytes[inode]
            elif not path.is_dir():
                files[self._name(path)] = b""

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _close_all(held: dict[int, int]) -> None:
    for descriptor in held.values():
        os.close(descriptor)


def _committed(transaction: Path) -> Path:
    """Return the version file that the commit of a transaction makes."""
    version = int(transaction.name.partition("-")[0]) + 1
    return transaction.parents[1] / manifest_path("", None, version).lstrip("/")


def _is_expendable(path: Path) -> bool:
    """Whether a file may be missing, or hold anything: of Lance's files guard tests say so."""
    if path.name == packing.LOCK:
        return True  # A caller that needs it makes it.
    if path.suffix == ".txn":
        # The version itself carries a copy of what these kinds of transaction did. A view of a
        # staged transaction leaves its file, and the commit writes and flushes it again.
        is_copy = transaction_summary(path.read_bytes())[1] in _INLINE_KINDS
        return is_copy or not _committed(path).exists()
    return path.name == HINT
