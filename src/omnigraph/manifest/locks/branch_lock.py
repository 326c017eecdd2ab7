"""Locks of branches: one writer at a time commits on a branch.

On each branch at most one writer at a time is between its last look at the head and its publish.
Readers take no lock and different branches never wait for each other.

1. Inside a process, writers of one branch queue in the order in which they asked.
2. Between processes on a local disk (`local_locks`), an operating-system lock on
   `__leases/<branch>.lock` decides. It dies with its holder, and the file is never deleted, so no
   process can lock a file that another one has just replaced.
3. On an object store (`lease_locks`), a lease object `__leases/<branch>.json` decides. Its holder
   raises the counter every `RENEW_S`. A waiter that has seen the same object for `EXPIRE_S` on its
   own monotonic clock takes it over. Clocks of different machines are never compared.

The lock only orders writers that behave. A writer that was paused and has lost its lease is stopped
by the commit id that its successor has voided, never by this module alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Final, Protocol

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.errors import ConflictError
from omnigraph.names import BranchName

WAIT_MAX_S: Final = 120.0


class BranchLockTimeoutError(ConflictError):
    """Another writer held the branch for too long; nothing was written."""

    code = "OG-TURN-TIMEOUT"
    hint = "try again; `omnigraph recovery status` shows who is writing"
    template = "branch {branch!r} was busy for {waited_s:.0f} s"
    branch: str
    waited_s: float


class BranchLockLostError(ConflictError):
    """This writer was presumed dead and another one took its lock."""

    code = "OG-TURN-LOST"
    hint = "try again"
    template = "the lock on branch {branch!r} was taken over by another writer"
    branch: str


class BranchLock(Protocol):
    """A lock that is held."""

    def check(self) -> None:
        """Raise `BranchLockLostError` when another writer has taken it over."""
        ...


class BranchLocks(Protocol):
    """Gives out the locks of branches."""

    @property
    def takeover_s(self) -> float:
        """How long to wait until a lock that is still held surely has a living holder."""
        ...

    @property
    def can_be_lost(self) -> bool:
        """Whether another writer can take the lock of a holder that is paused for long."""
        ...

    def take(
        self, branch: BranchName, *, operation_id: str, wait_max_s: float = ...
    ) -> AbstractContextManager[BranchLock]:
        """Wait for the lock on a branch and hold it inside a `with` block."""
        ...


@contextmanager
def take_all(
    branch_locks: BranchLocks, branches: Iterable[BranchName], *, operation_id: str
) -> Iterator[BranchLock]:
    """Hold the locks of several branches, taken in sorted order so that callers cannot deadlock."""
    with ExitStack() as stack:
        yield _Together(
            tuple(
                stack.enter_context(branch_locks.take(branch, operation_id=operation_id))
                for branch in sorted(set(branches))
            )
        )


@contextmanager
def take_unless_held(
    branch_locks: BranchLocks, branch: BranchName, *, operation_id: str
) -> Iterator[BranchLock | None]:
    """Hold the lock of a branch; None when its holder is surely alive."""
    with ExitStack() as stack:
        lock: BranchLock | None = None
        with suppress(BranchLockTimeoutError):
            lock = stack.enter_context(
                branch_locks.take(
                    branch, operation_id=operation_id, wait_max_s=branch_locks.takeover_s
                )
            )
        yield lock


@dataclass(frozen=True)
class _Together:
    """Several locks as one."""

    branch_locks: tuple[BranchLock, ...]

    def check(self) -> None:
        """Raise when one of them is lost."""
        for lock in self.branch_locks:
            lock.check()


# -- one process -----------------------------------------------------------------------------------


class FairLock:
    """A lock that is handed over in the order in which threads asked for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._held = False

    def acquire(self, timeout_s: float) -> bool:
        """Wait for the lock; False after the timeout."""
        with self._guard:
            if not self._held and not self._waiting:
                self._held = True
                return True
            mine = threading.Event()
            self._waiting.append(mine)
        try:
            if mine.wait(timeout_s):
                return True
        except BaseException:
            # An interrupted waiter must not be handed the lock: it would never be released.
            if not self._withdraw(mine):
                self.release()
            raise
        return not self._withdraw(mine)

    def release(self) -> None:
        """Hand the lock to the thread that has waited longest."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._held = False

    def _withdraw(self, waiter: threading.Event) -> bool:
        """Leave the queue; False when the lock has been handed over already."""
        with self._guard:
            if waiter.is_set():
                return False
            self._waiting.remove(waiter)
            return True


_PROCESS_LOCKS: dict[tuple[str, str], FairLock] = {}
_PROCESS_LOCKS_GUARD: Final = threading.Lock()


def _process_lock(root: str, branch: str) -> FairLock:
    with _PROCESS_LOCKS_GUARD:
        return _PROCESS_LOCKS.setdefault((root, branch), FairLock())


@contextmanager
def in_process(root: str, branch: str, deadline_s: float, clock: Clock) -> Iterator[None]:
    """Hold the lock of a branch against the other threads of this process."""
    started = clock.monotonic_s()
    lock = _process_lock(root, branch)
    if not lock.acquire(deadline_s):
        raise BranchLockTimeoutError(branch, clock.monotonic_s() - started)
    try:
        yield
    finally:
        lock.release()
