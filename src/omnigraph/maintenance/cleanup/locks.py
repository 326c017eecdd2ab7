"""The locks of all branches at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.maintenance.cleanup.planner import LOOKS_MAX, BranchesMovingError
from omnigraph.manifest import Repository
from omnigraph.manifest.locks.branch_lock import take_all


@contextmanager
def all_branches_locked(repository: Repository) -> Iterator[None]:
    """Hold the locks of all branches, so that no writer is between its last look and its publish.

    A writer checks under the lock of its branch that its files exist, and holds the lock until they
    are named. So one that has only prepared notices that they are gone, and prepares again.
    """
    branches = repository.branches
    for _ in range(LOOKS_MAX):
        names = branches.names()
        operation_id = repository.clock.ulid()
        with take_all(repository.branch_locks, names, operation_id=operation_id):
            # A branch is created under the lock of its source: while all are held, none appears.
            if branches.names() == names:
                yield
                return
    raise BranchesMovingError
