"""Small objects under a root: intent records, leases, staging records, schema files.

1. A reader sees an object whole or not at all; never half of one.
2. `put_if_absent` succeeds for exactly one of several callers.
3. `put_if_match` replaces exactly the object whose tag the caller has read.
4. Deleting what is not there succeeds.
5. A failed call either did nothing, and its error says so, or raises
   `WriteOutcomeUnknownError`.
6. Paths are relative to the root (`omnigraph.store.uri`); listings come sorted by path and know
   nothing of temporary files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from omnigraph.dataclass import dataclass


@dataclass(frozen=True)
class ObjectInfo:
    """What a listing knows about an object."""

    path: str
    size: int
    modified_us: int
    """Microseconds since the Unix epoch, UTC, by the storage's clock."""
    tag: str
    """Changes with every write; compare for equality only."""


@dataclass(frozen=True)
class StoredObject:
    """An object's bytes and the tag they had when they were read."""

    path: str
    data: bytes
    tag: str


class ObjectStore(Protocol):
    """Objects by path under one root."""

    def get(self, path: str) -> StoredObject:
        """Read an object, or raise `ObjectNotFoundError`."""
        ...

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object, or return `None` when there is none."""
        ...

    def list(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        """Describe every object under the directory `prefix`, sorted by path."""
        ...

    def put(self, path: str, data: bytes) -> str:
        """Write an object, replacing what is there; return its tag."""
        ...

    def put_pieces(self, path: str, pieces: Iterable[bytes | memoryview]) -> str:
        """Write an object that need not fit into memory, as `put` does; return its tag."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> str:
        """Create an object, or raise `ObjectExistsError`; return its tag."""
        ...

    def put_if_match(self, path: str, data: bytes, *, tag: str) -> str:
        """Replace the object that has `tag`, or raise `ObjectChangedError`; return the new tag."""
        ...

    def copy(self, path: str, to_path: str) -> None:
        """Give the bytes of an object another name, under which they stay when the first one goes.

        No byte passes through this process; what has the other name is replaced. For files that
        are never written again: on a local disk both names are of one file, and count as new.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object if it is there."""
        ...

    def delete_prefix(self, prefix: str) -> int:
        """Remove everything under the directory `prefix`; return how many objects were removed."""
        ...

    def leftovers(self) -> tuple[ObjectInfo, ...]:
        """Describe the temporary files of writes under way and of writers that died, by path.

        They are no objects: no listing has them. `delete` removes one.
        """
        ...


def exists(objects: ObjectStore, path: str) -> bool:
    """Whether an object is there."""
    return objects.head(path) is not None
