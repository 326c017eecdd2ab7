"""Tests of pipelines from a test file, and contracts that a pipeline names."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.pipelines import RunState, validate_path
from support.pipelines import SCHEMA, Place
from support.terminal import Terminal

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PIPELINE = """\
sources:
  people: {format: parquet, path: in/*.parquet, incremental: {new_files: true}}
views: {adults: SELECT * FROM people WHERE age >= 18}
load: [{node: Person, from: adults, mode: merge, map: {name: full_name, age: age}}]
checks: [{contracts: people.test.yaml}]
on_error: {policy: quarantine, dir: rejected}
"""
FILE = """\
schema: s.pg
fixtures: {one: [{type: Person, data: {name: zoe, age: 50}}]}
tests:
  - name: holds
    fixture: one
    pipeline: social.yaml
    sources:
      people: [{full_name: ann, age: 30}, {full_name: bob, age: 7}, {full_name: null, age: 20}]
    expect: {nodes: {Person: 2}, rejected: 1}
    then:
      query_text: "query q() { match { $p: Person } return { $p.name } }"
      rows: [{p.name: ann}, {p.name: zoe}]
  - name: fails
    pipeline: social.yaml
    sources: {people: [{full_name: ann, age: 30}]}
    expect: {nodes: {Person: 2}, rejected: 1}
  - name: its checks stop it
    pipeline: social.yaml
    sources: {people: [{full_name: ann, age: 300}]}
    expect: {error: 1 of 2 checks do not hold}
  - name: a load
    fixture: one
    load: [{type: Person, data: {name: yan}}]
    expect: {nodes: {Person: 2}}
  - {name: no rows, pipeline: social.yaml, expect: {nodes: {Person: 1}}}
  - {name: wrong source, pipeline: social.yaml, sources: {peple: []}, expect: {nodes: {Person: 1}}}
expectations:
  - {type: Person, rules: [{range: {age: [0, 130]}}, {unique: [name]}], owner: people-team}
"""


@pytest.fixture
def folder(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place.folder)
    place.write(PIPELINE)
    Path("s.pg").write_text(SCHEMA)
    Path("people.test.yaml").write_text(FILE)
    return place.folder


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("holds", []),
        ("fails", ["rejected: expected 1, found 0", "nodes.Person: expected 2, found 1"]),
        ("its checks stop it", []),
        ("a load", []),
        ("no rows", ["'sources' has no rows for people"]),
        ("wrong source", ["the pipeline has no source 'peple'; did you mean 'people'?"]),
    ],
)
def test_a_pipeline_runs_on_rows_of_the_file(
    name: str, messages: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Terminal(capsys)("test", "--engine", "spark", "-k", name, "--json")
    [found] = done.json["files"][0]["tests"]
    assert [each["message"] for each in found.get("problems", ())] == messages
    assert not (folder / "rejected").exists()


def test_a_pipeline_names_the_contracts_of_a_file(place: Place, folder: Path) -> None:
    place.parquet("in/a.parquet", full_name=["ann", "bob"], age=[30, 300])
    run = place.pipeline(PIPELINE).run()
    assert run.state is RunState.CHECKS_FAILED
    assert [(one.name, one.value, one.passed) for one in run.checks] == [
        ("Person: range age", 1, False),
        ("Person: unique name", 0, True),
    ]


def test_contracts_that_cannot_be_read_are_mistakes_of_the_pipeline(
    place: Place, folder: Path
) -> None:
    Path("people.test.yaml").write_text("expectations: [{typ: Person}]\n")
    Path("none.test.yaml").write_text("tests: []\n")
    checks = (
        "checks: [{contracts: people.test.yaml}, {contracts: none.test.yaml}, {contracts: x}]\n"
    )
    text = PIPELINE.replace("checks: [{contracts: people.test.yaml}]\n", checks)
    path = place.write(text)
    messages = [one.message.replace(str(folder), "") for one in validate_path(path).diagnostics]
    assert len(messages) == 3
    assert messages[0].startswith("/people.test.yaml:1:16 error missing_key expectations[0]")
    assert messages[1] == "/none.test.yaml has no 'expectations'"
    assert messages[2] == "cannot read /x: No such file or directory"
