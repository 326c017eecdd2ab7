"""A load on Spark leaves the topology of its edges behind, built by its tasks.

1. It is built where a traversal could not extend one that is stored: when at least half of the
   edges come from this load, when their nodes were replaced, or when the state before has none.
   A smaller load leaves what the traversal extends, at a fraction of the cost of the load.
2. Ends that were looked up while edges were staged are not looked up again: staging leaves files of
   ends as numbers of nodes. Where the staged fragments were written again before the commit, or
   came from records of all types, ends are looked up in what is committed.
3. It happens after the commit. Whatever fails leaves a valid graph without a topology, and files
   under `__staging/<operation>/` that end with the load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.cache import table_keys
from omnigraph.search.topology.extend import NEW_SHARE_MAX
from omnigraph.search.topology.pieces import node_ranges
from omnigraph.search.topology.store import EDGES_MIN, NEW_SHARE_MIN
from omnigraph.search.topology.topology import TopologyStates
from omnigraph.spark.load.plan import ENDS, ID
from omnigraph.spark.load.run import slices
from omnigraph.spark.load.topology_tasks import (
    ArrangeTask,
    EndsFile,
    LookUpTask,
    NodeSide,
    PieceFile,
    PlacedRows,
    TableNumbers,
    TopologyTask,
    arrange_piece,
    look_up_ends,
    number_rows,
    put_together,
)
from omnigraph.write.rules.endpoints import edge_ends

if TYPE_CHECKING:
    from omnigraph.manifest import Snapshot
    from omnigraph.search.topology.store import TopologyStore
    from omnigraph.spark.load.key_set import KeySet
    from omnigraph.spark.load.run import LoadRun, StagedLoad
    from omnigraph.spark.load.staged import StagedType
    from omnigraph.store.datasets import DatasetHandle
    from omnigraph.store.records import WrittenFragment
    from omnigraph.write.load.stage import StagedTable

PIECE_EDGES: Final = 1 << 24
"""About how many edges a task arranges: some 24 bytes of memory each."""
_EDGES_PER_ROW: Final = 16
"""So many edges are numbered or arranged in the time in which one row is read and checked."""


class LoadTopologies:
    """Builds the topologies of one committed load."""

    def __init__(
        self,
        run: LoadRun,
        load: StagedLoad,
        tables: Mapping[str, StagedTable],
        *,
        before: Snapshot,
        after: Snapshot,
        stored: TopologyStore,
        replaces: bool,
    ) -> None:
        self._run = run
        self._types = load.types()
        self._catalog = load.context.catalog
        self._tables = tables
        self._before = before
        self._after = after
        self._stored = stored
        self._replaces = replaces
        self._handles: dict[str, DatasetHandle] = {}

    def build(self) -> None:
        """Build and store every topology that is worth it."""
        edges = [edge for edge in self._catalog.edge_types.values() if self._is_wanted(edge)]
        keys = list(dict.fromkeys(key for edge in edges for key in table_keys(edge)))
        numbers = self._numbers(keys)
        placed = {key: self._placed(key, numbers[key]) for key in keys}
        ends = self._ends(edges, placed)
        tasks = {
            (edge.name, direction): task
            for edge in edges
            for direction, task in self._arrangements(edge, ends[edge.name], placed, numbers)
        }
        pieces = self._arranged(tasks)
        self._run.calls(
            "writing topologies",
            put_together,
            [self._together(edge, pieces, numbers) for edge in edges],
            rows=self._edge_count(edges) // _EDGES_PER_ROW,
        )

    # -- which ------------------------------------------------------------------------------------

    def _is_wanted(self, edge: EdgeType) -> bool:
        keys = table_keys(edge)
        if any(key not in self._after.entries for key in keys):
            return False
        count = self._after.entry(edge.table_key).row_count
        if count < EDGES_MIN or not any(self._is_written(key) for key in keys):
            return False
        if self._replaces and any(self._is_written(key) for key in keys):
            return True
        table = self._tables.get(edge.table_key)
        share = 0.0 if table is None else (table.inserted + table.updated) / count
        if share >= NEW_SHARE_MAX:
            return True
        return share >= NEW_SHARE_MIN and not self._is_extendable(edge)

    def _is_written(self, table_key: str) -> bool:
        table = self._tables.get(table_key)
        return table is not None and table.write is not None

    def _is_extendable(self, edge: EdgeType) -> bool:
        """Whether there is a topology of the edges as they were before the load."""
        states = (TableState.of(self._before.open(key)) for key in table_keys(edge))
        return self._stored.has(TopologyStates(*states))

    # -- numbers ----------------------------------------------------------------------------------

    def _numbers(self, keys: Sequence[str]) -> dict[str, TableNumbers]:
        versions = [self._after.entry(key).at for key in keys]
        rows = sum(self._after.entry(key).row_count for key in keys)
        rows //= _EDGES_PER_ROW
        found = self._run.calls("numbering rows", number_rows, versions, rows=rows)
        return dict(zip(keys, found, strict=True))

    def _placed(self, key: str, numbers: TableNumbers) -> PlacedRows | None:
        """Return which row ids staged rows have got; None if they were written again, or none."""
        staged = self._types.get(key)
        if staged is None or not staged.rows:
            return None
        committed = {info.data_identity: info.fragment_id for info in self._handle(key).fragments()}
        rows: list[int] = []
        row_ids: list[int] = []
        before = 0
        for fragment in _fragments(staged):
            first = numbers.fragments.get(committed.get(_data_name(fragment), -1))
            if first is None:
                return None
            rows.append(before)
            row_ids.append(first)
            before += fragment.rows
        return PlacedRows(tuple(rows), tuple(row_ids))

    # -- ends -------------------------------------------------------------------------------------

    def _ends(
        self, edges: Sequence[EdgeType], placed: Mapping[str, PlacedRows | None]
    ) -> dict[str, tuple[EndsFile, ...]]:
        kept = {edge.name: self._kept_ends(edge, placed) for edge in edges}
        # Fragments of edges that this load did not stage, or whose ends staging did not keep.
        others = {edge.name: self._other_fragments(edge, bool(kept[edge.name])) for edge in edges}
        tasks = list(self._look_ups([edge for edge in edges if others[edge.name]], others))
        rows = self._edge_count([edge for edge in edges if others[edge.name]])
        found = self._run.calls("looking up ends", look_up_ends, tasks, rows=rows)
        for task, file in zip(tasks, found, strict=True):
            kept[TableKey(task.rows.table_key).type_name] += (file,)
        return kept

    def _kept_ends(
        self, edge: EdgeType, placed: Mapping[str, PlacedRows | None]
    ) -> tuple[EndsFile, ...]:
        """Return the files of ends that staging has left; none if they mean nothing any more."""
        staged = self._types.get(edge.table_key)
        own = placed[edge.table_key]
        if staged is None or own is None:
            return ()
        for _, name in edge_ends(edge):
            key = TableKey.node(name)
            nodes = self._types.get(key)
            if nodes is not None and nodes.rows and placed[key] is None:
                return ()
        parts = [part for part in staged.parts if part.rows]
        if any(ENDS not in part.side_files for part in parts):
            return ()
        row_ids = iter(own.row_ids)
        return tuple(
            EndsFile(
                part.side_files[ENDS],
                tuple((next(row_ids), fragment.rows) for fragment in part.fragments),
            )
            for part in parts
        )

    def _other_fragments(self, edge: EdgeType, without_staged: bool) -> frozenset[int]:
        fragments = self._handle(edge.table_key).fragments()
        staged = self._types.get(edge.table_key)
        names = set()
        if without_staged and staged is not None:
            names = {_data_name(fragment) for fragment in _fragments(staged)}
        return frozenset(
            info.fragment_id for info in fragments if info.rows and info.data_identity not in names
        )

    def _look_ups(
        self, edges: Sequence[EdgeType], others: Mapping[str, frozenset[int]]
    ) -> Iterator[LookUpTask]:
        keys = list(dict.fromkeys(key for edge in edges for key in table_keys(edge)[1:]))
        sets = self._committed_sets(keys)
        for edge in edges:
            nodes = {end: sets[TableKey.node(name)] for end, name in edge_ends(edge)}
            key = edge.table_key
            handle = self._handle(key)
            for own in slices(key, handle.at, handle, among=others[edge.name]):
                yield LookUpTask(own, nodes)

    def _committed_sets(self, keys: Sequence[str]) -> dict[str, KeySet]:
        runs = self._run.stored_runs(self._after, {key: {ID: ("id",)} for key in keys})
        return {
            key: self._run.merged_set(key, [(path, None) for path in found.get(ID, ())])
            for key, found in runs.items()
        }

    # -- arrays -----------------------------------------------------------------------------------

    def _arrangements(
        self,
        edge: EdgeType,
        ends: tuple[EndsFile, ...],
        placed: Mapping[str, PlacedRows | None],
        numbers: Mapping[str, TableNumbers],
    ) -> Iterator[tuple[str, list[ArrangeTask]]]:
        edge_key, source_key, target_key = table_keys(edge)
        source = NodeSide("src", numbers[source_key], placed[source_key])
        target = NodeSide("dst", numbers[target_key], placed[target_key])
        edges = numbers[edge_key]
        pieces = -(-edges.count // PIECE_EDGES)
        for direction, near, far in (("out", source, target), ("in", target, source)):
            tasks = [
                ArrangeTask(
                    ends,
                    near,
                    far,
                    edges,
                    within,
                    edges_expected=-(-edges.count // pieces),
                    same_type=source_key == target_key,
                )
                for within in node_ranges(near.numbers.count, pieces)
            ]
            yield direction, tasks

    def _arranged(
        self, tasks: Mapping[tuple[str, str], list[ArrangeTask]]
    ) -> dict[tuple[str, str], tuple[PieceFile, ...]]:
        flattened = [task for group in tasks.values() for task in group]
        rows = sum(group[0].edges.count for group in tasks.values()) // _EDGES_PER_ROW
        found = iter(self._run.calls("arranging edges", arrange_piece, flattened, rows=rows))
        return {key: tuple(next(found) for _ in group) for key, group in tasks.items()}

    def _together(
        self,
        edge: EdgeType,
        pieces: Mapping[tuple[str, str], tuple[PieceFile, ...]],
        numbers: Mapping[str, TableNumbers],
    ) -> TopologyTask:
        edge_key, source_key, target_key = keys = table_keys(edge)
        return TopologyTask(
            TopologyStates(*(TableState.of(self._handle(key)) for key in keys)),
            numbers[source_key],
            numbers[target_key],
            numbers[edge_key],
            pieces[edge.name, "out"],
            pieces[edge.name, "in"],
        )

    # -- tables -----------------------------------------------------------------------------------

    def _handle(self, key: str) -> DatasetHandle:
        if key not in self._handles:
            self._handles[key] = self._after.open(key)
        return self._handles[key]

    def _edge_count(self, edges: Sequence[EdgeType]) -> int:
        return sum(self._after.entry(edge.table_key).row_count for edge in edges)


def _fragments(staged: StagedType) -> Iterator[WrittenFragment]:
    return (fragment for part in staged.parts for fragment in part.fragments)


def _data_name(fragment: WrittenFragment) -> str:
    """Return how a committed fragment is known by its data file, the first file of a new one."""
    return fragment.files[0].path.rpartition("/")[2]
