"""`log`, `tag` and `doctor`."""

from __future__ import annotations

import importlib.metadata

import pytest

from omnigraph.cli.output.dag import Commit, draw
from omnigraph.graph import Graph
from support.terminal import Terminal

ADD = 'query add() { insert Person { name: "ann" } }'


def test_the_log_names_what_points_at_each_commit(omnigraph: Terminal, graph: str) -> None:
    assert omnigraph("branch", "create", "draft", "--uri", graph).code == 0
    assert omnigraph("mutate", "--store", graph, "-e", ADD, "--as", "ada").code == 0
    assert omnigraph("tag", "create", "v1", "--uri", graph).code == 0
    newest, oldest = omnigraph("log", graph).out.splitlines()
    assert newest.endswith("mutation  by ada  (main, tag: v1)")
    assert oldest.endswith("init  (draft)")
    shape = omnigraph("log", graph, "--json").json
    assert [commit["names"] for commit in shape["commits"]] == [["main", "tag: v1"], ["draft"]]
    assert omnigraph("log", graph, "--limit", "1").out.count("\n") == 1


def test_the_log_of_all_branches_is_drawn(omnigraph: Terminal, graph: str) -> None:
    assert omnigraph("branch", "create", "draft", "--uri", graph).code == 0
    assert omnigraph("mutate", "--store", graph, "-e", ADD).code == 0
    assert omnigraph("mutate", "--store", graph, "-e", ADD, "--branch", "draft").code == 0
    lines = omnigraph("log", graph, "--graph").out.splitlines()
    assert [line.split("  ")[0].rstrip("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for line in lines] == [
        "* ",
        "| * ",
        "|/",
        "* ",
    ]


def test_three_rails_and_two_merges_are_drawn() -> None:
    commits = [
        Commit("f", ("e", "d"), "f"),
        Commit("e", ("b", "c"), "e"),
        Commit("d", ("a",), "d"),
        Commit("c", ("a",), "c"),
        Commit("b", ("a",), "b"),
        Commit("a", (), "a"),
    ]
    assert list(draw(commits)) == [
        "*   f",
        "|\\",
        "* |   e",
        "|\\ \\",
        "| | * d",
        "| * | c",
        "| |/",
        "* | b",
        "|/",
        "* a",
    ]


def test_tags_are_made_listed_read_and_forgotten(omnigraph: Terminal, graph: str) -> None:
    head = Graph.open(graph).head_commit_id_for_branch()
    made = omnigraph("tag", "create", "v1", head, "--uri", graph, "--as", "ada", "--json").json
    assert (made["name"], made["graph_commit_id"], made["actor_id"]) == ("v1", head, "ada")
    assert omnigraph("tag", "list", "--uri", graph).out == f"v1 {head}\n"
    again = omnigraph("tag", "create", "v1", "--uri", graph)
    assert again.code == 1
    assert omnigraph("tag", "delete", "v1", "--uri", graph).out == "deleted tag v1\n"
    assert omnigraph("tag", "list", "--uri", graph).out == "(no tags)\n"
    assert omnigraph("tag", "delete", "v1", "--uri", graph).code == 1


def test_the_doctor_says_what_to_do(omnigraph: Terminal, graph: str) -> None:
    assert omnigraph("mutate", "--store", graph, "-e", ADD).code == 0
    result = omnigraph("doctor", graph, "--no-spark", "--json")
    assert result.code == 0
    found = {each["topic"]: each for each in result.json["findings"]}
    assert found["storage"]["status"] == "ok"
    assert found["recovery"]["message"] == "nothing pending"
    assert found["indexes"]["remedy"] == f"omnigraph optimize {graph}"
    assert omnigraph("optimize", graph).code == 0
    text = omnigraph("doctor", graph, "--no-spark").out
    assert "indexes" not in text


def test_a_machine_without_pyspark_has_no_problem(
    omnigraph: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "pyspark":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    result = omnigraph("doctor", "--json")
    assert result.code == 0
    found = {each["message"]: each for each in result.json["findings"]}
    assert found["pyspark is not installed"]["status"] == "note"
    assert "spark" not in {each["topic"] for each in result.json["findings"]}


def test_the_doctor_finds_a_graph_that_is_not_there(omnigraph: Terminal) -> None:
    result = omnigraph("doctor", "nowhere.omni", "--no-spark")
    assert result.code == 1
    assert "PROBLEM graph: there is no graph at" in result.out
    assert "omnigraph init" in result.out
