"""Filters are measured where that is cheap, run in memory where columns are, and explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.graph import Graph
from omnigraph.query.bindings import no_bindings
from omnigraph.query.compile import compile_text
from omnigraph.query.plan.plan import NodeScan, ReadPlan
from omnigraph.read.operators.measure import ROWS_EVALUATED_MAX
from omnigraph.read.operators.memory_scan import predicate_cost
from omnigraph.read.planner import Estimates, arrange
from omnigraph.read.profile import OperatorTrace
from omnigraph.schema import compile_schema

SCHEMA = """
node Item { key: String @key  title: String?  price: I32?  code: I32 @index }
node Shop { key: String @key  name: String }
edge SoldBy: Item -> Shop
"""
_CATALOG = compile_schema(SCHEMA, domain="01J" + "0" * 23).catalog
ITEMS, SHOPS = ROWS_EVALUATED_MAX + 2_000, 40


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    root: Path = tmp_path_factory.mktemp("measured")
    made = Graph.init(root / "g", SCHEMA, durability="process")
    numbers = range(ITEMS)
    made.load_tables(
        nodes={
            "Item": pa.table(
                {
                    "key": [f"i{n}" for n in numbers],
                    "title": [None if n % 11 == 0 else f"title {n}" for n in numbers],
                    "price": pa.array(
                        [None if n % 13 == 0 else n % 4 for n in numbers], pa.int32()
                    ),
                    "code": pa.array(numbers, pa.int32()),
                }
            ),
            "Shop": pa.table(
                {
                    "key": [f"s{n}" for n in range(SHOPS)],
                    "name": [f"shop {n}" for n in range(SHOPS)],
                }
            ),
        },
        edges={
            "SoldBy": pa.table(
                {
                    "src": [f"i{n}" for n in numbers],
                    "dst": [f"s{n % SHOPS}" for n in numbers],
                }
            )
        },
        mode="append",
    )
    made.ensure_indices()
    return made


def explained(graph: Graph, body: str) -> list[OperatorTrace]:
    return list(graph.query(f"query q() {{ {body} }}", explain=True).estimates)


def profiled(graph: Graph, body: str) -> tuple[Any, list[OperatorTrace]]:
    found = graph.query(f"query q() {{ {body} }}", profile=True)
    return found, list(found.measured)


def test_a_pattern_starts_at_the_end_that_was_counted_as_smaller(graph: Graph) -> None:
    # By its form alone, an equality leaves ten rows and a substring every second one.
    body = 'match { $i: Item  $i soldBy $s  $i.price = 1  $s.name contains "3" } return { $i, $s }'
    scan, hop = explained(graph, body)
    assert scan.operator.startswith("NodeScan i")
    warm(graph, body)
    scan, hop = explained(graph, body)
    assert scan.operator.startswith("NodeScan s")
    assert scan.details["starts"] == ["s: 13 counted", f"i: {_sampled(scan)} sampled"]
    assert hop.details["access_path"] == "topology"


def _sampled(scan: OperatorTrace) -> int:
    starts = scan.details["starts"]
    assert isinstance(starts, list)
    found = int(starts[1].split()[1])
    share = 3 * 12 / 13 / 12
    assert 0.8 * share * ITEMS < found < 1.2 * share * ITEMS
    return found


def warm(graph: Graph, body: str) -> None:
    for _ in range(5):
        graph.query(f"query q() {{ {body} }}")


def test_a_part_that_starts_with_few_nodes_measures_no_others() -> None:
    asked: list[str] = []

    def measure(type_name: str, filters: object) -> tuple[float, str]:
        asked.append(type_name)
        return 3.0, "counted"

    [plan] = compile_text(
        'query q() { match { $i: Item {key: "i1"}  $i soldBy $s  $s.name != "x" } return { $s } }',
        _CATALOG,
    )
    assert isinstance(plan, ReadPlan)
    counts = {"node:Item": 1000, "node:Shop": 1000, "edge:SoldBy": 1000}
    estimates = Estimates(counts.__getitem__, no_bindings(0), measure)  # type: ignore[arg-type]
    assert arrange(plan, estimates).pipeline == plan.pipeline
    assert asked == ["Item"]


def test_folded_hops_are_named(graph: Graph) -> None:
    body = "match { $i: Item  $i soldBy $s } return { $s.name, count($i) as n, max($i.code) as m }"
    scan, hop = explained(graph, body)
    assert scan.operator.startswith("NodeScan s")
    assert hop.details["folded"] is True
    found, traces = profiled(graph, body)
    assert traces[1].operator == "Fold Expand s <-[SoldBy]- i: Item [code]"
    assert traces[1].details["folded"] is True
    assert found.row_count == SHOPS


def test_a_start_is_moved_for_folding_only_where_that_is_less_work(graph: Graph) -> None:
    # One item, counted by its shop: reading all edges of all shops would be far more.
    body = "match { $i: Item  $i soldBy $s  $i.code = 77 } return { $s.name, count($i) as n }"
    scan, hop = explained(graph, body)
    assert scan.operator.startswith("NodeScan i")
    assert "folded" not in hop.details
    assert graph.query(f"query q() {{ {body} }}").json_rows() == [{"s.name": "shop 37", "n": 1}]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ("$i.price = 1", lambda n: n % 13 != 0 and n % 4 == 1),
        ("$i.price != 1", lambda n: n % 13 != 0 and n % 4 != 1),
        ("$i.price is null", lambda n: n % 13 == 0),
        ('$i.title contains "77"', lambda n: n % 11 != 0 and "77" in f"title {n}"),
        (
            '$i.title starts_with "title 9"  $i.price > 2',
            lambda n: n % 11 != 0 and str(n).startswith("9") and n % 13 != 0 and n % 4 > 2,
        ),
        (
            '($i.title contains "5" or $i.price is null)  not ($i.price = 0)',
            lambda n: n % 13 != 0 and n % 4 != 0 and n % 11 != 0 and "5" in f"title {n}",
        ),
        ("$i.price in [1, 3]", lambda n: n % 13 != 0 and n % 4 in (1, 3)),
    ],
)
def test_filters_in_memory_pass_the_rows_that_the_store_passes(
    graph: Graph, filters: str, expected: Any
) -> None:
    body = f"match {{ $i: Item  {filters} }} return {{ count($i) as n, sum($i.code) as s }}"
    found = [profiled(graph, body) for _ in range(6)]
    assert found[-1][1][0].details.get("in_memory")
    passing = [n for n in range(ITEMS) if expected(n)]
    for result, _ in found:
        assert result.json_rows() == [{"n": len(passing), "s": float(sum(passing))}]


def test_a_column_with_an_index_stays_with_the_store(graph: Graph) -> None:
    body = "match { $i: Item  $i.code < 9 } return { count($i) as n }"
    for _ in range(6):
        _, traces = profiled(graph, body)
    assert "in_memory" not in traces[0].details
    assert traces[0].details["pushed"] is True


def test_cheap_predicates_come_first() -> None:
    [plan] = compile_text(
        "query q() { match { $i: Item"
        '  $i.title contains "x"  $i.title = "y"  $i.price = 1  $i.title is null }'
        " return { $i } }",
        _CATALOG,
    )
    assert isinstance(plan, ReadPlan)
    scan = plan.pipeline[0]
    assert isinstance(scan, NodeScan)
    costs = [predicate_cost(predicate) for predicate in scan.filters]
    assert costs[3] <= costs[2] < costs[1] < costs[0]
