"""Objects as files of a local disk.

A write goes to a temporary name in the same directory, is flushed, and gets its real name by one
atomic call: `rename` to replace, `link` to create. A conditional replacement is a compare and a
rename under a file lock, which every writer of this class takes for its conditional writes; a
plain `put` does not, so an object that is ever written conditionally is always written so.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from omnigraph.store.durability import Flusher, NoFlusher
from omnigraph.store.errors import (
    CopyRefusedError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    WriteOutcomeUnknownError,
    os_failure,
)
from omnigraph.store.objects.protocol import ObjectInfo, StoredObject
from omnigraph.store.uri import Root, checked_path

_HIDDEN: Final = ".og-"
"""Names that belong to this class and are no objects: temporary and lock files."""
_TEMPORARY: Final = f"{_HIDDEN}put-"
_NO_LINKS: Final = frozenset(
    (errno.EPERM, errno.EACCES, errno.EXDEV, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)
)
"""Why a file cannot have a second name, although it can be read and files can be written."""


class LocalObjectStore:
    """An `ObjectStore` in a directory."""

    def __init__(self, root: Root, flusher: Flusher | None = None) -> None:
        self._root = root.local_path()
        self._flusher = flusher or NoFlusher()

    def get(self, path: str) -> StoredObject:
        with _read_errors(path), self._file(path).open("rb") as file:
            # Files are never changed in place, so tag and bytes of one descriptor agree.
            return StoredObject(path, file.read(), _tag(os.fstat(file.fileno())))

    def head(self, path: str) -> ObjectInfo | None:
        with _read_errors(path):
            try:
                status = self._file(path).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            return _info(path, status) if _is_file(status) else None

    def list(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        start = self._root / checked_path(prefix) if prefix else self._root
        with _read_errors(prefix or str(self._root)):
            found = [
                _info(file.relative_to(self._root).as_posix(), status)
                for file, status in _walk(start)
            ]
        return tuple(sorted(found, key=lambda info: info.path))

    def put(self, path: str, data: bytes) -> str:
        return self.put_pieces(path, (data,))

    def put_pieces(self, path: str, pieces: Iterable[bytes | memoryview]) -> str:
        with self._temporary(path, pieces) as (temporary, target, tag):
            with _outcome_errors(path):
                temporary.replace(target)
                self._flusher.directories([os.fspath(target.parent)])
            return tag

    def put_if_absent(self, path: str, data: bytes) -> str:
        with self._temporary(path, (data,)) as (temporary, target, tag):
            try:
                target.hardlink_to(temporary)
            except FileExistsError:
                raise ObjectExistsError(path=path) from None
            except OSError as error:
                raise WriteOutcomeUnknownError(path=path, reason=str(error)) from error
            with _outcome_errors(path):
                self._flusher.directories([os.fspath(target.parent)])
            return tag

    def put_if_match(self, path: str, data: bytes, *, tag: str) -> str:
        with self._locked(path):
            current = self.head(path)
            if current is None or current.tag != tag:
                raise ObjectChangedError(path=path, expected=tag)
            return self.put(path, data)

    def copy(self, path: str, to_path: str) -> None:
        source, target = self._file(path), self._file(to_path)
        try:
            _link(source, target)
            # A file of an unfinished write is spared by its age.
            os.utime(target)
        except FileNotFoundError:
            raise ObjectNotFoundError(path=path) from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise CopyRefusedError(path=to_path, reason=str(error.strerror)) from error
            raise os_failure(to_path, error) from error

    def delete(self, path: str) -> None:
        with _start_errors(path):
            self._file(path).unlink(missing_ok=True)

    def delete_prefix(self, prefix: str) -> int:
        start = self._root / checked_path(prefix)
        removed = 0
        with _outcome_errors(prefix):
            for file, _ in _walk(start, hidden=True):
                file.unlink(missing_ok=True)
                removed += 0 if file.name.startswith(_HIDDEN) else 1
            for directory in sorted(_directories(start), reverse=True):
                # A directory that another process fills at this moment stays.
                with suppress(OSError):
                    directory.rmdir()
        return removed

    def leftovers(self) -> tuple[ObjectInfo, ...]:
        """Describe the temporary files that were never given their real name."""
        with _read_errors(str(self._root)):
            found = [
                _info(file.relative_to(self._root).as_posix(), status)
                for file, status in _walk(self._root, hidden=True)
                if file.name.startswith(_TEMPORARY)
            ]
        return tuple(sorted(found, key=lambda info: info.path))

    def _file(self, path: str) -> Path:
        return self._root / checked_path(path)

    @contextmanager
    def _temporary(
        self, path: str, pieces: Iterable[bytes | memoryview]
    ) -> Iterator[tuple[Path, Path, str]]:
        target = self._file(path)
        with _start_errors(path):
            temporary = target.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
            file = _created(temporary)
        try:
            with _start_errors(path):
                with file:
                    file.writelines(pieces)
                    file.flush()
                    status = os.fstat(file.fileno())
                self._flusher.contents(os.fspath(temporary))
            yield temporary, target, _tag(status)
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, path: str) -> Iterator[None]:
        target = self._file(path)
        with _start_errors(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            lock = (target.parent / f"{_HIDDEN}lock-{target.name}").open("ab")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _created(path: Path) -> BinaryIO:
    """Create a file, and its directory if that does not exist."""
    try:
        return path.open("xb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, if it does not have it yet; replace another file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except FileExistsError:
        if target.samefile(source):
            return
        temporary = target.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
        temporary.hardlink_to(source)
        temporary.replace(target)


def _walk(start: Path, *, hidden: bool = False) -> Iterator[tuple[Path, os.stat_result]]:
    for folder, _, names in os.walk(start, onerror=_raise):
        for name in names:
            if name.startswith(_HIDDEN) and not hidden:
                continue
            file = Path(folder) / name
            # A file may be deleted after it was listed.
            with suppress(FileNotFoundError):
                yield file, file.stat()


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _directories(start: Path) -> list[Path]:
    return [Path(folder) for folder, _, _ in os.walk(start)]


def _is_file(status: os.stat_result) -> bool:
    return (status.st_mode & 0o170000) == 0o100000


def _tag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000, _tag(status))


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    """Translate failures of a read, which changes nothing."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ObjectNotFoundError(path=path) from None
    except OSError as error:
        raise os_failure(path, error) from error


@contextmanager
def _start_errors(path: str) -> Iterator[None]:
    """Translate failures before anything has its real name."""
    try:
        yield
    except OSError as error:
        raise os_failure(path, error) from error


@contextmanager
def _outcome_errors(path: str) -> Iterator[None]:
    """Translate failures after which the new name may exist."""
    try:
        yield
    except OSError as error:
        raise WriteOutcomeUnknownError(path=path, reason=str(error)) from error
