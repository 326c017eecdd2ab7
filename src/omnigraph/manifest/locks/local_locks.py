"""Branch locks on one machine: operating-system locks on files of a local disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.manifest.locks.branch_lock import (
    WAIT_MAX_S,
    BranchLock,
    BranchLockTimeoutError,
    in_process,
)
from omnigraph.names import BranchName
from omnigraph.store.file_locks import FileLocks

_POLL_S: Final = 0.005


@dataclass(frozen=True)
class _HeldFileLock:
    """A lock that lasts exactly as long as the process holds it."""

    def check(self) -> None:
        """Do nothing: the operating system gives the lock to no other process."""


class LocalBranchLocks:
    """Locks on a local disk: an operating-system lock per branch."""

    takeover_s = 0.0
    """The operating system frees the lock of a dead holder at once."""
    can_be_lost = False
    """A paused process keeps its locks."""

    def __init__(self, *, root: str, locks: FileLocks, clock: Clock) -> None:
        self._root = root
        self._locks = locks
        self._clock = clock

    @contextmanager
    def take(
        self,
        branch: BranchName,
        *,
        operation_id: str,  # noqa: ARG002 the protocol's signature
        wait_max_s: float = WAIT_MAX_S,
    ) -> Iterator[BranchLock]:
        name = str(branch)
        with in_process(self._root, name, wait_max_s, self._clock):
            started = self._clock.monotonic_s()
            path = f"__leases/{quote(name, safe='')}.lock"
            while (held := self._locks.try_lock(path)) is None:
                waited = self._clock.monotonic_s() - started
                if waited >= wait_max_s:
                    raise BranchLockTimeoutError(name, waited)
                self._clock.sleep(self._clock.jitter(_POLL_S / 2, _POLL_S * 2))
            try:
                yield _HeldFileLock()
            finally:
                held.release()
