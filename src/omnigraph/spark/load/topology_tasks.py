"""What tasks do to leave the topology of loaded edges: number, look up, arrange, put together.

```text
number_rows    table         → the numbering of its rows; where row ids have gaps, a file of them
look_up_ends   edges         → a file of ends, where staging has not left one
arrange_piece  range of nodes→ files of the edges of one direction that start there
put_together   all pieces    → the topology file, streamed
```

1. A *number* of a node in a file of ends is the number of a staged row, or stands for the row id
   of a stored row (`key_set.stored_number`). It becomes a row id when the load is committed and a
   dense id when all rows are numbered.
2. A task that arranges reads the ends of all edges and keeps those of its range; nothing but small
   records goes through the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa

from omnigraph.search.topology.csr import id_type
from omnigraph.search.topology.file import Section, TopologyFacts, encoded_pieces
from omnigraph.search.topology.pieces import PieceBuilder
from omnigraph.search.topology.row_numbers import (
    Numbering,
    ascending,
    numbering_of,
    scan_row_ids,
)
from omnigraph.search.topology.store import topology_path
from omnigraph.spark.load.key_set import KeySet, stored_row_ids
from omnigraph.spark.task_store import opened_version, task_store
from omnigraph.store.records import ROW_ID, ScanRequest
from omnigraph.write.stage.columns import flat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from omnigraph.search.topology.csr import Ints, RowIds
    from omnigraph.search.topology.topology import TopologyStates
    from omnigraph.spark.load.plan import LoadContext
    from omnigraph.spark.load.side_files import SideFiles
    from omnigraph.spark.load.stored_tasks import Slice
    from omnigraph.store.datasets import DatasetHandle
    from omnigraph.store.records import DatasetVersion
    from omnigraph.write.stage.columns import Integers

END_COLUMNS: Final = ("src", "dst")
_NUMBERED_AT_ONCE: Final = 1 << 20
_NARROW_MAX: Final = 2**31 - 1


# -- numbering rows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableNumbers:
    """The numbering of the rows of one table version."""

    count: int
    first: int
    listed: str | None
    """The file of all row ids, ascending; None when they have no gap."""
    fragments: Mapping[int, int]
    """The first row id of each fragment whose row ids are consecutive."""

    def numbering(self, files: SideFiles) -> Numbering:
        """Return the numbering; its row ids are mapped, not read."""
        if self.listed is None:
            return Numbering(self.count, self.first)
        return Numbering(self.count, self.first, _column(files, self.listed, "row_id"))


def number_rows(context: LoadContext, at: DatasetVersion, number: int) -> TableNumbers:
    """Return the numbering of the live rows of a table version, in order of row id."""
    del number
    handle = opened_version(task_store(context.files).datasets, at)
    if handle is None:
        raise TypeError("there is no version to number")
    firsts: dict[int, int] = {}
    count = first = 0
    is_gapless = True
    for fragment, runs in _runs_by_fragment(handle):
        if not count:
            first = runs[0][0]
        is_gapless &= len(runs) == 1 and runs[0][0] == first + count
        if len(runs) == 1:
            firsts[fragment] = runs[0][0]
        count += sum(rows for _, rows in runs)
    if is_gapless:
        return TableNumbers(count, first, None, firsts)
    listed = numbering_of(ascending(scan_row_ids(handle)))
    path = None
    if listed.listed is not None:
        path = context.files.write("row-ids", pa.table({"row_id": listed.listed}))
    return TableNumbers(listed.count, listed.first, path, firsts)


def _runs_by_fragment(handle: DatasetHandle) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Read the row ids of each fragment as runs, of which two are enough: (first, count)."""
    request = ScanRequest(columns=(), with_row_id=True, batch_rows=_NUMBERED_AT_ONCE)
    waiting = ((info.fragment_id, info.rows) for info in handle.fragments() if info.rows)
    fragment, left = next(waiting, (0, 0))
    runs: list[tuple[int, int]] = []
    for batch in handle.scan(request):
        row_ids = np.asarray(batch[ROW_ID])
        while len(row_ids):
            own, row_ids = row_ids[:left], row_ids[left:]
            left -= len(own)
            runs = _with_run(runs, own)
            if not left:
                yield fragment, runs
                fragment, left = next(waiting, (0, 0))
                runs = []


def _with_run(runs: list[tuple[int, int]], row_ids: RowIds) -> list[tuple[int, int]]:
    """Add row ids to the runs of a fragment; those that are no run count as several."""
    first, count = int(row_ids[0]), len(row_ids)
    if not (np.diff(row_ids) == 1).all():
        return [*runs, (first, 0), (first, count)]
    if len(runs) == 1 and sum(runs[0]) == first:
        return [(runs[0][0], runs[0][1] + count)]
    return [*runs, (first, count)]


# -- ends -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EndsFile:
    """The ends of some edges as numbers of nodes; in column `edge` or `runs` their row ids."""

    path: str
    runs: tuple[tuple[int, int], ...] | None = None
    """Consecutive row ids, as (first, count), in the order of the file."""

    def edges(self, files: SideFiles, rows: Integers) -> Integers:
        """Return the row ids of some edges of the file, by their position."""
        if self.runs is None:
            row_ids: Integers = _column(files, self.path, "edge")[rows].astype(np.int64)
            return row_ids
        first, counts = (np.array(part, np.int64) for part in zip(*self.runs, strict=True))
        stops = np.cumsum(counts)
        shifts = first - (stops - counts)
        own = shifts[0]
        if not (shifts == own).all():
            own = shifts[np.searchsorted(stops, rows, side="right")]
        found: Integers = rows + own
        return found


@dataclass(frozen=True)
class LookUpTask:
    """Committed edges whose ends are to be looked up, by column."""

    rows: Slice
    nodes: Mapping[str, KeySet]


def look_up_ends(context: LoadContext, task: LookUpTask, number: int) -> EndsFile:
    """Write the ends of edges as numbers of nodes."""
    del number
    numbers: dict[str, list[Ints]] = {end: [] for end in END_COLUMNS}
    edges: list[RowIds] = []
    for slab in task.rows.slabs(context, END_COLUMNS, with_rows=True):
        edges.append(flat(slab[ROW_ID]).to_numpy())
        for end in END_COLUMNS:
            numbers[end].append(narrow(task.nodes[end].rows_of(flat(slab[end]))))
    return EndsFile(write_ends(context.files, numbers, edges))


def write_ends(
    files: SideFiles, numbers: Mapping[str, list[Ints]], edges: list[RowIds] | None = None
) -> str:
    """Write a file of ends; return its path."""
    columns: dict[str, NDArray[Any]] = {
        end: np.concatenate(parts) if parts else np.zeros(0, np.int32)
        for end, parts in numbers.items()
    }
    if edges is not None:
        columns["edge"] = np.concatenate(edges) if edges else np.zeros(0, np.uint64)
    return files.write("ends", pa.table(columns))


def narrow(numbers: Integers) -> Ints:
    """Return numbers of nodes in 32 bits, if they fit."""
    if not len(numbers) or (numbers.max() <= _NARROW_MAX and numbers.min() >= -_NARROW_MAX):
        return numbers.astype(np.int32)
    return numbers


@dataclass(frozen=True)
class PlacedRows:
    """The row ids that the staged rows of a table have got: one run for each fragment."""

    rows: tuple[int, ...]
    """The number of the first row of each fragment."""
    row_ids: tuple[int, ...]
    """Its row id."""

    def row_ids_of(self, numbers: Ints) -> Integers:
        """Return the row ids of staged rows."""
        shifts = np.array(self.row_ids, np.int64) - np.array(self.rows, np.int64)
        if (shifts == shifts[0]).all():
            shifts = shifts[0]
        else:
            shifts = shifts[np.searchsorted(self.rows, numbers, side="right") - 1]
        row_ids: Integers = numbers.astype(np.int64) + shifts
        return row_ids


@dataclass(frozen=True)
class NodeSide:
    """The nodes at one end of an edge type."""

    column: Literal["src", "dst"]
    numbers: TableNumbers
    placed: PlacedRows | None
    """None when the load has staged no such nodes."""

    def dense(self, files: SideFiles, ends: EndsFile) -> Ints:
        """Return dense ids of the ends in a file; -1 for nodes that do not exist."""
        found = _column(files, ends.path, self.column)
        is_plain = self.numbers.listed is None and self.numbers.first == 0
        if self.placed is not None and len(found) and found.min() >= 0:
            if is_plain and self.placed.rows == self.placed.row_ids:
                return found
            return self._dense_of(files, self.placed.row_ids_of(found))
        row_ids = stored_row_ids(found)
        staged = np.flatnonzero(found >= 0)
        if len(staged) and self.placed is not None:
            row_ids[staged] = self.placed.row_ids_of(found[staged])
        return self._dense_of(files, row_ids)

    def _dense_of(self, files: SideFiles, row_ids: Integers) -> Ints:
        # A row id below 0 stands for no node: as an unsigned number it is larger than any.
        return self.numbers.numbering(files).dense(row_ids.astype(np.uint64))


# -- arranging ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrangeTask:
    """One direction of an edge type, for nodes of a range."""

    ends: tuple[EndsFile, ...]
    near: NodeSide
    far: NodeSide
    edges: TableNumbers
    within: range
    edges_expected: int
    same_type: bool


@dataclass(frozen=True)
class PieceFile:
    """The file of one piece of a direction: neighbours, edges, `indptr` and loops as arrays."""

    path: str
    nodes: int
    steps: int
    loops: int
    has_parallel: bool


def arrange_piece(context: LoadContext, task: ArrangeTask, number: int) -> PieceFile:
    """Arrange the edges that start in a range of nodes."""
    del number
    files = context.files
    counts = (task.near.numbers.count, task.far.numbers.count, task.edges.count)
    builder = PieceBuilder(
        task.within, counts, edges_expected=task.edges_expected, same_type=task.same_type
    )
    edges = task.edges.numbering(files)
    for ends in task.ends:
        near, far = task.near.dense(files, ends), task.far.dense(files, ends)
        own = np.flatnonzero((near >= task.within.start) & (near < task.within.stop) & (far >= 0))
        if len(own) < len(near):
            near, far = near[own], far[own]
        builder.add(near, far, edges.positions(ends.edges(files, own)))
    made = builder.csr()
    return PieceFile(
        files.write_arrays("piece", made.neighbours, made.edges, made.indptr, made.loops),
        nodes=len(task.within),
        steps=made.edge_count,
        loops=len(made.loops),
        has_parallel=made.has_parallel,
    )


# -- putting together -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TopologyTask:
    """All pieces of one topology."""

    states: TopologyStates
    sources: TableNumbers
    targets: TableNumbers
    edges: TableNumbers
    out: tuple[PieceFile, ...]
    incoming: tuple[PieceFile, ...]


def put_together(context: LoadContext, task: TopologyTask, number: int) -> str:
    """Write the topology file; return its path."""
    del number
    files = context.files
    kept = sum(piece.steps for piece in task.out)
    facts = TopologyFacts(
        task.states,
        task.sources.numbering(files),
        task.targets.numbering(files),
        task.edges.numbering(files),
        {
            "out": any(piece.has_parallel for piece in task.out),
            "in": any(piece.has_parallel for piece in task.incoming),
        },
        task.edges.count - kept,
    )
    sections = dict(_listed(facts))
    for name, pieces, near, far in (
        ("out", task.out, facts.sources, facts.targets),
        ("in", task.incoming, facts.targets, facts.sources),
    ):
        direction = _Direction(files, pieces, near.count, far.count, facts.edges.count)
        sections |= direction.sections(name)
    path = topology_path(task.states.edge)
    task_store(files).objects.put_pieces(path, encoded_pieces(facts, sections))
    return path


def _listed(facts: TopologyFacts) -> Iterator[tuple[str, Section]]:
    numberings = {"source": facts.sources, "edge": facts.edges}
    if not facts.states.same_type:
        numberings["target"] = facts.targets
    for name, numbering in numberings.items():
        if numbering.listed is not None:
            yield f"{name}.row_ids", Section.of(numbering.listed)


@dataclass(frozen=True)
class _Direction:
    """The pieces of one direction, and how many nodes and edges their ids can mean."""

    files: SideFiles
    pieces: tuple[PieceFile, ...]
    nodes: int
    others: int
    edges: int

    def sections(self, name: str) -> dict[str, Section]:
        steps = sum(piece.steps for piece in self.pieces)
        loops = sum(piece.loops for piece in self.pieces)
        kind = id_type(steps)
        return {
            f"{name}.indptr": Section(kind, self.nodes + 1, lambda: self._indptr(kind)),
            f"{name}.neighbours": Section(id_type(self.others), steps, self._neighbours),
            f"{name}.edges": Section(id_type(self.edges), steps, self._edges),
            f"{name}.loops": Section(id_type(self.others), loops, self._loops),
        }

    def _neighbours(self) -> Iterator[NDArray[Any]]:
        for piece in self.pieces:
            yield self.files.array(piece.path, id_type(self.others), piece.steps)

    def _edges(self) -> Iterator[NDArray[Any]]:
        for piece in self.pieces:
            offset = piece.steps * id_type(self.others).itemsize
            yield self.files.array(piece.path, id_type(self.edges), piece.steps, offset=offset)

    def _indptr(self, kind: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        before = 0
        for piece in self.pieces:
            own = self.files.array(
                piece.path, id_type(piece.steps), piece.nodes, offset=self._steps_bytes(piece)
            )
            yield own.astype(kind) + kind.type(before)
            before += piece.steps
        yield np.array([before], kind)

    def _loops(self) -> Iterator[NDArray[Any]]:
        for piece in self.pieces:
            offset = self._steps_bytes(piece) + (piece.nodes + 1) * id_type(piece.steps).itemsize
            yield self.files.array(piece.path, id_type(self.others), piece.loops, offset=offset)

    def _steps_bytes(self, piece: PieceFile) -> int:
        return piece.steps * (id_type(self.others).itemsize + id_type(self.edges).itemsize)


def _column(files: SideFiles, path: str, name: str) -> NDArray[Any]:
    """Map a column of a side file; it has no nulls."""
    found: NDArray[Any] = flat(files.read(path)[name]).to_numpy()
    return found
