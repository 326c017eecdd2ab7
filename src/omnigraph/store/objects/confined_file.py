"""Reads files below a folder, and nothing that lies outside of it.

1. Links are followed as far as they end below the folder. The folder itself may be a link.
2. Between the check and the read, another process may replace a name by a link. So the real path is
   opened part by part, and no part of it may be a link: what was checked is what is read.
3. Only regular files are read. A pipe would block, a device has no end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from omnigraph.store.errors import (
    ObjectNotFoundError,
    StoragePermissionError,
    os_failure,
)
from omnigraph.store.uri import checked_path

_OUTSIDE = "it leads out of the folder"


def leads_outside(folder: Path, path: str) -> bool:
    """Whether links lead from a path below the folder to a path that is not below it.

    >>> leads_outside(Path("/"), "etc/hosts")
    False
    """
    return _real_parts(folder, path) is None


def read_confined(folder: Path, path: str) -> bytes:
    """Read a file below the folder."""
    parts = _real_parts(folder, path)
    if parts is None:
        raise StoragePermissionError(path=path, reason=_OUTSIDE)
    try:
        return _read(os.path.realpath(folder), parts, path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ObjectNotFoundError(path=path) from None
    except OSError as error:
        raise os_failure(path, error) from error


def _real_parts(folder: Path, path: str) -> tuple[str, ...] | None:
    """Return the names from the real folder to the real file; None when it is not below."""
    top = Path(os.path.realpath(folder))
    found = Path(os.path.realpath(folder / checked_path(path)))
    return found.relative_to(top).parts if found.is_relative_to(top) else None


def _read(top: str, parts: tuple[str, ...], path: str) -> bytes:
    directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in parts[:-1]:
            inner = _opened(name, directory, os.O_DIRECTORY)
            os.close(directory)
            directory = inner
        return _content(parts[-1] if parts else ".", directory, path)
    finally:
        os.close(directory)


def _content(name: str, directory: int, path: str) -> bytes:
    # Without the flag, opening a pipe would wait for its writer.
    def opener(name: str, _: int) -> int:
        return _opened(name, directory, os.O_NONBLOCK)

    with open(name, "rb", opener=opener) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StoragePermissionError(path=path, reason="it is no regular file")
        return file.read()


def _opened(name: str, directory: int, flags: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory)
