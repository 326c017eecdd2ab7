"""Objects in memory, for tests and for things that need not outlive the process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omnigraph.clock import Clock, SystemClock
from omnigraph.store.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from omnigraph.store.objects.protocol import ObjectInfo, StoredObject
from omnigraph.store.uri import checked_path


@dataclass(frozen=True)
class _Entry:
    data: bytes
    modified_us: int
    tag: str


class MemoryObjectStore:
    """An `ObjectStore` in a dictionary."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._writes = 0

    def get(self, path: str) -> StoredObject:
        """Read an object."""
        with self._lock:
            entry = self._entries.get(checked_path(path))
        if entry is None:
            raise ObjectNotFoundError(path=path)
        return StoredObject(path, entry.data, entry.tag)

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object."""
        with self._lock:
            entry = self._entries.get(checked_path(path))
        return None if entry is None else _info(path, entry)

    def list(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        """Describe every object under a directory."""
        with self._lock:
            return tuple(_info(path, self._entries[path]) for path in self._under(prefix))

    def put(self, path: str, data: bytes) -> str:
        """Write an object."""
        with self._lock:
            return self._write(path, data)

    def put_pieces(self, path: str, pieces: Iterable[bytes | memoryview]) -> str:
        """Write an object that comes in pieces."""
        return self.put(path, b"".join(pieces))

    def put_if_absent(self, path: str, data: bytes) -> str:
        """Create an object."""
        with self._lock:
            if checked_path(path) in self._entries:
                raise ObjectExistsError(path=path)
            return self._write(path, data)

    def put_if_match(self, path: str, data: bytes, *, tag: str) -> str:
        """Replace the object that has `tag`."""
        with self._lock:
            entry = self._entries.get(checked_path(path))
            if entry is None or entry.tag != tag:
                raise ObjectChangedError(path=path, expected=tag)
            return self._write(path, data)

    def copy(self, path: str, to_path: str) -> None:
        """Give the bytes of an object another name."""
        self.put(to_path, self.get(path).data)

    def delete(self, path: str) -> None:
        """Remove an object if it is there."""
        with self._lock:
            self._entries.pop(checked_path(path), None)

    def delete_prefix(self, prefix: str) -> int:
        """Remove everything under a directory."""
        with self._lock:
            doomed = self._under(checked_path(prefix))
            for path in doomed:
                del self._entries[path]
        return len(doomed)

    def leftovers(self) -> tuple[ObjectInfo, ...]:
        """Describe temporary files: there are none, a write is one call."""
        return ()

    def _under(self, prefix: str) -> Sequence[str]:
        start = f"{checked_path(prefix)}/" if prefix else ""
        return sorted(path for path in self._entries if path.startswith(start))

    def _write(self, path: str, data: bytes) -> str:
        self._writes += 1
        tag = str(self._writes)
        self._entries[checked_path(path)] = _Entry(bytes(data), self._clock.now_us(), tag)
        return tag


def _info(path: str, entry: _Entry) -> ObjectInfo:
    return ObjectInfo(path, len(entry.data), entry.modified_us, entry.tag)
