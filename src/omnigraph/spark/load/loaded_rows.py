"""The staged rows of one load, as the driver reports, checks and commits them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.errors import OmnigraphError
from omnigraph.schema import NodeType
from omnigraph.search.topology.store import TopologyStore
from omnigraph.spark.load.commit import TableStage, dropped_file
from omnigraph.spark.load.hash_runs import HASHES_MAX
from omnigraph.spark.load.inputs import FrameSource
from omnigraph.spark.load.match_edges import EdgeMatching, MatchedEdges, matched_in_driver
from omnigraph.spark.load.plan import FRAME_SOURCE, LoadContext
from omnigraph.spark.load.positions import InputPositions, positions_in_files
from omnigraph.spark.load.proofs import Proofs
from omnigraph.spark.load.read_back import combined_part, loaded_types
from omnigraph.spark.load.rejected_file import decode_rejected
from omnigraph.spark.load.topology import LoadTopologies
from omnigraph.spark.load.vectors import notes_in
from omnigraph.write.load.check.folding import fold
from omnigraph.write.load.check.hashing import HashScheme
from omnigraph.write.rules.violations import JSON_REST_RULE, InputName
from omnigraph.write.stage.delta import WriteMode

if TYPE_CHECKING:
    from omnigraph.manifest import Snapshot
    from omnigraph.manifest.forks import WriteBase
    from omnigraph.spark.load.inputs import LoadPlan
    from omnigraph.spark.load.run import LoadRun, StagedLoad
    from omnigraph.spark.load.staged_views import StagedViews
    from omnigraph.spark.load.stored_tasks import EndsTask
    from omnigraph.store import Store
    from omnigraph.write.embed.row_embedder import EmbedNotes
    from omnigraph.write.load.rows.types import LoadedType
    from omnigraph.write.load.stage import StagedTable
    from omnigraph.write.load.state import LoadState
    from omnigraph.write.stage.columns import Integers

_log = logging.getLogger(__name__)


class SparkRows:
    """The rows of one load, in fragments that tasks have staged."""

    def __init__(
        self,
        load: LoadState,
        *,
        plan: LoadPlan,
        run: LoadRun,
        context: LoadContext,
        staged: StagedLoad,
        views: StagedViews,
        staged_on: Snapshot,
        leaves_topologies: bool,
        set_rows_max: int = HASHES_MAX,
    ) -> None:
        self.leaves_topologies = leaves_topologies
        self._load = load
        self._plan = plan
        self._run = run
        self._context = context
        self._staged = staged
        self._views = views
        self._staged_on = staged_on
        self._mode = load.options.mode
        self._datasets = staged_on.datasets
        self._inputs = self._input_positions()
        self._combined: dict[str, Integers] = {}
        """Rows that were written again with the values of others of their ids, by table."""
        self._matching = EdgeMatching(run, staged, views, set_rows_max)
        self._matched: dict[str, MatchedEdges] = {}
        """The stored edges that edges without an id stand for, in the last snapshot."""
        self._orphaned: dict[str, list[EndsTask]] = {}
        """Stored edges that the last proof found to be removed with their nodes, by table."""

    # -- what has been read -----------------------------------------------------------------------

    def _input_positions(self) -> InputPositions:
        sources = positions_in_files(self._plan.inputs, self._staged.lines)
        names = list(dict.fromkeys(self._plan.inputs))
        frames = [
            source
            for source in (*self._plan.nodes, *self._plan.edges)
            if isinstance(source, FrameSource)
        ]
        for frame in frames:
            # Rows are numbered in the order in which Spark hands over partitions.
            before = 0
            for part in sorted(
                self._staged.staged.parts.get(frame.table_key, []), key=lambda part: part.order
            ):
                sources[FRAME_SOURCE + frame.source + part.order] = (len(names), before)
                before += part.records
            names.append(InputName(None))
        return InputPositions(tuple(names), sources)

    def report(self) -> None:
        """Tell the intake what was read, and what was wrong with it."""
        intake, staged = self._load.intake, self._staged
        intake.inputs.extend(self._inputs.inputs)
        has_bad_table = any(found.position is None for found in staged.problems.kept)
        intake.has_bad_input = has_bad_table or staged.problems.counts[JSON_REST_RULE] > 0
        intake.log.absorb(self._inputs.of_log(staged.problems))
        intake.log.sort_from(0)
        for key, found in staged.types().items():
            if isinstance(found.entity_type, NodeType):
                intake.nameless[key] += sum(part.made for part in found.parts)
            if found.records or key in self._plan.named:
                intake.records_read[key] += found.records
        for count, path in staged.rejected:
            intake.bad_records += count
            if path is not None:
                self._quarantine(path)
        intake.require_tolerable()

    def _quarantine(self, path: str) -> None:
        quarantine = self._load.intake.quarantine
        if quarantine is None:
            return
        content = self._context.files.read_bytes(path)
        for key, record, violations in decode_rejected(path, content):
            entity_type = None if key is None else self._context.entity_type(key)
            found = [
                self._inputs.of_violation(violation).located(self._inputs.inputs)
                for violation in violations
            ]
            quarantine.add(entity_type, record, found)

    def vector_notes(self) -> Iterator[EmbedNotes]:
        """Yield which vectors the tasks have made, part by part."""
        for staged in self._staged.types().values():
            node = staged.entity_type
            for part in staged.parts:
                if part.embedded is not None and isinstance(node, NodeType):
                    yield from notes_in(self._context.files, part.embedded, node)

    @property
    def _framed(self) -> frozenset[str]:
        """The tables whose rows come from DataFrames."""
        sources = (*self._plan.nodes, *self._plan.edges)
        return frozenset(one.table_key for one in sources if isinstance(one, FrameSource))

    # -- checking ---------------------------------------------------------------------------------

    def prove(self, snapshot: Snapshot) -> frozenset[str] | None:
        """Prove the rules by hashes; not when there are problems, or rows were gathered already."""
        self._orphaned = {}
        self._matched = {}
        if self._load.intake.types or self._load.intake.log.total:
            return None
        if self._load.options.matches_edges:
            self._matched = self._matching.of(snapshot)
        proofs = Proofs(
            self._run,
            self._staged,
            snapshot,
            self._mode,
            self._views,
            staged_on=self._staged_on,
            cascades=self._load.options.cascade,
            matched=self._matched,
        )
        if proofs.unproven():
            return None
        self._orphaned = proofs.orphaned
        return frozenset(proofs.reads - self._orphaned.keys())

    def gather(self, snapshot: Snapshot) -> None:
        """Read what the rules across rows look at, once; of several rows of one id the last."""
        if self._load.intake.types:
            return
        self._load.intake.types.update(
            loaded_types(
                self._staged.types(),
                inputs=self._inputs,
                views=self._views,
                snapshot=snapshot,
                bases=self._load.bases,
                hasher=HashScheme(self._context.files.operation_id),
                budget=self._load.budget,
                is_overwrite=self._mode is WriteMode.OVERWRITE,
            )
        )
        for key, loaded in self._load.intake.types.items():
            order_by = self._load.options.order_by if key in self._framed else ()
            fold(loaded, self._load.options, self._load.source, order_by)
            if loaded.is_overlaid:
                self._stage_combined(loaded)

    def _stage_combined(self, loaded: LoadedType) -> None:
        """Write combined rows as one more part; the rows that they were made of do not count."""
        key = loaded.table_key
        parts = self._staged.staged.parts[key]
        self._combined[key] = loaded.overlaid_rows
        order = 1 + max(part.order for part in parts)
        positions = self._staged.types()[key].positions(loaded.overlaid_rows)
        part = combined_part(self._context, loaded, positions, order)
        self._staged.staged.add([part])
        self._views.forget(key)

    # -- committing -------------------------------------------------------------------------------

    def stage(self, snapshot: Snapshot) -> dict[str, StagedTable]:
        """Make one transaction per table, of the rows that count and of orphaned edges."""
        types = self._staged.types()
        bases: dict[str, WriteBase] = {
            key: self._load.bases.of(snapshot.entry(key)) for key in (*types, *self._orphaned)
        }
        context = replace(self._context, bases={key: base.base for key, base in bases.items()})
        if self._load.intake.types:
            self._matched = {
                key: matched_in_driver(context, loaded) for key, loaded in self._load.types.items()
            }
        stage = TableStage(
            self._run.within(context),
            self._staged,
            datasets=self._datasets,
            bases=bases,
            views=self._views,
            mode=self._mode,
            matched=self._matched,
        )
        return stage.ready(snapshot, self._dropped()) | stage.without_orphans(self._orphaned)

    # -- after the commit -------------------------------------------------------------------------

    def leave_topologies(self, snapshot: Snapshot, store: Store) -> None:
        """Build and store the topologies that later traversals could not extend."""
        topologies = LoadTopologies(
            self._run,
            self._staged,
            self._load.staged,
            before=self._staged_on,
            after=snapshot,
            stored=TopologyStore(store, is_writable=True),
            replaces=self._mode is WriteMode.OVERWRITE,
        )
        try:
            topologies.build()
        except OmnigraphError as error:
            _log.warning("topologies of a load are made at their first use: %s", error)

    # -- inside -----------------------------------------------------------------------------------

    def _dropped(self) -> dict[str, str]:
        """Write the numbers of rows that do not count any more to files for tasks."""
        found = {}
        for key, loaded in self._load.intake.types.items():
            if loaded.live is not None and not loaded.live.all():
                rows = np.flatnonzero(~loaded.live)
                combined = self._combined.get(key)
                if combined is not None:
                    rows = np.union1d(rows, combined)
                found[key] = dropped_file(self._staged, key, rows)
        return found
