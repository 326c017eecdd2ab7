"""Pipelines with a trigger: every micro-batch is one commit, once; and what stops a stream."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.pipelines import Pipeline, RunRecord, RunState
from omnigraph.pipelines.record import read_record
from support.json_shapes import problems
from support.pipelines import SCHEMA, Place, counts_of
from support.terminal import Terminal

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

NOW = "trigger: {available_now: true}\n"
PEOPLE = """\
sources:
  people:
    format: parquet
    path: in
    schema: name STRING, age BIGINT
    options: {maxFilesPerTrigger: 1}
load: [{node: Person, from: people, mode: %s, map: {name: name, age: age}}]
"""


def arrive(place: Place, path: str, /, **columns: list[object]) -> None:
    """Add a file; Spark takes files in the order of their times."""
    place.parquet(path, **columns)
    now = len(list((place.folder / path).parent.iterdir()))
    os.utime(place.folder / path, (now, now))


def batches(pipeline: Pipeline, **options: bool) -> list[RunRecord]:
    """Run a stream, and return its micro-batches."""
    found: list[RunRecord] = []
    last = pipeline.run(on_batch=found.append, **options)
    assert (found[-1] if found else last) == last, last.error
    return found


def numbers(place: Place) -> list[int]:
    """Return the micro-batches in the commits, newest first."""
    runs = [read_record(commit.properties) for commit in place.graph.commits.list()]
    return [run.batch.number for run in runs if run is not None and run.batch is not None]


def checkpoint(place: Place) -> Path:
    return place.folder / "graph.omni.checkpoints" / "social" / "main"


def test_every_micro_batch_is_one_commit_and_a_repeated_one_is_skipped(place: Place) -> None:
    (place.folder / "in").mkdir()
    pipeline = place.pipeline(NOW + PEOPLE % "append", "direct")
    assert pipeline.run().state is RunState.NOTHING_NEW
    assert place.operations == ["init"]
    arrive(place, "in/a.parquet", name=["ann", "bob"], age=[1, 2])
    arrive(place, "in/b.parquet", name=["cy"], age=[3])
    first = batches(pipeline)
    assert [run.batch.number for run in first if run.batch] == [0, 1]
    assert [counts_of(run)["Person"][0] for run in first] == [2, 1]
    commit = place.graph.commits.list(limit=1)[0]
    assert json.loads(commit.properties["stream"])["batch_id"] == 1
    assert json.loads(commit.properties["inputs"])[0]["source"] == "people"
    # The process was killed after the commit and before Spark knew of it.
    for path in (checkpoint(place) / "commits").glob("*1*"):
        path.unlink()
    place.graph.branches.create(f"pipeline/social/{first[1].run_id}")
    again = batches(pipeline)
    assert [run.run_id for run in again] == [first[1].run_id]
    assert again[0].graph_commit_id == first[1].graph_commit_id
    assert place.graph.branches.list() == ["main"]
    # A micro-batch without rows leaves its mark.
    arrive(place, "in/c.parquet", name=[], age=[])
    arrive(place, "in/d.parquet", name=["dan"], age=[4], country=["ignored"])
    assert [counts_of(run)["Person"][0] for run in batches(pipeline)] == [0, 1]
    assert numbers(place) == [3, 2, 1, 0]
    assert place.people() == {"ann": 1, "bob": 2, "cy": 3, "dan": 4}
    history = pipeline.history().runs
    assert [(run.batch.number, run.state) for run in history if run.batch] == [
        (number, RunState.SUCCEEDED) for number in (3, 2, 1, 0)
    ]


def test_a_checkpoint_that_does_not_belong_to_the_graph_is_refused(place: Place) -> None:
    arrive(place, "in/a.parquet", name=["ann"], age=[1])
    arrive(place, "in/b.parquet", name=["bob"], age=[2])
    pipeline = place.pipeline(NOW + PEOPLE % "merge", "direct")
    assert len(batches(pipeline)) == 2
    kept = place.folder / "kept"
    shutil.copytree(checkpoint(place), kept)
    shutil.rmtree(checkpoint(place))
    lost = pipeline.run()
    assert lost.state is RunState.FAILED
    another = "the graph has micro-batch 1 of another checkpoint; nothing was loaded"
    assert another in str(lost.error)
    assert [run.state for run in batches(pipeline, begin_again=True)] == [RunState.SUCCEEDED] * 2
    assert numbers(place) == [1, 0, 1, 0]
    # The old one knows nothing of that.
    shutil.rmtree(checkpoint(place))
    shutil.copytree(kept, checkpoint(place))
    arrive(place, "in/c.parquet", name=["cy"], age=[3])
    old = pipeline.run(begin_again=True)
    assert another in str(old.error)
    assert place.people() == {"ann": 1, "bob": 2}
    elsewhere = place.pipeline(
        NOW.replace("}", f", checkpoint: {kept}}}") + PEOPLE % "merge", "direct"
    )
    other = Graph.init(place.folder / "other.omni", SCHEMA)
    moved = Pipeline.load(elsewhere.file.path, graph=other.uri).run()
    assert "the graph has no micro-batch of it" in str(moved.error)
    assert len(other.commits.list()) == 1


def test_checks_that_fail_stop_the_stream_and_the_micro_batch_comes_again(place: Place) -> None:
    checks = "checks: [{name: ages, sql: SELECT max(age) AS n FROM Person, expect: n < %d}]\n"
    reject = "on_error: {policy: quarantine, dir: out, max: 1}\n"
    text = NOW + PEOPLE % "merge" + reject
    arrive(place, "in/a.parquet", name=["ann", None], age=[1, 1])
    arrive(place, "in/b.parquet", name=["bob"], age=[50])
    first, second = batches(place.pipeline(text + checks % 50))
    assert (first.state, counts_of(first)) == (RunState.SUCCEEDED, {"Person": (1, 0, 0, 1)})
    assert (second.state, second.checks[0].value) == (RunState.CHECKS_FAILED, 50)
    assert (place.people(), place.people(second.branch or "")) == (
        {"ann": 1},
        {"ann": 1, "bob": 50},
    )
    assert place.operations == ["merge", "init"]
    assert place.pipeline(text).history().runs[0].to_json() == second.to_json()
    arrive(place, "in/c.parquet", name=["ann"], age=[7])
    repaired = batches(place.pipeline(text + checks % 51))
    assert repaired[0].run_id == second.run_id
    assert [run.state for run in repaired] == [RunState.SUCCEEDED] * 2
    assert place.people() == {"ann": 7, "bob": 50}
    assert place.graph.branches.list() == ["main"]
    assert len(list((place.folder / "out").iterdir())) == 1


def test_several_streams_and_a_static_source_are_one_micro_batch(place: Place) -> None:
    arrive(place, "in/a.parquet", name=["ann", "bob"], code=["de", "fr"])
    place.parquet("edges/a.parquet", a=["ann"], b=["bob"])
    (place.folder / "countries.csv").write_text("code,label\nde,Germany\nfr,France\n")
    text = """\
sources:
  people: {format: parquet, path: in}
  follows: {format: parquet, path: edges}
  countries: {format: csv, path: countries.csv, options: {header: true}, stream: false}
views:
  placed: SELECT name, label AS country FROM people JOIN countries USING (code)
load:
  - {node: Person, from: placed, mode: merge}
  - {edge: Knows, from: follows, mode: merge, src: a, dst: b, map: {id: "concat(a, b)"}}
"""
    (only,) = batches(place.pipeline(NOW + text, "direct"))
    assert counts_of(only) == {"Person": (2, 0, 0, 0), "Knows": (1, 0, 0, 0)}
    assert place.operations == ["load", "init"]
    (place.folder / "countries.csv").write_text("code,label\nit,Italy\n")
    arrive(place, "in/b.parquet", name=["cy"], code=["it"])
    (more,) = batches(place.pipeline(NOW + text, "direct"))
    assert counts_of(more) == {"Person": (1, 0, 0, 0), "Knows": (0, 0, 0, 0)}
    # A checkpoint knows its streams by their order.
    first, second = text.splitlines(keepends=True)[1:3]
    arrive(place, "in/c.parquet", name=["dan"], code=["it"])
    wrong = place.pipeline(NOW + text.replace(first + second, second + first), "direct").run()
    assert "it was made for other sources than the file has now" in str(wrong.error)
    assert len(batches(place.pipeline(NOW + text, "direct"))) == 1


def test_a_stream_is_stopped_after_the_micro_batch_that_is_running(place: Place) -> None:
    for number in range(3):
        arrive(place, f"in/{number}.parquet", name=[f"p{number}"], age=[number])
    every = "trigger: {every: 0s}\n"
    stop = threading.Event()
    found: list[RunRecord] = []

    def stopping(step: str) -> None:
        if step.startswith("loading"):
            stop.set()

    pipeline = place.pipeline(every + PEOPLE % "append", "direct")
    last = pipeline.run(on_batch=found.append, report=stopping, stop=stop)
    assert (last.state, len(found)) == (RunState.SUCCEEDED, 1)
    now = place.pipeline(NOW + PEOPLE % "append", "direct")
    assert len(batches(now)) in (2, 3)
    assert numbers(place) == [2, 1, 0]
    assert place.people() == {"p0": 0, "p1": 1, "p2": 2}


def test_a_source_that_changes_its_columns_loses_nothing(place: Place) -> None:
    arrive(place, "in/a.parquet", name=["ann"], age=[1])
    text = PEOPLE.replace("    schema: name STRING, age BIGINT\n", "") % "merge"
    pipeline = place.pipeline(NOW + text, "direct")
    assert len(batches(pipeline)) == 1
    arrive(place, "in/b.parquet", name=["bob"], age=[2], country=["de"])
    arrive(place, "in/c.parquet", name=["cy"], years=[3])
    more, lacking = batches(pipeline)
    assert json.loads(place.graph.commits.list(limit=1)[0].properties["inputs"])[0]["files"] == 1
    assert (more.state, lacking.state) == (RunState.SUCCEEDED, RunState.FAILED)
    problem = "has no column 'age', which the stream has had from its start"
    assert str(lacking.error).endswith(problem)
    arrive(place, "in/c.parquet", name=["cy"], age=["3"])
    changed = pipeline.run()
    assert changed.state is RunState.FAILED
    assert "Parquet column [age]" in str(changed.error)
    arrive(place, "in/c.parquet", name=["cy"], age=[3])
    arrive(place, "in/d.parquet", name=["ann", "ann"], age=[4, 5])
    mended, twice = batches(pipeline)
    assert (mended.state, twice.state) == (RunState.SUCCEEDED, RunState.FAILED)
    assert place.people() == {"ann": 1, "bob": 2, "cy": 3}


def test_a_stream_prints_an_event_for_every_micro_batch(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.folder)
    place.write(NOW + PEOPLE % "append", "direct")
    arrive(place, "in/a.parquet", name=["ann"], age=[1])
    arrive(place, "in/b.parquet", name=["ann"], age=[2])
    omnigraph = Terminal(capsys)
    plan = omnigraph("pipeline", "plan", "social.yaml", "--json")
    assert problems("pipeline-plan", plan.json) == []
    assert plan.json["trigger"] == {"available_now": True}
    failed = omnigraph("pipeline", "run", "social.yaml", "--json", "--quiet")
    assert failed.code == 1
    events = [json.loads(line) for line in failed.out.splitlines()]
    assert [problems("pipeline-run", one) for one in events] == [[], []]
    assert [(one["batch_id"], one["state"]) for one in events] == [(0, "succeeded"), (1, "failed")]
    assert "ann" in events[1]["error"]
    status = omnigraph("pipeline", "status", "social.yaml", "--json")
    assert status.json["last_run"] == events[1]
    place.write(NOW + PEOPLE % "merge", "direct")
    mended = omnigraph("pipeline", "run", "social.yaml", "--quiet")
    assert (mended.code, mended.out.splitlines()[1]) == (0, "  Person: 1 updated")
    named = omnigraph("pipeline", "run", "social.yaml", "--run-id", "x")
    assert (named.code, "its runs take no id" in named.err) == (1, True)


FOLLOWING = """\
sources:
  people: {format: omnigraph, path: other.omni, options: {node: Person}}
  knows: {format: omnigraph, path: other.omni, options: {edge: Knows}}
views:
  adults: SELECT * FROM people WHERE age >= 18
load:
  - {node: Person, from: adults, mode: merge, map: {name: "upper(name)", age: age}}
  - {edge: Knows, from: knows, mode: merge, src: upper(src), dst: upper(dst), map: {id: id}}
"""


def test_one_graph_follows_another_with_updates_and_deletions(place: Place) -> None:
    other = Graph.init(place.folder / "other.omni", SCHEMA, auto_optimize=False)
    pipeline = place.pipeline(NOW + FOLLOWING, "direct")

    def load(*lines: dict[str, object]) -> None:
        other.load("\n".join(map(json.dumps, lines)).encode(), mode="merge")

    def person(name: str, age: int) -> dict[str, object]:
        return {"type": "Person", "data": {"name": name, "age": age}}

    def edge(src: str, dst: str) -> dict[str, object]:
        return {"edge": "Knows", "from": src, "to": dst, "data": {"id": f"{src}-{dst}"}}

    def edges() -> list[str]:
        text = (
            "query q() { match { $a: Person $b: Person $a knows $b } return { $a.name, $b.name } }"
        )
        rows = place.graph.query(text).to_pylist()
        return sorted(f"{row['a.name']}-{row['b.name']}" for row in rows)

    load(person("ann", 30), person("bob", 40), person("cy", 50), person("kid", 7))
    load(edge("ann", "bob"), edge("bob", "cy"), edge("ann", "cy"))
    assert len(batches(pipeline)) == 1
    assert place.people() == {"ANN": 30, "BOB": 40, "CY": 50}
    assert edges() == ["ANN-BOB", "ANN-CY", "BOB-CY"]
    # A new row, a changed one, one that the view leaves out now, and deletions.
    load(person("dan", 20), person("ann", 31), person("kid", 18))
    other.mutate('query q() { delete Knows where from = "ann" and to = "bob" }')
    other.mutate('query q() { delete Person where name = "cy" }')
    load(person("bob", 41), edge("dan", "ann"))
    load(person("bob", 17))
    other.mutate('query q() { delete Knows where from = "bob" }')
    (second,) = batches(pipeline)
    assert place.people() == {"ANN": 31, "DAN": 20, "KID": 18}
    assert edges() == ["DAN-ANN"]
    assert {one.type_name: one.deleted for one in second.counts}["Person"] == 2
    assert len(place.operations) == 3
    assert second.watermarks["people"].value == other.commits.head_id()
    # One commit at a time; a row that came and went leaves nothing.
    slow = FOLLOWING.replace("{node: Person}", "{node: Person, maxCommitsPerTrigger: 1}")
    load(person("eve", 60))
    other.mutate('query q() { delete Person where name = "eve" }')
    more = batches(place.pipeline(NOW + slow, "direct"))
    assert [len(run.counts) for run in more] == [2, 2]
    assert place.people() == {"ANN": 31, "DAN": 20, "KID": 18}
    assert batches(pipeline) == []
