"""What the worker processes of one server share: a folder with counts and locks.

With one worker there is no folder, and everything is in memory. Locks are those of the system,
which releases them when their holder dies.
"""

from __future__ import annotations

import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from omnigraph.server.admission import Admission, AdmissionLimits, LocalAdmission, SharedAdmission
from omnigraph.server.metrics import Metrics
from omnigraph.server.revisions.agreement import Agreement, LocalAgreement, SharedAgreement


class Slot(Protocol):
    """Something that one request holds at a time."""

    def acquire(self) -> bool:
        """Take it unless it is taken; return whether it was."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...

    def is_taken(self) -> bool:
        """Whether a request holds it."""
        ...


class LocalSlot:
    """A slot of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self) -> bool:
        """Take it unless it is taken; return whether it was."""
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    def is_taken(self) -> bool:
        """Whether a request holds it."""
        return self._lock.locked()


class FileSlot:
    """A slot of several processes: the lock of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._held: int | None = None

    def acquire(self) -> bool:
        """Take it unless it is taken; return whether it was."""
        with self._guard:
            if self._held is not None:
                return False
            self._held = self._locked()
            return self._held is not None

    def release(self) -> None:
        """Give it back."""
        with self._guard:
            if self._held is not None:
                os.close(self._held)
                self._held = None

    def is_taken(self) -> bool:
        """Whether a request holds it."""
        with self._guard:
            if self._held is not None:
                return True
            handle = self._locked()
            if handle is not None:
                os.close(handle)
            return handle is None

    def _locked(self) -> int | None:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle


@dataclass(frozen=True)
class Shared:
    """Where workers meet; `folder` is None with one worker."""

    folder: Path | None = None
    worker: str = "0"

    @property
    def columns(self) -> Path | None:
        """The folder of the columns that workers map."""
        return None if self.folder is None else self.folder / "columns"

    def admission(self, limits: AdmissionLimits) -> Admission:
        """Return what counts the writes in flight."""
        if self.folder is None:
            return LocalAdmission(limits)
        return SharedAdmission(self.folder / "admission.json", limits, worker=self.worker)

    def export_slot(self, graph_id: str) -> Slot:
        """Return the slot of the export of a graph."""
        if self.folder is None:
            return LocalSlot()
        return FileSlot(self.folder / f"export-{graph_id}.lock")

    def agreement(self) -> Agreement:
        """Return where workers agree on the revision that they serve."""
        if self.folder is None:
            return LocalAgreement()
        return SharedAgreement(self.folder, self.worker)

    def metrics(self) -> Metrics:
        """Return the counters of this worker, which are shown with those of the others."""
        return Metrics(self.folder, self.worker)
