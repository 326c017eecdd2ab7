"""Commits on the terms of a caller: what must hold, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from omnigraph.errors import ConflictError
from omnigraph.graph import CommitLog, CommitTerms, Graph, LoadCounts
from support.lineage import without_lineage

SCHEMA = "node Person { name: String @key age: I32? }"
ANN = b'{"type": "Person", "data": {"name": "ann", "age": 1}}'
BOB = b'{"type": "Person", "data": {"name": "bob", "age": 1}}'


class TooLateError(ConflictError):
    """Another commit came first."""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA, durability="process", auto_optimize=False)


def counted(counts: Mapping[str, LoadCounts]) -> dict[str, str]:
    return {key: f"{one.inserted}+{one.unchanged}" for key, one in counts.items()}


def test_a_load_states_its_counts_and_commits_without_changes_when_asked(graph: Graph) -> None:
    asked = graph.on_terms(CommitTerms(lambda _: None, counted, commits_unchanged=True))
    asked.load(ANN, mode="merge", properties={"own": "x"})
    asked.load(ANN, mode="merge")
    asked.load({}, mode="append")
    assert [without_lineage(commit.properties) for commit in graph.commits.list()[:3]] == [
        {},
        {"node:Person": "0+1"},
        {"own": "x", "node:Person": "1+0"},
    ]
    plain = graph.on_terms(CommitTerms(lambda _: None, counted))
    assert plain.load(ANN, mode="merge").commit is None


def test_what_does_not_hold_leaves_the_graph_as_it_was(graph: Graph) -> None:
    def refuse(_: CommitLog) -> None:
        raise TooLateError("no")

    before = graph.commits.head_id()
    refusing = graph.on_terms(CommitTerms(refuse, counted))
    with pytest.raises(TooLateError):
        refusing.load(ANN, mode="append")
    graph.branches.create("draft")
    graph.load(ANN, mode="append", branch="draft")
    with pytest.raises(TooLateError):
        refusing.branches.merge("draft")
    assert graph.commits.head_id() == before


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_that_loses_a_race_asks_again_on_the_newer_state(graph: Graph, mode: str) -> None:
    seen: list[int] = []

    def require(log: CommitLog) -> None:
        seen.append(len(log.commits()))
        if len(seen) == 1:
            # Another writer commits after this look and before the commit.
            graph.load(BOB, mode="append")

    graph.on_terms(CommitTerms(require, counted)).load(ANN, mode=mode)
    assert seen == [1, 2]
    assert len(graph.commits.list()) == 3


def test_a_merge_states_its_properties_and_sees_the_state_that_it_replaces(graph: Graph) -> None:
    graph.branches.create("draft")
    graph.load(ANN, mode="append", branch="draft")
    graph.load(BOB, mode="append")
    seen: list[str] = []

    def require(log: CommitLog) -> None:
        seen.append(log.commits(limit=1)[0].graph_commit_id)

    head = graph.commits.head_id()
    terms = CommitTerms(require, lambda _: {"run": "7"})
    graph.on_terms(terms).branches.merge("draft")
    merged = graph.commits.list(limit=1)[0]
    assert (merged.operation, without_lineage(merged.properties)) == ("merge", {"run": "7"})
    assert seen == [head]
