"""What a file was when it was written: one sum per file, and the notes that wait to be stored.

Lance keeps no checksums, so a flipped bit in a data page becomes a wrong row. Code that makes a
file part of the graph notes it here, and `omnigraph.manifest.checksums` stores the notes.

1. On a local disk the sum is the XXH3 hash of the bytes, 128 bits. Files of bulk work are hashed by
   the call that wrote them, on whichever worker it ran, while their bytes are in the page cache, so
   the driver of a load never reads them again. Small files are hashed when the notes are stored,
   off the caller's path.
2. On an object store no bytes are read back: the sum is the entity tag, which the storage itself
   gives to the bytes that it has accepted.
3. A note costs a write next to nothing. Losing it loses a sum, never data:
   the file is then one without a checksum.
4. The files of the table that holds the sums are not noted: its rows carry a check of their own.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import xxhash

from omnigraph.dataclass import dataclass
from omnigraph.store.errors import ObjectNotFoundError, StorageError, os_failure
from omnigraph.store.records import StagedFile
from omnigraph.store.uri import Root

CHECKSUMS: Final = "_checksums.lance"
"""Where the sums are stored, under the root of a graph."""
NOTES_MAX: Final = 200_000
"""A process that stores no notes keeps the newest ones."""
HASHED_AT_ONCE_BYTES: Final = 64 * 1024
"""Files from this size on are hashed by the call that wrote them."""
_SMALL_BYTES: Final = 16 * 1024
_BUFFER_BYTES: Final = 256 * 1024
_HASHED: Final = "xxh3:"
_TAGGED: Final = "etag:"


@dataclass(frozen=True)
class Note:
    """A file that has become part of the graph, or has left it."""

    path: str
    size: int | None = None
    digest: str | None = None
    is_gone: bool = False
    copy_of: str | None = None


class Ledger:
    """The notes of one store that are not stored yet. Safe to share between threads."""

    def __init__(self, *, is_kept: bool = True) -> None:
        self.is_kept = is_kept
        self._guard = threading.Lock()
        self._notes: deque[Note] = deque(maxlen=NOTES_MAX)

    @property
    def waiting(self) -> int:
        """How many notes wait to be taken."""
        return len(self._notes)

    def note(self, files: Iterable[StagedFile], paths: Iterable[str] = ()) -> None:
        """Note files that are part of the graph from now on."""
        noted = [Note(file.path, file.size, file.digest, copy_of=file.copy_of) for file in files]
        self._add(noted + [Note(path) for path in paths])

    def note_gone(self, paths: Iterable[str]) -> None:
        """Note files that were removed on purpose and may appear again under the same name."""
        self._add([Note(path, is_gone=True) for path in paths])

    def take(self) -> list[Note]:
        """Return what is noted, and forget it."""
        with self._guard:
            notes = list(self._notes)
            self._notes.clear()
        return notes

    def put_back(self, notes: Sequence[Note]) -> None:
        """Note again what could not be stored, before newer notes."""
        with self._guard:
            free = NOTES_MAX - len(self._notes)
            self._notes.extendleft(reversed(notes[-free:] if free else []))

    def _add(self, notes: Sequence[Note]) -> None:
        if self.is_kept:
            own = f"{CHECKSUMS}/"
            with self._guard:
                self._notes.extend(note for note in notes if not note.path.startswith(own))


def hash_file(root: Root, path: str) -> tuple[int, str]:
    """Return size and digest of a local file; `ObjectNotFoundError` when it is not there."""
    hasher = xxhash.xxh3_128()
    try:
        descriptor = os.open(f"{root.prefix}/{path}", os.O_RDONLY)
    except FileNotFoundError:
        raise ObjectNotFoundError(path=path) from None
    except OSError as error:
        raise os_failure(path, error) from error
    try:
        # Most files are small: one read and no buffer. A short read is the end of a plain file.
        first = os.read(descriptor, _SMALL_BYTES)
        hasher.update(first)
        size = len(first)
        if size == _SMALL_BYTES:
            buffer = bytearray(_BUFFER_BYTES)
            view = memoryview(buffer)
            while count := os.readv(descriptor, [buffer]):
                hasher.update(view[:count])
                size += count
    except OSError as error:
        raise os_failure(path, error) from error
    finally:
        os.close(descriptor)
    return size, _HASHED + hasher.hexdigest()


def tag_digest(tag: str) -> str:
    """Return the digest of an object that its storage has given a tag."""
    return _TAGGED + tag


def is_hash(digest: str) -> bool:
    """Whether a digest is of bytes, and not the tag of an object."""
    return digest.startswith(_HASHED)


def check_word(text: str) -> int:
    """Return 64 bits over a short text, as the check of a stored row."""
    return int(xxhash.xxh3_64_intdigest(text.encode()))


def hashed(root: Root, files: Iterable[StagedFile]) -> tuple[StagedFile, ...]:
    """Return local files, the large ones with digests; what cannot be read now stays without."""
    found = []
    for file in files:
        if file.size is None or file.size < HASHED_AT_ONCE_BYTES:
            found.append(file)
            continue
        try:
            _, digest = hash_file(root, file.path)
        except StorageError:
            found.append(file)
        else:
            found.append(StagedFile(file.path, file.size, digest))
    return tuple(found)
