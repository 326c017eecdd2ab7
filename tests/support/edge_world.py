"""Two node datasets and an edge dataset that tests change in every way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.search.table_state import TableState
from omnigraph.search.topology.build import TopologyHandles
from omnigraph.search.topology.topology import Topology, TopologyStates
from omnigraph.store import Store
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.filters import OneOf
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_ID,
    CompactionOptions,
    DatasetVersion,
    ScanRequest,
    StagedTransaction,
)
from omnigraph.values import PRIMARY_KEY

PEOPLE, PLACES, EDGES = "nodes/people", "nodes/places", "edges/links"

_ID = pa.field("id", pa.utf8(), nullable=False, metadata={PRIMARY_KEY: b"true"})
NODE_SCHEMA = pa.schema([_ID, pa.field("age", pa.int32())])
EDGE_SCHEMA = pa.schema(
    [_ID, *(pa.field(end, pa.utf8(), nullable=False) for end in ("src", "dst"))]
)

Pair = tuple[str, str]


@dataclass
class World:
    """Edges from people to people, or to places. Every change is one version of one dataset."""

    store: Store
    to_people: bool = True
    at: dict[str, DatasetVersion] = field(default_factory=dict)
    counter: int = 0

    @classmethod
    def create(cls, store: Store, *, to_people: bool = True) -> World:
        world = cls(store, to_people)
        schemas = {PEOPLE: NODE_SCHEMA, PLACES: NODE_SCHEMA, EDGES: EDGE_SCHEMA}
        for location, schema in schemas.items():
            landed = store.datasets.commit_staged(store.datasets.stage_create(location, schema))
            world.at[location] = landed.at
        return world

    def copy(self) -> World:
        """The same versions, to go on from in another way."""
        return World(self.store, self.to_people, dict(self.at), self.counter)

    @property
    def target(self) -> str:
        return PEOPLE if self.to_people else PLACES

    def open(self, location: str) -> DatasetHandle:
        at = self.at[location]
        return self.store.datasets.open(at.location, branch=at.branch, version=at.version)

    def handles(self) -> TopologyHandles:
        return TopologyHandles(self.open(EDGES), self.open(PEOPLE), self.open(self.target))

    def states(self) -> TopologyStates:
        handles = self.handles()
        return TopologyStates(
            *(TableState.of(one) for one in (handles.edge, handles.source, handles.target))
        )

    # -- changes ------------------------------------------------------------------------------

    def add_nodes(self, ids: Sequence[str], location: str = PEOPLE) -> None:
        ages = pa.array([1] * len(ids), pa.int32())
        table = pa.table({"id": list(ids), "age": ages}, schema=NODE_SCHEMA)
        self._commit(self.store.datasets.stage_append(self.at[location], table))

    def add_edges(self, pairs: Sequence[Pair]) -> None:
        ids = [f"e{self.counter + number}" for number in range(len(pairs))]
        self.counter += len(pairs)
        columns = {"id": ids, "src": [a for a, _ in pairs], "dst": [b for _, b in pairs]}
        table = pa.table(columns, schema=EDGE_SCHEMA)
        self._commit(self.store.datasets.stage_append(self.at[EDGES], table))

    def delete(self, location: str, ids: Sequence[str]) -> None:
        rows = self._rows(location, ids)
        if rows.num_rows:
            staged = self.store.datasets.stage_update(self.at[location], deleted=rows[ROW_ADDRESS])
            self._commit(staged)

    def update_nodes(self, ids: Sequence[str]) -> None:
        """Rewrite rows: they move to a new fragment under their row ids."""
        rows = self._rows(PEOPLE, ids)
        if rows.num_rows:
            place = rows.schema.get_field_index("age")
            aged = rows.set_column(place, "age", pa.array([2] * rows.num_rows, pa.int32()))
            self._commit(self.store.datasets.stage_update(self.at[PEOPLE], rewritten=aged))

    def redirect_edges(self, ids: Sequence[str], target: str) -> None:
        """Rewrite edges so that they lead elsewhere, under their row ids."""
        rows = self._rows(EDGES, ids)
        if rows.num_rows:
            place = rows.schema.get_field_index("dst")
            moved = rows.set_column(place, "dst", pa.array([target] * rows.num_rows))
            self._commit(self.store.datasets.stage_update(self.at[EDGES], rewritten=moved))

    def overwrite_nodes(self, location: str = PEOPLE, *, shift: int = 1) -> None:
        """Write the same nodes anew: in another order, under new row ids."""
        rows = self.open(location).scan().read_all()
        order = [(number + shift) % rows.num_rows for number in range(rows.num_rows)]
        turned = rows.take(pa.array(order, pa.int64()))
        staged = self.store.datasets.stage_overwrite(self.at[location], NODE_SCHEMA, rows=turned)
        self._commit(staged)

    def compact(self, location: str) -> None:
        datasets = self.store.datasets
        tasks = datasets.plan_compaction(self.at[location], CompactionOptions(deleted_share_min=0))
        if tasks:
            results = [datasets.run_compaction(task) for task in tasks]
            self._commit(datasets.stage_compaction(self.at[location], results))

    def fork(self, name: str) -> World:
        """The same content on branches of all datasets."""
        branched = self.copy()
        for location, at in self.at.items():
            branched.at[location] = self.store.datasets.create_branch(
                location, name, from_branch=at.branch, from_version=at.version
            )
        return branched

    # -- what is stored -----------------------------------------------------------------------

    def node_ids(self, location: str = PEOPLE) -> list[str]:
        return list(
            self.open(location).scan(ScanRequest(columns=("id",))).read_all()["id"].to_pylist()
        )

    def edge_ids(self) -> list[str]:
        return self.node_ids(EDGES)

    def expected(self) -> list[tuple[str, str, str]]:
        """Every edge whose ends exist: source, target, edge."""
        sources, targets = set(self.node_ids()), set(self.node_ids(self.target))
        rows = self.open(EDGES).scan().read_all().to_pylist()
        return sorted(
            (row["src"], row["dst"], row["id"])
            for row in rows
            if row["src"] in sources and row["dst"] in targets
        )

    def _rows(self, location: str, ids: Sequence[str]) -> pa.Table:
        request = ScanRequest(
            row_filter=OneOf("id", tuple(ids)), with_row_id=True, with_row_address=True
        )
        if not ids:
            request = ScanRequest(limit=0, with_row_id=True, with_row_address=True)
        return self.open(location).scan(request).read_all()

    def _commit(self, staged: StagedTransaction) -> None:
        landed = self.store.datasets.commit_staged(staged)
        self.at[staged.base.location] = landed.at


def spelled(topology: Topology, handles: TopologyHandles) -> list[tuple[str, str, str]]:
    """The outgoing edges of a topology by their ids, read through row ids alone."""
    starts = _ids(handles.source, topology.sources.row_ids(topology.out.step_starts()))
    ends = _ids(handles.target, topology.targets.row_ids(topology.out.neighbours))
    edges = _ids(handles.edge, topology.edges.row_ids(topology.out.edges))
    return sorted(zip(starts, ends, edges, strict=True))


def _ids(handle: DatasetHandle, row_ids: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> list[str]:
    known = handle.scan(ScanRequest(columns=("id",), with_row_id=True)).read_all()
    by_row = dict(zip(known[ROW_ID].to_pylist(), known["id"].to_pylist(), strict=True))
    return [by_row[row_id] for row_id in row_ids.tolist()]


def same_topology(left: Topology, right: Topology) -> bool:
    """Whether two topologies are the same in every array and fact."""
    parts = [(left.out, right.out), (left.incoming, right.incoming)]
    numberings = [
        (left.sources, right.sources),
        (left.targets, right.targets),
        (left.edges, right.edges),
    ]
    return (
        left.states.key == right.states.key
        and left.dangling == right.dangling
        and all(np.array_equal(a.row_ids(), b.row_ids()) for a, b in numberings)
        and all(
            a.has_parallel == b.has_parallel
            and np.array_equal(a.indptr, b.indptr)
            and np.array_equal(a.neighbours, b.neighbours)
            and np.array_equal(a.edges, b.edges)
            and np.array_equal(a.loops, b.loops)
            for a, b in parts
        )
    )
