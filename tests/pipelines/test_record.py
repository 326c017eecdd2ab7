"""The record of a run: written to the properties of a commit, and read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.graph import CommitTerms, Graph
from omnigraph.graph.commits import GraphCommits
from omnigraph.pipelines.history import published_on
from omnigraph.pipelines.record import (
    BatchOfStream,
    CheckResult,
    RunRecord,
    RunState,
    TypeCounts,
    Watermark,
    read_record,
)

RECORD = RunRecord(
    run_id="r1",
    pipeline="social",
    state=RunState.SUCCEEDED,
    started_at=1,
    finished_at=2,
    file_digest="sha256:1",
    counts=(TypeCounts("Person", inserted=1), TypeCounts("Knows", deleted=2, is_edge=True)),
    checks=(CheckResult("ages", "n = 0", 0, passed=True),),
    watermarks={"people": Watermark("by", "7", "BIGINT")},
    file="/srv/social.yaml",
    files={"people": frozenset({"ab", "cd"})},
    engine={"engine": "spark"},
    batch=BatchOfStream("s", 3, "d"),
)


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_record(RECORD.to_properties()) == RECORD
    assert read_record(RECORD.to_properties(), "social") == RECORD
    assert read_record(RECORD.to_properties(), "other") is None


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("run", {"state": "paused", "started_at": 1}, {"state": RunState.RUNNING}),
        ("run", {"state": "succeeded", "started_at": "x"}, {"started_at": 0}),
        ("run", [], {"state": RunState.RUNNING}),
        ("watermarks", {"people": {"kind": "by"}, "more": 1}, {"watermarks": {}}),
        ("stream", {"id": "s", "batch_id": "x"}, {"batch": None}),
    ],
)
def test_what_this_release_cannot_read_is_no_error(
    key: str, value: object, found: dict[str, object]
) -> None:
    read = read_record(RECORD.to_properties() | {key: json.dumps(value)})
    assert read is not None
    assert {name: getattr(read, name) for name in found} == found


def test_merges_of_other_pipelines_are_not_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that publishes by merges makes thousands of them."""
    with Graph.init(tmp_path / "g.omni", "node P { k: String @key }") as graph:
        for name in ("other", "social"):
            graph.branches.create("side")
            row = json.dumps({"type": "P", "data": {"k": name}}).encode()
            graph.load(row, mode="append", branch="side")
            stated = replace(RECORD, pipeline=name).to_properties()
            terms = CommitTerms(lambda _: None, lambda _, stated=stated: stated)
            graph.on_terms(terms).branches.merge("side")
            graph.branches.delete("side")
        monkeypatch.setattr(GraphCommits, "get", lambda *_: pytest.fail("a commit was looked up"))
        found = published_on(graph, "main", "social")
        assert [run.pipeline for run in found.runs] == ["social"]
        assert found.runs[0].graph_commit_id == graph.commits.head_id()
