"""Aggregates over random patterns, folded, batched or written out, have the rows of a model."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph
from omnigraph.manifest import Snapshot
from omnigraph.query.bindings import Bindings
from omnigraph.query.compile import compile_query
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.params import coerce_params
from omnigraph.query.plan.plan import ReadPlan
from omnigraph.read.access.column_cache import ColumnCache
from omnigraph.read.access.path_chooser import TraversalSettings
from omnigraph.read.execute import Executor, ReadRequest
from omnigraph.read.result import Target
from omnigraph.search.topology.cache import Topologies
from omnigraph.syntax import SourceError
from support.reference_query import Reference, read_world

SCHEMA = """
node P { key: String @key  i: I32?  f: F64?  town: String?  rank: I32 }
node Q { name: String @key  size: U32? }
edge Knows: P -> P { w: I32? }
edge At: P -> Q { share: I64? }
"""
SEEDS = (1, 2, 3)
CLOCK = SystemClock()
WAYS = ((True, 1 << 22), (True, 5), (False, 1 << 22), (False, 5))
"""Whether hops are folded, and how many rows are made at once."""


CHANGES = """
query changes() {
    insert P { key: "new", i: 3, town: "x", rank: 100 }
    insert Knows { from: "new", to: "p2", w: 4 }
    insert Knows { from: "p3", to: "new", w: 2 }
    insert Knows { from: "p3", to: "p3", w: 2 }
    update P set { rank: -1 } where key = "p4"
    update Knows set { w: 9 } where from = "p1"
}
query gone() { delete P where key = "p5" }
"""
EXAMPLES = min(settings.default.max_examples, 1_000)
"""Each of them is read in four ways, and the slow run must end."""


class Setting:
    """Graphs with repeated edges, self-loops and nulls, and executors for every way.

    Of each graph there are two snapshots, so that the later one is read over what is in memory of
    the earlier one.
    """

    def __init__(self, root: Path) -> None:
        self.snapshots: list[Snapshot] = []
        self.executors: list[list[Executor]] = []
        for seed in SEEDS:
            graph, executors = _graph(root / f"g{seed}", Random(seed)), _executors()
            self.snapshots.append(graph.snapshot())
            for name in ("changes", "gone"):
                graph.mutate(CHANGES, name)
            self.snapshots.append(graph.snapshot())
            self.executors += [executors, executors]
        self.worlds = [read_world(one, one.catalog) for one in self.snapshots]


def _executors() -> list[Executor]:
    topologies = Topologies()
    return [
        Executor(
            topologies,
            CLOCK,
            TraversalSettings(forced="topology"),
            columns=ColumnCache(bytes_max=1 << 22 if folds else 0, uses_min=1),
            folds=folds,
            rows_at_once=rows,
        )
        for folds, rows in WAYS
    ]


def _graph(root: Path, random: Random) -> Graph:
    people, places = 9, 3

    def edges(count: int, far: int, letter: str) -> dict[str, list[str]]:
        ends = [(random.randrange(people), random.randrange(far)) for _ in range(count)]
        ends += random.sample(ends, count // 3)
        return {"src": [f"p{a}" for a, _ in ends], "dst": [f"{letter}{b}" for _, b in ends]}

    def maybe(count: int, values: list[Any]) -> list[Any]:
        return [random.choice([None, *values]) for _ in range(count)]

    knows, at = edges(18, people, "p"), edges(8, places, "q")
    graph = Graph.init(root, SCHEMA, durability="process")
    graph.load_tables(
        nodes={
            "P": pa.table(
                {
                    "key": [f"p{n}" for n in range(people)],
                    "i": pa.array(maybe(people, [-2, 0, 1, 3, 7]), pa.int32()),
                    "f": pa.array(maybe(people, [0.1, 0.25, -1.5]), pa.float64()),
                    "town": pa.array(maybe(people, ["x", "y", ""]), pa.string()),
                    "rank": pa.array(range(people), pa.int32()),
                }
            ),
            "Q": pa.table(
                {
                    "name": [f"q{n}" for n in range(places)],
                    "size": pa.array(maybe(places, [0, 5, 2**32 - 1]), pa.uint32()),
                }
            ),
        },
        edges={
            "Knows": pa.table(
                {**knows, "w": pa.array(maybe(len(knows["src"]), [-1, 2, 4]), pa.int32())}
            ),
            "At": pa.table(
                {**at, "share": pa.array(maybe(len(at["src"]), [1, 2**61]), pa.int64())}
            ),
        },
        mode="append",
    )
    return graph


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return Setting(tmp_path_factory.mktemp("paths"))


_FILTERS = {
    "P": ("{v}.i > 0", "{v}.i is null", '{v}.town = "x"', "{v}.f < 0.2", "{v}.i != 3"),
    "Q": ("{v}.size > 3", '{v}.name != "q1"'),
    "Knows": ("{v}.w > 0", "{v}.w is null"),
    "At": ("{v}.share is not null",),
}
_NUMBERS = {"P": ("i", "f", "rank"), "Q": ("size",), "Knows": ("w",), "At": ("share",)}
_KEYS = {"P": ("", ".town", ".i"), "Q": ("", ".size"), "Knows": (".w",), "At": (".share",)}


@st.composite
def queries(draw: st.DrawFn) -> str:
    """Make a pattern of up to three hops, with tests, and aggregates over its variables."""
    types = {"$a": "P"}
    clauses = ["$a: P"]
    for number in range(draw(st.integers(1, 3))):
        people = sorted(name for name, kind in types.items() if kind == "P")
        source, target, edge = draw(st.sampled_from(people)), f"$n{number}", f"$w{number}"
        form = draw(st.sampled_from(("knows", "knows", "bound", "both", "range", "back", "at")))
        types[target] = "Q" if form == "at" else "P"
        if form == "bound":
            name = draw(st.sampled_from(("Knows", "Knows", "At")))
            types[target], types[edge] = "Q" if name == "At" else "P", name
            clauses.append(f"{source} {edge}:{name[0].lower()}{name[1:]} {target}")
        elif form == "both":
            clauses.append(f"{source} <knows> {target}")
        elif form == "range":
            low = draw(st.integers(1, 2))
            clauses.append(f"{source} knows{{{low},{low + draw(st.integers(0, 1))}}} {target}")
        elif form == "back":
            clauses += [f"{target}: P", f"{target} knows {source}"]
        else:
            clauses.append(f"{source} {form} {target}")
    for name, kind in types.items():
        if draw(st.integers(0, 3)) == 0:
            clauses.append(draw(st.sampled_from(_FILTERS[kind])).format(v=name))
    clauses += draw(_blocks(sorted(name for name, kind in types.items() if kind == "P")))
    columns = [draw(_aggregate(types)) for _ in range(draw(st.integers(1, 2)))]
    keys = [
        name + draw(st.sampled_from(_KEYS[types[name]]))
        for name in draw(st.lists(st.sampled_from(sorted(types)), max_size=2, unique=True))
    ]
    shown = keys + [f"{text} as x{place}" for place, text in enumerate(columns)]
    tail = draw(st.sampled_from(("", "", "order { x0 desc } limit 3", "order { x0 } limit 2")))
    return (
        f"query q() {{ match {{ {'  '.join(clauses)} }} return {{ {', '.join(shown)} }} {tail} }}"
    )


def _blocks(people: list[str]) -> st.SearchStrategy[list[str]]:
    forms = (
        "not {{ {v} at $_ }}",
        "not {{ {v} knows $m  $m.i > 1 }}",
        "optional {{ {v} at $o }}",
        "{v} knows $a",
        "$a.i < {v}.i",
    )
    made = st.builds(
        lambda form, name: form.format(v=name), st.sampled_from(forms), st.sampled_from(people)
    )
    return st.lists(made, max_size=1)


def _aggregate(types: dict[str, str]) -> st.SearchStrategy[str]:
    def over(name: str) -> st.SearchStrategy[str]:
        number = st.sampled_from([f"{name}.{one}" for one in _NUMBERS[types[name]]])
        forms = ["count({})", "sum({})", "avg({})", "min({})", "max({})", "count(distinct {})"]
        found = st.builds(lambda form, value: form.format(value), st.sampled_from(forms), number)
        if types[name] in ("P", "Q"):
            whole = st.sampled_from([f"count({name})", f"count(distinct {name})", "count(*)"])
            found = st.one_of(found, whole, whole)
        return found

    return st.sampled_from(sorted(types)).flatmap(over)


def comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.timeout(1800)
@settings(max_examples=EXAMPLES)
@given(text=queries(), chosen=st.integers(0, 2 * len(SEEDS) - 1))
def test_every_way_gives_the_rows_of_the_model(setting: Setting, text: str, chosen: int) -> None:
    snapshot, world = setting.snapshots[chosen], setting.worlds[chosen]
    file = parse_queries(text)
    try:
        plan = compile_query(file.queries[0], world.catalog, file.source)
    except SourceError:
        assume(False)
    assert isinstance(plan, ReadPlan)
    params = coerce_params(file.queries[0].parameters, {})
    expected, is_ordered = Reference(world, params, 0).rows(file.queries[0])
    for (folds, rows_at_once), executor in zip(WAYS, setting.executors[chosen], strict=True):
        request = ReadRequest(plan, snapshot, Bindings(params, 0), Target(branch="main"))
        found = executor.run(request)
        rows = [
            tuple(map(comparable, row))
            for row in zip(*(array.to_pylist() for array in found.arrays), strict=True)
        ]
        wanted = [tuple(map(comparable, row)) for row in expected]
        same = rows == wanted if is_ordered else Counter(rows) == Counter(wanted)
        assert same, (folds, rows_at_once, rows, wanted)
