"""Edge topology against the floor: the same work on a plain NumPy adjacency of the same edges.

    python -m bench topology

The floor maps string ids with `pyarrow.compute.index_in`, sorts once, keeps one direction and no
edges, is never persisted and answers by hand-written array code; ours builds two directions with
edge numbers from Lance. Queries are medians over fifty start nodes, rounds of both sides alternate.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.data import Social, social
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.build import TopologyHandles, build_topology
from omnigraph.search.topology.extend import extend_topology
from omnigraph.search.topology.store import TopologyStore, topology_path
from omnigraph.search.topology.topology import Topology, TopologyStates
from omnigraph.search.topology.traverse import UNGUARDED, degrees, neighbour_set, reach_set
from omnigraph.store import Store, connect

ROUNDS = 3
PEOPLE, EDGES = "nodes/person", "edges/knows"


class Floor:
    """Adjacency in one direction, as little as can answer the questions."""

    def __init__(self, data: Social) -> None:
        ids = data.person["id"].combine_chunks()
        start = pc.index_in(data.knows["src"], ids).to_numpy().astype(np.int32)
        end = pc.index_in(data.knows["dst"], ids).to_numpy().astype(np.int32)
        order = np.argsort(start, kind="stable")
        self.count = len(ids)
        self.indptr = np.zeros(self.count + 1, np.int64)
        np.cumsum(np.bincount(start, minlength=self.count), out=self.indptr[1:])
        self.neighbours = end[order]
        self.marks = np.zeros(self.count, np.uint8)

    def expand(self, frontier: np.ndarray) -> np.ndarray:
        first = self.indptr[frontier]
        counts = self.indptr[frontier + 1] - first
        offsets = np.repeat(first - (np.cumsum(counts) - counts), counts)
        return self.neighbours[np.arange(int(counts.sum())) + offsets]

    def distinct(self, nodes: np.ndarray) -> np.ndarray:
        if len(nodes) < 20_000:
            return np.unique(nodes)
        self.marks[nodes] = 1
        found = np.flatnonzero(self.marks)
        self.marks[found] = 0
        return found

    def hops(self, start: int, count: int) -> np.ndarray:
        frontier = np.array([start])
        for _ in range(count):
            frontier = self.distinct(self.expand(frontier))
        return frontier

    def within(self, start: int, count: int) -> int:
        seen = np.zeros(self.count, np.bool_)
        frontier = np.array([start])
        seen[frontier] = True
        for _ in range(count):
            found = self.expand(frontier)
            frontier = self.distinct(found[~seen[found]])
            seen[frontier] = True
        return int(seen.sum()) - 1


class Ours:
    """The same questions to a topology."""

    def __init__(self, topology: Topology) -> None:
        self.graph = topology.adjacency("out")

    def hops(self, start: int, count: int) -> np.ndarray:
        frontier = np.array([start], np.int32)
        for _ in range(count):
            frontier = neighbour_set(self.graph, frontier)
        return frontier

    def within(self, start: int, count: int) -> int:
        return len(reach_set(self.graph, np.array([start]), min_hops=1, max_hops=count))


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def compare(name: str, floor: Callable[[], object], ours: Callable[[], object]) -> None:
    floor_s, ours_s = [], []
    for _ in range(ROUNDS):
        floor_s.append(seconds(floor))
        ours_s.append(seconds(ours))
    report(name, statistics.median(floor_s), statistics.median(ours_s))


def compare_keys(
    name: str, starts: list[int], floor: Callable[[int], object], ours: Callable[[int], object]
) -> None:
    floor_s, ours_s = [], []
    for _ in range(ROUNDS):
        floor_s += [seconds(lambda start=start: floor(start)) for start in starts]
        ours_s += [seconds(lambda start=start: ours(start)) for start in starts]
    report(name, statistics.median(floor_s), statistics.median(ours_s))


def report(name: str, floor_s: float, ours_s: float) -> None:
    print(f"| {name} | {floor_s * 1e3:.3f} | {ours_s * 1e3:.3f} | {ours_s / floor_s:.2f} |")


def report_alone(name: str, value: str) -> None:
    print(f"| {name} | | {value} | |")


def write(store: Store, data: Social) -> None:
    for location, table in ((PEOPLE, data.person), (EDGES, data.knows)):
        store.datasets.commit_staged(
            store.datasets.stage_create(location, table.schema, rows=table)
        )


def opened(store: Store) -> tuple[TopologyHandles, TopologyStates]:
    edge, person = store.datasets.open(EDGES), store.datasets.open(PEOPLE)
    states = TopologyStates(TableState.of(edge), TableState.of(person), TableState.of(person))
    return TopologyHandles(edge, person, person), states


def main(*sizes: str) -> None:
    """Print one table per size."""
    for size in sizes or ("XS", "S"):
        print(f"\nSize {size}\n\n| work | floor, ms | ours, ms | ratio |\n|---|---|---|---|")
        measure(size)


def measure(size: str) -> None:
    data = social(size)
    with tempfile.TemporaryDirectory() as folder:
        store = connect(folder, durability="process")
        write(store, data)
        run(store, data)


def run(store: Store, data: Social) -> None:
    handles, states = opened(store)
    compare("build", lambda: Floor(data), lambda: build_topology(handles, states))
    floor, built = Floor(data), build_topology(handles, states)
    per_edge = built.nbytes / built.edges.count / 2
    report_alone("memory per edge and direction, bytes", f"{per_edge:.2f}")

    files = TopologyStore(store, is_writable=True, edges_min=0)
    report_alone("write the file", f"{seconds(lambda: files.save(built)) * 1e3:.3f}")
    size = store.objects.head(topology_path(states.edge))
    per_edge = size.size / built.edges.count if size else 0
    report_alone("file per edge, bytes", f"{per_edge:.2f}")
    load_s = statistics.median(
        seconds(lambda: files.load_or_build(handles, states, guard=UNGUARDED)) for _ in range(5)
    )
    report_alone("load the file", f"{load_s * 1e3:.3f}")
    ours = Ours(files.load_or_build(handles, states, guard=UNGUARDED))

    ids = data.person["id"].combine_chunks()
    starts = pc.index_in(pa.array(data.keys), ids).to_pylist()
    assert all(np.array_equal(floor.hops(s, 2), ours.hops(s, 2)) for s in starts)
    assert all(floor.within(s, 4) == ours.within(s, 4) for s in starts[:5])
    compare_keys("1-hop", starts, lambda s: floor.hops(s, 1), lambda s: ours.hops(s, 1))
    compare_keys("2-hop distinct", starts, lambda s: floor.hops(s, 2), lambda s: ours.hops(s, 2))
    compare_keys("3-hop distinct", starts, lambda s: floor.hops(s, 3), lambda s: ours.hops(s, 3))
    compare_keys("reach 1..4", starts, lambda s: floor.within(s, 4), lambda s: ours.within(s, 4))
    compare(
        "degree, top 20",
        lambda: np.argpartition(-np.diff(floor.indptr), 20)[:20],
        lambda: np.argpartition(-degrees(ours.graph), 20)[:20],
    )
    compare(
        "know nobody",
        lambda: int((np.diff(floor.indptr) == 0).sum()),
        lambda: int((degrees(ours.graph) == 0).sum()),
    )
    extend(store, data, built)


def extend(store: Store, data: Social, built: Topology) -> None:
    datasets = store.datasets
    some = data.knows.slice(0, 1_000)
    some = some.set_column(0, "id", pa.array([f"new{number}" for number in range(1_000)]))
    datasets.commit_staged(datasets.stage_append(datasets.open(EDGES).at, some))
    handles, states = opened(store)
    compare(
        "1,000 more edges; floor: our rebuild",
        lambda: build_topology(handles, states),
        lambda: extend_topology(built, handles, states, guard=UNGUARDED),
    )


if __name__ == "__main__":
    main()
