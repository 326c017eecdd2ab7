"""The engine and the reference evaluator give the same rows."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omnigraph.clock import SystemClock
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.query.bindings import Bindings
from omnigraph.query.compile import compile_query
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.params import coerce_params
from omnigraph.query.plan.plan import ReadPlan
from omnigraph.read.access import table_reader
from omnigraph.read.access.adjacency import AccessPath
from omnigraph.read.access.column_cache import ColumnCache
from omnigraph.read.access.edge_probes import SCAN_SHARE
from omnigraph.read.access.path_chooser import TRAVERSAL_MODE, TraversalSettings
from omnigraph.read.context import ROWS_AT_ONCE
from omnigraph.read.execute import Executor, ReadRequest
from omnigraph.read.result import QueryResult, Target
from omnigraph.search import table_delta
from omnigraph.search.topology import cache as topology_cache
from omnigraph.search.topology.cache import Topologies
from omnigraph.syntax import SourceError
from support.query_worlds import PARAMETERS, make_places, queries
from support.reference_query import Reference, read_world

SEEDS = (1, 2, 3)
NOW_MS = 1_577_882_096_789
CLOCK = SystemClock()


def executors(topologies: Topologies) -> list[Executor]:
    """Return executors that differ in access path, cached columns, folded hops and batches."""
    return [
        Executor(
            topologies,
            CLOCK,
            TraversalSettings(forced=path, scan_share=scan_share),
            columns=ColumnCache(bytes_max=memory, uses_min=1),
            folds=folds,
            rows_at_once=rows_at_once,
        )
        for path, memory, folds, scan_share, rows_at_once in WAYS
    ]


MEMORY = 1 << 24
WAYS: tuple[tuple[AccessPath | None, int, bool, int, int], ...] = (
    ("indexed", 0, False, 0, ROWS_AT_ONCE),
    ("indexed", MEMORY, True, SCAN_SHARE, ROWS_AT_ONCE),
    ("topology", 0, False, SCAN_SHARE, 5),
    ("topology", MEMORY, True, SCAN_SHARE, ROWS_AT_ONCE),
    (None, MEMORY, True, SCAN_SHARE, 5),
)


class Setting:
    """All snapshots with their content, and executors for every way to an answer."""

    def __init__(self, root: Path) -> None:
        self.places = [place for seed in SEEDS for place in make_places(root, seed)]
        self.worlds = [
            read_world(place.graph.snapshot_of(place.target), place.graph.catalog())
            for place in self.places
        ]
        topologies = {place.graph.uri: Topologies() for place in self.places}
        ways = {uri: executors(one) for uri, one in topologies.items()}
        self.executors = [ways[place.graph.uri] for place in self.places]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return Setting(tmp_path_factory.mktemp("worlds"))


def comparable(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return tuple(value) if isinstance(value, list) else value


@given(text=queries(), chosen=st.integers(0, 8))
def test_every_way_gives_the_rows_of_the_reference(
    setting: Setting, text: str, chosen: int
) -> None:
    place, world = setting.places[chosen], setting.worlds[chosen]
    file = parse_queries(text)
    query = file.queries[0]
    try:
        plan = compile_query(query, world.catalog, file.source)
    except SourceError:
        assume(False)
    assert isinstance(plan, ReadPlan)
    params = coerce_params(
        query.parameters, {name: value for name, (_, value) in PARAMETERS.items()}
    )
    expected, is_ordered = Reference(world, params, NOW_MS).rows(query)
    wanted = [tuple(map(comparable, row)) for row in expected]
    snapshot = place.graph.snapshot_of(place.target)
    for executor in setting.executors[chosen]:
        request = ReadRequest(plan, snapshot, Bindings(params, NOW_MS), Target(branch="main"))
        rows = rows_of(executor.run(request))
        if is_ordered:
            assert rows == wanted, (place.name, executor.settings)
        else:
            assert Counter(rows) == Counter(wanted), (place.name, executor.settings)


def rows_of(found: QueryResult) -> list[tuple[Any, ...]]:
    columns = [raw_values(array) for array in found.arrays]
    return [tuple(map(comparable, row)) for row in zip(*columns, strict=True)]


def raw_values(array: Any) -> list[Any]:
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_date64(array.type):
        array = array.cast(pa.int64())
    values: list[Any] = array.to_pylist()
    return values


# -- after writes ----------------------------------------------------------------------------------

WRITES = {
    "insert": 'insert P { key: "n1", i: 7 } insert Knows { from: "n1", to: $k, w: 2 }',
    "edges": 'insert Knows { from: $k, to: "p0", w: 1 } insert At { from: $k, to: "q0" }',
    "loops": "insert Knows { from: $k, to: $k } insert Knows { from: $k, to: $k }",
    "update": 'update P set { i: 3, s: "ab" } where key = $k',
    "update edges": "update Knows set { w: 7 } where from = $k",
    "delete": "delete P where key = $k",
    "again": "delete P where key = $k insert P { key: $k } insert Knows { from: $k, to: $k }",
    "delete places": "delete Q where name = $q",
    "upsert": 'upsert Q { name: $q, i: 1 } insert Likes { from: $q, to: "p2" }',
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*WRITES, "fork", "merge", "optimize"]),
        st.integers(0, 7),
        st.lists(queries().filter(lambda text: "now()" not in text), min_size=3, max_size=3),
    ),
    min_size=4,
    max_size=8,
)
WHOLE = (
    "query all() { match { $a: P } return { $a, $a.i, $a.j, $a.u, $a.f, $a.b, $a.s, $a.d, $a.t } }",
    "query places() { match { $a: Q } return { $a, $a.i, $a.s } }",
    "query known() { match { $a: P  $a knows $b  $b likes $a  $a at $c } return { $a, $b, $c } }",
    'query key() { match { $a: P { key: "p2" }  $a $w:knows $b } return { $b.s, $w.w, $w.since } }',
    'query place() { match { $a: Q { name: "q0" }  $a likes $b } return { $b, $b.i } }',
    "query sums() { match { $a: P  $a knows $b  $b <knows> $c } return { $c.b, sum($a.i) as s } }",
)
"""Queries that leave every column, look-up and adjacency in memory."""


@settings(max_examples=4)
@given(steps=STEPS, seed=st.sampled_from(SEEDS), few=st.sampled_from([0, 4_096]))
def test_reads_after_writes_give_the_rows_of_the_reference(
    setting: Setting, steps: list[tuple[str, int, list[str]]], seed: int, few: int
) -> None:
    read_after_writes(setting, steps, seed, few)


@pytest.mark.slow
@settings(max_examples=100)
@given(steps=STEPS, seed=st.sampled_from(SEEDS), few=st.sampled_from([0, 4_096]))
def test_reads_after_many_writes_give_the_rows_of_the_reference(
    setting: Setting, steps: list[tuple[str, int, list[str]]], seed: int, few: int
) -> None:
    read_after_writes(setting, steps, seed, few)


def read_after_writes(
    setting: Setting, steps: list[tuple[str, int, list[str]]], seed: int, few: int
) -> None:
    """Read through one handle after each write through this one or another, on a branch too."""
    (uri,) = {p.graph.uri for p in setting.places if p.name == f"world {seed}, head"}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(TRAVERSAL_MODE, "csr")
        patch.setattr(topology_cache, "FOLD_ROWS", few)
        patch.setattr(table_reader, "FOLD_ROWS", few)
        patch.setattr(table_delta, "COMPARED_ROWS_MAX", few)
        patch.setitem(ColumnCache.__init__.__kwdefaults__, "uses_min", 1)
        copied = shutil.copytree(uri, Path(folder) / "g")
        handles = [Graph.open(copied, durability="process") for _ in range(2)]
        with handles[0] as graph, handles[1]:
            done: list[tuple[str, int]] = []
            check_rows(graph, WHOLE, done)
            for what, number, texts in steps:
                done.append((what, number))
                change(handles[number % 2], what, number)
                check_rows(graph, [*texts, WHOLE[number % len(WHOLE)]], done)


def change(graph: Graph, what: str, number: int) -> None:
    branches = graph.branches.list()
    try:
        match what:
            case "fork":
                graph.branches.create("late")
            case "merge":
                graph.branches.merge("late", prefer="source")
            case "optimize":
                graph.maintenance.optimize()
            case _:
                text = f"query q($k: String, $q: String) {{ {WRITES[what]} }}"
                names = {"k": f"p{number}", "q": f"q{number % 4}"}
                branch = "late" if "late" in branches and number in (2, 3, 6, 7) else "main"
                graph.mutate(text, None, names, branch=branch)
    except OmnigraphError:
        # A node that is gone, a branch that is there already: both are right.
        return


def check_rows(graph: Graph, texts: Sequence[str], done: list[tuple[str, int]]) -> None:
    given_params = {name: value for name, (_, value) in PARAMETERS.items()}
    for branch in sorted({"main", "late"} & set(graph.branches.list())):
        with Graph.open(graph.uri, durability="process") as fresh:
            snapshot = fresh.snapshot_of(branch)
            world = read_world(snapshot, snapshot.catalog)
        for text in texts:
            query = parse_queries(text).queries[0]
            params = given_params if query.parameters else {}
            try:
                rows = rows_of(graph.query(text, None, params, branch=branch))
            except SourceError:
                continue
            known = coerce_params(query.parameters, params)
            expected, is_ordered = Reference(world, known, NOW_MS).rows(query)
            wanted = [tuple(map(comparable, row)) for row in expected]
            same = rows == wanted if is_ordered else Counter(rows) == Counter(wanted)
            assert same, (branch, done, text, rows, wanted)
