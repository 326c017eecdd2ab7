"""Replacing a file as a whole: readers see the old one or the new one, also after a crash."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from omnigraph.errors import ConflictError


class FileBusyError(ConflictError):
    """Another process is writing, or has just replaced, the same file."""

    code = "OG-FILE-BUSY"
    hint = "wait for the other process, or write to another file"
    template = "{path} {problem}"
    path: Path
    problem: str


def write_whole(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines to a new file next to the old one, make them durable, and replace the old one.

    A lock file in the same folder excludes a second writer and is not removed. Whatever fails, an
    old file is unchanged and nothing else is left.
    """
    with Path(f"{path}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileBusyError(path, "is being written by another process") from None
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        unfinished = Path(name)
        try:
            with os.fdopen(number, "wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
                written = os.fstat(file.fileno()).st_ino
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _flush_directory(path.parent)
        if path.stat().st_ino != written:
            raise FileBusyError(path, "was replaced by another process meanwhile")


def _flush_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
