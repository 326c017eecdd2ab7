"""Proves by hashes that no rule across rows is broken.

| rule | proof |
|---|---|
| an id, a key or a `@unique` tuple once in the input | no hash occurs twice among the staged rows |
| … and not in stored rows that stay | no hash occurs on both sides |
| ends exist | every end was found, as text, in the set of node ids |
| `@card` | edges per hash of a source are within the bounds, and no two nodes share a hash |
| required properties that rows do not name | the ids of such rows are all stored |
| overwritten nodes leave no edge behind | ends of stored edges are in the set of the new nodes |

A proof is exact. A rule that it cannot prove is *unproven*, not broken: two texts may share a hash.
Then the rules themselves are run. So it is with a rule that has no proof at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType, EntityType, NodeType
from omnigraph.spark.load.hash_runs import common, counted, hash_ranges, repeated
from omnigraph.spark.load.key_set import KeySet, sorted_run
from omnigraph.spark.load.match_edges import NO_MATCHES, MatchedEdges
from omnigraph.spark.load.plan import CARDINALITY, ID, NEEDS, unique_runs
from omnigraph.spark.load.run import LoadRun, StagedLoad, stored_slices
from omnigraph.spark.load.stored_tasks import EndsTask, FoundTask, count_found, count_missing_ends
from omnigraph.write.load.check.hashing import is_among
from omnigraph.write.load.partial import tuples_that_keep
from omnigraph.write.rules.cardinality import check_cardinality, has_cardinality, is_outside
from omnigraph.write.rules.check import Rule
from omnigraph.write.rules.endpoints import check_endpoints, edge_ends
from omnigraph.write.rules.ids import check_repeated_ids, check_stored_ids
from omnigraph.write.rules.orphans import check_orphans
from omnigraph.write.rules.unique import UNIQUE_RULE, check_unique
from omnigraph.write.rules.validate import RULES
from omnigraph.write.rules.values import check_values
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.stored_rows import PROBES_MAX, StoredRows

if TYPE_CHECKING:
    from omnigraph.manifest import Snapshot
    from omnigraph.spark.load.staged import StagedType
    from omnigraph.spark.load.staged_views import StagedViews


_PREFILTERED_ROWS_PER_ROW: Final = 8
_PROVABLE: Final[frozenset[Rule]] = frozenset(
    {
        check_repeated_ids,
        check_stored_ids,
        check_unique,
        check_endpoints,
        check_orphans,
        check_cardinality,
    }
)
_CHECKED_BY_TASKS: Final[frozenset[Rule]] = frozenset({check_values})


@dataclass(frozen=True)
class Unproven:
    """A rule that could not be proven to hold."""

    table_key: str
    rule: str


class Proofs:
    """Proves the rules of one staged load against one snapshot."""

    def __init__(
        self,
        run: LoadRun,
        load: StagedLoad,
        snapshot: Snapshot,
        mode: WriteMode,
        views: StagedViews,
        *,
        staged_on: Snapshot,
        cascades: bool = False,
        matched: Mapping[str, MatchedEdges] | None = None,
    ) -> None:
        self._matched = matched or {}
        self._cascades = cascades
        self._staged_on = staged_on
        self._run = run
        self._load = load
        self._snapshot = snapshot
        self._mode = mode
        self._views = views
        self._types = load.types()
        self._files = load.context.files
        self.reads: set[str] = set()
        """Tables that are not written and that the proofs rest on."""
        self.orphaned: dict[str, list[EndsTask]] = {}
        """Tasks that find the orphaned edges of each table, for `cascade`."""

    def unproven(self) -> list[Unproven]:
        """Return everything that is not proven."""
        found = [*self._without_proof(), *self._repeated(), *self._ends(), *self._orphans()]
        found += self._incomplete()
        if self._mode is not WriteMode.OVERWRITE:
            found += self._against_stored()
        else:
            found += self._cardinalities({})
        return found

    def _without_proof(self) -> Iterator[Unproven]:
        """Return the rules that have no proof, for every staged type."""
        for rule in (rule for rules in RULES for rule in rules):
            if rule not in _PROVABLE | _CHECKED_BY_TASKS:
                yield from (Unproven(key, rule.__name__) for key in self._types)

    # -- among the staged rows --------------------------------------------------------------------

    def _repeated(self) -> Iterator[Unproven]:
        for staged in self._types.values():
            kinds = [*unique_runs(staged.entity_type)]
            if not staged.ids_are_new:
                kinds.append(ID)
            for kind in kinds:
                runs = staged.runs(kind)
                if any(len(repeated(runs, within)) for within in hash_ranges(runs)):
                    yield Unproven(staged.table_key, kind)

    # -- rows that do not name everything ---------------------------------------------------------

    def _incomplete(self) -> Iterator[Unproven]:
        """Return the types in which rules depend on what stored rows keep."""
        for key, staged in self._types.items():
            keeps = tuples_that_keep(staged.entity_type, staged.absent, staged.absent_everywhere)
            if keeps and self._snapshot.entry(key).row_count:
                yield Unproven(key, UNIQUE_RULE)
            needs = staged.run_paths(NEEDS)
            is_kept = not needs or self._all_stored(key, needs)
            if not is_kept or any(
                part.changes_texts or part.lacks_without_id for part in staged.parts
            ):
                yield Unproven(key, "required")

    def _all_stored(self, key: str, runs: Sequence[tuple[str, int]]) -> bool:
        """Whether all ids of some runs are stored, so that their rows keep what they lack."""
        if not self._load.context.keeps_absent or not self._snapshot.entry(key).row_count:
            return False
        ids = self._run.merged_set(key, runs)
        tasks = [FoundTask(own, ids) for own in stored_slices(self._snapshot, key)]
        rows = self._snapshot.entry(key).row_count // _PREFILTERED_ROWS_PER_ROW
        wanted = sum(self._files.read(path).num_rows for path, _ in runs)
        found = self._run.calls("looking for rows", count_found, tasks, rows=rows)
        return bool(sum(found) == wanted)

    # -- against stored rows ----------------------------------------------------------------------

    def _against_stored(self) -> list[Unproven]:
        wanted = {key: self._stored_kinds(staged) for key, staged in self._types.items()}
        wanted = {key: kinds for key, kinds in wanted.items() if kinds}
        stored = self._run.stored_runs(self._snapshot, wanted, self._replaced(wanted))
        found = self._few_ids()
        for key, kinds in stored.items():
            staged = self._types[key]
            for kind, paths in kinds.items():
                if kind == CARDINALITY:
                    continue
                runs, others = staged.runs(kind), [self._files.read(path) for path in paths]
                shared = (common(runs, others, part) for part in hash_ranges(runs, others))
                if any(map(len, shared)):
                    found.append(Unproven(key, kind))
        return [*found, *self._cardinalities(stored)]

    def _stored_kinds(self, staged: StagedType) -> dict[str, tuple[str, ...]]:
        if not self._snapshot.entry(staged.table_key).row_count or not staged.rows:
            return {}
        kinds = unique_runs(staged.entity_type)
        if self._mode is WriteMode.APPEND and not staged.ids_are_new and not _has_few(staged):
            kinds[ID] = ("id",)
        if has_cardinality(staged.entity_type):
            kinds[CARDINALITY] = ("src",)
        return kinds

    def _few_ids(self) -> list[Unproven]:
        """Look a few ids up by the index instead of reading all that are stored."""
        if self._mode is not WriteMode.APPEND:
            return []
        stored = StoredRows(self._snapshot)
        return [
            Unproven(key, ID)
            for key, staged in self._types.items()
            if staged.rows and not staged.ids_are_new and _has_few(staged)
            if stored.contains(key, staged.ids()).any()
        ]

    def _replaced(self, wanted: Mapping[str, object]) -> dict[str, KeySet]:
        """Return the ids of staged rows, by the tables of which stored rows are compared."""
        if self._mode is not WriteMode.MERGE:
            return {}
        sets = {}
        for key, staged in self._types.items():
            matched = self._matched.get(key, NO_MATCHES).replaced
            given = [] if staged.ids_are_new else staged.run_paths(ID)
            if key in wanted and (given or matched):
                sets[key] = self._run.merged_set(key, [*given, *matched])
        return sets

    # -- ends -------------------------------------------------------------------------------------

    def _ends(self) -> Iterator[Unproven]:
        later: dict[str, StagedType] = {}
        for key, staged in self._types.items():
            if not isinstance(staged.entity_type, EdgeType):
                continue
            self._rest_on_ends(staged.entity_type)
            if not self._were_probed(staged.entity_type):
                later[key] = staged
            elif any(part.missing.total for part in staged.parts):
                yield Unproven(key, "endpoint")
        yield from self._ends_in_fragments(later)

    def _were_probed(self, edge: EdgeType) -> bool:
        """Whether tasks have looked up all ends, among nodes that are still the same."""
        keys = [TableKey.node(name) for _, name in edge_ends(edge)]
        return all(
            key in self._load.context.sets
            and self._snapshot.entry(key) == self._staged_on.entry(key)
            for key in keys
        )

    def _rest_on_ends(self, edge: EdgeType) -> None:
        self.reads |= {TableKey.node(name) for _, name in edge_ends(edge)} - self._types.keys()

    def _ends_in_fragments(self, types: Mapping[str, StagedType]) -> Iterator[Unproven]:
        """Look up the ends of edges that were staged before the nodes were known."""
        node_keys = {
            TableKey.node(name): None
            for staged in types.values()
            for _, name in edge_ends(_edge(staged.entity_type))
        }
        rows = sum(staged.rows for staged in types.values())
        if self._run.has_few_ends(rows, self._load, self._snapshot, node_keys):
            yield from self._few_ends(types, node_keys)
            return
        sets = self._run.node_sets(self._load, self._snapshot, list(node_keys))
        tasks = [
            EndsTask(own, _ends_with_sets(_edge(staged.entity_type), sets))
            for staged in types.values()
            for own in self._views.slices(staged)
        ]
        missing = self._run.calls("looking up ends", count_missing_ends, tasks, rows=rows)
        for task, number in zip(tasks, missing, strict=True):
            if number:
                yield Unproven(task.rows.table_key, "endpoint")

    def _few_ends(
        self, types: Mapping[str, StagedType], node_keys: Iterable[str]
    ) -> Iterator[Unproven]:
        """Look for the ends of few edges among many nodes, by the index or in one pass."""
        for node_key in node_keys:
            ends = self._distinct_ends(types, node_key)
            staged = self._types.get(node_key)
            if staged is not None and staged.rows and len(ends):
                own = self._run.merged_set(node_key, staged.run_paths(ID))
                ends = ends.filter(pa.array(~own.contains(ends)))
            if len(ends) and not self._are_stored(node_key, ends):
                yield Unproven(node_key, "endpoint")

    def _distinct_ends(self, types: Mapping[str, StagedType], node_key: str) -> pa.Array:
        columns = []
        for staged in types.values():
            names = [
                end
                for end, name in edge_ends(_edge(staged.entity_type))
                if TableKey.node(name) == node_key
            ]
            if names and staged.rows:
                found = self._views.read(staged, tuple(names))
                columns += [column for name in names for column in found[name].chunks]
        return pc.unique(pa.chunked_array(columns, pa.utf8()))

    def _are_stored(self, node_key: str, ids: pa.Array) -> bool:
        if len(ids) <= PROBES_MAX:
            return bool(StoredRows(self._snapshot).contains(node_key, ids).all())
        hashes = self._load.context.scheme.texts(ids)
        run = sorted_run(hashes, ids, np.arange(len(ids)))
        path = self._files.write(f"ends-{node_key.replace(':', '-')}", run)
        known = KeySet(self._files, self._load.context.scheme, (path,))
        tasks = [FoundTask(own, known) for own in stored_slices(self._snapshot, node_key)]
        # A row that the prefilter drops costs a fraction of one that is hashed and compared.
        rows = self._snapshot.entry(node_key).row_count // _PREFILTERED_ROWS_PER_ROW
        return sum(self._run.calls("looking for ends", count_found, tasks, rows=rows)) == len(ids)

    def _orphans(self) -> Iterator[Unproven]:
        """Look for stored edges whose nodes an overwrite removes."""
        if self._mode is not WriteMode.OVERWRITE:
            return
        catalog = self._load.context.catalog
        tasks = []
        rows = 0
        for edge in catalog.edge_types.values():
            ends = {
                end: TableKey.node(name)
                for end, name in edge_ends(edge)
                if TableKey.node(name) in self._types and edge.table_key not in self._types
            }
            if not ends:
                continue
            self.reads.add(edge.table_key)
            if not self._snapshot.entry(edge.table_key).row_count:
                continue
            sets = self._run.node_sets(self._load, self._snapshot, list(ends.values()))
            known = {end: sets[key] for end, key in ends.items()}
            rows += self._snapshot.entry(edge.table_key).row_count
            tasks += [EndsTask(own, known) for own in stored_slices(self._snapshot, edge.table_key)]
        missing = self._run.calls("looking up ends", count_missing_ends, tasks, rows=rows)
        for task, number in zip(tasks, missing, strict=True):
            key = task.rows.table_key
            # Sources that must keep a minimum of edges are counted by the rules themselves.
            if (
                number
                and self._cascades
                and not _edge(self._load.context.entity_type(key)).cardinality.min
            ):
                self.orphaned.setdefault(key, []).append(task)
            elif number:
                yield Unproven(key, "orphan")

    # -- cardinality ------------------------------------------------------------------------------

    def _cardinalities(self, stored: Mapping[str, Mapping[str, list[str]]]) -> Iterator[Unproven]:
        for key, staged in self._types.items():
            if has_cardinality(staged.entity_type) and staged.rows:
                paths = stored.get(key, {}).get(CARDINALITY, [])
                others = [self._files.read(path) for path in paths]
                if not self._is_counted_well(_edge(staged.entity_type), staged, others):
                    yield Unproven(key, CARDINALITY)

    def _is_counted_well(self, edge: EdgeType, staged: StagedType, others: list[pa.Table]) -> bool:
        limits = edge.cardinality
        # Two sources with one hash are counted together, which would hide missing edges.
        if limits.min > 1 and self._sources_collide(edge):
            return False
        runs = staged.runs(CARDINALITY)
        for within in hash_ranges(runs, others):
            sources, counts = counted(runs, within)
            if others:
                before, there = counted(others, within)
                _, former = counted(others, within, "former")
                sources = np.union1d(sources, before[former > 0])
                counts = _spread(sources, counted(runs, within))
                counts += _spread(sources, (before, there))
            if is_outside(counts, limits).any():
                return False
        return True

    def _sources_collide(self, edge: EdgeType) -> bool:
        key = TableKey.node(edge.from_type)
        known = self._run.node_sets(self._load, self._snapshot, [key])[key]
        return any(len(shared) for shared in known.shared_hashes())


def _has_few(staged: StagedType) -> bool:
    return staged.rows <= PROBES_MAX


def _spread(sources: np.ndarray, found: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the counts of some sources, zero where there is none."""
    own, counts = found
    spread = np.zeros(len(sources), np.int64)
    wanted = is_among(own, sources)
    spread[np.searchsorted(sources, own[wanted])] = counts[wanted]
    return spread


def _edge(entity_type: EntityType) -> EdgeType:
    if isinstance(entity_type, NodeType):
        raise TypeError(f"{entity_type.name} is no edge type")
    return entity_type


def _ends_with_sets(edge: EdgeType, sets: Mapping[str, KeySet]) -> dict[str, KeySet]:
    return {end: sets[TableKey.node(name)] for end, name in edge_ends(edge)}
