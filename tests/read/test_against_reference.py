"""The engine and the reference evaluator give the same rows."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omnigraph.clock import SystemClock
from omnigraph.query.bindings import Bindings
from omnigraph.query.compile import compile_query
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.params import coerce_params
from omnigraph.query.plan.plan import ReadPlan
from omnigraph.read.access.adjacency import AccessPath
from omnigraph.read.access.column_cache import ColumnCache
from omnigraph.read.access.edge_probes import SCAN_SHARE
from omnigraph.read.access.path_chooser import TraversalSettings
from omnigraph.read.context import ROWS_AT_ONCE
from omnigraph.read.execute import Executor, ReadRequest
from omnigraph.read.result import Target
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
        found = executor.run(request)
        columns = [raw_values(array) for array in found.arrays]
        rows = [tuple(map(comparable, row)) for row in zip(*columns, strict=True)]
        if is_ordered:
            assert rows == wanted, (place.name, executor.settings)
        else:
            assert Counter(rows) == Counter(wanted), (place.name, executor.settings)


def raw_values(array: Any) -> list[Any]:
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_date64(array.type):
        array = array.cast(pa.int64())
    values: list[Any] = array.to_pylist()
    return values
