"""One graph's manifest, with everything that works on it put together."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.manifest.branches import Branches
from omnigraph.manifest.checksums import ChecksumTable
from omnigraph.manifest.commit_tables import CommitTables
from omnigraph.manifest.errors import BranchGoneError, GraphNotFoundError
from omnigraph.manifest.format_stamp import read_stamp
from omnigraph.manifest.genesis import create_graph, require_empty
from omnigraph.manifest.history import History
from omnigraph.manifest.identity_counter import IdentityCounter
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, Incarnation
from omnigraph.manifest.locks.branch_lock import BranchLocks
from omnigraph.manifest.locks.lease_locks import LeaseBranchLocks
from omnigraph.manifest.locks.local_locks import LocalBranchLocks
from omnigraph.manifest.publish import Publisher
from omnigraph.manifest.reader import ManifestReader
from omnigraph.manifest.schema_files import refresh_schema_files
from omnigraph.manifest.state import ManifestState
from omnigraph.manifest.tags import Tags
from omnigraph.names import MAIN, BranchName
from omnigraph.schema import CompiledSchema, TableIdentity, open_contract
from omnigraph.store import Store
from omnigraph.store.file_locks import LocalFileLocks


class OpenMode(StrEnum):
    """What opening a graph may do.

    `READ_ONLY` writes nothing at all and works on a read-only file system. `READ_WRITE` first
    brings an older format up to date.
    """

    READ_WRITE = "read_write"
    READ_ONLY = "read_only"


@dataclass(frozen=True)
class Repository:
    """The parts that share one root."""

    root: str
    store: Store
    clock: Clock
    reader: ManifestReader
    branch_locks: BranchLocks
    branches: Branches
    publisher: Publisher
    history: History
    tags: Tags
    commit_tables: CommitTables
    checksums: ChecksumTable
    identities: IdentityCounter


def assemble(
    store: Store,
    clock: Clock,
    *,
    branch_locks: BranchLocks | None = None,
    drop_torn_branch: Callable[[Incarnation], None] | None = None,
) -> Repository:
    """Put the parts together; touches no storage. Locks are by default what the storage allows.

    `drop_torn_branch` removes what a power failure has cut off of a branch, before its first use;
    None where nothing may be written.
    """
    root = str(store.settings.root)
    datasets = store.datasets
    reader = ManifestReader(root=root, datasets=datasets)
    branch_locks = branch_locks or _branch_locks(store, clock)
    branches = Branches(
        datasets=datasets,
        reader=reader,
        branch_locks=branch_locks,
        clock=clock,
        drop_torn=drop_torn_branch,
    )
    publisher = Publisher(
        datasets=datasets,
        reader=reader,
        clock=clock,
        background=store.background,
        flusher=store.flusher,
    )
    history = History(reader=reader, branches=branches, datasets=datasets)
    tags = Tags(
        datasets=datasets,
        reader=reader,
        publisher=publisher,
        history=history,
        branch_locks=branch_locks,
        clock=clock,
    )
    return Repository(
        root=root,
        store=store,
        clock=clock,
        reader=reader,
        branch_locks=branch_locks,
        branches=branches,
        publisher=publisher,
        history=history,
        tags=tags,
        commit_tables=CommitTables(datasets),
        checksums=ChecksumTable(store, clock),
        identities=IdentityCounter(
            reader=reader,
            publisher=publisher,
            branches=branches,
            branch_locks=branch_locks,
            clock=clock,
        ),
    )


def init_repository(
    store: Store,
    clock: Clock,
    schema: CompiledSchema,
    *,
    actor_id: str | None = None,
    force: bool = False,
) -> Repository:
    """Make a new graph at an empty root."""
    repository = assemble(store, clock)
    require_empty(repository.root, datasets=store.datasets, objects=store.objects, force=force)
    with repository.branch_locks.take(BranchName(MAIN), operation_id=clock.ulid()) as lock:
        require_empty(repository.root, datasets=store.datasets, objects=store.objects, force=force)
        genesis = create_graph(
            repository.root,
            schema,
            datasets=store.datasets,
            objects=store.objects,
            clock=clock,
            lock=lock,
            actor_id=actor_id,
        )
    repository.commit_tables.record([genesis])
    refresh_schema_files(store.objects, repository.reader.latest(MAIN_INCARNATION).schema)
    repository.checksums.record()
    return repository


def open_read_only(store: Store, clock: Clock) -> Repository:
    """Open a graph and check that schema and tables agree; writes nothing."""
    repository = assemble(store, clock)
    require_graph(repository)
    read_stamp(repository.root, store.datasets)
    check_contract(repository.reader.latest(MAIN_INCARNATION))
    return repository


def require_graph(repository: Repository) -> None:
    """Raise unless there is a graph at the root."""
    if not repository.store.datasets.exists(MANIFEST):
        raise GraphNotFoundError(repository.root)


def check_contract(state: ManifestState) -> None:
    """Raise unless the stored schema is intact and describes exactly the live tables."""
    live = [
        TableIdentity(key, registration.type_id, registration.table_incarnation_id)
        for key, registration in state.registrations.items()
        if key in state.entries
    ]
    schema = state.schema
    open_contract(ir=lambda: schema.compiled, state=schema.state, live_tables=live)


def refresh_derived(repository: Repository, state: ManifestState) -> None:
    """Bring the files that are derived from the manifest of `main` up to date."""
    refresh_schema_files(repository.store.objects, state.schema)
    reconcile_commits(repository, MAIN_INCARNATION)
    repository.checksums.record()


def reconcile_commits(repository: Repository, *incarnations: Incarnation) -> int:
    """Add to the derived commit tables what they lack; return how many commits that were.

    Looks at the given branches, or at all of them, which costs a read of each one's manifest.
    """
    states = []
    for incarnation in incarnations or repository.branches.incarnations():
        try:
            states.append(repository.reader.latest(incarnation))
        except BranchGoneError:
            continue
    return repository.commit_tables.reconcile(states)


def _branch_locks(store: Store, clock: Clock) -> BranchLocks:
    root = store.settings.root
    if root.is_local:
        return LocalBranchLocks(
            root=str(root.local_path()), locks=LocalFileLocks(str(root.local_path())), clock=clock
        )
    return LeaseBranchLocks(
        root=str(root), objects=store.objects, clock=clock, owner_id=clock.ulid()
    )
