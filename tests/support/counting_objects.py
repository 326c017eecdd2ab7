"""Counts what is asked of an object store.

Wrap the objects of a store to see how many requests an operation makes, besides those of Lance.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from omnigraph.store.objects.protocol import ObjectInfo, ObjectStore, StoredObject


class CountingObjectStore:
    """An `ObjectStore` that counts calls by name and bytes by direction."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._bytes_read = 0
        self._bytes_written = 0

    @property
    def calls(self) -> dict[str, int]:
        """Calls so far, by name."""
        with self._lock:
            return dict(self._calls)

    @property
    def call_count(self) -> int:
        """Calls so far."""
        with self._lock:
            return self._calls.total()

    @property
    def bytes_read(self) -> int:
        """Bytes handed out so far."""
        return self._bytes_read

    @property
    def bytes_written(self) -> int:
        """Bytes taken in so far, those of refused writes included."""
        return self._bytes_written

    def reset(self) -> None:
        """Start counting again."""
        with self._lock:
            self._calls.clear()
            self._bytes_read = self._bytes_written = 0

    def get(self, path: str) -> StoredObject:
        """Read an object."""
        self._count("get")
        found = self._inner.get(path)
        with self._lock:
            self._bytes_read += len(found.data)
        return found

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object."""
        self._count("head")
        return self._inner.head(path)

    def list(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        """Describe every object under a directory."""
        self._count("list")
        return self._inner.list(prefix)

    def put(self, path: str, data: bytes) -> str:
        """Write an object."""
        self._count("put", written=len(data))
        return self._inner.put(path, data)

    def put_pieces(self, path: str, pieces: Iterable[bytes | memoryview]) -> str:
        """Write an object that comes in pieces."""
        data = b"".join(pieces)
        self._count("put_pieces", written=len(data))
        return self._inner.put_pieces(path, (data,))

    def put_if_absent(self, path: str, data: bytes) -> str:
        """Create an object."""
        self._count("put_if_absent", written=len(data))
        return self._inner.put_if_absent(path, data)

    def put_if_match(self, path: str, data: bytes, *, tag: str) -> str:
        """Replace the object that has `tag`."""
        self._count("put_if_match", written=len(data))
        return self._inner.put_if_match(path, data, tag=tag)

    def copy(self, path: str, to_path: str) -> None:
        """Give the bytes of an object another name."""
        self._count("copy")
        self._inner.copy(path, to_path)

    def delete(self, path: str) -> None:
        """Remove an object if it is there."""
        self._count("delete")
        self._inner.delete(path)

    def delete_prefix(self, prefix: str) -> int:
        """Remove everything under a directory."""
        self._count("delete_prefix")
        return self._inner.delete_prefix(prefix)

    def leftovers(self) -> tuple[ObjectInfo, ...]:
        """Describe temporary files."""
        self._count("leftovers")
        return self._inner.leftovers()

    def _count(self, name: str, *, written: int = 0) -> None:
        with self._lock:
            self._calls[name] += 1
            self._bytes_written += written
