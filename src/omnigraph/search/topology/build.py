"""Makes a topology from the rows of its datasets.

The cost is the look-up of two string ids per edge. Edges are read in large batches, so that the
hash table over the node ids is built a few times only and memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.dataclass import dataclass
from omnigraph.search.topology.csr import Ints, RowIds, build_csr, id_type
from omnigraph.search.topology.row_numbers import Numbering, ascending, numbering_of, read_numbering
from omnigraph.search.topology.topology import Topology, TopologyStates
from omnigraph.search.topology.traverse import UNGUARDED, Guard
from omnigraph.store.batching import gathered
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.filters import OneOf
from omnigraph.store.records import ROW_ID, ScanRequest

_ROWS_PER_LOOKUP: Final = 4_000_000
_PROBED_IDS_MAX: Final = 2_000
"""Up to this many ids are looked up in the index on `id`; above, the whole column is read."""
_OFFSETS_MAX: Final = 2**31 - 1


@dataclass(frozen=True)
class TopologyHandles:
    """The open datasets of an edge type and its ends."""

    edge: DatasetHandle
    source: DatasetHandle
    target: DatasetHandle


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Edges as dense ids, ascending by row id; -1 stands for a node that does not exist."""

    row_ids: RowIds
    sources: Ints
    targets: Ints


def build_topology(
    handles: TopologyHandles, states: TopologyStates, *, guard: Guard = UNGUARDED
) -> Topology:
    """Read everything and build both directions."""
    ids = NodeIds(handles.source)
    target_ids = ids if states.same_type else NodeIds(handles.target)
    rows = read_edges(handles.edge, ids, target_ids, guard=guard)
    return _assembled(states, rows, ids.numbering, target_ids.numbering, guard)


def _assembled(
    states: TopologyStates, rows: EdgeRows, sources: Numbering, targets: Numbering, guard: Guard
) -> Topology:
    present = (rows.sources >= 0) & (rows.targets >= 0)
    indices = None if present.all() else np.flatnonzero(present)
    starts = rows.sources if indices is None else rows.sources[indices]
    ends = rows.targets if indices is None else rows.targets[indices]
    counts = (sources.count, targets.count)
    guard.check()
    out = build_csr(starts, ends, counts=counts, edges=indices, same_type=states.same_type)
    guard.check()
    incoming = build_csr(
        ends, starts, counts=counts[::-1], edges=indices, same_type=states.same_type
    )
    dangling = len(rows.row_ids) - len(starts)
    return Topology(states, sources, targets, numbering_of(rows.row_ids), out, incoming, dangling)


class NodeIds:
    """Looks up dense ids by `id` in one version of a node dataset."""

    def __init__(self, handle: DatasetHandle, numbering: Numbering | None = None) -> None:
        self._handle = handle
        self._numbering = numbering
        self._column: tuple[pa.Array, Ints | None] | None = None

    @property
    def numbering(self) -> Numbering:
        """The numbering of the dataset version."""
        if self._numbering is None:
            self._numbering = read_numbering(self._handle)
        return self._numbering

    def dense(self, ids: pa.ChunkedArray) -> Ints:
        """Return dense ids, -1 for ids that no live node has."""
        if self._column is None and len(ids) <= _PROBED_IDS_MAX:
            return self._probed(ids)
        if self._column is None:
            self._column = self._read_column()
        values, dense_of = self._column
        indices = pc.index_in(_same_width(ids, values.type), value_set=values)
        found: Ints = _positions(indices).astype(id_type(self.numbering.count))
        if dense_of is not None and len(dense_of):
            found = np.where(found >= 0, dense_of[found], found)
        return found

    def row_ids(self, ids: pa.Array) -> NDArray[np.int64]:
        """Return row ids, -1 for ids that no live node has."""
        dense = self.dense(pa.chunked_array([ids]))
        found = np.full(len(dense), -1, np.int64)
        is_known = dense >= 0
        found[is_known] = self.numbering.row_ids(dense[is_known]).astype(np.int64)
        return found

    def _probed(self, ids: pa.ChunkedArray) -> Ints:
        if not len(ids):
            return np.empty(0, id_type(self.numbering.count))
        wanted = OneOf("id", tuple(pc.unique(ids).to_pylist()))
        request = ScanRequest(columns=("id",), row_filter=wanted, with_row_id=True)
        found = self._handle.scan(request).read_all()
        indices = pc.index_in(ids, value_set=found["id"].combine_chunks())
        positions = _positions(indices)
        if not found.num_rows:
            return positions.astype(id_type(self.numbering.count))
        dense = self.numbering.dense(found[ROW_ID])
        return np.where(positions >= 0, dense[positions], -1).astype(dense.dtype)

    def _read_column(self) -> tuple[pa.Array, Ints | None]:
        request = ScanRequest(columns=("id",), with_row_id=True)
        table = self._handle.scan(request).read_all()
        row_ids = np.asarray(table[ROW_ID])
        if self._numbering is None:
            self._numbering = numbering_of(ascending(row_ids))
        column = table["id"]
        if column.nbytes > _OFFSETS_MAX:
            column = column.cast(pa.large_utf8())
        in_order = bool((row_ids[1:] > row_ids[:-1]).all())
        return column.combine_chunks(), None if in_order else self._numbering.dense(row_ids)


def read_edges(
    edge: DatasetHandle,
    sources: NodeIds,
    targets: NodeIds,
    *,
    fragment_ids: tuple[int, ...] | None = None,
    guard: Guard = UNGUARDED,
) -> EdgeRows:
    """Read the edges of some fragments, all when `None`."""
    parts: list[tuple[RowIds, Ints, Ints]] = []
    for table in _large_tables(edge, fragment_ids):
        guard.check()
        row_ids = np.asarray(table[ROW_ID])
        parts.append((row_ids, sources.dense(table["src"]), targets.dense(table["dst"])))
    if not parts:
        none = np.empty(0, np.int32)
        return EdgeRows(np.empty(0, np.uint64), none, none)
    row_ids, starts, ends = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if (row_ids[1:] > row_ids[:-1]).all():
        return EdgeRows(row_ids, starts, ends)
    order = np.argsort(row_ids, kind="stable")
    return EdgeRows(row_ids[order], starts[order], ends[order])


def _large_tables(edge: DatasetHandle, fragment_ids: tuple[int, ...] | None) -> Iterator[pa.Table]:
    if fragment_ids == ():
        return
    request = ScanRequest(columns=("src", "dst"), with_row_id=True, fragment_ids=fragment_ids)
    yield from gathered(edge.scan(request), _ROWS_PER_LOOKUP)


def _positions(indices: pa.ChunkedArray) -> Ints:
    found: Ints = pc.fill_null(indices, -1).to_numpy()
    return found


def _same_width(ids: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return ids if ids.type == wanted else ids.cast(wanted)
