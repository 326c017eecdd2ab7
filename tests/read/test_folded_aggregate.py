"""Aggregates over a last hop are the same whether the hop is counted or written out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.query.bindings import no_bindings
from omnigraph.query.compile import compile_query
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.plan.plan import ReadPlan
from omnigraph.read.access.path_chooser import TraversalSettings
from omnigraph.read.execute import Executor, ReadOptions, ReadRequest
from omnigraph.read.planner import Estimates
from omnigraph.read.result import QueryResult, Target
from omnigraph.read.shapes.fold_split import FoldSplit, best_split
from omnigraph.search.topology.cache import Topologies

SCHEMA = """
node P { key: String @key  town: String?  i: I32?  big: I64?  f: F64?  rank: I32 }
node Q { name: String @key  size: U32 }
edge Knows: P -> P
edge Twice: P -> P { i: I32? }
edge At: P -> Q
"""
PEOPLE = 60
BIG = 2**60


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    random = np.random.default_rng(4)
    made = Graph.init(tmp_path_factory.mktemp("fold") / "g", SCHEMA, durability="process")
    keys = [f"p{number}" for number in range(PEOPLE)]
    pairs = sorted({(int(a), int(b)) for a, b in random.integers(0, PEOPLE, (200, 2))})
    doubled = pairs[:40] + pairs[:20]
    made.load_tables(
        nodes={
            "P": pa.table(
                {
                    "key": keys,
                    "town": [None if n % 7 == 0 else f"t{n % 5}" for n in range(PEOPLE)],
                    "i": pa.array(
                        [None if n % 6 == 0 else n - 20 for n in range(PEOPLE)], pa.int32()
                    ),
                    "big": pa.array([BIG + n for n in range(PEOPLE)], pa.int64()),
                    "f": [n / 7 for n in range(PEOPLE)],
                    "rank": pa.array(range(PEOPLE), pa.int32()),
                }
            ),
            "Q": pa.table({"name": ["x", "y"], "size": pa.array([3, 2**32 - 1], pa.uint32())}),
        },
        edges={
            "Knows": _edges(pairs, keys, keys),
            "Twice": _edges(doubled, keys, keys).append_column(
                "i", pa.array([None if n % 5 == 0 else n % 9 for n in range(60)], pa.int32())
            ),
            "At": _edges([(n, n % 2) for n in range(0, PEOPLE, 3)], keys, ["x", "y"]),
        },
        mode="append",
    )
    return made


def _edges(pairs: list[tuple[int, int]], near: list[str], far: list[str]) -> pa.Table:
    return pa.table({"src": [near[a] for a, _ in pairs], "dst": [far[b] for _, b in pairs]})


def compiled(graph: Graph, body: str) -> ReadPlan:
    file = parse_queries(f"query q() {{ {body} }}")
    plan = compile_query(file.queries[0], graph.catalog(), file.source)
    assert isinstance(plan, ReadPlan)
    return plan


def answered(graph: Graph, plan: ReadPlan, *, folds: bool) -> QueryResult:
    executor = Executor(
        Topologies(), SystemClock(), TraversalSettings(forced="topology"), folds=folds
    )
    request = ReadRequest(
        plan,
        graph.snapshot(),
        no_bindings(0),
        Target(branch="main"),
        ReadOptions(profile=True),
    )
    return executor.run(request)


def split_of(graph: Graph, plan: ReadPlan) -> FoldSplit | None:
    snapshot = graph.snapshot()
    counts = {key: entry.row_count for key, entry in snapshot.entries.items()}
    return best_split(plan, Estimates(counts.__getitem__, no_bindings(0)))


FOLDED = [
    "match { $a: P  $a knows $b } return { $a.town, avg($b.i) as x, count($b) as n }",
    "match { $a: P  $a knows $b } return { $a, count($b) as n } order { n desc } limit 5",
    "match { $a: P  $a knows $b } return { $b, count($a) as n } order { n desc } limit 5",
    "match { $a: P  $a knows $b } return { count($b) as n, sum($b.i) as s }",
    "match { $a: P  $a knows $b } return { $a.town, sum($a.i) as s, count($a.i) as n }",
    "match { $a: P  $a knows $b } return { $a.town, max($a.f) as m, count($b) as n }",
    "match { $a: P  $a knows $b } return { $a.town, count(distinct $a.i) as n, count($a) as rows }",
    "match { $a: P  $a knows $b  $b.i > 3 } return { $a.town, count($b) as n, avg($b.i) as x }",
    "match { $a: P  $a knows $b  $b knows $c } return { $a.town, count($c) as n, sum($c.i) as s }",
    "match { $a: P  $a at $q } return { $a.town, count($q) as n, sum($q.size) as s }",
    "match { $a: P  $a at $q } return { $q, count($a) as n }",
    'match { $a: P {key: "p3"}  $a knows{1,3} $b } return { count($b) as n }',
    'match { $a: P {key: "p3"}  $a knows{2,4} $b } return { count($b) as n }',
    'match { $a: P {key: "nobody"}  $a knows $b } return { count($b) as n, avg($b.i) as x }',
    "match { $a: P  $a twice $b } return { $a.town, count($b) as n }",
    "match { $a: P  $a twice $b  $b twice $c } return { count($c) as n, sum($c.i) as s }",
    "match { $a: P  $a <knows> $b } return { $a.town, count($b) as n }",
    "match { $a: P  $a $w:<twice> $b } return { $a.town, count($b) as n }",
    "match { $a: P  $a knows{1,2} $b } return { $a.town, count($b) as n }",
    "match { $a: P  $a knows{2,3} $b  $b.i > 3 } return { $a.town, count($b) as n }",
    "match { $a: P  $a knows $b } return { $a.town, min($b.i) as low, max($b.f) as high }",
    "match { $a: P  $a knows $b } return { $a.town, max($b.town) as m, count($b) as n }",
    "match { $a: P  $a $w:twice $b } return { $a.town, count($b) as n }",
    "match { $a: P  $a $w:twice $b } return { $a.town, sum($w.i) as s, count($w.i) as n }",
    "match { $a: P  $a $w:twice $b } return { $b, max($w.i) as high, min($w.i) as low }",
    "match { $a: P  $a $w:twice $b  $w.i > 3 } return { $a.town, count($b) as n }",
    "match { $a: P  $a $w:twice $b  $w.i > 3 } return { $a, min($b.rank) as m, max($b.rank) as n }",
    "match { $a: P  $a $v:twice $b  $b $w:twice $c  $v.i > 3 } return { count($c) as n }",
    "match { $a: P  $a knows $b  $b knows $c  $c knows $d } return { count($d) as n }",
    "match { $a: P  $a knows $b  $b knows $c  $b.i > 0  $c.i > 9 } return { count($a) as n }",
    "match { $a: P  $a knows $b  $b knows $c } return { $c.town, count($a) as n, sum($b.i) as s }",
    "match { $a: P  $a knows $b  $a twice $c } return { $a.town, count($b) as n, sum($c.i) as s }",
    "match { $a: P  $a knows $b  not { $b at $_ } } return { $a.town, count($b) as n }",
    "match { $a: P  $a knows $b  $b knows $c  not { $b knows $m  $m.i > 9 } } return { count($c)}",
    "match { $a: P  optional { $a at $q }  $a knows $b } return { $q, count($b) as n }",
    "match { $a: P  $a knows $b } return { count(*) as n }",
    "match { $a: P  $a knows $b } return { $a.town, sum(-3) as s, avg(7) as m }",
    "match { $a: P  $a knows $b } return { $b.town, max($a.i) as m } order { m desc } limit 2",
]
WRITTEN_OUT = [
    "match { $a: P  $a knows $b } return { $a.town, sum($b.big) as s }",
    "match { $a: P  $a knows $b } return { $a.town, sum(9223372036854775807) as s }",
    "match { $a: P  $a knows $b } return { avg(-4611686018427387904) as m, count($b) as n }",
]
NEVER = [
    "match { $a: P  $a knows $b } return { $a.town, sum($b.f) as s }",
    "match { $a: P  $a knows $b } return { $a.town, count(distinct $b.i) as s }",
    "match { $a: P  $a knows $b  $a.i < $b.i } return { $a.town, count($b) as n }",
    "match { $a: P  $a knows $b } return { $a.town, $b.town, count($b) as n }",
    "match { $a: P  $a knows $b } return { $a.town, sum($a.f) as s }",
    "match { $a: P  $a knows $b } return { count(distinct $b) as s }",
]


@pytest.mark.parametrize("body", FOLDED + WRITTEN_OUT + NEVER)
def test_folding_changes_no_row(graph: Graph, body: str) -> None:
    plan = compiled(graph, body)
    counted, written = (answered(graph, plan, folds=folds) for folds in (True, False))
    assert counted.schema == written.schema
    rows = [sorted(map(repr, found.json_rows())) for found in (counted, written)]
    assert rows[0] == rows[1]
    assert counted.row_count > 0
    if plan.limit is not None:
        assert counted.json_rows() == written.json_rows()


@pytest.mark.parametrize(
    ("body", "is_folded"),
    [(body, True) for body in FOLDED] + [(body, False) for body in WRITTEN_OUT],
)
def test_a_hop_is_counted_where_its_rows_do_not_matter(
    graph: Graph, body: str, is_folded: bool
) -> None:
    plan = compiled(graph, body)
    assert split_of(graph, plan) is not None
    notes = [trace.details.get("folded") for trace in answered(graph, plan, folds=True).measured]
    assert (True in notes) is is_folded


@pytest.mark.parametrize("body", NEVER)
def test_a_hop_whose_rows_matter_is_never_counted(graph: Graph, body: str) -> None:
    assert split_of(graph, compiled(graph, body)) is None


def test_sums_beyond_a_double_stay_exact(graph: Graph) -> None:
    found = answered(
        graph,
        compiled(graph, "match { $a: P  $a knows $b } return { sum($b.big) as s, count($b) as n }"),
        folds=True,
    )
    [row] = found.to_pylist()
    pairs = answered(
        graph, compiled(graph, "match { $a: P  $a knows $b } return { $b.big }"), folds=True
    )
    assert row["s"] == float(sum(one["b.big"] for one in pairs.to_pylist()))
    assert row["n"] == pairs.row_count


def test_hops_that_cannot_be_counted_run_from_the_start_of_the_plan(graph: Graph) -> None:
    """Folding starts at the groups; rows are written out from where the plan starts."""
    plan = compiled(graph, "match { $a: P  $a knows $b } return { $b, sum($a.big) as s }")
    split = split_of(graph, plan)
    assert split is not None
    assert split.kept[0] != plan.pipeline[0]
    ran = [trace.operator for trace in answered(graph, plan, folds=True).measured]
    failed = next(place for place, name in enumerate(ran) if name.startswith("Fold"))
    written = [trace.operator for trace in answered(graph, plan, folds=False).measured]
    assert ran[failed + 1 :] == written
