"""A query that costs too much ends with a typed error, soon, and without a partial answer."""

from __future__ import annotations

import json
import pickle
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.clock import SystemClock
from omnigraph.graph import Graph, ReadTarget
from omnigraph.query.params import ParamsError
from omnigraph.read.access.column_cache import USES_MIN
from omnigraph.read.access.path_chooser import TRAVERSAL_MODE, TraversalSettingError
from omnigraph.read.limits import (
    Guard,
    Limits,
    MemoryLimitError,
    QueryCancelledError,
    QueryTimeoutError,
    RowLimitError,
)
from omnigraph.store.errors import DatasetVersionNotFoundError
from omnigraph.syntax import SourceError

SCHEMA = """\
node N { key: String @key  vec: Vector(2)? }
edge Link: N -> N
"""
HUB = 400
ALL = "query q() { match { $a: N } return { $a } }"


class SteppingClock(SystemClock):
    """Each look at the clock takes a second."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def monotonic_s(self) -> float:
        self.seconds += 1.0
        return self.seconds


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(tmp_path_factory.mktemp("limits") / "g", SCHEMA, durability="process")
    graph.load(b"\n".join(hub_lines()), mode="append")
    return graph


def hub_lines() -> Iterator[bytes]:
    for number in range(HUB):
        yield json.dumps({"type": "N", "data": {"key": f"n{number}"}}).encode()
    for number in range(1, HUB):
        ends = {"from": "n0", "to": f"n{number}"}
        yield json.dumps({"edge": "Link", **ends}).encode()
        yield json.dumps({"edge": "Link", "from": ends["to"], "to": "n0"}).encode()


def test_a_cross_product_of_a_trillion_rows_is_refused_before_it_is_made(graph: Graph) -> None:
    names = [f"$v{number}: N" for number in range(5)]
    text = f"query q() {{ match {{ {'  '.join(names)} }} return {{ count($v0) as n }} }}"
    tracemalloc.start()
    with pytest.raises(MemoryLimitError) as refused:
        graph.query(text, memory_max=64 * 2**20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 * 2**20
    assert refused.value.needed > refused.value.memory_max
    assert refused.value.hint


def test_the_default_bound_also_refuses_a_trillion_rows(graph: Graph) -> None:
    names = "  ".join(f"$v{number}: N" for number in range(5))
    with pytest.raises(MemoryLimitError):
        graph.query(f"query q() {{ match {{ {names} }} return {{ $v0 }} limit 1 }}")


@pytest.mark.parametrize("mode", ["indexed", "csr"])
def test_twenty_hops_around_a_hub_end_with_each_node_once(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv(TRAVERSAL_MODE, mode)
    text = 'query q() { match { $a: N {key: "n1"}  $a link{1,20} $b } return { count($b) as n } }'
    assert graph.query(text).json_rows() == [{"n": HUB - 1}]


@pytest.mark.parametrize("mode", ["indexed", "csr"])
def test_an_expansion_beyond_the_memory_bound_is_refused(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv(TRAVERSAL_MODE, mode)
    text = "query q() { match { $a: N  $a link{1,20} $b } return { count($b) as n } }"
    with pytest.raises(MemoryLimitError):
        graph.query(text, memory_max=2**20)


TEXT_BYTES = 100_000
REPEATED = """query q() {
    match { $a: Doc {key: "long"}  $b: Doc } return { $a.text, $b.key }
}"""


@pytest.fixture
def documents(tmp_path: Path) -> Graph:
    schema = "node Doc { key: String @key  text: String? }"
    graph = Graph.init(tmp_path / "documents", schema, durability="process")
    rows = [{"key": "long", "text": "x" * TEXT_BYTES}, *({"key": str(n)} for n in range(99))]
    lines = (json.dumps({"type": "Doc", "data": row}).encode() for row in rows)
    graph.load(b"\n".join(lines), mode="append")
    return graph


def test_a_text_that_stands_in_every_row_counts_as_often(documents: Graph) -> None:
    for _ in range(2 * USES_MIN):
        # After some uses the column is in memory, and read in another way.
        with pytest.raises(MemoryLimitError) as refused:
            documents.query(REPEATED, memory_max=TEXT_BYTES * 50)
        assert refused.value.needed >= TEXT_BYTES * 99
        assert documents.query(REPEATED, memory_max=TEXT_BYTES * 102).row_count == 100


def test_a_text_that_was_written_just_now_counts_as_often(tmp_path: Path) -> None:
    schema = "node Doc { key: String @key  text: String?  n: I32 }"
    repeated = """query q() {
        match { $a: Doc {key: "d0"}  $b: Doc  $b.n < 100 } return { $a.text, $b.n }
    }"""
    with Graph.init(tmp_path / "g", schema, durability="process") as graph:
        rows = [{"key": f"d{n}", "text": "short", "n": n} for n in range(1_000)]
        lines = (json.dumps({"type": "Doc", "data": row}).encode() for row in rows)
        graph.load(b"\n".join(lines), mode="append")
        for _ in range(2 * USES_MIN):
            graph.query(repeated)
        longer = 'query w($t: String) { update Doc set { text: $t } where key = "d0" }'
        graph.mutate(longer, "w", {"t": "x" * TEXT_BYTES})
        with pytest.raises(MemoryLimitError):
            graph.query(repeated, memory_max=TEXT_BYTES * 50)
        assert graph.query(repeated, memory_max=TEXT_BYTES * 110).row_count == 100


def test_rows_without_a_text_cost_nothing(documents: Graph) -> None:
    text = (
        "query q() { match { $a: Doc  $b: Doc } return { $b.text } order { $b.key asc } limit 9 }"
    )
    assert documents.query(text, memory_max=TEXT_BYTES * 20).row_count == 9


def test_more_rows_than_allowed_are_no_answer(graph: Graph) -> None:
    with pytest.raises(RowLimitError) as refused:
        graph.query(ALL, rows_max=HUB - 1)
    assert (refused.value.rows, refused.value.rows_max) == (HUB, HUB - 1)
    assert graph.query(ALL, rows_max=HUB).row_count == HUB


def test_a_query_ends_after_its_time(graph: Graph) -> None:
    with pytest.raises(QueryTimeoutError, match=r"within 0 s"):
        graph.query(ALL, timeout_s=0.0)


def test_the_time_is_looked_at_inside_of_an_expansion() -> None:
    clock = SteppingClock()
    guard = Guard(Limits(timeout_s=3.0), clock)
    guard.expect(1)
    clock.seconds += 3.0
    with pytest.raises(QueryTimeoutError):
        guard.expect(1)


def test_a_cancelled_query_stops(graph: Graph) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(QueryCancelledError):
        graph.query(ALL, cancelled=cancelled)


def test_a_vector_of_the_wrong_length_or_content_is_refused(graph: Graph) -> None:
    order = "order { nearest($a.vec, $v) } limit 1"
    text = f"query q($v: Vector(2)) {{ match {{ $a: N }} return {{ $a }} {order} }}"
    for vector in ([1.0], [1.0, 2.0, 3.0], [float("nan"), 1.0], [float("inf"), 1.0]):
        with pytest.raises(ParamsError):
            graph.query(text, params={"v": vector})


def test_a_long_needle_finds_nothing_and_costs_little(graph: Graph) -> None:
    text = "query q($s: String) { match { $a: N  $a.key contains $s } return { $a } }"
    assert graph.query(text, params={"s": "(a+)+$" * 170_000}).row_count == 0


TWO_TYPES = "node Old { key: String @key }\nnode New { key: String @key }"
OLD = "query q() { match { $o: Old } return { $o } }"


def without_old(root: Path, *, allow_data_loss: bool) -> tuple[Graph, ReadTarget]:
    """Return a graph that has lost a type, and the commit that still had it."""
    graph = Graph.init(root / "g", TWO_TYPES, durability="process")
    graph.load(b'{"type": "Old", "data": {"key": "a"}}', mode="append")
    before = ReadTarget.commit(graph.head_commit_id_for_branch())
    graph.apply_schema("node New { key: String @key }", allow_data_loss=allow_data_loss)
    return graph, before


def test_a_type_that_is_gone_lives_on_in_an_old_snapshot(tmp_path: Path) -> None:
    graph, before = without_old(tmp_path, allow_data_loss=False)
    assert graph.query(OLD, target=before).json_rows() == [{"o": "a"}]
    with pytest.raises(SourceError, match="Old"):
        graph.query(OLD)


def test_an_old_snapshot_whose_rows_were_removed_for_good_says_so(tmp_path: Path) -> None:
    graph, before = without_old(tmp_path, allow_data_loss=True)
    with pytest.raises(DatasetVersionNotFoundError):
        graph.query(OLD, target=before)


def test_a_setting_that_means_nothing_is_named(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRAVERSAL_MODE, "magic")
    with pytest.raises(TraversalSettingError, match="OMNIGRAPH_TRAVERSAL_MODE"):
        graph.query("query q() { match { $a: N  $a link $b } return { $b } }")


def test_limit_errors_survive_pickling() -> None:
    error = MemoryLimitError(operator="a scan", rows=5, needed=2**21, memory_max=2**20)
    revived = pickle.loads(pickle.dumps(error))
    assert (str(revived), revived.rows, revived.code) == (str(error), 5, "OG-QUERY-MEMORY")
