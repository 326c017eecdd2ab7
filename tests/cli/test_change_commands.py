"""`branch merge`, `diff`, `commit changes` and `changes poll`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.terminal import Terminal


def mutate(omnigraph: Terminal, graph: str, text: str, branch: str = "main") -> None:
    result = omnigraph(
        "mutate", "--store", graph, "-e", f"query m() {{ {text} }}", "--branch", branch
    )
    assert result.code == 0, result.err


@pytest.fixture
def branched(omnigraph: Terminal, graph: str) -> str:
    """A graph whose branch `draft` has one more person, older by a year."""
    mutate(omnigraph, graph, 'insert Person { name: "ann", age: 30 }')
    assert omnigraph("branch", "create", "draft", "--uri", graph).code == 0
    mutate(omnigraph, graph, 'insert Person { name: "bo" }', "draft")
    mutate(omnigraph, graph, 'update Person set { age: 31 } where name = "ann"', "draft")
    return graph


def test_a_merge_says_what_it_came_to(omnigraph: Terminal, branched: str) -> None:
    uri = ("--uri", branched)
    planned = omnigraph("branch", "merge", "draft", "--dry-run", "--json", *uri).json
    assert planned["outcome"] == "fast_forward"
    assert planned["counts"] == [{"type_key": "node:Person", "insert": 1, "update": 1, "delete": 0}]
    result = omnigraph("branch", "merge", "draft", *uri, "--as", "ada")
    assert result.out == "merged draft into main: fast_forward\n"
    again = omnigraph("branch", "merge", "draft", "--delete-branch", "--json", *uri).json
    assert (again["outcome"], again["branch_deleted"]) == ("already_up_to_date", True)
    assert omnigraph("branch", "list", *uri).out == "main\n"
    log = omnigraph("log", branched).out.splitlines()
    assert log[0].endswith("merge  by ada  (main)")


def test_conflicts_are_listed_and_a_preference_settles_them(
    omnigraph: Terminal, branched: str
) -> None:
    uri = ("--uri", branched)
    mutate(omnigraph, branched, 'update Person set { age: 40 } where name = "ann"')
    refused = omnigraph("branch", "merge", "draft", *uri)
    assert refused.code == 1
    assert "node type 'Person', entity id 'ann' (divergent_update)" in refused.err
    assert "--prefer source" in refused.err
    settled = omnigraph("branch", "merge", "draft", "--prefer", "source", "--json", *uri)
    assert settled.json["outcome"] == "merged"
    read = omnigraph(
        "query", "--store", branched, "--format", "csv",
        *("-e", "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"),
    )  # fmt: skip
    assert read.out.splitlines()[1:] == ["ann,31", "bo,null"]


def test_a_merge_that_leaves_an_edge_without_its_node_says_so(
    omnigraph: Terminal, branched: str
) -> None:
    uri = ("--uri", branched)
    mutate(omnigraph, branched, 'delete Person where name = "ann"', "draft")
    mutate(omnigraph, branched, 'insert Knows { from: "ann", to: "ann" }')
    refused = omnigraph("branch", "merge", "draft", *uri)
    assert refused.code == 1
    assert "edge type 'Knows'" in refused.err
    assert "(orphan_edge)" in refused.err
    planned = omnigraph("branch", "merge", "draft", "--dry-run", *uri)
    assert planned.code == 1
    assert planned.out.startswith("cannot merge draft into main: 2 conflicts\n")
    listed = omnigraph("branch", "conflicts", "draft", "--out", "found.jsonl", *uri)
    assert listed.out == "wrote 2 conflicts to found.jsonl\n"


def test_a_branch_that_cannot_be_deleted_is_a_warning(omnigraph: Terminal, branched: str) -> None:
    uri = ("--uri", branched)
    assert omnigraph("branch", "create", "child", "--from", "draft", *uri).code == 0
    result = omnigraph("branch", "merge", "draft", "--delete-branch", "--json", *uri)
    assert result.code == 0
    assert result.json["branch_deleted"] is False
    assert "warning: merged, but could not delete branch 'draft'" in result.err


def test_a_diff_shows_both_values(omnigraph: Terminal, branched: str) -> None:
    result = omnigraph("diff", "main", "draft", "--uri", branched)
    assert result.out.splitlines() == [
        "update node Person ann",
        "  age: 30 -> 31",
        "insert node Person bo",
        "  + age: <null>",
        "  + name: bo",
        "Person: +1 ~1 -0",
    ]
    stat = omnigraph("diff", "main", "draft", "--stat", "--uri", branched)
    assert stat.out == "Person: +1 ~1 -0\n"
    assert omnigraph("diff", "main", "main", "--uri", branched).out == "no difference\n"
    lines = omnigraph("diff", "draft", "main", "--format", "jsonl", "--uri", branched).out
    assert lines.count("\n") == 2
    unknown = omnigraph("diff", "main", "nobody", "--uri", branched)
    assert unknown.code == 1


def test_a_commit_and_the_feed_tell_the_same(omnigraph: Terminal, branched: str) -> None:
    uri = ("--uri", branched)
    head = omnigraph("log", branched, "--limit", "1", "--json").json["commits"][0]
    changes = omnigraph("commit", "changes", head["graph_commit_id"], "--json", *uri).json
    feed = omnigraph("changes", "poll", "--start", "beginning", "--json", *uri).json
    assert feed["blocks"][-1]["changes"] == changes["changes"]
    assert feed["caught_up"] is True
    text = omnigraph("changes", "poll", "--cursor", feed["cursor"], *uri).out
    assert text.startswith("(no new commits)\ncursor: ")
    both = omnigraph("changes", "poll", "--cursor", "x", "--start", "now", *uri)
    assert both.code == 2


def test_a_value_is_spelled_by_its_own_type_when_an_edge_type_has_the_name_too(
    omnigraph: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "twin.pg").write_text(
        "node Likes { name: String @key  at: Date? }\nedge Likes: Likes -> Likes { at: I64? }\n"
    )
    assert omnigraph("init", "--schema", "twin.pg", "twin.omni").code == 0
    mutate(omnigraph, "twin.omni", 'insert Likes { name: "a", at: date("1970-01-02") }')
    told = omnigraph("changes", "poll", "--start", "beginning", "--uri", "twin.omni")
    assert "  + at: 1970-01-02" in told.out.splitlines()
