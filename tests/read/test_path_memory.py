"""Aggregates over millions of paths use memory for nodes and batches, not for paths."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.query.bindings import no_bindings
from omnigraph.query.compile import compile_text
from omnigraph.query.plan.plan import ReadPlan
from omnigraph.read.access.path_chooser import TraversalSettings
from omnigraph.read.execute import Executor, ReadOptions, ReadRequest, shape_of
from omnigraph.read.limits import MemoryLimitError
from omnigraph.read.result import QueryResult, Target
from omnigraph.read.shapes.batched_aggregate import BatchedAggregate
from omnigraph.search.topology.cache import Topologies
from support.places import finish_maintenance

SCHEMA = """
node P { key: String @key  i: I32  town: String }
edge Knows: P -> P { w: I32 }
"""
PEOPLE, EDGES = 10_000, 200_000
"""Four million paths of two hops: 96 MB as rows of three variables."""
FOLDED_MIB, BATCHED_MIB = 24, 48
_MIB = 1 << 20


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    root: Path = tmp_path_factory.mktemp("memory")
    random = np.random.default_rng(5)
    keys = pa.array([f"p{number}" for number in range(PEOPLE)])
    ends = [keys.take(pa.array(random.integers(0, PEOPLE, EDGES))) for _ in range(2)]
    numbers = pa.array(random.integers(0, 100, PEOPLE), pa.int32())
    towns = [f"t{number}" for number in random.integers(0, 20, PEOPLE)]
    made = Graph.init(root / "g", SCHEMA, durability="process")
    made.load_tables(
        nodes={"P": pa.table({"key": keys, "i": numbers, "town": towns})},
        edges={
            "Knows": pa.table(
                {
                    "src": ends[0],
                    "dst": ends[1],
                    "w": pa.array(random.integers(0, 100, EDGES), pa.int32()),
                }
            )
        },
        mode="append",
    )
    # What runs in the background would be measured too.
    finish_maintenance(made)
    return made


class Asked:
    """Runs queries with one executor, and measures what they allocate at once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._executor = Executor(
            Topologies(), SystemClock(), TraversalSettings(forced="topology"), rows_at_once=400_000
        )

    def request(self, body: str) -> ReadRequest:
        [plan] = compile_text(f"query q() {{ {body} }}", self._graph.catalog())
        assert isinstance(plan, ReadPlan)
        target, options = Target(branch="main"), ReadOptions()
        return ReadRequest(plan, self._graph.snapshot(), no_bindings(0), target, options)

    def peak_mib(self, body: str) -> tuple[QueryResult, float]:
        request = self.request(body)
        self._executor.run(request)
        tracemalloc.start()
        try:
            found = self._executor.run(request)
            return found, tracemalloc.get_traced_memory()[1] / _MIB
        finally:
            tracemalloc.stop()

    def explained_batches(self, body: str) -> object:
        request = replace(self.request(body), options=ReadOptions(explain=True))
        return self._executor.run(request).estimates[0].details["batches"]

    def is_batched(self, body: str) -> bool:
        request = self.request(body)
        return isinstance(shape_of(self._executor.context(request), request.plan), BatchedAggregate)


@pytest.mark.parametrize(
    "body",
    [
        "match { $a: P  $a knows $b  $b knows $c } return { count($c) as n }",
        "match { $a: P  $a knows $b  $b knows $c  $b.i > 30  $c.i < 60 } return { count($c) as n }",
        "match { $a: P  $a $v:knows $b  $b $w:knows $c } return { count($c) as n }",
        "match { $a: P  $a $v:knows $b  $b $w:knows $c  $w.w > 30 } return { sum($v.w) as n }",
    ],
)
def test_folded_paths_take_memory_for_nodes_only(graph: Graph, body: str) -> None:
    found, peak = Asked(graph).peak_mib(body)
    assert found.arrays[0][0].as_py() > 1_000_000
    assert peak < FOLDED_MIB


@pytest.mark.parametrize(
    "body",
    [
        "match { $a: P  $a knows $b  $b knows $c } return { $a, count(distinct $c) as n }",
        "match { $a: P  $a knows $b  $b knows $c } return { $a.town, $c.town, count($b) as n }",
        "match { $a: P  $a knows $b  $b knows $c  $a.i < $c.i } return { count($a) as n }",
    ],
)
def test_paths_that_are_written_out_take_memory_for_a_batch(graph: Graph, body: str) -> None:
    asked = Asked(graph)
    assert asked.is_batched(body)
    assert asked.explained_batches(body) == 40
    _, peak = asked.peak_mib(body)
    assert peak < BATCHED_MIB


def test_a_limit_of_memory_makes_smaller_batches(graph: Graph) -> None:
    body = "match { $a: P  $a knows $b  $b knows $c  $a.i < $c.i } return { count($a) as n }"
    text = f"query q() {{ {body} }}"
    limited = graph.query(text, memory_max=32 * _MIB)
    assert limited.json_rows() == graph.query(text, memory_max=None).json_rows()


def test_a_product_that_no_batches_could_end_is_refused(graph: Graph) -> None:
    names = "  ".join(f"$v{number}: P" for number in range(3))
    text = f"query q() {{ match {{ {names} }} return {{ count($v0) as n }} }}"
    with pytest.raises(MemoryLimitError):
        graph.query(text, memory_max=64 * _MIB)


def test_batches_have_the_groups_of_the_whole(graph: Graph) -> None:
    body = "match { $a: P  $a $v:knows $b  $b $w:knows $c } return { $a.town, $c.town, count($b) }"
    asked = Asked(graph)
    assert asked.is_batched(body)
    found = asked.peak_mib(body)[0]
    edges = graph.query("match { $a: P  $a $w:knows $b } return { $a, $b }")
    towns = dict(
        zip(
            *(
                array.to_pylist()
                for array in graph.query("match { $a: P } return { $a, $a.town }").arrays
            ),
            strict=True,
        )
    )
    pairs = list(zip(*(array.to_pylist() for array in edges.arrays), strict=True))
    into, out = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for start, end in pairs:
        into[end, towns[start]] += 1
        out[start, towns[end]] += 1
    expected: Counter[tuple[str, str]] = Counter()
    by_middle: dict[str, list[tuple[str, int]]] = {}
    for (middle, town), count in out.items():
        by_middle.setdefault(middle, []).append((town, count))
    for (middle, town), count in into.items():
        for far, further in by_middle.get(middle, ()):
            expected[town, far] += count * further
    rows = zip(*(array.to_pylist() for array in found.arrays), strict=True)
    assert {(near, far): count for near, far, count in rows} == dict(expected)
