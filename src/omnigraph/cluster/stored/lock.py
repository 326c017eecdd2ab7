"""The lock of a cluster: one object, created by every command that changes or compares the ledger.

It has no expiry, and no command checks whether its process lives: an operator who knows that its
holder is gone removes it by `force-unlock`. Commands cannot overwrite each other's ledger without
it either, because the ledger is written conditionally; but a graph has no such condition, so
`apply` looks whether the lock and the ledger are still its own before each change of a graph.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from omnigraph.clock import Clock
from omnigraph.cluster.diagnostics import DiagnosedError, Diagnostic, error
from omnigraph.cluster.stored.json_objects import (
    OtherVersionError,
    UnreadableError,
    decode,
    encode,
    moment,
)
from omnigraph.cluster.stored.root import FOLDER, StorageRoot
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.store.errors import ObjectExistsError, ObjectNotFoundError

LOCK_PATH: Final = f"{FOLDER}/lock.json"
VERSION: Final = 1

Operation: TypeAlias = Literal["plan", "apply", "approve", "refresh", "import"]


@dataclass(frozen=True)
class Lock:
    """Who holds the lock: `pid` is of the machine that wrote it, and only shown."""

    version: int
    lock_id: str
    operation: Operation
    created_at: str
    pid: int


def read_lock(root: StorageRoot) -> Lock | None:
    """Read the lock; none if it is free."""
    try:
        data = root.objects.get(LOCK_PATH).data
    except ObjectNotFoundError:
        return None
    except OmnigraphError as problem:
        raise DiagnosedError(error("state_lock_read_error", LOCK_PATH, str(problem))) from problem
    try:
        return decode(data, Lock, version_member="version", version=VERSION)
    except OtherVersionError as problem:
        found = error("unsupported_state_lock_version", LOCK_PATH, str(problem))
        raise DiagnosedError(found) from None
    except UnreadableError as problem:
        raise DiagnosedError(error("invalid_state_lock", LOCK_PATH, str(problem))) from None


def acquire(root: StorageRoot, operation: Operation, clock: Clock) -> Lock:
    """Take the lock, or raise `state_lock_held` with what the holder says of itself."""
    lock = Lock(VERSION, clock.ulid(), operation, moment(clock), os.getpid())
    try:
        root.objects.put_if_absent(LOCK_PATH, encode(lock))
    except ObjectExistsError:
        raise DiagnosedError(_held(root)) from None
    except OutcomeUnknownError as problem:
        if not _is_ours(root, lock):
            raise _failed(problem) from problem
    except OmnigraphError as problem:
        raise _failed(problem) from problem
    return lock


def release(root: StorageRoot, lock: Lock) -> None:
    """Give the lock back, unless it was taken away and is another's by now."""
    found = read_lock(root)
    if found is None or found.lock_id != lock.lock_id:
        return
    try:
        root.objects.delete(LOCK_PATH)
    except OmnigraphError as problem:
        raise _failed(problem) from problem


def require_held(root: StorageRoot, lock: Lock) -> None:
    """Raise if the lock was removed."""
    found = read_lock(root)
    if found is None or found.lock_id != lock.lock_id:
        message = (
            "the lock was removed while this command was running, and another command may work"
            " now; no further graph is changed: run the command again when the other has ended"
        )
        raise DiagnosedError(error("state_lock_lost", LOCK_PATH, message))


def remove(root: StorageRoot, lock_id: str) -> Lock:
    """Remove the lock that has an id, of any holder."""
    found = read_lock(root)
    if found is None:
        raise DiagnosedError(error("state_lock_missing", LOCK_PATH, "no command holds the lock"))
    if found.lock_id != lock_id:
        message = f"the lock has the id {found.lock_id}, not {lock_id}; nothing was removed"
        raise DiagnosedError(error("state_lock_id_mismatch", LOCK_PATH, message))
    try:
        root.objects.delete(LOCK_PATH)
    except OmnigraphError as problem:
        raise _failed(problem) from problem
    return found


def _held(root: StorageRoot) -> Diagnostic:
    try:
        found = read_lock(root)
    except DiagnosedError as problem:
        reason = problem.diagnostic.message
        message = f"the lock is held and cannot be read: {reason}; remove the file by hand"
        return error("state_lock_held", LOCK_PATH, message)
    if found is None:
        message = "the lock was held a moment ago; run the command again"
        return error("state_lock_held", LOCK_PATH, message)
    return error(
        "state_lock_held",
        LOCK_PATH,
        f"`{found.operation}` of process {found.pid} holds the lock since {found.created_at};"
        f" if it no longer runs: omnigraph cluster force-unlock {found.lock_id}",
    )


def _is_ours(root: StorageRoot, lock: Lock) -> bool:
    try:
        found = read_lock(root)
    except DiagnosedError:
        return False
    return found is not None and found.lock_id == lock.lock_id


def _failed(problem: OmnigraphError) -> DiagnosedError:
    return DiagnosedError(error("state_lock_error", LOCK_PATH, str(problem)))
