"""Incremental runs: each reads what is new since the last one that was published."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from omnigraph import Graph
from omnigraph.pipelines import RunState
from support.pipelines import SCHEMA, Place, counts_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LOAD = "load: [{node: Person, from: people, mode: %s, map: {name: name, age: age}}]\n"


def source(text: str, mode: str = "merge") -> str:
    return f"sources: {{people: {text}}}\n{LOAD % mode}"


def day(number: int) -> datetime:
    return datetime(2026, 1, number)


@pytest.mark.parametrize("publish", ["direct", "merge"])
def test_rows_after_the_last_mark_are_read_once(place: Place, publish: str) -> None:
    pipeline = place.pipeline(
        source("{format: parquet, path: in, incremental: {by: age}}", "append"), publish
    )
    place.parquet("in/a.parquet", name=["ann", "bob"], age=[1, 2])
    first = pipeline.run()
    assert counts_of(first) == {"Person": (2, 0, 0, 0)}
    assert first.to_json()["watermarks"] == {"people": "2"}
    again = pipeline.run()
    assert (again.state, again.graph_commit_id) == (RunState.NOTHING_NEW, None)
    place.parquet("in/b.parquet", name=["cy", "late"], age=[3, 2])
    assert counts_of(pipeline.run()) == {"Person": (1, 0, 0, 0)}
    assert place.people() == {"ann": 1, "bob": 2, "cy": 3}
    assert len(place.operations) == 3
    assert place.graph.branches.list() == ["main"]


def test_an_overlap_brings_rows_that_come_late(place: Place) -> None:
    text = source("{format: parquet, path: in, incremental: {by: at, overlap: 2d}}")
    pipeline = place.pipeline(text, "direct")
    place.parquet("in/a.parquet", name=["ann"], age=[1], at=[day(10)])
    assert pipeline.run().watermarks["people"].value == "2026-01-10 00:00:00"
    # Rows of the overlap are read again; that alone is nothing new.
    assert pipeline.run().state is RunState.NOTHING_NEW
    place.parquet("in/b.parquet", name=["late", "old"], age=[2, 3], at=[day(9), day(7)])
    late = pipeline.run()
    assert counts_of(late) == {"Person": (1, 0, 1, 0)}
    assert late.watermarks["people"].value == "2026-01-10 00:00:00"
    assert place.people() == {"ann": 1, "late": 2}


def test_rows_that_nothing_orders_fail_the_run(place: Place) -> None:
    place.parquet("in/a.parquet", name=["ann", "bob"], age=[1, None])
    text = source("{format: parquet, path: in, incremental: {by: age}}")
    run = place.pipeline(text).run()
    assert run.state is RunState.FAILED
    assert run.error == "source 'people': 'age' orders its rows and is null in 1 of them"


def test_new_files_are_read_once_and_changed_ones_again(place: Place) -> None:
    text = source("{format: parquet, path: 'in/*.parquet', incremental: {new_files: true}}")
    pipeline = place.pipeline(text, "direct")
    assert pipeline.run().state is RunState.NOTHING_NEW
    place.parquet("in/a.parquet", name=["ann"], age=[1])
    place.parquet("in/b.parquet", name=["bob"], age=[1])
    assert counts_of(pipeline.run()) == {"Person": (2, 0, 0, 0)}
    assert pipeline.run().state is RunState.NOTHING_NEW
    place.parquet("in/c.parquet", name=["cy"], age=[1])
    place.parquet("in/b.parquet", name=["bob", "bert"], age=[2, 2])
    third = pipeline.run()
    assert counts_of(third) == {"Person": (2, 1, 0, 0)}
    inputs = json.loads(place.graph.commits.list(limit=1)[0].properties["inputs"])
    assert inputs[0]["files"] == 2
    assert pipeline.run().state is RunState.NOTHING_NEW
    assert len(place.operations) == 3


def test_changes_of_another_graph_are_followed(place: Place) -> None:
    other = Graph.init(place.folder / "other.omni", SCHEMA, auto_optimize=False)
    other.load(_people(ann=1, bob=2), mode="append")
    reading = "{format: omnigraph, path: other.omni, options: {node: Person}"
    text = source(reading + ", incremental: {version: true}}")
    pipeline = place.pipeline(text, "direct")
    assert counts_of(pipeline.run()) == {"Person": (2, 0, 0, 0)}
    assert pipeline.run().state is RunState.NOTHING_NEW
    other.load(_people(bob=3, cy=4), mode="merge")
    other.load(_people(bob=5), mode="merge")
    other.mutate('query q() { delete Person where name = "cy" }')
    followed = pipeline.run()
    assert counts_of(followed) == {"Person": (0, 1, 0, 0)}
    assert followed.watermarks["people"].value == other.commits.head_id()
    assert place.people() == {"ann": 1, "bob": 5}
    whole = place.pipeline(source(reading + "}"), "direct")
    inputs = whole.run().inputs[0]
    assert inputs.version == other.commits.head_id()
    assert inputs.uri.endswith(f"other.omni#node:Person@{inputs.version}")


def _people(**ages: int) -> bytes:
    rows = [{"type": "Person", "data": {"name": name, "age": age}} for name, age in ages.items()]
    return "\n".join(map(json.dumps, rows)).encode()


def test_a_run_that_is_interrupted_leaves_nothing_and_a_dead_one_is_repeated(place: Place) -> None:
    text = source("{format: parquet, path: in, incremental: {by: age}}")
    pipeline = place.pipeline(text)
    place.parquet("in/a.parquet", name=["ann"], age=[1])

    def interrupt(step: str) -> None:
        if step.startswith("publishing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline.run(report=interrupt)
    assert (place.operations, place.graph.branches.list()) == (["init"], ["main"])
    # The branch of a process that was killed stays.
    place.graph.branches.create("pipeline/social/dead")
    dead = pipeline.history().runs
    assert [(run.run_id, run.state) for run in dead] == [("dead", RunState.RUNNING)]
    assert counts_of(pipeline.run(run_id="dead")) == {"Person": (1, 0, 0, 0)}
    assert place.operations == ["merge", "init"]
    assert place.graph.branches.list() == ["main"]
