"""Bulk load on Spark: many tasks write, the driver commits once.

1. Tasks apply the rules of single rows with the code of the in-process engine. Rules across rows
   are proven by hashes; what cannot be proven is checked by that engine's rules, over the staged
   columns.
2. The input is read once. An attempt that loses a race reuses what was staged; only what depends on
   stored rows is done again on the newer snapshot.
3. While it runs, `__staging/<operation>.json` names the tables that its tasks write to, so that
   `cleanup` spares their files.
4. A failure before the commit leaves the graph as it was: no head has moved, and the files that
   were written are unreferenced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from omnigraph.errors import OmnigraphError
from omnigraph.names import TableKey
from omnigraph.schema import EntityType, NodeType
from omnigraph.spark.load.loaded_rows import SparkRows
from omnigraph.spark.load.plan import LoadContext
from omnigraph.spark.load.run import DRIVER_ROWS_MAX, LoadRun
from omnigraph.spark.load.side_files import SideFiles
from omnigraph.spark.load.staged_views import StagedViews
from omnigraph.write.embed.tasks import EmbedOrder, order_for
from omnigraph.write.load.check.hashing import HashScheme
from omnigraph.write.load.loader import Loader
from omnigraph.write.load.options import NullCells
from omnigraph.write.rules.endpoints import edge_ends
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.staging_record import DatasetBase, StagingJob, StagingRecords

if TYPE_CHECKING:
    from omnigraph.manifest import Repository, Snapshot
    from omnigraph.schema import Catalog
    from omnigraph.spark.jobs import JobRunner
    from omnigraph.spark.load.inputs import LoadPlan
    from omnigraph.write.commit.committer import Committer
    from omnigraph.write.embed.row_embedder import RowEmbedder
    from omnigraph.write.load.options import LoadOptions
    from omnigraph.write.load.result import LoadResult
    from omnigraph.write.load.state import LoadState

_log = logging.getLogger(__name__)

SET_ROWS_MAX: Final = 1 << 23


@dataclass(frozen=True)
class Tuning:
    """Limits that tests lower, to exercise the paths of large loads, and what a load leaves."""

    hash_bits: int = 64
    driver_rows_max: int = DRIVER_ROWS_MAX
    set_rows_max: int = SET_ROWS_MAX
    leaves_topologies: bool = True


@dataclass(frozen=True)
class SparkSource:
    """What a load on Spark reads; planned once the schema is known."""

    plan_for: Callable[[Catalog], LoadPlan]
    place: str
    last_wins_for_unkeyed_ids: bool


@dataclass(frozen=True)
class SparkLoadWorkers:
    """Tasks of one session, for one load; `closing` releases what `read` opens."""

    source: SparkSource
    jobs: JobRunner
    files: SideFiles
    record: StagingJob
    closing: ExitStack
    tuning: Tuning
    embedder: RowEmbedder | None
    name: str = "spark"

    @property
    def application_id(self) -> str | None:
        """The application of the session."""
        return self.jobs.application_id

    def read(self, load: LoadState, snapshot: Snapshot) -> SparkRows:
        """Stage everything that the input has."""
        plan = self.source.plan_for(load.catalog)
        context = self._context(load, plan, snapshot)
        # Declared before the first task writes, so that `cleanup` never takes a file of this load.
        self.record.declare(bases=[DatasetBase.of(base) for base in context.bases.values()])
        views = StagedViews(snapshot.datasets, context.bases, replaces=context.replaces)
        self.closing.callback(_quietly, views.close)
        run = LoadRun(
            self.jobs,
            plan,
            context,
            load.options.mode,
            driver_rows_max=self.tuning.driver_rows_max,
            set_rows_max=self.tuning.set_rows_max,
        )
        staged = run.stage(snapshot)
        staged.add_empty(plan.named)
        rows = SparkRows(
            load,
            plan=plan,
            run=run,
            context=context,
            staged=staged,
            views=views,
            staged_on=snapshot,
            leaves_topologies=self.tuning.leaves_topologies,
            set_rows_max=self.tuning.set_rows_max,
        )
        rows.report()
        if self.embedder is not None:
            self.embedder.note_later(rows.vector_notes)
        return rows

    def _context(self, load: LoadState, plan: LoadPlan, snapshot: Snapshot) -> LoadContext:
        catalog = load.catalog
        entity_types: list[EntityType] = [
            *catalog.node_types.values(),
            *catalog.edge_types.values(),
        ]
        written = [
            entity_type
            for entity_type in entity_types
            if plan.lines or entity_type.table_key in plan.named
        ]
        edges = [edge for edge in catalog.edge_types.values() if edge in written]
        return LoadContext(
            files=self.files,
            scheme=HashScheme(_seed(self.files.operation_id), self.tuning.hash_bits),
            catalog=catalog,
            bases={
                entity_type.table_key: load.bases.of(snapshot.entry(entity_type.table_key)).base
                for entity_type in written
            },
            conversion=load.options.conversion,
            replaces=load.options.mode is WriteMode.OVERWRITE,
            external_blob_bases=load.options.external_blob_bases,
            keeps_rejected=load.options.quarantines,
            ends=frozenset(TableKey.node(name) for edge in edges for _, name in edge_ends(edge)),
            # A merge inserts some of its rows only, so their numbers would mean nothing later.
            keeps_ends=self.tuning.leaves_topologies
            and load.options.mode is not WriteMode.MERGE
            and not load.options.is_dry_run,
            embed=self._embed_order(written, snapshot),
            tracks_absent=load.options.tracks_absent,
            keeps_absent=load.options.keeps_absent,
            null_cells_are_absent=load.options.null_cells is NullCells.KEEP,
            matches_edges=load.options.matches_edges,
        )

    def _embed_order(self, written: Sequence[EntityType], snapshot: Snapshot) -> EmbedOrder | None:
        if self.embedder is None:
            return None
        keys = [
            entity_type.table_key
            for entity_type in written
            if isinstance(entity_type, NodeType) and entity_type.embed_sources
        ]
        return order_for(self.embedder, {key: snapshot.entry(key) for key in keys})


@contextmanager
def spark_load_workers(
    repository: Repository,
    source: SparkSource,
    jobs: JobRunner,
    *,
    operation_id: str,
    tuning: Tuning | None = None,
    embedder: RowEmbedder | None = None,
) -> Iterator[SparkLoadWorkers]:
    """Lend workers for one load."""
    files = SideFiles(repository.store.settings, operation_id)
    records = StagingRecords(repository.store.objects, repository.clock)
    with ExitStack() as closing:
        closing.callback(_quietly, files.remove)
        record = closing.enter_context(records.hold(operation_id))
        yield SparkLoadWorkers(source, jobs, files, record, closing, tuning or Tuning(), embedder)


def load_on_spark(
    repository: Repository,
    committer: Committer,
    source: SparkSource,
    options: LoadOptions,
    jobs: JobRunner,
    *,
    operation_id: str,
    tuning: Tuning | None = None,
    embedder: RowEmbedder | None = None,
) -> LoadResult:
    """Load with tasks of one session."""
    with spark_load_workers(
        repository, source, jobs, operation_id=operation_id, tuning=tuning, embedder=embedder
    ) as workers:
        result = Loader(repository, committer, embedder).load(workers, options)
        return replace(result, spark_app_id=jobs.application_id)


def _seed(operation_id: str) -> int:
    return int.from_bytes(blake2b(operation_id.encode(), digest_size=8).digest())


def _quietly(remove: Callable[[], None]) -> None:
    """Remove what a load leaves behind; a failure here says nothing about the load itself."""
    try:
        remove()
    except OmnigraphError as error:
        _log.warning("files of a finished load stay until cleanup takes them: %s", error)
