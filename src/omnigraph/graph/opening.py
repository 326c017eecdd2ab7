"""Opening a graph, step by step.

The order matters: a torn head makes a table unreadable, so it goes before anything is read; an
older format is brought up to date before intent records are settled; and records are settled before
the schema is compared with the tables, which a dead schema change may have left half changed.
"""

from __future__ import annotations

from omnigraph.clock import Clock
from omnigraph.manifest import Repository
from omnigraph.manifest.format_stamp import migrate
from omnigraph.manifest.layout import MAIN_INCARNATION, Incarnation
from omnigraph.manifest.locks.branch_lock import BranchLocks
from omnigraph.manifest.repository import (
    assemble,
    check_contract,
    reconcile_commits,
    refresh_derived,
    require_graph,
)
from omnigraph.names import BranchName
from omnigraph.recovery import Recovery
from omnigraph.store import Store


def open_for_writing(
    store: Store, clock: Clock, *, branch_locks: BranchLocks | None = None
) -> tuple[Repository, Recovery]:
    """Open a graph, settle what dead writers left, and bring derived files up to date."""
    repository, recovery = _assembled(store, clock, branch_locks)
    require_graph(repository)
    recovery.drop_torn()
    migrate(repository.root, store.datasets)
    recovery.sweep()
    state = repository.reader.latest(MAIN_INCARNATION)
    check_contract(state)
    refresh_derived(repository, state)
    return repository, recovery


def bind_for_writing(repository: Repository, recovery: Recovery, branch: BranchName) -> Incarnation:
    """Return the live branch of a name, readable and with its derived tables up to date."""
    incarnation = repository.branches.resolve(branch)
    if incarnation.is_main:
        recovery.drop_torn_branch(incarnation)
    else:
        reconcile_commits(repository, incarnation)
    repository.checksums.record()
    return incarnation


def _assembled(
    store: Store, clock: Clock, branch_locks: BranchLocks | None
) -> tuple[Repository, Recovery]:
    """Put repository and recovery together, each of which needs the other."""

    def drop_torn_branch(incarnation: Incarnation) -> None:
        recovery.drop_torn_branch(incarnation)

    repository = assemble(
        store, clock, branch_locks=branch_locks, drop_torn_branch=drop_torn_branch
    )
    recovery = Recovery(repository)
    return repository, recovery
