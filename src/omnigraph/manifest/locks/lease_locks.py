"""Branch locks between machines: lease objects in an object store.

A holder counts time from before its last renewal was sent and stops `RENEW_S` before a waiter may
take the lease over, so it knows that it may have lost the lease before another process can hold it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

import orjson

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.manifest.locks.branch_lock import (
    WAIT_MAX_S,
    BranchLock,
    BranchLockLostError,
    BranchLockTimeoutError,
    in_process,
)
from omnigraph.names import BranchName
from omnigraph.store.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from omnigraph.store.objects.protocol import ObjectStore, StoredObject

RENEW_S: Final = 2.0
EXPIRE_S: Final = 10.0
_POLL_S: Final = 0.1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LeaseBranchLocks:
    """Locks on an object store: a lease object per branch."""

    takeover_s = EXPIRE_S + RENEW_S
    """After this time the lease of a silent holder has been taken over."""
    can_be_lost = True
    """A lease that is not renewed expires."""

    root: str
    objects: ObjectStore
    clock: Clock
    owner_id: str
    renew_s: float = RENEW_S

    @contextmanager
    def take(
        self, branch: BranchName, *, operation_id: str, wait_max_s: float = WAIT_MAX_S
    ) -> Iterator[BranchLock]:
        name = str(branch)
        with in_process(self.root, name, wait_max_s, self.clock):
            lease = _Lease(
                branch=name,
                path=f"__leases/{quote(name, safe='')}.json",
                objects=self.objects,
                clock=self.clock,
                owner_id=self.owner_id,
                operation_id=operation_id,
                renew_s=self.renew_s,
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
            self._clock.sleep(self._clock.jitter(_POLL_S / 2, _POLL_S))
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
