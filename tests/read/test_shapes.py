"""Which way a plan is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.query.bindings import no_bindings
from omnigraph.query.compile import compile_query, compile_text
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.plan.plan import ReadPlan
from omnigraph.read.access.path_chooser import PROBE_COST, TraversalSettings
from omnigraph.read.execute import Executor, ReadRequest, Shape, shape_of
from omnigraph.read.result import Target
from omnigraph.read.shapes.folded_aggregate import FoldedAggregate
from omnigraph.read.shapes.rank_only import RankOnly
from omnigraph.read.shapes.row_pipeline import RowPipeline
from omnigraph.read.shapes.scan_only import ScanOnly
from omnigraph.search.topology.cache import Topologies

SCHEMA = """
node P { key: String @key  body: String @index  i: I32? }
edge Knows: P -> P
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    root: Path = tmp_path_factory.mktemp("shapes")
    return Graph.init(root / "g", SCHEMA, durability="process")


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ('match { $p: P { key: "a" } } return { $p.i, $p }', ScanOnly),
        ("match { $p: P } return { $p.i }", RowPipeline),
        ('match { $p: P { key: "a" } } return { $p.i } order { $p.i }', RowPipeline),
        ('match { $p: P { key: "a" } } return { $p.i } limit 1', RowPipeline),
        (
            'match { $p: P } return { $p, bm25($p.body, "x") as s } order { s } limit 3',
            RankOnly,
        ),
        (
            'match { $p: P } return { $p, bm25($p.body, "x") as s } order { s, $p.i } limit 3',
            RowPipeline,
        ),
        ("match { $p: P  $p knows $q } return { $p, count($q) as n }", FoldedAggregate),
        ("match { $p: P  $p knows $q } return { $p, max($q.i) as n }", FoldedAggregate),
        ("match { $p: P  $p knows $q } return { max($q.i) as n }", RowPipeline),
        ("match { $p: P  $p knows $q } return { $p, count(distinct $q) as n }", RowPipeline),
        ("match { $p: P  $p knows $p } return { count($p) as n }", RowPipeline),
        ("match { $p: P  $p knows $q } return { $p, $q }", RowPipeline),
    ],
)
def test_a_plan_takes_the_first_shape_that_it_matches(
    graph: Graph, body: str, shape: type[Shape]
) -> None:
    snapshot = graph.snapshot()
    file = parse_queries(f"query q() {{ {body} }}")
    plan = compile_query(file.queries[0], snapshot.catalog, file.source)
    assert isinstance(plan, ReadPlan)
    request = ReadRequest(plan, snapshot, no_bindings(0), Target(branch="main"))
    context = Executor(Topologies(), SystemClock()).context(request)
    assert type(shape_of(context, plan)) is shape


def test_what_probing_has_cost_is_counted_by_edge_version(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "g", SCHEMA, durability="process")
    graph.mutate('query q() { insert P { key: "a", body: "x" } }')
    edge = 'query q() { insert Knows { from: "a", to: "a" } }'
    hop = "query q() { match { $p: P  $p knows $q } return { $p, $q } }"
    executor = Executor(Topologies(), SystemClock(), TraversalSettings(forced="indexed"))
    spent: list[float] = []
    for _ in range(2):
        graph.mutate(edge)
        snapshot = graph.snapshot()
        [plan] = compile_text(hop, snapshot.catalog)
        assert isinstance(plan, ReadPlan)
        for _ in range(2):
            executor.run(ReadRequest(plan, snapshot, no_bindings(0), Target(branch="main")))
            spent.append(executor.spent.of(snapshot.entry("edge:Knows").at))
    assert spent == [PROBE_COST + 1, 2 * (PROBE_COST + 1), PROBE_COST + 2, 2 * (PROBE_COST + 2)]
