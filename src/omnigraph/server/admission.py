"""Admission: how many writes, and how many bytes of them, one actor may have in flight.

Reserving is one step, under a lock: it takes both a place and the bytes, or neither. With several
worker processes the counts lie in a file that all of them share, under a lock that the system
releases when its holder dies; the counts of a worker that died are dropped by its parent.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import orjson

from omnigraph.server.errors import TooManyRequestsError
from omnigraph.server.limits import number_of

IN_FLIGHT_MAX_DEFAULT: Final = 16
BYTES_MAX_DEFAULT: Final = 4_294_967_296
_IN_FLIGHT: Final = "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX"
_BYTES: Final = "OMNIGRAPH_PER_ACTOR_BYTES_MAX"
ANONYMOUS: Final = "anonymous"
RETRY_AFTER_S: Final = 60

_Counts = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class AdmissionLimits:
    """What one actor may have in flight, over all graphs."""

    in_flight_max: int = IN_FLIGHT_MAX_DEFAULT
    bytes_max: int = BYTES_MAX_DEFAULT

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> AdmissionLimits:
        """Read the limits; a malformed number is warned about and replaced by the default."""
        return cls(
            number_of(environ, _IN_FLIGHT, IN_FLIGHT_MAX_DEFAULT),
            number_of(environ, _BYTES, BYTES_MAX_DEFAULT),
        )

    def require(self, actor: str, count: int, size: int, more: int) -> None:
        """Raise when one more write of `more` bytes is too much."""
        if count + 1 > self.in_flight_max:
            raise TooManyRequestsError(actor, f"{count} writes are in flight")
        if size + more > self.bytes_max:
            raise TooManyRequestsError(actor, f"{size} bytes are in flight")


class Admission(Protocol):
    """Counts the writes in flight."""

    def reserved(self, actor: str, size: int) -> AbstractContextManager[None]:
        """Hold a place and some bytes inside a `with` block, or raise."""
        ...


class LocalAdmission:
    """The counts of a server of one process."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._guard = threading.Lock()
        self._counts: _Counts = {}

    @contextmanager
    def reserved(self, actor: str, size: int) -> Iterator[None]:
        """Hold a place and some bytes inside a `with` block, or raise."""
        with self._guard:
            count, held = self._counts.get(actor, (0, 0))
            self._limits.require(actor, count, held, size)
            self._counts[actor] = count + 1, held + size
        try:
            yield
        finally:
            with self._guard:
                count, held = self._counts[actor]
                self._counts[actor] = count - 1, held - size
                if count == 1:
                    del self._counts[actor]


class SharedAdmission:
    """The counts of a server of several processes, in a file."""

    def __init__(self, path: Path, limits: AdmissionLimits, *, worker: str) -> None:
        self._limits = limits
        self._worker = worker
        self._path = path

    @contextmanager
    def reserved(self, actor: str, size: int) -> Iterator[None]:
        """Hold a place and some bytes inside a `with` block, or raise."""
        self._add(actor, 1, size, checked=True)
        try:
            yield
        finally:
            self._add(actor, -1, -size, checked=False)

    def _add(self, actor: str, count: int, size: int, *, checked: bool) -> None:
        with _locked(self._path) as counts:
            if checked:
                held = [of.get(actor, [0, 0]) for of in counts.values()]
                self._limits.require(actor, sum(h[0] for h in held), sum(h[1] for h in held), size)
            own = counts.setdefault(self._worker, {})
            known = own.get(actor, [0, 0])
            own[actor] = [known[0] + count, known[1] + size]
            if own[actor][0] <= 0:
                del own[actor]


def forget_worker(path: Path, worker: str) -> None:
    """Drop the counts of a worker that is dead."""
    with _locked(path) as counts:
        counts.pop(worker, None)


@contextmanager
def _locked(path: Path) -> Iterator[dict[str, dict[str, list[int]]]]:
    """Change the shared counts under the lock of their file."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        data = os.pread(handle, os.fstat(handle).st_size, 0)
        counts = orjson.loads(data) if data else {}
        yield counts
        # One write, padded to the old length: a process that dies leaves the old or the new text.
        os.pwrite(handle, orjson.dumps(counts).ljust(len(data)), 0)
    finally:
        os.close(handle)
