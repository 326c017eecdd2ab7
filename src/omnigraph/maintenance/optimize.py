"""`optimize` and `ensure_indices`: maintenance of all tables in one commit.

Planning and rewriting happen before the lock, several tables at once. A table that moved meanwhile
is prepared again, on what is rewritten already where that still fits, and from the beginning where
it does not: its fragments have changed, an index covers them in another way, the schema is another
one, or a cleanup has removed the version that was read. The last attempt prepares under the lock,
so a busy table cannot delay maintenance for ever. A run with nothing to do publishes nothing, and
no version is ever removed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Literal

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.errors import (
    ConflictError,
    CorruptError,
    DeniedError,
    InvalidInputError,
    OmnigraphError,
)
from omnigraph.maintenance.build_indexes import PendingIndex
from omnigraph.maintenance.table_maintenance import (
    MaintenanceRequest,
    TableMaintenance,
    compact_dataset,
    declared_type,
    prepare_table,
    work_bytes,
)
from omnigraph.maintenance.workers import LocalWorkers, MaintenanceWorkers
from omnigraph.manifest import CommitDraft, Entry, GraphCommit, Repository
from omnigraph.manifest.catalogs import catalog_of
from omnigraph.manifest.compact import compact_manifest
from omnigraph.manifest.errors import (
    ExpectedVersionMismatchError,
    SchemaMovedError,
    TypeNotFoundError,
)
from omnigraph.manifest.layout import (
    CHECKSUMS,
    DERIVED_TABLES,
    MAIN_INCARNATION,
    MANIFEST,
    Incarnation,
)
from omnigraph.manifest.repository import reconcile_commits
from omnigraph.manifest.state import ManifestState
from omnigraph.records import JsonObject
from omnigraph.recovery import Recovery, WriterKind
from omnigraph.store.errors import StagedFilesLostError, StorageFullError, StorageTimeoutError
from omnigraph.store.records import CompactionOptions
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import WriteJob

CONCURRENCY_VARIABLE: Final = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"
CONCURRENCY_DEFAULT: Final = 8
_ATTEMPTS_MAX: Final = 4
"""How often a run is prepared outside the lock before it is prepared inside."""
_NOT_OF_A_MOVE: Final = (
    InvalidInputError,
    DeniedError,
    StorageFullError,
    StorageTimeoutError,
)
"""Errors that would occur again on any other version."""

_log = logging.getLogger(__name__)

Skipped = Literal["drift_needs_repair"]


class UncleanRecoveryError(ConflictError):
    """A dead write could not be settled; maintenance must not build on what it left."""

    code = "OG-UNCLEAN-RECOVERY"
    hint = "`omnigraph recovery status` shows what is pending"
    template = "{operation} requires a clean recovery state: {problem}"
    operation: str
    problem: str


@dataclass(frozen=True)
class TableReport:
    """What maintenance did to one table."""

    table_key: str
    published_version: int
    head_version: int
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: Skipped | None = None
    pending_indexes: tuple[PendingIndex, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the table as the command line shows it."""
        return {
            "type_key": self.table_key,
            "fragments_removed": self.fragments_removed,
            "fragments_added": self.fragments_added,
            "committed": self.committed,
            "skipped": self.skipped,
            "published_dataset_version": self.published_version,
            "lance_head_version": self.head_version,
            "pending_indexes": [
                {"property": pending.property, "reason": pending.reason}
                for pending in self.pending_indexes
            ],
        }


@dataclass(frozen=True, repr=False)
class MaintenanceReport(Displayed):
    """What a run did; `commit` is None when there was nothing to do."""

    tables: tuple[TableReport, ...]
    commit: GraphCommit | None
    engine: str = "local"

    def _display(self) -> Display:
        rows = [
            (
                table.table_key,
                table.fragments_removed,
                table.fragments_added,
                len(table.pending_indexes),
                table.skipped,
            )
            for table in self.tables
        ]
        headers = ("table", "fragments removed", "added", "indexes pending", "skipped")
        commit = self.commit.graph_commit_id if self.commit else None
        return Display(
            f"maintenance: {f'commit {commit}' if commit else 'no commit'}", headers, rows
        )

    @property
    def pending(self) -> tuple[PendingIndex, ...]:
        """The declared indexes that cannot be built yet."""
        return tuple(pending for table in self.tables for pending in table.pending_indexes)

    def to_json(self) -> JsonObject:
        """Return `{datasets, engine}`."""
        return {"datasets": [table.to_json() for table in self.tables], "engine": self.engine}


@dataclass(frozen=True)
class _Run:
    """One kind of run."""

    kind: WriterKind
    operation: str
    compaction: CompactionOptions | None
    workers: MaintenanceWorkers
    wants: Callable[[Entry], bool] = lambda _: True
    with_indexes: bool = True
    rebuilds_indexes: bool = False
    skips_drift: bool = True
    """Whether a table with versions from outside is left out; otherwise the run is refused."""
    sizes: Mapping[str, CompactionOptions | None] | None = None
    """Options by table, instead of `compaction`."""
    in_background: bool = False
    """Whether it runs in parallel with writes, and must leave processors to them."""

    def compaction_of(self, entry: Entry) -> CompactionOptions | None:
        return self.compaction if self.sizes is None else self.sizes[entry.table_key]


class Maintenance:
    """Runs maintenance on one graph."""

    def __init__(
        self,
        repository: Repository,
        recovery: Recovery,
        committer: Committer,
    ) -> None:
        self._repository = repository
        self._recovery = recovery
        self._committer = committer
        self._datasets = repository.store.datasets
        self._workers = LocalWorkers(self._datasets)
        self._concurrency = _concurrency()

    def optimize(self, workers: MaintenanceWorkers | None = None) -> MaintenanceReport:
        """Compact and index every table of `main`, and compact the system tables.

        The heavy part is done by `workers`, by default in this process.
        """
        self._require_clean("optimize")
        workers = workers or self._workers
        run = _Run(WriterKind.OPTIMIZE, "optimize", CompactionOptions(), workers)
        report = self._run(MAIN_INCARNATION, run)
        manifest = self._compact_manifest()
        reconcile_commits(self._repository)
        self._repository.checksums.record()
        self._compact_derived()
        self._repository.checksums.record()
        return MaintenanceReport((*report.tables, manifest), report.commit, workers.name)

    def work_bytes(self) -> int:
        """Return how large the fragments are that `optimize` would read, from manifests alone."""
        entries = self._repository.reader.latest(MAIN_INCARNATION).entries.values()
        return sum(work_bytes(self._datasets, entry, CompactionOptions()) for entry in entries)

    def ensure_indices(self, incarnation: Incarnation) -> MaintenanceReport:
        """Build declared indexes that are missing, and fold in what they do not cover.

        On a branch, tables on the main lineage of their dataset are left alone. The run is
        refused when a table that needs work has versions from outside: `repair` comes first.
        """
        # A record that blocks another branch is ignored; one of this branch refuses the commit.
        self._recovery.sweep()
        return self._index(incarnation, lambda _: True)

    def rebuild_indexes(
        self, incarnation: Incarnation, table_keys: tuple[str, ...]
    ) -> MaintenanceReport:
        """Build the declared indexes of some tables anew, whatever is stored of them.

        On a branch, tables on the main lineage of their dataset are left alone.
        """
        self._recovery.sweep()
        entries = self._repository.reader.latest(incarnation).entries
        for key in table_keys:
            if key not in entries:
                raise TypeNotFoundError(key, self._repository.reader.head_version(incarnation))
        return self._index(incarnation, lambda entry: entry.table_key in table_keys, anew=True)

    def _index(
        self, incarnation: Incarnation, wants: Callable[[Entry], bool], *, anew: bool = False
    ) -> MaintenanceReport:
        run = _Run(
            WriterKind.ENSURE_INDICES,
            "ensure_indices",
            compaction=None,
            workers=self._workers,
            wants=lambda entry: (
                wants(entry) and (incarnation.is_main or entry.table_branch is not None)
            ),
            rebuilds_indexes=anew,
            skips_drift=False,
        )
        return self._run(incarnation, run)

    def compact_tail(
        self,
        incarnation: Incarnation,
        sizes: Mapping[str, CompactionOptions | None],
        *,
        with_indexes: bool = True,
    ) -> MaintenanceReport:
        """Compact the small fragments of some tables, and fold them into the indexes.

        None as a size leaves the fragments of a table as they are.
        """
        run = _Run(
            WriterKind.OPTIMIZE,
            "optimize",
            compaction=None,
            workers=self._workers,
            wants=lambda entry: entry.table_key in sizes and entry.owner_branch == incarnation.text,
            with_indexes=with_indexes,
            sizes=sizes,
            in_background=True,
        )
        return self._run(incarnation, run)

    def _require_clean(self, operation: str) -> None:
        try:
            self._recovery.drop_torn_branches()
            blocked = self._recovery.sweep().blocked
        except CorruptError as error:
            raise UncleanRecoveryError(operation, str(error)) from error
        if blocked:
            raise UncleanRecoveryError(operation, str(blocked[0])) from blocked[0]

    # -- one run ----------------------------------------------------------------------------------

    def _run(
        self,
        incarnation: Incarnation,
        run: _Run,
    ) -> MaintenanceReport:
        earlier: dict[str, TableMaintenance] = {}
        for _ in range(_ATTEMPTS_MAX):
            state = self._repository.reader.latest(incarnation)
            try:
                prepared = self._prepare(incarnation, state, run, earlier)
            except StagedFilesLostError:
                earlier = {}
                continue
            except OmnigraphError as error:
                if self._moved_since(incarnation, state, error) is None:
                    raise
                earlier = {}
                continue
            earlier = prepared.tables
            job = self._job(incarnation, state, run, prepared)
            if not job.tables:
                return prepared.report(commit=None)
            try:
                published = self._committer.commit(job)
            except ExpectedVersionMismatchError:
                continue
            except (SchemaMovedError, StagedFilesLostError):
                # What is declared has changed, or what was rewritten is gone.
                earlier = {}
                continue
            return prepared.report(commit=published.commit)
        return self._run_locked(incarnation, run, earlier)

    def _run_locked(
        self,
        incarnation: Incarnation,
        run: _Run,
        earlier: Mapping[str, TableMaintenance],
    ) -> MaintenanceReport:
        branch = incarnation.branch
        operation_id = self._repository.clock.ulid()
        with self._committer.branch_lock(
            branch, operation_id=operation_id, operation=run.operation
        ) as lock:
            self._recovery.sweep_branch(branch)
            state = self._repository.reader.latest(incarnation)
            try:
                prepared = self._prepare(incarnation, state, run, earlier)
            except OmnigraphError as error:
                moved = self._moved_since(incarnation, state, error)
                if moved is None:
                    raise
                raise moved from error
            job = self._job(incarnation, state, run, prepared)
            if not job.tables:
                return prepared.report(commit=None)
            published = self._committer.commit_locked(job, lock)
        self._committer.record(published)
        return prepared.report(commit=published.commit)

    def _moved_since(
        self, incarnation: Incarnation, state: ManifestState, error: OmnigraphError
    ) -> ExpectedVersionMismatchError | None:
        """Return which table has moved, where that can be why preparing has failed.

        A version that is no longer published may be removed while it is read here. Which error the
        storage raises then depends on the file that is missing.
        """
        if isinstance(error, _NOT_OF_A_MOVE):
            return None
        now = self._repository.reader.latest(incarnation).entries
        for key, entry in state.entries.items():
            found = now.get(key)
            if found is None or found.state != entry.state:
                actual = 0 if found is None else found.table_version
                return ExpectedVersionMismatchError(key, entry.table_version, actual)
        return None

    def _prepare(
        self,
        incarnation: Incarnation,
        state: ManifestState,
        run: _Run,
        earlier: Mapping[str, TableMaintenance],
    ) -> _Prepared:
        catalog = catalog_of(state.schema)
        entries = [entry for entry in state.entries.values() if run.wants(entry)]
        heads = {entry.table_key: self._head(incarnation, entry) for entry in entries}
        drifted = (
            {e.table_key for e in entries if heads[e.table_key] > e.table_version}
            if run.skips_drift
            else set()
        )
        operation_id = self._repository.clock.ulid()

        def prepare(entry: Entry) -> TableMaintenance:
            known = earlier.get(entry.table_key)
            if known is not None and known.entry.state == entry.state:
                return known
            compaction = run.compaction_of(entry)
            request = MaintenanceRequest(
                incarnation, operation_id, compaction, run.with_indexes, run.rebuilds_indexes
            )
            declared = declared_type(catalog, entry.table_key)
            return prepare_table(
                self._datasets, entry, declared, request, workers=run.workers, earlier=known
            )

        wanted = [entry for entry in entries if entry.table_key not in drifted]
        tables = dict(
            zip((e.table_key for e in wanted), self._each(prepare, wanted, run), strict=True)
        )
        skipped = {key: entry for key, entry in state.entries.items() if key in drifted}
        return _Prepared(operation_id, tables, skipped, heads)

    def _each(
        self, prepare: Callable[[Entry], TableMaintenance], entries: list[Entry], run: _Run
    ) -> Iterable[TableMaintenance]:
        if len(entries) <= 1 or self._concurrency == 1 or run.in_background:
            return [prepare(entry) for entry in entries]
        with ThreadPoolExecutor(min(self._concurrency, len(entries)), "maintenance") as pool:
            return list(pool.map(prepare, entries))

    def _head(self, incarnation: Incarnation, entry: Entry) -> int:
        """Return the head of a lineage; another branch may have written to its own since."""
        if entry.owner_branch != incarnation.text:
            return entry.table_version
        return self._datasets.head_version(entry.location, branch=entry.table_branch)

    def _job(
        self, incarnation: Incarnation, state: ManifestState, run: _Run, prepared: _Prepared
    ) -> WriteJob:
        return WriteJob(
            kind=run.kind,
            incarnation=incarnation,
            operation_id=prepared.operation_id,
            draft=CommitDraft.new(self._repository.clock, run.operation),
            schema_hash=state.head.schema_hash,
            tables=tuple(t.write for t in prepared.tables.values() if t.write is not None),
        )

    # -- system tables ----------------------------------------------------------------------------

    def _compact_manifest(self) -> TableReport:
        reader = self._repository.reader
        before = reader.head_version(MAIN_INCARNATION)
        fragments = len(reader.open(MAIN_INCARNATION, before).fragments())
        done = _tried(lambda: compact_manifest(self._repository, MAIN_INCARNATION))
        after = reader.head_version(MAIN_INCARNATION)
        left = len(reader.open(MAIN_INCARNATION, after).fragments())
        return TableReport(
            table_key=MANIFEST,
            fragments_removed=fragments if done else 0,
            fragments_added=left if done else 0,
            committed=done,
            published_version=after,
            head_version=after,
        )

    def _compact_derived(self) -> None:
        for location in (*DERIVED_TABLES, CHECKSUMS):
            if self._datasets.exists(location):
                _tried(partial(compact_dataset, self._datasets, location))


@dataclass(frozen=True)
class _Prepared:
    """A run before its commit."""

    operation_id: str
    tables: dict[str, TableMaintenance]
    drifted: Mapping[str, Entry]
    heads: Mapping[str, int]

    def report(self, *, commit: GraphCommit | None) -> MaintenanceReport:
        reports = [self._table_report(table, commit) for table in self.tables.values()]
        reports += [
            TableReport(key, entry.table_version, self.heads[key], skipped="drift_needs_repair")
            for key, entry in self.drifted.items()
        ]
        return MaintenanceReport(tuple(sorted(reports, key=lambda r: r.table_key)), commit)

    def _table_report(self, table: TableMaintenance, commit: GraphCommit | None) -> TableReport:
        committed = commit is not None and table.write is not None
        version = table.entry.table_version
        if committed and table.write is not None:
            version = table.write.intended_version
        return TableReport(
            table_key=table.entry.table_key,
            fragments_removed=table.fragments_removed if committed else 0,
            fragments_added=table.fragments_added if committed else 0,
            committed=committed,
            published_version=version,
            head_version=version,
            pending_indexes=table.pending,
        )


def _tried(compaction: Callable[[], bool]) -> bool:
    """Compact a system table; a failure does not fail the run, which has committed."""
    try:
        return compaction()
    except OmnigraphError as error:
        _log.warning("a system table was not compacted: %s", error)
        return False


def _concurrency() -> int:
    text = os.environ.get(CONCURRENCY_VARIABLE, "")
    return max(1, int(text)) if text.strip().isdigit() else CONCURRENCY_DEFAULT
