"""Preparing the maintenance of one table: compaction, then indexes over the result.

Nothing here moves a head. Rewritten fragments survive a table that is appended to meanwhile: they
are staged again on the new version, as long as the fragments that they replace are unchanged.
"""

from __future__ import annotations

import logging

from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.maintenance.build_indexes import (
    IndexWork,
    PendingIndex,
    only_stored,
    plan_indexes,
    stage_indexes,
)
from omnigraph.maintenance.workers import MaintenanceWorkers
from omnigraph.manifest import Entry
from omnigraph.manifest.forks import write_base
from omnigraph.manifest.layout import Incarnation
from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EntityType
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.errors import StaleBaseError, StorageError
from omnigraph.store.records import (
    CompactionOptions,
    CompactionResult,
    DatasetVersion,
    StagedTransaction,
)
from omnigraph.write.commit.job import TableWrite

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableMaintenance:
    """The maintenance of one table, prepared on one entry; `write` is None: nothing to do."""

    entry: Entry
    write: TableWrite | None
    pending: tuple[PendingIndex, ...] = ()
    results: tuple[CompactionResult, ...] = ()

    @property
    def fragments_removed(self) -> int:
        """How many fragments were rewritten."""
        return sum(result.fragments_removed for result in self.results)

    @property
    def fragments_added(self) -> int:
        """How many fragments they became."""
        return sum(result.fragments_added for result in self.results)


@dataclass(frozen=True)
class MaintenanceRequest:
    """What to prepare: `compaction` None leaves the fragments as they are."""

    incarnation: Incarnation
    operation_id: str
    compaction: CompactionOptions | None
    with_indexes: bool = True
    rebuilds_indexes: bool = False
    """Whether indexes are built anew, whatever is stored."""


def declared_type(catalog: Catalog, table_key: str) -> EntityType:
    """Return the type whose rows a table holds."""
    kind, name = TableKey(table_key).parts
    return catalog.node_types[name] if kind == "node" else catalog.edge_types[name]


def prepare_table(
    datasets: DatasetStore,
    entry: Entry,
    declared: EntityType,
    request: MaintenanceRequest,
    *,
    workers: MaintenanceWorkers,
    earlier: TableMaintenance | None = None,
) -> TableMaintenance:
    """Rewrite and index what needs it; `earlier` is an attempt on an older version."""
    at = entry.at
    handle = datasets.open(at.location, branch=at.branch, version=at.version)
    plans_compaction = request.compaction is not None and bool(
        datasets.plan_compaction(at, request.compaction)
    )
    anew = request.rebuilds_indexes
    work = plan_indexes(handle, declared, anew=anew) if request.with_indexes else IndexWork()
    if not plans_compaction and work.is_empty:
        return TableMaintenance(entry, None, work.pending)
    base = write_base(datasets, request.incarnation, entry, operation_id=request.operation_id)
    chain = _Chain(datasets, base.base, workers)
    try:
        results = _compact(chain, declared, request, earlier) if plans_compaction else ()
        if request.with_indexes:
            work = plan_indexes(chain.handle, declared, anew=anew)
            if not work.is_empty:
                chain.add(stage_indexes(datasets, chain.handle, work, workers))
    except StorageError:
        # Indexes are built over rows that are only staged: a cleanup can remove those meanwhile.
        base.require_fork(datasets)
        for staged in chain.staged:
            datasets.verify_staged_files(staged)
        raise
    finally:
        chain.close()
    write = TableWrite(entry.table_key, tuple(chain.staged), row_count=entry.row_count, base=base)
    return TableMaintenance(entry, write if chain.staged else None, work.pending, results)


def work_bytes(datasets: DatasetStore, entry: Entry, options: CompactionOptions) -> int:
    """Return how large the fragments are that maintenance would read, from manifests alone."""
    at = entry.at
    handle = datasets.open(at.location, branch=at.branch, version=at.version)
    fragments, indexes = handle.fragments(), handle.indexes()
    wanted = {n for task in datasets.plan_compaction(at, options) for n in task.fragment_ids}
    for index in indexes:
        covered = {number for segment in index.segments for number in segment.fragment_ids}
        wanted |= {one.fragment_id for one in fragments} - covered
    if not indexes:
        wanted = {one.fragment_id for one in fragments}
    return sum(one.data_bytes for one in fragments if one.fragment_id in wanted)


def _compact(
    chain: _Chain,
    declared: EntityType,
    request: MaintenanceRequest,
    earlier: TableMaintenance | None,
) -> tuple[CompactionResult, ...]:
    datasets = chain.datasets
    if earlier is not None and _staged_again(chain, earlier.results):
        return earlier.results
    if request.with_indexes:
        # Lance rewrites covered and uncovered fragments apart. Covering all of them first makes
        # one run enough.
        work = only_stored(plan_indexes(chain.handle, declared), chain.handle)
        if not work.is_empty:
            chain.add(stage_indexes(datasets, chain.handle, work, chain.workers))
            # The earlier attempt planned on a version that was covered in the same way.
            if earlier is not None and _staged_again(chain, earlier.results):
                return earlier.results
    at = chain.handle.at
    tasks = datasets.plan_compaction(at, request.compaction)
    results = tuple(chain.workers.compact(tasks)) if tasks else ()
    if results:
        chain.add(datasets.stage_compaction(at, results))
    return results


def _staged_again(chain: _Chain, results: tuple[CompactionResult, ...]) -> bool:
    """Stage what an earlier attempt has rewritten; False when it no longer fits."""
    at = chain.handle.at
    lineages = {(result.base.location, result.base.branch) for result in results}
    if lineages != {(at.location, at.branch)}:
        return False
    try:
        chain.add(chain.datasets.stage_compaction(at, results))
    except StaleBaseError:
        return False
    return True


class _Chain:
    """Transactions of one table, each staged on what the one before will have made."""

    def __init__(
        self, datasets: DatasetStore, base: DatasetVersion, workers: MaintenanceWorkers
    ) -> None:
        self.datasets = datasets
        self.workers = workers
        self.staged: list[StagedTransaction] = []
        self._handle = datasets.open(base.location, branch=base.branch, version=base.version)
        self._newest: StagedTransaction | None = None
        self._views: list[DatasetVersion] = []

    @property
    def handle(self) -> DatasetHandle:
        """What the next transaction is staged on; its view is made on first use."""
        if self._newest is not None:
            self._handle = self.datasets.open_staged(self._newest)
            self._views.append(self._handle.at)
            self._newest = None
        return self._handle

    def add(self, staged: StagedTransaction) -> None:
        """Add a transaction that was staged on `handle`."""
        is_first = not self.staged
        self.staged.append(staged if is_first else self.datasets.following(staged, self.staged[-1]))
        self._newest = staged

    def close(self) -> None:
        """Remove the views; the staged transactions stay."""
        for view in self._views:
            try:
                self.datasets.discard_staged_view(view)
            except OmnigraphError as error:
                _log.warning("the view of a staged version stays until cleanup: %s", error)


def compact_dataset(
    datasets: DatasetStore, location: str, options: CompactionOptions | None = None
) -> bool:
    """Compact a derived dataset, which has no manifest entry; False after a lost race.

    With `options` only the fragments that they name.
    """
    at = DatasetVersion(location, None, datasets.head_version(location))
    results = [datasets.run_compaction(task) for task in datasets.plan_compaction(at, options)]
    if not results:
        return False
    try:
        datasets.commit_staged(datasets.stage_compaction(at, results), exact=False)
    except StaleBaseError:
        return False
    return True
