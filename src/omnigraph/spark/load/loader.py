"""Bulk load on Spark: many tasks write, the driver commits once.

1. What makes rows good is what the in-process engine says: rules of single rows run unchanged in
   the tasks. Rules across rows are proven by hashes; what cannot be proven is judged by that
   engine's own rules, over the staged columns.
2. The input is read once. An attempt that loses a race keeps what was staged; only what depends on
   stored rows is done again on the newer snapshot.
3. While it runs, `__staging/<operation>.json` names the tables that its tasks write to, so that
   `cleanup` spares their files.
4. Whatever happens before the commit leaves the graph as it was: no head has moved, and what was
   written is unreferenced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from omnigraph.errors import OmnigraphError
from omnigraph.names import TableKey
from omnigraph.schema import EntityType, NodeType
from omnigraph.spark.load.plan import LoadContext
from omnigraph.spark.load.run import DRIVER_ROWS_MAX, LoadRun
from omnigraph.spark.load.side_files import SideFiles
from omnigraph.spark.load.work import SparkWork
from omnigraph.write.embed.tasks import EmbedOrder, order_for
from omnigraph.write.load.check.checks import LoadCheck
from omnigraph.write.load.check.hashing import HashScheme
from omnigraph.write.load.loader import Loader, LoadState
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.result import LoadResult
from omnigraph.write.rules.endpoints import edge_ends
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.staging_record import DatasetBase, StagingJob, StagingRecords

if TYPE_CHECKING:
    from omnigraph.manifest import Repository, Snapshot
    from omnigraph.manifest.publish import Revalidate
    from omnigraph.manifest.state import ManifestState
    from omnigraph.schema import Catalog
    from omnigraph.spark.jobs import JobRunner
    from omnigraph.spark.load.inputs import LoadPlan
    from omnigraph.spark.load.stored_tasks import EndsTask
    from omnigraph.write.commit.committer import Committer
    from omnigraph.write.embed.row_embedder import RowEmbedder
    from omnigraph.write.load.input.interfaces import LoadSink, LoadSource
    from omnigraph.write.load.rows.spool import SpoolBudget
    from omnigraph.write.load.stage import StagedTable

_log = logging.getLogger(__name__)

SET_ROWS_MAX: Final = 1 << 23


@dataclass(frozen=True)
class Tuning:
    """Sizes that tests choose small, to walk the ways of large loads."""

    hash_bits: int = 64
    driver_rows_max: int = DRIVER_ROWS_MAX
    set_rows_max: int = SET_ROWS_MAX


@dataclass(frozen=True)
class SparkSource:
    """What a load on Spark reads; planned once the schema is known."""

    plan_for: Callable[[Catalog], LoadPlan]
    place: str
    last_wins_for_unkeyed_ids: bool

    def read(self, catalog: Catalog, sink: LoadSink) -> None:
        """Refuse: tasks read it."""
        del catalog, sink
        raise TypeError("this source is read by the tasks of a Spark job")


class SparkLoader(Loader):
    """Loads into the branches of one graph, on one session; one object per load."""

    def __init__(
        self,
        repository: Repository,
        committer: Committer,
        jobs: JobRunner,
        *,
        operation_id: str,
        tuning: Tuning | None = None,
        embedder: RowEmbedder | None = None,
    ) -> None:
        super().__init__(repository, committer, embedder)
        self._jobs = jobs
        self._tuning = tuning or Tuning()
        self._operation_id = operation_id
        self._files = SideFiles(repository.store.settings, self._operation_id)
        self._closing = ExitStack()
        self._work: SparkWork | None = None
        self._orphaned: dict[str, list[EndsTask]] = {}
        self._record: StagingJob | None = None

    def load(self, source: LoadSource, options: LoadOptions) -> LoadResult:
        """Read everything, judge it, and commit it once."""
        with self._closing as stack:
            stack.callback(_quietly, self._files.remove)
            store = self._repository.store
            records = StagingRecords(store.objects, self._repository.clock)
            self._record = stack.enter_context(records.hold(self._operation_id))
            result = super().load(source, options)
            return replace(result, engine="spark", spark_app_id=self._jobs.application_id)

    # -- reading ----------------------------------------------------------------------------------

    def prepare(
        self, source: LoadSource, options: LoadOptions, snapshot: Snapshot, room: SpoolBudget
    ) -> LoadState:
        """Stage everything that the input has."""
        if not isinstance(source, SparkSource):
            raise TypeError(f"{type(source).__name__} is no source for Spark")
        load = self.begun(source, options, snapshot, room)
        try:
            with load.timer.phase("read"):
                plan = source.plan_for(load.catalog)
                context = self._context(load, plan, snapshot)
                if self._record is not None:
                    # Named before the first task writes: nobody takes its files for leftovers.
                    bases = [DatasetBase.of(base) for base in context.bases.values()]
                    self._record.declare(bases=bases)
                run = self._run(plan, context, options.mode)
                self._work = SparkWork(
                    load, plan=plan, run=run, context=context, snapshot=snapshot, room=room
                )
                self._closing.callback(_quietly, self._work.close)
                if self._embedder is not None:
                    self._embedder.note_later(self._work.vector_notes)
        except BaseException:
            load.intake.close()
            raise
        return load

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
            files=self._files,
            scheme=HashScheme(self._seed(), self._tuning.hash_bits),
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
            embed=self._embed_order(written, snapshot),
        )

    def _embed_order(self, written: Sequence[EntityType], snapshot: Snapshot) -> EmbedOrder | None:
        if self._embedder is None:
            return None
        keys = [
            entity_type.table_key
            for entity_type in written
            if isinstance(entity_type, NodeType) and entity_type.embed_sources
        ]
        return order_for(self._embedder, {key: snapshot.entry(key) for key in keys})

    def _seed(self) -> int:
        return int.from_bytes(blake2b(self._operation_id.encode(), digest_size=8).digest())

    def _run(self, plan: LoadPlan, context: LoadContext, mode: WriteMode) -> LoadRun:
        return LoadRun(
            self._jobs,
            plan,
            context,
            mode,
            driver_rows_max=self._tuning.driver_rows_max,
            set_rows_max=self._tuning.set_rows_max,
        )

    # -- judging ----------------------------------------------------------------------------------

    def judge(self, load: LoadState, snapshot: Snapshot) -> LoadCheck:
        """Prove the rules across rows, or run them."""
        work = self._staged()
        self._orphaned = {}
        if not load.intake.types and not load.intake.log.total:
            proofs = work.proofs(snapshot)
            if not proofs.unproven():
                self._orphaned = proofs.orphaned
                judge = load.judge(snapshot)
                reads = proofs.reads - self._orphaned.keys()
                judge.reads |= {key: snapshot.entry(key) for key in reads}
                return judge
        work.bring_in(snapshot)
        return super().judge(load, snapshot)

    def revalidation(self, load: LoadState, snapshot: Snapshot, judge: LoadCheck) -> Revalidate:
        """Return the check of tables that were only read and have moved."""
        run_rules = super().revalidation(load, snapshot, judge)

        def revalidate(state: ManifestState, moved: frozenset[str]) -> None:
            self._staged().bring_in(snapshot)
            run_rules(state, moved)

        return revalidate

    # -- committing -------------------------------------------------------------------------------

    def stage(self, load: LoadState, snapshot: Snapshot) -> dict[str, StagedTable]:
        """Make one transaction per table of what was staged."""
        del load
        return self._staged().tables(snapshot, self._orphaned)

    def _staged(self) -> SparkWork:
        if self._work is None:
            raise TypeError("nothing was staged")
        return self._work


def _quietly(compact_manifest: Callable[[], None]) -> None:
    """Tidy up behind a load; what that fails to do is no news about the load itself."""
    try:
        compact_manifest()
    except OmnigraphError as error:
        _log.warning("files of a finished load stay until cleanup takes them: %s", error)
