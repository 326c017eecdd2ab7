"""One bulk load on Spark, from its plan to fragments that are ready to commit.

1. The input is read once, by the first jobs: every row that passes the rules of single rows lies
   in a staged fragment afterwards. All further checks look at what was staged.
2. The driver holds results of tasks, never rows: it reads mapped files of hashes, range by range.
3. No head moves here. A load that ends early leaves unreferenced files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from omnigraph.engine import EngineDeclinedError
from omnigraph.names import TableKey
from omnigraph.schema import EdgeType
from omnigraph.spark.load.hash_runs import HASHES_MAX
from omnigraph.spark.load.inputs import FrameSource, LoadPlan
from omnigraph.spark.load.key_set import KeySet, ranges
from omnigraph.spark.load.plan import ID, FileTask, LoadContext, ParquetSplit, TaskOutcome
from omnigraph.spark.load.staged import StagedGraph, StagedType
from omnigraph.spark.load.stored_tasks import (
    HashTask,
    MergeTask,
    Slice,
    dropped_rows,
    hash_stored,
    merge_runs,
)
from omnigraph.spark.load.tasks import stage_batches, stage_files
from omnigraph.store.records import DatasetVersion
from omnigraph.write.load.formats.files import InputUnreadableError
from omnigraph.write.load.input.tables import column_problems
from omnigraph.write.rules.endpoints import edge_ends
from omnigraph.write.rules.violations import ViolationLog
from omnigraph.write.stage.delta import WriteMode

if TYPE_CHECKING:
    from omnigraph.manifest import Entry, Snapshot
    from omnigraph.spark.jobs import JobRunner
    from omnigraph.store.datasets import DatasetHandle
    from omnigraph.write.stage.columns import Integers

STORED_ROWS_PER_TASK: Final = 1_000_000
_RESPELLED: Final = (
    "the input spells ids of {} in its own way, and edges that use them are rewritten in one"
    " process only; leave the ids out, or load without Spark"
)
DRIVER_ROWS_MAX: Final = 200_000
"""The driver itself works on fewer rows than this, because a job costs more."""

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class StagedLoad:
    """Everything that the tasks of a load have staged."""

    context: LoadContext
    staged: StagedGraph
    problems: ViolationLog
    lines: dict[int, int]
    """How many lines each source had that is a piece of a file."""
    respelled: set[str] = field(default_factory=set)
    """Node tables of which the input spells ids in another way."""
    rejected: list[tuple[int, str | None]] = field(default_factory=list)
    """How many records each task rejected, and the file that has them."""

    def add_empty(self, table_keys: Iterable[str]) -> None:
        """Remember tables that the input names and has no rows for."""
        for key in table_keys:
            self.staged.parts.setdefault(key, [])

    def types(self) -> dict[str, StagedType]:
        """Return what was staged, by table."""
        found = (self.staged.of(self.context.entity_type(key)) for key in self.staged.parts)
        return {staged.table_key: staged for staged in found if staged is not None}


class LoadRun:
    """Runs the jobs of one load."""

    def __init__(
        self,
        jobs: JobRunner,
        plan: LoadPlan,
        context: LoadContext,
        mode: WriteMode,
        *,
        driver_rows_max: int = DRIVER_ROWS_MAX,
        set_rows_max: int = HASHES_MAX,
    ) -> None:
        self._runs_of_stored: dict[DatasetVersion, dict[str, list[str]]] = {}
        self._driver_rows_max = driver_rows_max
        self._set_rows_max = set_rows_max
        self._jobs = jobs
        self._plan = plan
        self._context = context
        self._mode = mode

    def within(self, context: LoadContext) -> LoadRun:
        """Return the same jobs with another context for their tasks."""
        return LoadRun(
            self._jobs,
            self._plan,
            context,
            self._mode,
            driver_rows_max=self._driver_rows_max,
            set_rows_max=self._set_rows_max,
        )

    # -- staging ----------------------------------------------------------------------------------

    def stage(self, snapshot: Snapshot) -> StagedLoad:
        """Read the input: nodes first, so that edges can be checked while they are written."""
        problems = ViolationLog()
        problems.extend(self._plan.problems)
        load = StagedLoad(self._context, StagedGraph(self._context.files), problems, {})
        self._stage(load, "reading nodes", (*self._plan.lines, *self._plan.nodes))
        if self._plan.edges:
            ends = self._ends_of(source_key(source) for source in self._plan.edges)
            if not self.has_few_ends(_planned_rows(self._plan.edges), load, snapshot, ends):
                sets = self.node_sets(load, snapshot, ends)
                load = replace(load, context=replace(self._context, sets=sets))
            self._stage(load, "reading edges", self._plan.edges)
        respelled = load.respelled.intersection(self._ends_of(load.staged.parts))
        if respelled:
            # Edges may use either spelling, and are written already.
            named = min(respelled).removeprefix("node:")
            raise EngineDeclinedError("spark", _RESPELLED.format(named))
        return load

    def has_few_ends(
        self,
        edges: int | None,
        load: StagedLoad,
        snapshot: Snapshot,
        node_keys: Iterable[str],
    ) -> bool:
        """Whether looking for the ends of so many edges costs less than a set of all nodes."""
        if edges is None or self._mode is WriteMode.OVERWRITE:
            return False
        staged = [load.staged.of(load.context.entity_type(key)) for key in node_keys]
        here = edges + sum(found.rows for found in staged if found is not None)
        stored = sum(snapshot.entry(key).row_count for key in node_keys)
        return here < min(self._driver_rows_max, stored)

    def _ends_of(self, edge_keys: Iterable[str]) -> list[str]:
        found: dict[str, None] = {}
        for key in edge_keys:
            entity_type = self._context.entity_type(key)
            if isinstance(entity_type, EdgeType):
                found |= {TableKey.node(name): None for _, name in edge_ends(entity_type)}
        return list(found)

    def _stage(
        self, load: StagedLoad, stage: str, sources: Sequence[FileTask | FrameSource]
    ) -> None:
        tasks = [source for source in sources if isinstance(source, FileTask)]
        self._take(load, self._staged_files(load.context, stage, tasks))
        for source in sources:
            if isinstance(source, FrameSource):
                entity_type = load.context.entity_type(source.table_key)
                names = column_problems(entity_type, source.frame.columns)
                if names:
                    load.problems.extend(names)
                    continue
                rows = partial(stage_batches, load.context, source.table_key, source.source)
                self._take(
                    load, self._jobs.rows(f"{stage}: {entity_type.name}", source.frame, rows)
                )

    def _staged_files(
        self, context: LoadContext, stage: str, tasks: Sequence[FileTask]
    ) -> list[TaskOutcome]:
        rows = _planned_rows(tasks)
        # Vectors are made by workers, however few: that is what takes the time.
        if rows is not None and rows < self._driver_rows_max and context.embed is None:
            return [stage_files(context, task, number) for number, task in enumerate(tasks)]
        return self._jobs.calls(stage, partial(stage_files, context), tasks)

    def _take(self, load: StagedLoad, outcomes: Sequence[TaskOutcome]) -> None:
        for outcome in outcomes:
            if outcome.unreadable is not None:
                path, reason = outcome.unreadable
                raise InputUnreadableError(path, f"cannot be read: {reason}")
            if outcome.failure is not None:
                raise outcome.failure
            load.staged.add(outcome.parts)
            load.problems.absorb(outcome.problems)
            load.lines.update(outcome.lines)
            load.respelled.update(outcome.respelled)
            load.rejected.append((outcome.bad_records, outcome.rejected))

    # -- sets of node ids -------------------------------------------------------------------------

    def node_sets(
        self, load: StagedLoad, snapshot: Snapshot, table_keys: Sequence[str]
    ) -> dict[str, KeySet]:
        """Make sets of the ids that nodes will have: stored and staged, or staged alone."""
        stored = self.stored_runs(
            snapshot, {key: {ID: ("id",)} for key in table_keys if not self._replaces(load, key)}
        )
        sets = {}
        for key in table_keys:
            staged = load.staged.of(load.context.entity_type(key))
            runs: list[tuple[str, int | None]] = [
                (path, None) for path in stored.get(key, {}).get(ID, ())
            ]
            if staged is not None:
                runs += staged.run_paths(ID)
            sets[key] = self.merged_set(key, runs)
        return sets

    def _replaces(self, load: StagedLoad, table_key: str) -> bool:
        """Whether none of the stored rows of a table stay."""
        if self._mode is not WriteMode.OVERWRITE:
            return False
        return table_key in self._plan.named or table_key in load.staged.parts

    def merged_set(
        self, name: str, runs: Sequence[tuple[str, int | None]], dropped: str | None = None
    ) -> KeySet:
        """Merge runs into a set, without the rows that a file names."""
        context = self._context
        total = sum(context.files.read(path).num_rows for path, _ in runs)
        tasks = [
            MergeTask(name.replace(":", "-"), tuple(runs), within, dropped)
            for within in ranges(max(1, -(-total // self._set_rows_max)))
        ]
        parts = self.calls("putting ids together", merge_runs, tasks, rows=total)
        return KeySet(context.files, context.scheme, tuple(parts))

    # -- stored rows ------------------------------------------------------------------------------

    def stored_runs(
        self,
        snapshot: Snapshot,
        wanted: dict[str, dict[str, tuple[str, ...]]],
        replaced: dict[str, KeySet] | None = None,
    ) -> dict[str, dict[str, list[str]]]:
        """Hash columns of stored rows; return files by table and kind.

        Rows whose id is in the set that `replaced` has for their table do not count.
        """
        runs: dict[str, dict[str, list[str]]] = {}
        asked: dict[str, dict[str, tuple[str, ...]]] = {}
        for key, kinds in wanted.items():
            known = {} if key in (replaced or {}) else self._known_runs(snapshot.entry(key))
            runs[key] = {kind: known[kind] for kind in kinds if kind in known}
            asked[key] = {kind: of for kind, of in kinds.items() if kind not in known}
        tasks = [
            HashTask(rows, kinds, (replaced or {}).get(key))
            for key, kinds in asked.items()
            if kinds
            for rows in stored_slices(snapshot, key)
        ]
        rows = sum(snapshot.entry(key).row_count for key, kinds in asked.items() if kinds)
        found = self.calls("reading stored ids", hash_stored, tasks, rows=rows)
        for task, paths in zip(tasks, found, strict=True):
            key = task.rows.table_key
            for kind, path in paths.items():
                runs[key].setdefault(kind, []).append(path)
                if task.replaced is None:
                    known = self._known_runs(snapshot.entry(key))
                    known[kind] = runs[key][kind]
        return runs

    def _known_runs(self, entry: Entry) -> dict[str, list[str]]:
        """Return the runs of a published version that exist already; it never changes."""
        at = entry.at
        return self._runs_of_stored.setdefault(at, {})

    def dropped_rows(self, paths: Sequence[str]) -> Integers:
        """Return the numbers of rows that files name, sorted."""
        return dropped_rows(self._context, paths)

    def calls(
        self,
        stage: str,
        function: Callable[[LoadContext, Asked, int], Answer],
        tasks: Sequence[Asked],
        *,
        rows: int,
    ) -> list[Answer]:
        """Run tasks over so many rows: here when they are few, in a job otherwise."""
        if rows < self._driver_rows_max:
            return [function(self._context, task, n) for n, task in enumerate(tasks)]
        return self._jobs.calls(stage, partial(function, self._context), tasks)


def _planned_rows(sources: Iterable[FileTask | FrameSource]) -> int | None:
    """Return how many rows sources have; None where that is unknown before reading them."""
    rows = 0
    for source in sources:
        if isinstance(source, FrameSource):
            return None
        for split in source.splits:
            if not isinstance(split, ParquetSplit):
                return None
            rows += split.rows
    return rows


def source_key(source: FileTask | FrameSource) -> str:
    """Return the table that a source of one type goes to."""
    if source.table_key is None:
        raise ValueError("records of all types go to no single table")
    return source.table_key


def stored_slices(snapshot: Snapshot, table_key: str) -> list[Slice]:
    """Divide the stored rows of a table among tasks."""
    entry = snapshot.entry(table_key)
    if not entry.row_count:
        return []
    at = entry.at
    return slices(table_key, at, snapshot.open(table_key))


def slices(
    table_key: str,
    at: DatasetVersion,
    handle: DatasetHandle,
    *,
    among: frozenset[int] | None = None,
) -> list[Slice]:
    """Divide the fragments of a version, or some, among tasks, about as many rows to each."""
    found: list[Slice] = []
    waiting: list[int] = []
    rows = 0
    for fragment in handle.fragments():
        if among is not None and fragment.fragment_id not in among:
            continue
        waiting.append(fragment.fragment_id)
        rows += fragment.rows
        if rows >= STORED_ROWS_PER_TASK:
            found.append(Slice(table_key, at, tuple(waiting)))
            waiting, rows = [], 0
    if waiting:
        found.append(Slice(table_key, at, tuple(waiting)))
    return found
