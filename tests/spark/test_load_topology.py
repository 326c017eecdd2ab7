"""A load by tasks leaves the topology of its edges behind, equal to the one that would be built."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import UnavailableError
from omnigraph.graph import Graph
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.cache import Topologies, table_keys
from omnigraph.search.topology.store import TopologyStore
from omnigraph.search.topology.topology import TopologyStates
from omnigraph.spark.load import topology as load_topology
from omnigraph.spark.load.workers import Tuning
from omnigraph.write.load.options import OnError
from omnigraph.write.stage.delta import WriteMode
from support.inline_jobs import InlineFrame, InlineJobs, inline_load
from support.places import Place, repository_of
from support.s3 import serve_s3

APPEND, MERGE, OVERWRITE = WriteMode.APPEND, WriteMode.MERGE, WriteMode.OVERWRITE
IN_TASKS = Tuning(driver_rows_max=0)
SPLIT_SETS = Tuning(driver_rows_max=0, set_rows_max=100)
SCHEMA = """\
node P { k: String @key  age: I32? }
node Q { note: String? }
edge K: P -> P { w: I32? }
edge At: P -> Q
"""
PEOPLE, EDGES = 500, 12_000


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    place = str(tmp_path / "graph")
    with Graph.init(place, SCHEMA, durability="process", auto_optimize=False) as made:
        yield made


def people(first: int = 0, count: int = PEOPLE, age: int = 1) -> pa.Table:
    order = np.random.default_rng(1).permutation(count) + first
    names = pa.array([f"p{number}" for number in order])
    return pa.table({"k": names, "age": pa.array([age] * count, pa.int32())})


def edges(count: int = EDGES, people_count: int = PEOPLE, seed: int = 2) -> pa.Table:
    random = np.random.default_rng(seed)
    ends = random.integers(0, people_count, (2, count))
    names = ([f"p{number}" for number in side] for side in ends)
    return pa.table(dict(zip(("src", "dst"), names, strict=True)))


def places(count: int = 50) -> pa.Table:
    return pa.table({"id": [f"q{number}" for number in range(count)], "note": [None] * count})


def visits(count: int = EDGES) -> pa.Table:
    random = np.random.default_rng(4)
    starts, ends = random.integers(0, PEOPLE, count), random.integers(0, 50, count)
    return pa.table({"src": [f"p{n}" for n in starts], "dst": [f"q{n}" for n in ends]})


def stored(graph: Graph) -> Topologies:
    return Topologies(TopologyStore(repository_of(graph).store, is_writable=False))


def leaves(graph: Graph, name: str) -> bool:
    """Whether a file holds exactly these edges."""
    edge, snapshot = graph.catalog().edge_types[name], graph.snapshot()
    states = TopologyStates(*(TableState.of(snapshot.open(key)) for key in table_keys(edge)))
    return TopologyStore(repository_of(graph).store, is_writable=False).has(states)


def check(graph: Graph, *names: str) -> None:
    """Compare what is stored with what would be built, array by array."""
    snapshot = graph.snapshot()
    for name in names:
        assert leaves(graph, name), name
        edge = graph.catalog().edge_types[name]
        found, built = stored(graph).get(snapshot, edge), Topologies(None).get(snapshot, edge)
        assert found.states.key == built.states.key
        assert found.dangling == built.dangling
        for side in ("sources", "targets", "edges"):
            mine, theirs = getattr(found, side), getattr(built, side)
            assert mine.count == theirs.count
            assert np.array_equal(mine.row_ids(), theirs.row_ids()), (name, side)
        for mine, theirs in ((found.out, built.out), (found.incoming, built.incoming)):
            for field in fields(mine):
                left, right = getattr(mine, field.name), getattr(theirs, field.name)
                assert np.array_equal(left, right), (name, field.name)
                assert getattr(left, "dtype", None) == getattr(right, "dtype", None), field.name


ALL: dict[str, Any] = {"P": people(), "Q": places(), "K": edges(), "At": visits()}


@pytest.mark.parametrize("tuning", [None, IN_TASKS, SPLIT_SETS])
@pytest.mark.parametrize("mode", [APPEND, OVERWRITE, MERGE])
def test_a_first_load_leaves_every_topology(
    graph: Graph, mode: WriteMode, tuning: Tuning | None
) -> None:
    inline_load(graph, ALL, mode=mode, tuning=tuning)
    check(graph, "K", "At")


def test_ends_that_staging_has_looked_up_are_not_looked_up_again(graph: Graph) -> None:
    jobs = InlineJobs()
    inline_load(graph, ALL, mode=APPEND, tuning=IN_TASKS, jobs=jobs)
    assert jobs.stages[-3:] == ["numbering rows", "arranging edges", "writing topologies"]
    assert "looking up ends" not in jobs.stages


def test_edges_that_come_after_their_nodes_leave_their_topology(graph: Graph) -> None:
    inline_load(graph, {"P": people(), "Q": places()}, mode=APPEND, tuning=IN_TASKS)
    assert not leaves(graph, "K")
    jobs = InlineJobs()
    inline_load(
        graph, {"P": people(PEOPLE, 100), "K": edges(people_count=600)},
        mode=APPEND, tuning=IN_TASKS, jobs=jobs,
    )  # fmt: skip
    check(graph, "K")
    assert "looking up ends" not in jobs.stages


def test_edges_without_nodes_in_the_load_leave_their_topology(graph: Graph) -> None:
    inline_load(graph, {"P": people()}, mode=APPEND, tuning=IN_TASKS)
    inline_load(graph, {"K": edges()}, mode=APPEND, tuning=IN_TASKS)
    check(graph, "K")


def test_an_append_of_most_edges_builds_the_topology_of_all(graph: Graph) -> None:
    inline_load(graph, {"P": people(), "K": edges(3_000)}, mode=APPEND, tuning=IN_TASKS)
    assert not leaves(graph, "K"), "it has too few edges for a file"
    inline_load(graph, {"K": edges(EDGES, seed=7)}, mode=APPEND, tuning=IN_TASKS)
    check(graph, "K")


def test_an_append_of_few_edges_leaves_the_topology_to_be_extended(graph: Graph) -> None:
    inline_load(graph, {"P": people(), "K": edges()}, mode=APPEND, tuning=IN_TASKS)
    jobs = InlineJobs()
    inline_load(graph, {"K": edges(1_000, seed=7)}, mode=APPEND, tuning=IN_TASKS, jobs=jobs)
    assert "arranging edges" not in jobs.stages
    assert not leaves(graph, "K")
    assert stored(graph).has_base(graph.snapshot(), graph.catalog().edge_types["K"])
    # Two such appends in a row may leave nothing to extend: then it is built.
    inline_load(graph, {"K": edges(1_000, seed=8)}, mode=APPEND, tuning=IN_TASKS, jobs=jobs)
    assert "arranging edges" in jobs.stages
    check(graph, "K")


def test_a_merge_that_rewrites_nodes_and_edges_leaves_the_topology(graph: Graph) -> None:
    numbered = edges().append_column("id", pa.array([f"e{number}" for number in range(EDGES)]))
    first = numbered.append_column("w", pa.array([1] * EDGES, pa.int32()))
    inline_load(graph, {"P": people(), "K": first}, mode=APPEND, tuning=IN_TASKS)
    changed = numbered.append_column("w", pa.array([2] * EDGES, pa.int32())).slice(0, 8_000)
    data = {"P": people(100, PEOPLE, age=2), "K": changed}
    inline_load(graph, data, mode=MERGE, tuning=IN_TASKS)
    check(graph, "K")


def test_overwritten_nodes_leave_the_topology_of_edges_that_stay(graph: Graph) -> None:
    inline_load(graph, ALL, mode=APPEND, tuning=IN_TASKS)
    jobs = InlineJobs()
    inline_load(graph, {"P": people(age=5)}, mode=OVERWRITE, tuning=IN_TASKS, jobs=jobs)
    assert "looking up ends" in jobs.stages
    check(graph, "K", "At")


def test_edges_that_go_with_their_nodes_are_in_no_topology(graph: Graph) -> None:
    inline_load(graph, ALL, mode=APPEND, tuning=IN_TASKS)
    fewer = {"P": people(count=480)}
    inline_load(graph, fewer, mode=OVERWRITE, tuning=IN_TASKS, cascade=True)
    check(graph, "K", "At")


def test_records_of_all_types_leave_their_topology(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    lines = [{"type": "P", "data": {"k": f"p{number}"}} for number in range(PEOPLE)]
    pairs = edges().to_pylist()
    lines += [{"edge": "K", "from": row["src"], "to": row["dst"]} for row in pairs]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    inline_load(graph, file, mode=APPEND, tuning=IN_TASKS)
    check(graph, "K")


def test_many_small_partitions_that_are_written_again_leave_it_too(graph: Graph) -> None:
    frames: dict[str, Any] = {
        "P": InlineFrame(people(), partitions=20), "K": InlineFrame(edges(), partitions=20),
    }  # fmt: skip
    inline_load(graph, frames, mode=APPEND, tuning=IN_TASKS)
    check(graph, "K")


def test_rows_that_are_rejected_leave_it_too(graph: Graph, tmp_path: Path) -> None:
    bad = pa.concat_tables([edges(), pa.table({"src": ["p1"], "dst": ["nobody"]})])
    result = inline_load(
        graph, {"P": people(), "K": bad}, mode=APPEND, tuning=IN_TASKS,
        on_error=OnError.QUARANTINE, quarantine=tmp_path / "bad",
    )  # fmt: skip
    assert result.inserted == PEOPLE + EDGES
    check(graph, "K")


def test_loops_and_parallel_edges_are_kept(graph: Graph) -> None:
    pairs = pa.table({"src": ["p1", "p1", "p2"] * 4_000, "dst": ["p1", "p2", "p1"] * 4_000})
    inline_load(graph, {"P": people(), "K": pairs}, mode=APPEND, tuning=IN_TASKS)
    check(graph, "K")


def test_pieces_of_any_number_make_the_same_topology(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_topology, "PIECE_EDGES", 1_700)
    inline_load(graph, ALL, mode=APPEND, tuning=IN_TASKS)
    check(graph, "K", "At")


def test_a_graph_on_an_object_store_gets_its_topology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with serve_s3() as server:
        place = Place(f"s3://{server.bucket}/bulk/topology", server.options)
        with place.init(SCHEMA) as graph:
            inline_load(graph, ALL, mode=APPEND, tuning=IN_TASKS)
            check(graph, "K", "At")
            assert list(tmp_path.glob("omnigraph-sets-*")) == [], "the host is left as it was"


def test_a_branch_has_its_own_topology(graph: Graph) -> None:
    inline_load(graph, {"P": people()}, mode=APPEND, tuning=IN_TASKS)
    graph.branch_create("dev")
    with Graph.open(graph.uri, branch="dev", durability="process") as dev:
        inline_load(dev, {"P": people(PEOPLE, 50), "K": edges()}, mode=APPEND, tuning=IN_TASKS)
        check(dev, "K")
    assert not leaves(graph, "K")


class Dies(InlineJobs):
    """Fails in one stage."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage = stage

    def calls(self, stage: str, function: Any, asked: Any) -> list[Any]:
        if stage == self._stage:
            raise UnavailableError("the executors are gone")
        return super().calls(stage, function, asked)


@pytest.mark.parametrize("stage", ["numbering rows", "arranging edges", "writing topologies"])
def test_a_topology_that_cannot_be_built_fails_no_load_and_leaves_no_file(
    graph: Graph, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = inline_load(graph, ALL, mode=APPEND, tuning=IN_TASKS, jobs=Dies(stage))
    assert result.inserted == PEOPLE + 50 + 2 * EDGES
    assert "the executors are gone" in caplog.text
    root = Path(graph.uri)
    assert not (root / "_topology").exists()
    left = [name for _, _, names in os.walk(root / "__staging") for name in names]
    assert left == []
