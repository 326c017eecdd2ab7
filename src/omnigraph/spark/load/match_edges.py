"""Finds the stored edges that staged edges without an id stand for, by jobs.

The meaning is that of `write/load/match_edges.py`; here rows are joined by files of hashes.

1. Tasks hash the staged edges once, and the stored edges once for every published version. A run is
   sorted by the first hash of its pairs. Stored edges that share no hash with a staged one are left
   out, unless there are too many staged ones to compare with.
2. Tasks join the runs range by range of the hashes. The nth staged row of a pair takes the nth
   stored edge of it, in the order of ids.
3. Groups are joined one after the other: a stored edge that a row has taken is not there for the
   next group.
4. The driver handles names of files. Rows keep the numbers that they were staged under.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph.schema import EntityType
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.spark.load.key_set import HashRange, KeySet, ranges, sorted_run
from omnigraph.spark.load.plan import ID, MADE, LoadContext
from omnigraph.spark.load.run import LoadRun, StagedLoad, slices, stored_slices
from omnigraph.spark.load.stored_tasks import Slice, whole_rows
from omnigraph.store.records import ROW_ADDRESS, ROW_ID
from omnigraph.write.load.check.hashing import Hashes, HashPairs, is_among
from omnigraph.write.load.check.row_hashing import hash_rows, hash_tuples
from omnigraph.write.load.match_edges import end_groups, is_matched
from omnigraph.write.load.rows.taken_ids import stored_ids
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.stage.columns import Integers, Mask, flat
from omnigraph.write.stage.stored_rows import PROBES_MAX, StoredRows

if TYPE_CHECKING:
    from omnigraph.manifest import Snapshot
    from omnigraph.spark.load.staged import StagedType
    from omnigraph.spark.load.staged_views import StagedViews
    from omnigraph.store.records import DatasetVersion

EQUALITY: Final = "equality"
_RANK_BITS: Final = 32
_DRIVER_ROWS: Final = 1 << 17
_STORED_RUN: Final = pa.schema(
    [("hash", pa.uint64()), ("second", pa.uint64()), ("id", pa.large_utf8()), ("at", pa.uint64())]
)
_STAGED_RUN: Final = pa.schema(
    [("hash", pa.uint64()), ("second", pa.uint64()), ("row", pa.int64())]
)


def match_kinds(edge: EntityType) -> dict[str, tuple[str, ...]]:
    """Name the ways by which edges of a type are matched, in their order, with the columns."""
    kinds: dict[str, tuple[str, ...]] = {}
    for number, members in enumerate(end_groups(edge)):
        kinds[f"group-{number}"] = members
        if not any(edge.arrow_schema.field(name).nullable for name in members):
            # Every row has all members: none looks further.
            return kinds
    names = tuple(name for name in edge.arrow_schema.names if name != "id")
    return {**kinds, EQUALITY: names}


@dataclass(frozen=True)
class MatchedEdges:
    """What is known about the edges of one table that have no id."""

    taken: tuple[str, ...] = ()
    """Runs of staged rows that take the ids of stored edges."""
    equal: tuple[str, ...] = ()
    """Runs of staged rows that equal stored edges, with the ids of those."""
    equal_rows: tuple[str, ...] = ()
    """Files of the numbers of the latter."""
    equal_count: int = 0

    @property
    def replaced(self) -> list[tuple[str, int | None]]:
        """The runs with the ids of all stored edges that staged rows stand for."""
        return [(path, None) for path in (*self.taken, *self.equal)]


NO_MATCHES: Final = MatchedEdges()


# -- tasks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MadeRows:
    """Consecutive staged rows: all have an id that was made, none has, or those of a file."""

    first: int
    count: int
    all_made: bool
    path: str | None = None

    def mask(self, context: LoadContext) -> Mask:
        """Return which rows have an id that was made."""
        made = np.full(self.count, self.all_made)
        if self.path is not None:
            made[context.files.read(self.path)["row"].to_numpy()] = True
        return made


@dataclass(frozen=True)
class StagedEdgesTask:
    """Staged edges to hash: the rows of a slice, numbered from `first` on."""

    rows: Slice
    first: int
    made: tuple[MadeRows, ...]


def hash_staged_edges(context: LoadContext, task: StagedEdgesTask, number: int) -> dict[str, str]:
    """Write one run per way of matching, of the rows without an id; return the files."""
    del number
    edge = context.entity_type(task.rows.table_key)
    kinds = match_kinds(edge)
    parts: dict[str, list[pa.Table]] = {kind: [] for kind in kinds}
    start = task.first
    columns = {name for members in kinds.values() for name in members}
    for batch in whole_rows(context, edge, task.rows, columns=sorted(columns)):
        left = _made_between(context, task.made, start, start + batch.num_rows)
        for kind, members in kinds.items():
            pairs, own = _hashed(context, kind, [batch[name] for name in members], left)
            left = left & ~own
            rows = np.flatnonzero(own) + start
            run = [pairs.first[own], pairs.second[own], rows]
            parts[kind].append(pa.table([pa.array(one) for one in run], schema=_STAGED_RUN))
        start += batch.num_rows
    return _runs(context, task.rows.table_key, parts)


def _made_between(context: LoadContext, parts: Sequence[MadeRows], start: int, end: int) -> Mask:
    made = np.zeros(end - start, np.bool_)
    for part in parts:
        low, high = max(start, part.first), min(end, part.first + part.count)
        if low < high:
            own = part.mask(context)[low - part.first : high - part.first]
            made[low - start : high - start] = own
    return made


def _hashed(
    context: LoadContext, kind: str, columns: Sequence[pa.Array], asked: Mask
) -> tuple[HashPairs, Mask]:
    """Return pairs, and which of the rows asked for are matched in this way."""
    if kind == EQUALITY:
        return hash_rows(context.scheme, columns, len(asked)), asked
    is_whole = np.logical_and.reduce([valid_mask(column) for column in columns])
    return hash_tuples(context.scheme, columns, len(asked)), asked & is_whole


@dataclass(frozen=True)
class StoredEdgesTask:
    """Stored edges to hash; those with a `given` id belong to other records.

    `wanted` are the runs of staged edges by way of matching: only edges that share a hash matter.
    """

    rows: Slice
    wanted: Mapping[str, tuple[str, ...]]
    given: KeySet | None = None
    is_filtered: bool = False
    """Whether the runs are few enough to leave out edges that share no hash with them."""


def hash_stored_edges(context: LoadContext, task: StoredEdgesTask, number: int) -> dict[str, str]:
    """Write one run per way of matching; return the files."""
    del number
    edge = context.entity_type(task.rows.table_key)
    kinds = {kind: match_kinds(edge)[kind] for kind in task.wanted}
    parts: dict[str, list[pa.Table]] = {kind: [] for kind in kinds}
    wanted = {}
    if task.is_filtered:
        wanted = {kind: _hashes(context, paths) for kind, paths in task.wanted.items()}
    columns = {"id", *(name for members in kinds.values() for name in members)}
    for batch in whole_rows(context, edge, task.rows, columns=sorted(columns), with_row_ids=True):
        ids = batch["id"]
        asked = np.ones(batch.num_rows, np.bool_)
        if task.given is not None:
            asked = ~task.given.contains(ids)
        for kind, members in kinds.items():
            pairs, own = _hashed(context, kind, [batch[name] for name in members], asked)
            if task.is_filtered:
                own = own & is_among(pairs.first, wanted[kind])
            run = [
                pa.array(pairs.first[own]),
                pa.array(pairs.second[own]),
                ids.filter(pa.array(own)).cast(pa.large_utf8()),
                batch[ROW_ID].filter(pa.array(own)),
            ]
            parts[kind].append(pa.table(run, schema=_STORED_RUN))
    return _runs(context, task.rows.table_key, parts)


def _hashes(context: LoadContext, paths: Sequence[str]) -> Hashes:
    runs = [context.files.read(path)["hash"].to_numpy() for path in paths]
    return np.sort(np.concatenate(runs))


def _runs(
    context: LoadContext, table_key: str, parts: Mapping[str, Sequence[pa.Table]]
) -> dict[str, str]:
    table = table_key.replace(":", "-")
    found = {}
    for kind, pieces in parts.items():
        if any(piece.num_rows for piece in pieces):
            run = pa.concat_tables(pieces).combine_chunks()
            order = np.argsort(run["hash"].to_numpy())
            found[kind] = context.files.write(f"match-{kind}-{table}", run.take(pa.array(order)))
    return found


@dataclass(frozen=True)
class JoinTask:
    """Runs of both sides to join in a range of hashes, without the stored edges of `used`."""

    table: str
    within: HashRange
    staged: tuple[str, ...]
    stored: tuple[str, ...]
    used: tuple[str, ...] = ()


@dataclass(frozen=True)
class Joined:
    """Files of what a join has found: a run of ids, row numbers, places of stored edges."""

    run: str
    rows: str
    used: str
    count: int


def join_edges(context: LoadContext, task: JoinTask, number: int) -> Joined | None:
    """Pair staged rows with stored edges of the same hashes."""
    del number
    staged = _in_range(context, task.staged, task.within, _STAGED_RUN)
    stored = _in_range(context, task.stored, task.within, _STORED_RUN)
    used = [context.files.read(path)["at"].to_numpy() for path in task.used]
    if used and stored.num_rows:
        is_used = is_among(stored["at"].to_numpy(), np.sort(np.concatenate(used)))
        stored = stored.filter(pa.array(~is_used)).combine_chunks()
    if not staged.num_rows or not stored.num_rows:
        return None
    staged = staged.sort_by([(name, "ascending") for name in ("hash", "second", "row")])
    stored = stored.sort_by([(name, "ascending") for name in ("hash", "second", "id")])
    ours, theirs = _paired(staged, stored)
    if not len(ours):
        return None
    rows = staged["row"].to_numpy()[ours]
    found = stored.take(pa.array(theirs)).combine_chunks()
    ids = flat(found["id"])
    hashes = context.scheme.texts(ids)
    files = context.files
    return Joined(
        files.write(f"matched-ids-{task.table}", sorted_run(hashes, ids, rows)),
        files.write(f"matched-rows-{task.table}", pa.table({"row": np.sort(rows)})),
        files.write(f"matched-at-{task.table}", pa.table({"at": found["at"]})),
        len(rows),
    )


def _in_range(
    context: LoadContext, paths: Sequence[str], within: HashRange, schema: pa.Schema
) -> pa.Table:
    parts = [within.slice_of(context.files.read(path)) for path in paths]
    return pa.concat_tables(parts).combine_chunks() if parts else schema.empty_table()


def _paired(staged: pa.Table, stored: pa.Table) -> tuple[Integers, Integers]:
    """Return the places of rows that have the same pair and the same rank among those of it."""
    count = staged.num_rows
    first, second = (
        np.concatenate([staged[name].to_numpy(), stored[name].to_numpy()])
        for name in ("hash", "second")
    )
    order = np.lexsort((second, first))
    is_head = np.ones(len(order), np.bool_)
    is_head[1:] = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(is_head) - 1
    keys = (_ranked(groups[:count]), _ranked(groups[count:]))
    _, ours, theirs = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    return ours, theirs


def _ranked(groups: Integers) -> Integers:
    """Return a number for each of some ascending groups and the rank of the row in it."""
    ranks = np.arange(len(groups)) - np.searchsorted(groups, groups)
    return (groups << _RANK_BITS) | ranks


# -- driver ---------------------------------------------------------------------------------------


@dataclass
class EdgeMatching:
    """Matches the staged edges of one load with what a snapshot has."""

    run: LoadRun
    load: StagedLoad
    views: StagedViews
    set_rows_max: int
    _staged: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    _stored: dict[tuple[str, DatasetVersion], dict[str, list[str]]] = field(default_factory=dict)

    def of(self, snapshot: Snapshot) -> dict[str, MatchedEdges]:
        """Return what was found, by table."""
        found = {}
        for key, staged in self.load.types().items():
            if (
                is_matched(staged.entity_type)
                and any(part.made for part in staged.parts)
                and snapshot.entry(key).row_count
            ):
                found[key] = self._matched(staged, snapshot)
        return found

    def _matched(self, staged: StagedType, snapshot: Snapshot) -> MatchedEdges:
        ours = self._staged_runs(staged)
        theirs = self._stored_runs(staged, ours, snapshot)
        matched = NO_MATCHES
        used: tuple[str, ...] = ()
        for kind, runs in ours.items():
            joined = self._joined(staged, runs, theirs.get(kind, []), used)
            used += tuple(one.used for one in joined)
            ids = tuple(one.run for one in joined)
            if kind == EQUALITY:
                rows = tuple(one.rows for one in joined)
                count = sum(one.count for one in joined)
                matched = MatchedEdges(matched.taken, ids, rows, count)
            else:
                matched = MatchedEdges((*matched.taken, *ids))
        return matched

    def _staged_runs(self, staged: StagedType) -> dict[str, list[str]]:
        """Return the runs of each way in which rows are matched, in their order."""
        key = staged.table_key
        if key not in self._staged:
            tasks = list(self._staged_tasks(staged))
            found = self.run.calls("hashing edges", hash_staged_edges, tasks, rows=staged.rows)
            self._staged[key] = _by_kind(staged.entity_type, found)
        return self._staged[key]

    def _staged_tasks(self, staged: StagedType) -> Iterator[StagedEdgesTask]:
        where = self.views.rows(staged)
        first_of = dict(zip(where.fragment_ids, where.first_rows, strict=True))
        made = tuple(
            MadeRows(int(first), part.rows, part.ids_are_new, part.side_files.get(MADE))
            for part, first in zip(staged.parts, staged.first_rows, strict=True)
        )
        for rows in self.views.slices(staged):
            yield StagedEdgesTask(rows, first_of[rows.fragment_ids[0]], made)

    def _stored_runs(
        self, staged: StagedType, ours: Mapping[str, Sequence[str]], snapshot: Snapshot
    ) -> dict[str, list[str]]:
        key = staged.table_key
        entry = snapshot.entry(key)
        known = (key, entry.at)
        if known not in self._stored:
            given = None
            if not staged.ids_are_new:
                given = self.run.merged_set(key, staged.run_paths(ID))
            wanted = {kind: tuple(paths) for kind, paths in ours.items()}
            is_filtered = staged.rows <= self.set_rows_max
            tasks = [
                StoredEdgesTask(rows, wanted, given, is_filtered)
                for rows in self._slices(staged, snapshot)
            ]
            rows = entry.row_count
            found = self.run.calls("hashing stored edges", hash_stored_edges, tasks, rows=rows)
            self._stored[known] = _by_kind(staged.entity_type, found)
        return self._stored[known]

    def _slices(self, staged: StagedType, snapshot: Snapshot) -> list[Slice]:
        """Return the stored edges that may matter; of few rows those that share a source."""
        key = staged.table_key
        if staged.rows > PROBES_MAX:
            return stored_slices(snapshot, key)
        sources = self.views.read(staged, ("src",))["src"]
        found = StoredRows(snapshot).where(key, "src", sources, columns=("src",), with_rows=True)
        among = frozenset((found[ROW_ADDRESS].to_numpy() >> np.uint64(32)).tolist())
        return slices(key, snapshot.entry(key).at, snapshot.open(key), among=among)

    def _joined(
        self,
        staged: StagedType,
        ours: Sequence[str],
        theirs: Sequence[str],
        used: tuple[str, ...],
    ) -> list[Joined]:
        if not theirs:
            return []
        files = self.load.context.files
        total = sum(files.read(path).num_rows for path in (*ours, *theirs))
        name = staged.table_key.replace(":", "-")
        tasks = [
            JoinTask(name, within, tuple(ours), tuple(theirs), used)
            for within in ranges(max(1, -(-total // self.set_rows_max)))
        ]
        found = self.run.calls("matching edges", join_edges, tasks, rows=total)
        return [one for one in found if one is not None]


def _by_kind(edge: EntityType, found: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    runs = {kind: [files[kind] for files in found if kind in files] for kind in match_kinds(edge)}
    return {kind: paths for kind, paths in runs.items() if paths}


def matched_in_driver(context: LoadContext, loaded: LoadedType) -> MatchedEdges:
    """Write files of what the rules' own matching has found for rows that the driver gathered."""
    name = loaded.table_key.replace(":", "-")
    equal_rows: tuple[str, ...] = ()
    taken: list[str] = []
    if loaded.equal is not None:
        rows = np.flatnonzero(loaded.equal)
        equal_rows = (context.files.write(f"matched-rows-{name}", pa.table({"row": rows})),)
    if loaded.taken is not None:
        for start in range(0, loaded.row_count, _DRIVER_ROWS):
            own = loaded.taken.matches.between(start, start + _DRIVER_ROWS)
            if len(own.rows):
                ids = stored_ids(loaded.taken.handle, own.row_ids)
                run = sorted_run(context.scheme.texts(ids), ids, own.rows)
                taken.append(context.files.write(f"matched-ids-{name}", run))
    return MatchedEdges(tuple(taken), (), equal_rows, loaded.equal_count)
