"""The edges that some hops can touch, asked of the edge dataset.

1. A breadth-first search needs the edges of every node nearer than its last hop. Nodes are asked
   for level by level, all of a level together and each node once, so that the number of calls
   grows with the hops and not with the rows of a query.
2. As soon as a level is a large share of all nodes, one scan of the two ends of every edge replaces
   the remaining look-ups.
3. Time and cancellation are checked for each level, for each `LOOKUP_MAX` nodes of it and for
   each batch that the store yields.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.query.plan.plan import Direction
from omnigraph.read.access.table_reader import LOOKUP_MAX, TableReader, one_array
from omnigraph.read.column_names import ID, SOURCE, TARGET
from omnigraph.read.limits import Guard
from omnigraph.read.row_table import NULL, RowIds, ascending_ids
from omnigraph.store.filters import OneOf
from omnigraph.store.records import ROW_ID, ScanRequest

SCAN_SHARE: Final = 8
"""Nodes are looked up while they are fewer than one in this many; else all edges are read."""


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges as row ids: the node that a hop starts at, the node that it reaches, the record."""

    near: RowIds
    far: RowIds
    records: RowIds
    """Empty unless asked for."""

    def __len__(self) -> int:
        return len(self.near)

    def where(self, mask: np.ndarray) -> Edges:
        """Return the edges at which the mask is true."""
        records = self.records[mask] if len(self.records) else self.records
        return Edges(self.near[mask], self.far[mask], records)

    def turned(self) -> Edges:
        """Return the edges in the opposite direction."""
        return Edges(self.far, self.near, self.records)


@dataclass(frozen=True, eq=False)
class Probes:
    """Asks for the edges of one type in one direction."""

    tables: TableReader
    guard: Guard
    edge_key: str
    source_key: str
    """The type of the nodes that hops start at, whatever the direction of the edges."""
    target_key: str
    direction: Direction
    scan_share: int = SCAN_SHARE
    """0 never reads all edges."""

    def around(self, starts: RowIds, depth: int, *, with_records: bool) -> Edges:
        """Return at least the edges of each node that is less than `depth` hops from a start.

        `starts` are ascending and distinct. More than one hop needs equal types at both ends.
        """
        found: list[Edges] = []
        frontier = known = starts
        for _ in range(depth):
            if not len(frontier):
                break
            if len(frontier) * self.scan_share > self.tables.row_count(self.source_key):
                return self._all(with_records)
            found.append(self._of(frontier, with_records))
            self.guard.expect(sum(map(len, found)))
            reached = ascending_ids(found[-1].far)
            frontier = reached[~_is_among(reached, known)]
            known = np.sort(np.concatenate([known, frontier]))
        return _joined(found)

    # -- look-ups -------------------------------------------------------------------------------

    def _of(self, nodes: RowIds, with_records: bool) -> Edges:
        parts: list[Edges] = []
        for first in range(0, len(nodes), LOOKUP_MAX):
            self.guard.check()
            chunk = nodes[first : first + LOOKUP_MAX]
            ids = self.tables.fetch(self.source_key, chunk, [ID])[ID]
            if self.direction in ("out", "both"):
                parts.append(self._by_column(chunk, ids, SOURCE, TARGET, with_records))
            if self.direction in ("in", "both"):
                found = self._by_column(chunk, ids, TARGET, SOURCE, with_records)
                parts.append(_without_loops(found) if self.direction == "both" else found)
        return _joined(parts)

    def _by_column(
        self, nodes: RowIds, ids: pa.Array, near: str, far: str, with_records: bool
    ) -> Edges:
        request = ScanRequest(
            columns=(near, far),
            row_filter=OneOf(near, tuple(ids.to_pylist())),
            with_row_id=with_records,
        )
        table = self.tables.scan(self.edge_key, request)
        positions = pc.index_in(table[near], value_set=ids).to_numpy()
        ends = self.tables.row_ids_of(self.target_key, one_array(table[far]))
        return _live(Edges(nodes[positions], ends, _records(table, with_records)))

    # -- all edges -----------------------------------------------------------------------------

    def _all(self, with_records: bool) -> Edges:
        request = ScanRequest(columns=(SOURCE, TARGET), with_row_id=with_records)
        table = self.tables.scan(self.edge_key, request)
        is_turned = self.direction == "in"
        sources, targets = (
            (self.target_key, self.source_key) if is_turned else (self.source_key, self.target_key)
        )
        found = _live(
            Edges(
                self.tables.row_ids_of(sources, one_array(table[SOURCE])),
                self.tables.row_ids_of(targets, one_array(table[TARGET])),
                _records(table, with_records),
            )
        )
        if is_turned:
            return found.turned()
        return _joined([found, _without_loops(found.turned())]) if self._is_both else found

    @property
    def _is_both(self) -> bool:
        return self.direction == "both"


def _records(table: pa.Table, with_records: bool) -> RowIds:
    if not with_records:
        return np.empty(0, np.int64)
    return np.asarray(table[ROW_ID].to_numpy(), np.int64)


def _live(edges: Edges) -> Edges:
    """Drop edges with an end that does not exist as a node."""
    is_live = (edges.near != NULL) & (edges.far != NULL)
    return edges if is_live.all() else edges.where(is_live)


def _without_loops(edges: Edges) -> Edges:
    """Drop edges from a node to itself, which are one record in both directions."""
    return edges.where(edges.near != edges.far)


def _joined(parts: list[Edges]) -> Edges:
    if len(parts) == 1:
        return parts[0]
    none = np.empty(0, np.int64)
    return Edges(
        np.concatenate([none, *(part.near for part in parts)]),
        np.concatenate([none, *(part.far for part in parts)]),
        np.concatenate([none, *(part.records for part in parts)]),
    )


def _is_among(values: RowIds, ascending: RowIds) -> np.ndarray:
    """Return for each value whether it is one of `ascending`."""
    positions = np.searchsorted(ascending, values)
    positions[positions == len(ascending)] = 0
    return np.asarray(ascending[positions] == values)
