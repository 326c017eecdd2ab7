"""Operating-system locks on files under a local root.

A lock belongs to one open file, so two holders exclude each other within a process as well as
between processes, and it ends with its process, however the process ends. Lock files are never
deleted: otherwise one writer could lock a file that another one has just replaced.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol

from omnigraph.store.errors import os_failure


class HeldLock:
    """A lock that is held until it is released."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


class FileLocks(Protocol):
    """Locks by path under one root."""

    def try_lock(self, path: str) -> HeldLock | None:
        """Take a lock if it is free, without waiting."""
        ...


class LocalFileLocks:
    """Locks on files of a local directory."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def try_lock(self, path: str) -> HeldLock | None:
        file = self._root / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise os_failure(str(file), error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise os_failure(str(file), error) from error
        return HeldLock(descriptor)
