"""Which revision is in force, for all workers of a server at once.

1. A worker proposes a revision when it has everything open that the revision needs.
2. A revision comes into force when the last proposal of every worker is this one. Until then all
   workers serve the one before.
3. A worker asks what is in force before it looks at a request, so a client that has seen a revision
   from one worker never sees an older one from another.
4. Proposals and their count happen under the lock of one file. A worker that dies is forgotten by
   its parent, and its proposal with it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from omnigraph.clock import Clock

AGREE_MAX_S: Final = 30.0
"""After how long it is worth a warning that not all workers propose the same revision."""
_IN_FORCE: Final = "revision-in-force"
_PROPOSED: Final = "revision-proposed-"
_LOCK: Final = "revisions.lock"


class Agreement(Protocol):
    """What the workers of a server agree on."""

    def propose(self, key: str) -> None:
        """Record that this worker is ready to serve a revision."""
        ...

    def in_force(self) -> str | None:
        """Return the key of the revision that is served now; cheap, for every request."""
        ...


class LocalAgreement:
    """The agreement of one process with itself."""

    def __init__(self) -> None:
        self._key: str | None = None

    def propose(self, key: str) -> None:
        """Put a revision into force."""
        self._key = key

    def in_force(self) -> str | None:
        """Return the revision that was proposed last."""
        return self._key


class SharedAgreement:
    """The agreement of several processes that share a folder."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._folder = folder
        self._worker = worker
        self._path = str(folder / _IN_FORCE)
        # Replaced as a whole: what the file was when it was read, and its text.
        self._known: tuple[tuple[int, int], str] | None = None

    def propose(self, key: str) -> None:
        """Record that this worker is ready; the last of all puts the revision into force."""
        with _locked(self._folder):
            _write(self._folder / f"{_PROPOSED}{self._worker}", key)
            _count(self._folder)

    def in_force(self) -> str | None:
        """Return the revision in force; reads its file only if that has changed."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - a path object costs more than the call
        except FileNotFoundError:
            return None
        stamp = found.st_ino, found.st_mtime_ns
        known = self._known
        if known is None or known[0] != stamp:
            known = stamp, Path(self._path).read_text()
            self._known = known
        return known[1]


class AgreementTimer:
    """Tells once for each revision that the other workers do not become ready for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._awaited: str | None = None
        self._since_s = 0.0
        self._is_told = False

    def is_overdue(self, *, proposed: str, in_force: str) -> bool:
        """Whether a proposal has waited for `AGREE_MAX_S`; true one time only."""
        now_s = self._clock.monotonic_s()
        awaited = None if proposed == in_force else proposed
        if awaited != self._awaited:
            self._awaited, self._since_s, self._is_told = awaited, now_s, False
        is_late = awaited is not None and now_s - self._since_s >= AGREE_MAX_S
        is_overdue = is_late and not self._is_told
        self._is_told |= is_overdue
        return is_overdue


def forget_proposal(folder: Path, worker: str) -> None:
    """Drop the proposal of a worker that is dead; the others may agree without it."""
    with _locked(folder):
        (folder / f"{_PROPOSED}{worker}").unlink(missing_ok=True)
        _count(folder)


def _count(folder: Path) -> None:
    """Put a revision into force if all workers propose it."""
    proposed = {path.read_text() for path in folder.glob(f"{_PROPOSED}*")}
    if len(proposed) == 1:
        [key] = proposed
        path = folder / _IN_FORCE
        if not path.exists() or path.read_text() != key:
            _write(path, key)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all; one that is replaced has another inode."""
    new = path.with_name(f"new-{path.name}")
    new.write_text(text)
    new.replace(path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
