"""Locks of branches: one writer at a time commits on a branch.

On each branch at most one writer at a time is between its last look at the head and its publish.
Readers take no lock and different branches never wait for each other.

1. Inside a process, writers of one branch queue in the order in which they asked.
2. Between processes on a local disk, an operating-system lock on `__leases/<branch>.lock` decides.
   It dies with its holder, and the file is never deleted, so no process can lock a
   file that another one has just replaced.
3. On an object store, a lease object `__leases/<branch>.json` decides. Its holder raises the
   counter every `RENEW_S`. A waiter that has seen the same object for `EXPIRE_S` on its own
   monotonic clock takes it over. Clocks of different machines are never compared.

The lock only orders writers that behave. A writer that was paused and has lost its lease is stopped
by the commit id that its successor has voided, never by this module alone.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

import orjson

from omnigraph.clock import Clock
from omnigraph.errors import ConflictError, OmnigraphError, OutcomeUnknownError
from omnigraph.names import BranchName
from omnigraph.store.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from omnigraph.store.file_locks import FileLocks
from omnigraph.store.objects.protocol import ObjectStore, StoredObject

RENEW_S: Final = 2.0
EXPIRE_S: Final = 10.0
WAIT_MAX_S: Final = 120.0
_POLL_S: Final = 0.005
_LEASE_POLL_S: Final = 0.1

_log = logging.getLogger(__name__)


class BranchLockTimeoutError(ConflictError):
    """Another writer held the branch for too long; nothing was written."""

    code = "OG-TURN-TIMEOUT"
    hint = "try again; `omnigraph recovery status` shows who is writing"

    def __init__(self, branch: str, waited_s: float) -> None:
        self.branch = branch
        self.waited_s = waited_s
        super().__init__(f"branch {branch!r} was busy for {waited_s:.0f} s")


class BranchLockLostError(ConflictError):
    """This writer was presumed dead and another one took its lock."""

    code = "OG-TURN-LOST"
    hint = "try again"

    def __init__(self, branch: str) -> None:
        self.branch = branch
        super().__init__(f"the lock on branch {branch!r} was taken over by another writer")


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
def _in_process(root: str, branch: str, deadline_s: float, clock: Clock) -> Iterator[None]:
    started = clock.monotonic_s()
    lock = _process_lock(root, branch)
    if not lock.acquire(deadline_s):
        raise BranchLockTimeoutError(branch, clock.monotonic_s() - started)
    try:
        yield
    finally:
        lock.release()


# -- one machine -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _HeldFileLock:
    """A lock that lasts exactly as long as the process holds it."""

    def check(self) -> None:
        """Do nothing: the operating system gives the lock to no other process."""


class LocalBranchLocks:
    """Locks on a local disk: an operating-system lock per branch."""

    def __init__(self, *, root: str, locks: FileLocks, clock: Clock) -> None:
        self._root = root
        self._locks = locks
        self._clock = clock

    @property
    def takeover_s(self) -> float:
        """Return 0: the operating system frees the lock of a dead holder at once."""
        return 0.0

    @property
    def can_be_lost(self) -> bool:
        """Return False: a paused process keeps its locks."""
        return False

    @contextmanager
    def take(
        self,
        branch: BranchName,
        *,
        operation_id: str,  # noqa: ARG002 the protocol's signature
        wait_max_s: float = WAIT_MAX_S,
    ) -> Iterator[BranchLock]:
        """Wait for the lock on a branch and hold it inside a `with` block."""
        name = str(branch)
        with _in_process(self._root, name, wait_max_s, self._clock):
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


# -- many machines ---------------------------------------------------------------------------------


class LeaseBranchLocks:
    """Locks on an object store: a lease object per branch."""

    def __init__(
        self,
        *,
        root: str,
        objects: ObjectStore,
        clock: Clock,
        owner_id: str,
        renew_s: float = RENEW_S,
    ) -> None:
        self._root = root
        self._objects = objects
        self._clock = clock
        self._owner_id = owner_id
        self._renew_s = renew_s

    @property
    def takeover_s(self) -> float:
        """Return the time after which the lease of a silent holder has been taken over."""
        return EXPIRE_S + RENEW_S

    @property
    def can_be_lost(self) -> bool:
        """Return True: a lease that is not renewed expires."""
        return True

    @contextmanager
    def take(
        self, branch: BranchName, *, operation_id: str, wait_max_s: float = WAIT_MAX_S
    ) -> Iterator[BranchLock]:
        """Wait for the lock on a branch and hold it inside a `with` block."""
        name = str(branch)
        with _in_process(self._root, name, wait_max_s, self._clock):
            lease = _Lease(
                branch=name,
                path=f"__leases/{quote(name, safe='')}.json",
                objects=self._objects,
                clock=self._clock,
                owner_id=self._owner_id,
                operation_id=operation_id,
                renew_s=self._renew_s,
            )
            lease.acquire(wait_max_s)
            try:
                yield lease
            finally:
                lease.release()


class _Lease:
    """The lease object of one branch, while this process wants or holds it."""

    def __init__(
        self,
        *,
        branch: str,
        path: str,
        objects: ObjectStore,
        clock: Clock,
        owner_id: str,
        operation_id: str,
        renew_s: float,
    ) -> None:
        self._branch = branch
        self._path = path
        self._objects = objects
        self._clock = clock
        self._owner_id = owner_id
        self._operation_id = operation_id
        self._renew_s = renew_s
        self._counter = 0
        self._tag = ""
        self._renewed_at = 0.0
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._guard = threading.Lock()
        self._renewer: threading.Thread | None = None

    def acquire(self, wait_max_s: float) -> None:
        """Wait until the lease is free or its holder has been silent for too long."""
        started = seen_since = self._clock.monotonic_s()
        seen_tag: str | None = None
        while True:
            current = self._read()
            now = self._clock.monotonic_s()
            if current is not None and current.tag != seen_tag:
                seen_tag, seen_since = current.tag, now
            if self._try(current, silent_s=now - seen_since):
                break
            if now - started > wait_max_s:
                raise BranchLockTimeoutError(self._branch, now - started)
            self._clock.sleep(self._clock.jitter(_LEASE_POLL_S / 2, _LEASE_POLL_S))
        self._renewer = threading.Thread(
            target=self._renew_until_stopped, name=f"lease-{self._branch}", daemon=True
        )
        self._renewer.start()

    def check(self) -> None:
        """Raise when the lease was taken over, or may have been because renewing failed."""
        silent_s = self._clock.monotonic_s() - self._renewed_at
        if self._lost.is_set() or silent_s > EXPIRE_S - RENEW_S:
            raise BranchLockLostError(self._branch)

    def release(self) -> None:
        """Mark the lease as free; one that was taken over is left alone.

        The work is done by now: a lease that cannot be released expires by itself.
        """
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join()
        if self._lost.is_set():
            return
        try:
            self._write(owner_id=None)
        except OmnigraphError as error:
            _log.warning("the lease %s was not given back and will run out: %s", self._path, error)

    def _read(self) -> StoredObject | None:
        try:
            return self._objects.get(self._path)
        except ObjectNotFoundError:
            return None

    def _try(self, current: StoredObject | None, *, silent_s: float) -> bool:
        """Take the lease if that is possible now."""
        try:
            if current is None:
                return self._create()
            if self._is_mine(current):
                return self._renew()
            record = _record(current)
            if record.owner_id is not None and silent_s < EXPIRE_S:
                return False
            self._counter, self._tag = record.counter, current.tag
            return self._write(owner_id=self._owner_id)
        except OutcomeUnknownError:
            # The next read of the object shows whether it is ours.
            return False

    def _create(self) -> bool:
        before = self._clock.monotonic_s()
        try:
            self._tag = self._objects.put_if_absent(self._path, self._body(self._owner_id))
        except ObjectExistsError:
            return False
        self._renewed_at = before
        return True

    def _renew(self) -> bool:
        """Raise the counter; False when another writer has taken over."""
        current = self._read()
        if current is None or not self._is_mine(current):
            return False
        self._counter, self._tag = _record(current).counter, current.tag
        return self._write(owner_id=self._owner_id)

    def _is_mine(self, current: StoredObject) -> bool:
        record = _record(current)
        return (record.owner_id, record.operation_id) == (self._owner_id, self._operation_id)

    def _write(self, *, owner_id: str | None) -> bool:
        """Replace the object if it is the one that was seen last."""
        with self._guard:
            before = self._clock.monotonic_s()
            self._counter += 1
            try:
                self._tag = self._objects.put_if_match(
                    self._path, self._body(owner_id), tag=self._tag
                )
            except (ObjectChangedError, ObjectNotFoundError):
                return False
            self._renewed_at = before
            return True

    def _body(self, owner_id: str | None) -> bytes:
        return orjson.dumps(
            {"owner_id": owner_id, "operation_id": self._operation_id, "counter": self._counter}
        )

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(self._renew_s):
            try:
                # A write whose answer was lost has changed the tag: look again before giving up.
                if not self._write(owner_id=self._owner_id) and not self._renew():
                    self._lost.set()
                    return
            except OmnigraphError:
                # The next round tries again; `check` refuses once the silence is too long.
                continue


@dataclass(frozen=True)
class _LeaseRecord:
    """What a lease object says."""

    owner_id: str | None
    operation_id: str
    counter: int


def _record(stored: StoredObject) -> _LeaseRecord:
    """Read a lease. A damaged one counts as held by an unknown writer until it expires."""
    try:
        fields = orjson.loads(stored.data)
        owner_id = fields["owner_id"]
        return _LeaseRecord(
            None if owner_id is None else str(owner_id),
            str(fields["operation_id"]),
            int(fields["counter"]),
        )
    except (KeyError, TypeError, ValueError):
        return _LeaseRecord("", "", 0)
