"""Staged rows become one transaction per table.

1. Appended and overwritten tables are committed as the fragments that tasks have written.
2. In a merge, tasks go through the stored fragments, each through its own: they find the ids that
   are staged too, leave equal rows alone, write different ones under their stable row ids and
   remove exactly their old versions. What is new stays in the fragments in which it was staged.
3. Fragments that lose rows, or that are many and small, are written again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.spark.load.key_set import PREFILTER_ROWS_MAX
from omnigraph.spark.load.match_edges import NO_MATCHES, MatchedEdges
from omnigraph.spark.load.plan import ID
from omnigraph.spark.load.run import LoadRun, StagedLoad, slices
from omnigraph.spark.load.stored_tasks import (
    EndsTask,
    MatchOutcome,
    MatchTask,
    RewriteTask,
    Slice,
    match_stored,
    remove_orphans,
    rewrite_staged,
)
from omnigraph.write.load.stage import StagedTable
from omnigraph.write.stage.columns import concatenated, flat
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.stage_rows import stage_all_rows, stage_rows
from omnigraph.write.stage.stored_rows import PROBES_MAX, StoredRows

if TYPE_CHECKING:
    from omnigraph.manifest import Snapshot
    from omnigraph.manifest.forks import WriteBase
    from omnigraph.spark.load.staged import StagedType
    from omnigraph.spark.load.staged_views import StagedViews
    from omnigraph.store.datasets import DatasetStore
    from omnigraph.store.records import WrittenFragment
    from omnigraph.write.stage.columns import Integers, Mask

SMALL_FRAGMENT_ROWS: Final = 100_000
SMALL_FRAGMENTS_MAX: Final = 8
_FRAGMENT_ROWS: Final = 1_000_000
_PREFILTER_SHARE: Final = 8
"""A prefilter pays where at most one of so many stored ids is staged."""


@dataclass
class _Matched:
    """What the tasks of a merge have found out about one table."""

    outcomes: list[MatchOutcome] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        return [outcome.matched for outcome in self.outcomes if outcome.matched is not None]

    @property
    def updated(self) -> int:
        return sum(outcome.updated for outcome in self.outcomes)

    @property
    def unchanged(self) -> int:
        return sum(outcome.unchanged for outcome in self.outcomes)

    @property
    def nulled(self) -> Mapping[str, int]:
        return sum((Counter(outcome.nulled) for outcome in self.outcomes), Counter())


class TableStage:
    """Stages the tables of one attempt."""

    def __init__(
        self,
        run: LoadRun,
        load: StagedLoad,
        *,
        datasets: DatasetStore,
        bases: Mapping[str, WriteBase],
        views: StagedViews,
        mode: WriteMode,
        matched: Mapping[str, MatchedEdges] | None = None,
    ) -> None:
        self._matched = matched or {}
        self._run = run
        self._load = load
        self._datasets = datasets
        self._bases = bases
        self._views = views
        self._mode = mode

    def ready(self, snapshot: Snapshot, dropped: Mapping[str, str]) -> dict[str, StagedTable]:
        """Stage every table; `dropped` has files of rows that do not count any more."""
        types = self._load.types()
        matches: dict[str, _Matched] = {}
        if self._mode is WriteMode.MERGE:
            matches = self._match(types, snapshot, dropped)
        return {
            key: self._table(staged, dropped.get(key), matches.get(key, _Matched()))
            for key, staged in types.items()
        }

    def without_orphans(self, orphaned: Mapping[str, Sequence[EndsTask]]) -> dict[str, StagedTable]:
        """Remove stored edges whose nodes an overwrite removes."""
        staged = {}
        for key, tasks in orphaned.items():
            base = self._bases[key]
            rows = base.entry.row_count
            found = self._run.calls("removing edges", remove_orphans, tasks, rows=rows)
            deletions = [part for parts in found for part in parts]
            write = stage_rows(key, base, self._datasets, fragments=(), deletions=deletions)
            staged[key] = StagedTable(write, removed=rows - write.row_count)
        return staged

    # -- merge ------------------------------------------------------------------------------------

    def _match(
        self, types: Mapping[str, StagedType], snapshot: Snapshot, dropped: Mapping[str, str]
    ) -> dict[str, _Matched]:
        tasks: list[MatchTask] = []
        stored = 0
        for key, staged in types.items():
            base = self._bases[key]
            taken = self._taken(key)
            if not staged.rows or not base.entry.row_count or (staged.ids_are_new and not taken):
                continue
            at = base.base
            handle = self._datasets.open(at.location, branch=at.branch, version=at.version)
            runs = [*staged.run_paths(ID), *((path, None) for path in taken)]
            ids = self._run.merged_set(key, runs, dropped.get(key))
            rows = self._views.rows(staged)
            among = self._fragments_with(staged, base, snapshot)
            found = slices(key, at, handle, among=among)
            is_prefiltered = staged.rows <= min(
                PREFILTER_ROWS_MAX, base.entry.row_count // _PREFILTER_SHARE
            )
            absent = staged.absent_files
            tasks += [MatchTask(own, rows, ids, is_prefiltered, absent) for own in found]
            stored += base.entry.row_count if among is None else staged.rows
        outcomes = self._run.calls("comparing with stored rows", match_stored, tasks, rows=stored)
        matched: dict[str, _Matched] = {}
        for task, outcome in zip(tasks, outcomes, strict=True):
            matched.setdefault(task.stored.table_key, _Matched()).outcomes.append(outcome)
        return matched

    def _fragments_with(
        self, staged: StagedType, base: WriteBase, snapshot: Snapshot
    ) -> frozenset[int] | None:
        """Find the fragments that have one of a few ids, by the index; None for many ids."""
        if staged.rows > PROBES_MAX:
            return None
        key = base.entry.table_key
        runs = (self._load.context.files.read(path) for path in self._taken(key))
        ids = concatenated(staged.ids(), *(flat(run["id"]).cast(pa.utf8()) for run in runs))
        located = StoredRows(snapshot).locate(key, pc.unique(ids))
        return frozenset((located.addresses[located.found] >> np.uint64(32)).tolist())

    def _taken(self, table_key: str) -> tuple[str, ...]:
        return self._matched.get(table_key, NO_MATCHES).taken

    # -- tables -----------------------------------------------------------------------------------

    def _table(self, staged: StagedType, dropped: str | None, matched: _Matched) -> StagedTable:
        key = staged.table_key
        base = self._bases[key]
        equal = self._matched.get(key, NO_MATCHES)
        leaving = [*matched.files, *([] if dropped is None else [dropped]), *equal.equal_rows]
        unchanged = matched.unchanged + equal.equal_count
        fragments = self._new_fragments(staged, leaving)
        inserted = sum(fragment.rows for fragment in fragments)
        if self._mode is WriteMode.OVERWRITE:
            schema = staged.entity_type.arrow_schema
            over = stage_all_rows(key, base, self._datasets, schema, fragments=fragments)
            return StagedTable(over, inserted, removed=base.entry.row_count)
        if not inserted and not matched.updated:
            return StagedTable(None, unchanged=unchanged)
        rewritten = [part for outcome in matched.outcomes for part in outcome.fragments]
        deletions = [part for outcome in matched.outcomes for part in outcome.deletions]
        fragments = [*rewritten, *fragments]
        write = stage_rows(key, base, self._datasets, fragments=fragments, deletions=deletions)
        return StagedTable(write, inserted, matched.updated, unchanged, nulled=matched.nulled)

    def _new_fragments(self, staged: StagedType, leaving: Sequence[str]) -> list[WrittenFragment]:
        """Return the fragments of rows that stay and are new, written again where need be."""
        fragments = [fragment for part in staged.parts for fragment in part.fragments]
        if not fragments:
            return []
        counts = np.array([fragment.rows for fragment in fragments], np.int64)
        lost = self._lost(counts, leaving)
        tasks = self._rewrites(staged, fragments, lost, leaving)
        rewritten = self._run.calls(
            "writing rows again", rewrite_staged, list(tasks.values()), rows=staged.rows
        )
        replaced = {number for numbers in tasks for number in numbers}
        kept = [
            part
            for number, part in enumerate(fragments)
            if number not in replaced and lost[number] < part.rows
        ]
        return [*kept, *(part for parts in rewritten for part in parts)]

    def _lost(self, counts: Integers, leaving: Sequence[str]) -> Integers:
        """Count the rows that leave each fragment; no two files name the same row."""
        lost = np.zeros(len(counts), np.int64)
        for path in leaving:
            rows = self._run.dropped_rows([path])
            numbers = np.searchsorted(np.cumsum(counts), rows, side="right")
            lost += np.bincount(numbers, minlength=len(counts))
        return lost

    def _rewrites(
        self,
        staged: StagedType,
        fragments: Sequence[WrittenFragment],
        lost: Integers,
        leaving: Sequence[str],
    ) -> dict[tuple[int, ...], RewriteTask]:
        """Choose fragments to write again: those that lose some rows, and small ones together."""
        counts = np.array([fragment.rows for fragment in fragments], np.int64)
        loses = lost > 0
        base = self._bases[staged.table_key].base
        if any(
            (fragment.base.location, fragment.base.branch) != (base.location, base.branch)
            for fragment in fragments
        ):
            # Another writer has forked the table for this branch: its lineage is another one now.
            loses[:] = True
        is_small = counts < SMALL_FRAGMENT_ROWS
        if np.count_nonzero(is_small) <= SMALL_FRAGMENTS_MAX:
            is_small[:] = False
        # A fragment that loses all of its rows is not committed.
        chosen = (loses | is_small) & (lost < counts)
        if not chosen.any():
            return {}
        where = self._views.rows(staged)
        tasks: dict[tuple[int, ...], RewriteTask] = {}
        for group in _neighbours(chosen, counts):
            numbers = tuple(where.fragment_ids[number] for number in group)
            rows_of = Slice(staged.table_key, where.at, numbers)
            first = where.first_rows[group[0]]
            rows = int(counts[list(group)].sum())
            tasks[group] = RewriteTask(rows_of, first, rows, tuple(leaving))
        return tasks


def _neighbours(chosen: Mask, counts: Integers) -> list[tuple[int, ...]]:
    """Group chosen fragments that follow each other, up to the size of one."""
    groups: list[list[int]] = []
    rows = 0
    for number in np.flatnonzero(chosen).tolist():
        follows = bool(groups) and groups[-1][-1] == number - 1
        if follows and rows + counts[number] <= _FRAGMENT_ROWS:
            groups[-1].append(number)
            rows += counts[number]
        else:
            groups.append([number])
            rows = counts[number]
    return [tuple(group) for group in groups]


def dropped_file(load: StagedLoad, table_key: str, rows: Integers) -> str:
    """Write the numbers of rows that do not count to a file for tasks; return its path."""
    name = table_key.replace(":", "-")
    return load.context.files.write(f"dropped-{name}", pa.table({"row": np.sort(rows)}))
