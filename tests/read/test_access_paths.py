"""Which access path the hops of a graph take, from its first query on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.graph import Graph

NODES, EDGES = 2_000, 20_000
SCHEMA = "node P { k: String @key }\nedge K: P -> P"
ONE_HOP = 'query q() { match { $a: P { k: "p7" } $a k $b } return { $b.k } }'
TWO_HOPS = 'query q() { match { $a: P { k: "p7" } $a k $b $b k $c } return { $c.k } }'


def loaded(place: Path) -> Graph:
    random = np.random.default_rng(3)
    names = pa.array([f"p{number}" for number in range(NODES)])
    ends = {end: names.take(pa.array(random.integers(0, NODES, EDGES))) for end in ("src", "dst")}
    graph = Graph.init(str(place), SCHEMA, durability="process", auto_optimize=False)
    graph.load({"P": pa.table({"k": names}), "K": pa.table(ends)}, mode="append", engine="local")
    return graph


def without_topology(place: Path) -> Graph:
    """Open a graph whose edges have neither an index nor a topology."""
    loaded(place).close()
    shutil.rmtree(place / "_topology")
    return Graph.open(str(place))


def paths(graph: Graph, query: str) -> list[object]:
    traced: Any = graph.query(query, profile=True).explanation()["profile"]
    return [one["access_path"] for one in traced if "access_path" in one]


def test_hops_that_no_index_serves_are_called_scans(tmp_path: Path) -> None:
    with without_topology(tmp_path / "graph") as graph:
        [_, expand] = graph.query(ONE_HOP, explain=True).explanation()["plan"]  # type: ignore[misc] # JSON
        assert expand["access_path"] == "scan"
        assert paths(graph, ONE_HOP) == ["scan"]


def test_a_handle_builds_the_topology_once_scans_have_cost_as_much(tmp_path: Path) -> None:
    with without_topology(tmp_path / "graph") as graph:
        assert paths(graph, TWO_HOPS) == ["scan", "topology"]
        assert paths(graph, ONE_HOP) == ["topology"]
    # What one process has built is there for the next.
    with Graph.open(str(tmp_path / "graph")) as again:
        assert paths(again, ONE_HOP) == ["topology"]


def test_a_hop_that_is_tried_twice_is_paid_for_once(tmp_path: Path) -> None:
    counted = ONE_HOP.replace("$b.k", "count($b) as n")
    with without_topology(tmp_path / "graph") as graph:
        # The aggregate asks for a topology first, and writes the rows of the hop out without one.
        assert paths(graph, counted) == ["scan", "scan"]


def test_a_stored_topology_is_extended_by_a_new_process(tmp_path: Path) -> None:
    with loaded(tmp_path / "graph") as graph:
        added = pa.table({"src": ["p7"], "dst": ["p8"]})
        before = graph.query(ONE_HOP).row_count
        graph.load({"K": added}, mode="append", engine="local")
    with Graph.open(str(tmp_path / "graph")) as again:
        assert paths(again, ONE_HOP) == ["topology"]
        assert again.query(ONE_HOP).row_count == before + 1


def test_an_index_that_covers_the_edges_is_used_without_a_topology(tmp_path: Path) -> None:
    with without_topology(tmp_path / "graph") as graph:
        graph.optimize()
        shutil.rmtree(tmp_path / "graph" / "_topology", ignore_errors=True)
    with Graph.open(str(tmp_path / "graph")) as again:
        assert paths(again, ONE_HOP) == ["indexed"]
