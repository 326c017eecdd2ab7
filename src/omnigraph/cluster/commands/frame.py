"""What commands have in common: the lock around their work, and what they say of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from omnigraph.clock import Clock, SystemClock
from omnigraph.cluster.diagnostics import DiagnosedError, Diagnostic, error, has_errors, warning
from omnigraph.cluster.graphs import EngineGraphs, Graphs
from omnigraph.cluster.stored.intents import Intent, read_intents
from omnigraph.cluster.stored.json_objects import age_s
from omnigraph.cluster.stored.ledger import (
    EMPTY,
    LEDGER_PATH,
    StoredLedger,
    read_ledger,
    require_identity,
)
from omnigraph.cluster.stored.lock import (
    LOCK_PATH,
    Lock,
    Operation,
    acquire,
    read_lock,
    release,
    require_held,
)
from omnigraph.cluster.stored.root import StorageRoot, open_root
from omnigraph.records import OPTIONAL, JsonObject, to_json

_T = TypeVar("_T")


@dataclass(frozen=True)
class Workplace:
    """Where a command works: storage, graphs, and the clock."""

    root: StorageRoot
    graphs: Graphs
    clock: Clock


def open_workplace(
    storage: str,
    clock: Clock | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> Workplace:
    """Open the storage of a cluster; creates nothing."""
    root = open_root(storage, storage_options)
    return Workplace(root, EngineGraphs(root), clock or SystemClock())


@dataclass(frozen=True)
class Report:
    """The output of a command: findings, members in JSON, and lines for people."""

    diagnostics: tuple[Diagnostic, ...]
    members: JsonObject
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class StateObservations:
    """What a command has seen of ledger and lock.

    `locked` and the members that begin with `lock_` describe the lock of another command.
    """

    state_path: str
    lock_path: str
    state_found: bool = False
    state_revision: int = 0
    resource_count: int = 0
    locked: bool = False
    lock_acquired: bool = False
    applied_config_digest: str | None = field(default=None, metadata=OPTIONAL)
    state_cas: str | None = field(default=None, metadata=OPTIONAL)
    lock_id: str | None = field(default=None, metadata=OPTIONAL)
    acquired_lock_id: str | None = field(default=None, metadata=OPTIONAL)
    lock_operation: Operation | None = field(default=None, metadata=OPTIONAL)
    lock_created_at: str | None = field(default=None, metadata=OPTIONAL)
    lock_pid: int | None = field(default=None, metadata=OPTIONAL)
    lock_age_seconds: int | None = field(default=None, metadata=OPTIONAL)


class Frame:
    """One run of a command: its findings, its lock, and the ledger as it knows it."""

    def __init__(self, work: Workplace, diagnostics: Iterable[Diagnostic] = ()) -> None:
        self.work = work
        self.diagnostics = list(diagnostics)
        self.stored = StoredLedger(EMPTY, None)
        self._own: Lock | None = None
        self._other: Lock | None = None
        self._is_locked = False

    def run_locked(
        self, operation: Operation, body: Callable[[], _T], *, is_locked: bool
    ) -> _T | None:
        """Run the body under the lock; an error that ends it is among the findings.

        If there are errors already, nothing is run and no lock is taken.
        """
        if has_errors(self.diagnostics):
            return None
        try:
            self._enter(operation, is_locked=is_locked)
            try:
                return body()
            finally:
                self._leave()
        except DiagnosedError as problem:
            self.diagnostics.append(problem.diagnostic)
            return None

    def read_ledger(self) -> StoredLedger:
        """Read the ledger."""
        self.stored = read_ledger(self.work.root)
        return self.stored

    def require_ledger(self) -> StoredLedger:
        """Read the ledger, which must be there."""
        stored = self.read_ledger()
        if not stored.is_found:
            raise DiagnosedError(
                error(
                    "state_missing",
                    LEDGER_PATH,
                    "there is no ledger: `omnigraph cluster import` makes one",
                )
            )
        return stored

    def require_sole(self) -> None:
        """Make sure that no other command has begun since: the lock and the ledger are as before.

        A command whose lock was removed may have slept for days, and a graph with the id that it
        is about to delete may be another one by now.
        """
        if self._own is not None:
            require_held(self.work.root, self._own)
        require_identity(self.work.root, self.stored.identity)

    def refuse(self, problems: Sequence[Diagnostic]) -> None:
        """End the work if something is wrong."""
        if problems:
            self.diagnostics += problems[:-1]
            raise DiagnosedError(problems[-1])

    def require_intents(self) -> tuple[Intent, ...]:
        """Read the intents of other runs, which must be known before anything is changed."""
        found = read_intents(self.work.root)
        if not found.is_complete:
            self.refuse([replace(each, severity="error") for each in found.diagnostics])
        self.diagnostics += found.diagnostics
        return tuple(found.records.values())

    def warn_of_intents(self) -> None:
        """Warn of each operation that was not finished, without deciding about it."""
        found = read_intents(self.work.root)
        self.diagnostics += found.diagnostics
        for intent in found.records.values():
            path = intent.path if intent.graph_id is None else f"graph.{intent.graph_id}"
            message = (
                f"{intent.kind} {intent.operation_id} was not finished;"
                " the next `omnigraph cluster apply` or `refresh` settles it"
            )
            self.diagnostics.append(warning("cluster_recovery_pending", path, message))

    def look_at_lock(self) -> None:
        """Notice the lock of another command."""
        try:
            self._other = read_lock(self.work.root)
            self._is_locked = self._other is not None
        except DiagnosedError as problem:
            self._is_locked = True
            found = problem.diagnostic
            self.diagnostics.append(warning(found.code, found.path, found.message))

    def observations(self) -> JsonObject:
        """Return what was seen of ledger and lock."""
        root, stored, other = self.work.root, self.stored, self._other
        seen = StateObservations(
            state_path=root.shown(LEDGER_PATH),
            lock_path=root.shown(LOCK_PATH),
            state_found=stored.is_found,
            state_revision=stored.ledger.state_revision,
            resource_count=len(stored.ledger.resources),
            locked=self._is_locked,
            lock_acquired=self._own is not None,
            applied_config_digest=stored.ledger.config_digest,
            state_cas=stored.identity,
            acquired_lock_id=None if self._own is None else self._own.lock_id,
            lock_id=None if other is None else other.lock_id,
            lock_operation=None if other is None else other.operation,
            lock_created_at=None if other is None else other.created_at,
            lock_pid=None if other is None else other.pid,
            lock_age_seconds=None if other is None else age_s(other.created_at, self.work.clock),
        )
        shape: JsonObject = to_json(seen)
        return shape

    def _enter(self, operation: Operation, *, is_locked: bool) -> None:
        if not is_locked:
            self.look_at_lock()
            return
        try:
            self._own = acquire(self.work.root, operation, self.work.clock)
        except DiagnosedError as problem:
            if problem.diagnostic.code == "state_lock_held":
                self.look_at_lock()
            raise

    def _leave(self) -> None:
        if self._own is None:
            return
        try:
            release(self.work.root, self._own)
        except DiagnosedError as problem:
            self.diagnostics.append(problem.diagnostic)
