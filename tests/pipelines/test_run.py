"""Runs of pipelines on Spark: load, check, publish; and what goes wrong on the way."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.pipelines import Pipeline, PipelineFileError, RunState
from omnigraph.pipelines.record import read_record
from support.json_shapes import problems
from support.pages import ROOT
from support.pipelines import Place, counts_of
from support.terminal import Terminal

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SOURCES = """\
sources:
  people: {format: parquet, path: in/*.parquet}
  follows: {format: csv, path: follows.csv, options: {header: true}}
"""
LOAD = """\
load:
  - {node: Person, from: adults, mode: merge, map: {name: full_name, age: age, country: cc}}
  - edge: Knows
    from: follows
    mode: merge
    src: follower
    dst: followee
    map: {id: "concat(follower, '-', followee)", since: to_date(since)}
"""
VIEWS = "views:\n  adults: SELECT *, upper(country) AS cc FROM people WHERE age >= 18\n"
CHECKS = """\
checks:
  - name: orphans
    gq: 'query q() { match { $p: Person not { $p knows $_ } } return { count($p) as n } }'
    expect: n <= 100
  - {name: ages, sql: SELECT count(*) AS n FROM Person WHERE age > 130, expect: n = 0}
expectations:
  - {type: Person, rules: [{range: {age: [0, 30]}}], severity: warn}
properties: {team: data}
"""
WHOLE = SOURCES + VIEWS + LOAD + CHECKS
PEOPLE = """\
sources: {people: {format: parquet, path: in}}
load: [{node: Person, from: people, mode: merge}]
"""


@pytest.fixture
def world(place: Place) -> Place:
    place.parquet(
        "in/a.parquet", full_name=["ann", "bob", "cy"], age=[30, 40, 7], country=["de", "fr", "it"]
    )
    follows = "follower,followee,since\nann,bob,2020-01-01\nbob,ann,2021-05-05\n"
    (place.folder / "follows.csv").write_text(follows)
    return place


def test_a_run_is_checked_on_its_branch_and_published_as_one_commit(world: Place) -> None:
    pipeline = world.pipeline(WHOLE)
    assert pipeline.history().runs == ()
    run = pipeline.run(run_id="first")
    assert run.state is RunState.SUCCEEDED
    assert counts_of(run) == {"Person": (2, 0, 0, 0), "Knows": (2, 0, 0, 0)}
    assert [(one.name, one.value, one.passed) for one in run.checks] == [
        ("orphans", 0, True),
        ("ages", 0, True),
        ("Person: range age", 1, False),
    ]
    assert world.people() == {"ann": 30, "bob": 40}
    assert world.operations == ["merge", "init"]
    assert world.graph.branches.list() == ["main"]
    commit = world.graph.commits.list(limit=1)[0]
    assert commit.graph_commit_id == run.graph_commit_id
    assert commit.properties["team"] == "data"
    job = json.loads(commit.properties["job"])
    assert (job["namespace"], job["name"], job["run_id"]) == ("pipeline", "social", "first")
    outputs = json.loads(commit.properties["outputs"])
    assert outputs["Person"]["inserted"] == 2
    assert json.loads(commit.properties["columns"])["Knows.src"] == ["follows.follower"]
    # The record in the commit says what the run has said.
    read = read_record(commit.properties)
    assert read is not None
    again = pipeline.run(run_id="first")
    assert again.to_json() == run.to_json()
    assert world.operations == ["merge", "init"]
    second = pipeline.run()
    assert counts_of(second) == {"Person": (0, 0, 2, 0), "Knows": (0, 0, 2, 0)}
    assert [one.run_id for one in pipeline.history().runs] == [second.run_id, "first"]


def test_a_run_whose_checks_fail_stays_on_its_branch(world: Place) -> None:
    checks = """
checks:
  - {name: ages, sql: SELECT max(age) AS oldest FROM Person, expect: oldest < 40}
  - {name: broken, sql: "SELECT 1 / count(*) AS n FROM Person WHERE age > 200", expect: n = 0}
"""
    pipeline = world.pipeline(SOURCES + VIEWS + LOAD + checks)
    run = pipeline.run(run_id="bad")
    assert run.state is RunState.CHECKS_FAILED
    assert [(one.value, one.passed) for one in run.checks] == [(40, False), (None, False)]
    assert "Division by zero" in (run.checks[1].error or "")
    assert (world.people(), world.people("pipeline/social/bad")) == ({}, {"ann": 30, "bob": 40})
    assert world.operations == ["init"]
    # The history tells the same, and the run can be repeated under its id.
    assert pipeline.history().runs[0].to_json() == run.to_json()
    mended = world.pipeline(SOURCES + VIEWS + LOAD).run(run_id="bad")
    assert mended.state is RunState.SUCCEEDED
    assert world.graph.branches.list() == ["main"]


def test_a_run_for_review_is_published_by_the_merge_of_its_branch(world: Place) -> None:
    people = PEOPLE.replace("path: in", "path: in, incremental: {by: age}")
    pipeline = world.pipeline(people + "views: {}\n", "branch")
    world.parquet("in/a.parquet", name=["ann"], age=[30])
    run = pipeline.run(run_id="r")
    assert (run.state, run.branch) == (RunState.SUCCEEDED, "pipeline/social/r")
    assert world.people() == {}
    assert pipeline.run(run_id="r").graph_commit_id == run.graph_commit_id
    assert pipeline.history().watermarks == {}
    world.graph.branches.merge("pipeline/social/r")
    assert pipeline.history().watermarks["people"].value == "30"
    assert pipeline.run().state is RunState.NOTHING_NEW


def test_rows_that_break_a_rule_are_rejected_and_counted_in_the_commit(world: Place) -> None:
    world.parquet("in/a.parquet", name=["ann", None, "cy"], age=[30, 1, 2**40])
    text = PEOPLE + "on_error: {policy: quarantine, dir: rejects, max: 2}\n"
    run = world.pipeline(text, "direct").run(run_id="r")
    assert counts_of(run) == {"Person": (1, 0, 0, 2)}
    assert world.operations == ["load", "init"]
    assert (world.folder / "rejects" / "r").is_dir()
    world.parquet("in/b.parquet", name=[None], age=[1])
    failed = world.pipeline(text, "direct").run(run_id="s")
    assert failed.state is RunState.FAILED
    assert world.operations == ["load", "init"]
    assert world.pipeline(text).history().runs[0].error == failed.error


def test_a_quarantine_without_room_fails_the_run_and_publishes_nothing(world: Place) -> None:
    rows = 4_000
    names = ["ann", *[None] * rows]
    world.parquet("in/a.parquet", name=names, country=["x" * 200] * len(names))
    pipeline = world.pipeline(PEOPLE + "on_error: {policy: quarantine, dir: rejects}\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(text: str) -> None:
        if text.startswith("loading"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))

    try:
        run = pipeline.run(report=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert run.state is RunState.FAILED
    assert "cannot be written: File too large" in (run.error or "")
    assert world.operations == ["init"]


def test_steps_of_different_modes_are_published_together(world: Place) -> None:
    world.graph.load(b'{"type": "Person", "data": {"name": "old", "age": 1}}', mode="append")
    load = """
load:
  - {node: Person, from: people, mode: overwrite, map: {name: full_name, age: age}}
  - {node: Person, from: people, mode: merge, map: {name: "concat(full_name, '!')"}}
  - {node: Person, from: people, mode: merge, map: {name: "concat(full_name, '?')", age: age}}
"""
    text = SOURCES + load
    run = world.pipeline(text, "direct").run()
    assert world.people() == {
        "ann": 30,
        "bob": 40,
        "cy": 7,
        "ann?": 30,
        "bob?": 40,
        "cy?": 7,
        "ann!": None,
        "bob!": None,
        "cy!": None,
    }
    assert world.operations == ["merge", "load", "init"]
    assert [(one.inserted, one.deleted) for one in run.counts] == [(9, 1)]


def test_a_node_and_an_edge_of_one_name_are_counted_apart(world: Place) -> None:
    schema = "node Likes { name: String @key }\nedge Likes: Likes -> Likes\n"
    other = Graph.init(world.folder / "likes.omni", schema)
    world.parquet("in/likes.parquet", a=["x", "y"], b=["y", "x"])
    text = """\
sources: {likes: {format: parquet, path: in/likes.parquet}}
load:
  - {node: Likes, from: likes, mode: merge, map: {name: a}}
  - {edge: Likes, from: likes, mode: append, src: a, dst: b, map: {}}
"""
    for publish in ("merge", "direct"):
        file = world.pipeline(text, publish).file
        run = Pipeline.load(file.path, graph=other.uri).run()
        found = [(one.type_name, one.is_edge, one.inserted) for one in run.counts]
        assert found[1] == ("edge:Likes", True, 2), run.error
        read = read_record(other.commits.list(limit=1)[0].properties)
        assert read is not None
        assert read.counts == run.counts


def test_a_broken_mapping_is_found_before_anything_is_written(world: Place) -> None:
    pipeline = world.pipeline(SOURCES + VIEWS.replace("country", "contry") + LOAD)
    with pytest.raises(PipelineFileError) as caught:
        pipeline.run()
    assert [one.code for one in caught.value.diagnostics] == ["bad_sql"]
    assert "contry" in caught.value.diagnostics[0].message
    assert (world.operations, world.graph.branches.list()) == (["init"], ["main"])


def test_a_source_that_vanishes_during_a_run_fails_it(world: Place) -> None:
    world.parquet("in/a.parquet", name=["ann"], age=[30])

    def vanish(text: str) -> None:
        if text.startswith("loading"):
            shutil.rmtree(world.folder / "in")

    run = world.pipeline(PEOPLE).run(run_id="r", report=vanish)
    assert run.state is RunState.FAILED
    assert "does not exist" in (run.error or "").lower()
    assert world.operations == ["init"]
    missing = world.pipeline(PEOPLE).run(run_id="s")
    assert missing.state is RunState.FAILED
    assert "Path does not exist" in (missing.error or "")
    states = [(one.run_id, one.state) for one in world.pipeline(PEOPLE).history().runs]
    assert states == [("s", RunState.FAILED), ("r", RunState.FAILED)]


@pytest.mark.parametrize("publish", ["direct", "merge"])
def test_of_two_runs_at_once_the_second_to_publish_is_refused(world: Place, publish: str) -> None:
    world.parquet("in/a.parquet", name=["ann"], age=[30])
    pipeline = world.pipeline(PEOPLE, publish)

    def overtake(text: str) -> None:
        if text.startswith("loading") and not overtaken:
            overtaken.append("inner")
            assert pipeline.run(run_id="inner").state is RunState.SUCCEEDED

    overtaken: list[str] = []
    run = pipeline.run(run_id="outer", report=overtake)
    assert run.state is RunState.FAILED
    assert run.error == "run 'inner' of pipeline 'social' was published during this run"
    assert len(world.operations) == 2


def test_a_run_that_another_process_begins_again_is_given_up(world: Place) -> None:
    world.parquet("in/a.parquet", name=["ann"], age=[30])
    pipeline = world.pipeline(PEOPLE + "checks: [{name: c, sql: TABLE Person, expect: rows = 1}]\n")
    begun: list[str] = []

    def begin_again(text: str) -> None:
        if text.startswith("checking") and not begun:
            begun.append(text)
            world.parquet("in/b.parquet", name=["bob"], age=[40])
            inner = pipeline.run(run_id="r")
            assert (inner.state, counts_of(inner)) == (
                RunState.CHECKS_FAILED,
                {"Person": (2, 0, 0, 0)},
            )

    run = pipeline.run(run_id="r", report=begin_again)
    assert run.error == "run 'r' of pipeline 'social' was begun again by another process"
    assert (world.people(), world.operations) == ({}, ["init"])
    assert world.people("pipeline/social/r") == {"ann": 30, "bob": 40}


def test_a_secret_is_in_no_commit_and_no_message(
    world: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2secret")
    source = "{format: jdbc, options: {url: 'jdbc:nothing://h/x?password=${PASSWORD}', dbtable: t}}"
    text = PEOPLE.replace("{format: parquet, path: in}", source)
    run = world.pipeline(text).run()
    assert run.state is RunState.FAILED
    assert "no JDBC driver" in (run.error or "")
    world.parquet("hunter2secret/a.parquet", name=["ann"], age=[30])
    text = PEOPLE.replace("path: in", 'path: "${PASSWORD}"')
    mapped = text.replace(
        "mode: merge", "mode: merge, map: {name: \"concat(name, '${PASSWORD}')\"}"
    )
    plan = json.dumps(world.pipeline(mapped).plan().to_json())
    assert ("hunter2secret" not in plan, "${PASSWORD}" in plan) == (True, True)
    assert world.pipeline(text).run().state is RunState.SUCCEEDED
    branches = world.graph.branches.list()
    shown = [dict(one.properties) for name in branches for one in world.graph.commits.list(name)]
    assert "hunter2secret" not in json.dumps(shown)
    assert "${PASSWORD}" in json.dumps(shown)


def test_the_commands_print_what_their_schemas_say(
    world: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world.folder)
    world.write(WHOLE)
    omnigraph = Terminal(capsys)
    found = {
        name: omnigraph("pipeline", name, "social.yaml", "--json")
        for name in ("validate", "plan", "run", "status", "history")
    }
    assert {name: result.code for name, result in found.items()} == dict.fromkeys(found, 0)
    wrong = {name: problems(f"pipeline-{name}", result.json) for name, result in found.items()}
    assert wrong == {name: [] for name in found}
    assert [(one["type"], one["sample_rows"]) for one in found["plan"].json["load"]] == [
        ("Person", 2),
        ("Knows", 2),
    ]
    assert found["status"].json["last_run"] == found["run"].json
    assert found["history"].json["runs"] == [found["run"].json]
    assert "publishing to main" in found["run"].err
    world.write(WHOLE.replace("n = 0", "n = 1"))
    failed = omnigraph("pipeline", "run", "social.yaml", "--quiet")
    assert (failed.code, failed.err) == (1, "")
    assert "failed ages: n = 1, found 0" in failed.out
    world.write(WHOLE.replace("mode: merge", "mode: mrege"))
    for command in ("validate", "plan", "run", "status", "history"):
        assert omnigraph("pipeline", command, "social.yaml").code == 2


def test_a_session_keeps_its_own_tables_and_settings(world: Place, spark: SparkSession) -> None:
    world.parquet("in/a.parquet", name=["ann", None], age=[30, 1])
    text = PEOPLE + "spark: {spark.sql.shuffle.partitions: 3}\n"
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert world.pipeline(text).plan(spark=spark).load[0].sample.rejected == 1
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    assert not spark.catalog.tableExists("people")


def test_the_example_of_the_repository_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples" / "pipelines", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    omnigraph = Terminal(capsys)
    assert omnigraph("init", "--schema", "social.pg", "social.omni").code == 0
    assert omnigraph("pipeline", "validate", "social.yaml").out == "social.yaml: ok\n"
    first = omnigraph("pipeline", "run", "social.yaml", "--json").json
    inserted = {one["type_name"]: one["inserted"] for one in first["counts"]}
    assert inserted == {"Person": 3, "Knows": 3}
    assert all(one["passed"] for one in first["checks"])
    again = omnigraph("pipeline", "run", "social.yaml", "--json").json
    assert again["state"] == "nothing_new"
    assert omnigraph("pipeline", "status", "social.yaml", "--json").json["last_run"] == first
