"""Indexed hops: how often they ask the store and look at the clock, and what they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.query.plan.plan import Direction
from omnigraph.read.access.adjacency import DatasetHops
from omnigraph.read.access.edge_probes import SCAN_SHARE, Probes
from omnigraph.read.access.path_chooser import TRAVERSAL_MODE
from omnigraph.read.access.table_reader import TableReader
from omnigraph.read.limits import NO_LIMITS, Guard, QueryCancelledError
from omnigraph.store.lance.handle import LanceHandle
from support.looks import SetAfter

SCHEMA = "node N { key: String @key }\nedge Link: N -> N"
NODES = 1_500
AROUND = "query q() { match { $a: N  $a link{1,3} $b } return { count($b) as n } }"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """One node with edges to and from every other one."""
    keys = [f"n{number}" for number in range(NODES)]
    ends = (keys[:1] * (NODES - 1) + keys[1:], keys[1:] + keys[:1] * (NODES - 1))
    with built(tmp_path_factory.mktemp("hub") / "g", keys, *ends) as graph:
        yield graph


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Few nodes with random edges, some of them parallel and some from a node to itself."""
    keys = [f"n{number}" for number in range(30)]
    random = np.random.default_rng(5)
    ends = ([keys[number] for number in random.integers(0, 30, 60)] for _ in "ab")
    with built(tmp_path_factory.mktemp("small") / "g", keys, *ends) as graph:
        yield graph


def built(place: Path, keys: list[str], sources: list[str], targets: list[str]) -> Graph:
    graph = Graph.init(place, SCHEMA, durability="process", auto_optimize=False)
    edges = pa.table({"from": sources, "to": targets})
    nodes = pa.table({"key": keys})
    graph.load_tables(nodes={"N": nodes}, edges={"Link": edges}, mode="append")
    graph.ensure_indices()
    return graph


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts scans of datasets."""
    counted: Counter[str] = Counter()
    inner = LanceHandle.batches

    def batches(self: LanceHandle, *arguments: Any) -> Any:
        counted["edges" if "edge" in self.at.location else "nodes"] += 1
        return inner(self, *arguments)

    monkeypatch.setattr(LanceHandle, "batches", batches)
    return counted


def test_hops_around_a_hub_read_the_edges_once(
    hub: Graph, monkeypatch: pytest.MonkeyPatch, calls: Counter[str]
) -> None:
    monkeypatch.setenv(TRAVERSAL_MODE, "indexed")
    found = hub.query(AROUND).json_rows()
    # From the hub everything else, from everything else the hub and all but itself.
    assert found == [{"n": NODES * (NODES - 1)}]
    assert calls["edges"] == 1


@pytest.mark.parametrize("mode", ["indexed", "csr"])
def test_hops_around_a_hub_end_soon_after_they_are_cancelled(
    hub: Graph, monkeypatch: pytest.MonkeyPatch, calls: Counter[str], mode: str
) -> None:
    monkeypatch.setenv(TRAVERSAL_MODE, mode)
    counting = SetAfter(10**9)
    hub.query(AROUND, cancelled=counting)
    # Two million pairs are walked through twice, and a million steps lie between two looks.
    assert counting.looks >= 15
    for share in (0.2, 0.5, 0.8):
        calls.clear()
        event = SetAfter(int(counting.looks * share))
        with pytest.raises(QueryCancelledError):
            hub.query(AROUND, cancelled=event)
        assert event.looks == event.looks_left + 1
        assert calls["edges"] <= 1


def hops(graph: Graph, direction: Direction, scan_share: int) -> DatasetHops:
    guard = Guard(NO_LIMITS, SystemClock())
    tables = TableReader(graph.snapshot(), guard)
    probes = Probes(tables, guard, "edge:Link", "node:N", "node:N", direction, scan_share)
    return DatasetHops(probes, guard, "scan", lambda: None)


@given(
    starts=st.lists(st.integers(0, 29), min_size=1, max_size=8),
    direction=st.sampled_from(["out", "in", "both"]),
    bounds=st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 2), (2, 3), (3, 3)]),
    loop_end=st.sampled_from(["target", "source"]),
)
def test_look_ups_and_a_scan_of_all_edges_find_the_same(
    small: Graph,
    starts: list[int],
    direction: Direction,
    bounds: tuple[int, int],
    loop_end: Any,
) -> None:
    nodes = np.array(starts, np.int64)
    looked_up, scanned = (hops(small, direction, share) for share in (0, 1_000))
    ways = [
        one.reach(nodes, min_hops=bounds[0], max_hops=bounds[1], loop_end=loop_end)
        for one in (looked_up, scanned)
    ]
    assert ways[0].starts.tolist() == ways[1].starts.tolist()
    assert ways[0].nodes.tolist() == ways[1].nodes.tolist()
    steps = [one.steps(nodes) for one in (looked_up, scanned)]
    assert steps[0].starts.tolist() == steps[1].starts.tolist()
    assert steps[0].edges.tolist() == steps[1].edges.tolist()
    assert steps[0].nodes.tolist() == steps[1].nodes.tolist()
    assert (looked_up.has_neighbour(nodes) == scanned.has_neighbour(nodes)).all()


def test_each_node_is_looked_up_once(small: Graph, calls: Counter[str]) -> None:
    start = np.array([3], np.int64)
    hops(small, "out", 0).reach(start, min_hops=1, max_hops=20, loop_end="target")
    # The search ends where nothing new is found, long before twenty hops.
    assert 1 < calls["edges"] <= 10
    calls.clear()
    hops(small, "out", SCAN_SHARE).reach(start, min_hops=1, max_hops=20, loop_end="target")
    assert 1 < calls["edges"] <= 5
