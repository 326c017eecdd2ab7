"""The graph as the first argument of every command, beside `--uri` and `--store`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.terminal import Terminal

ONE = "query one($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
OLDER = "query older($min: I32) { match { $p: Person  $p.age > $min } return { $p.name } }"


@pytest.mark.parametrize(
    "args",
    [
        ("branch", "create", "g.omni", "draft"),
        ("branch", "create", "draft", "--uri", "g.omni"),
        ("branch", "create", "draft", "--store", "g.omni"),
        ("branch", "list", "g.omni"),
        ("tag", "create", "g.omni", "v1.0"),
        ("tag", "create", "v1.0", "--uri", "g.omni"),
        ("diff", "g.omni", "main", "main"),
        ("query", "g.omni", "all", "--query", "q.gq"),
        ("query", "all", "--query", "q.gq", "--uri", "g.omni"),
        ("query", "./g.omni", "-e", ONE, "--param", "n=Ann"),
        ("snapshot", "--uri", "g.omni"),
    ],
)
@pytest.mark.usefixtures("graph")
def test_a_graph_is_named_in_the_same_ways_everywhere(
    omnigraph: Terminal, args: tuple[str, ...]
) -> None:
    assert omnigraph(*args).code == 0


@pytest.mark.usefixtures("graph")
def test_two_names_of_a_graph_are_one_too_many(omnigraph: Terminal) -> None:
    found = omnigraph("branch", "list", "g.omni", "--store", "g.omni")
    assert found.code == 1
    assert "URI g.omni and --store g.omni are mutually exclusive" in found.err


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("branch", "create", "draft", "g.omni"), "draft"),
        (("query", "all", "g.omni", "--query", "q.gq"), "all"),
    ],
)
@pytest.mark.usefixtures("graph")
def test_a_graph_that_is_not_the_first_argument_is_pointed_out(
    omnigraph: Terminal, args: tuple[str, ...], word: str
) -> None:
    found = omnigraph(*args)
    assert found.code == 2
    assert f"the graph comes first: give 'g.omni' before '{word}'" in found.err


@pytest.mark.usefixtures("graph")
def test_an_argument_that_is_missing_is_named(omnigraph: Terminal) -> None:
    assert "Missing argument 'NAME'" in omnigraph("branch", "create").err


@pytest.mark.usefixtures("graph")
def test_parameters_one_by_one_are_texts_where_the_query_says_so(omnigraph: Terminal) -> None:
    """A text that looks like a number stays a text."""
    lines = '{"type":"Person","data":{"name":"7","age":3}}\n'
    Path("people.jsonl").write_text(lines)
    omnigraph("load", "g.omni", "--data", "people.jsonl", "--mode", "append")
    by_name = omnigraph("query", "g.omni", "-e", ONE, "--param", "n=7", "--json")
    assert by_name.json["rows"] == [{"p.age": 3}]
    by_age = omnigraph("query", "g.omni", "-e", OLDER, "--param", "min=2", "--json")
    assert by_age.json["rows"] == [{"p.name": "7"}]
    wins = ("--params", '{"min": 5}', "--param", "min=2")
    assert omnigraph("query", "g.omni", "-e", OLDER, *wins, "--json").json["row_count"] == 1


@pytest.mark.usefixtures("graph")
def test_a_parameter_without_a_value_is_refused(omnigraph: Terminal) -> None:
    found = omnigraph("query", "g.omni", "-e", ONE, "--param", "n")
    assert found.code == 1
    assert "`--param n` is not NAME=VALUE" in found.err
    found = omnigraph("query", "g.omni", "-e", ONE, "--params", "n=Ann")
    assert "or `--param NAME=VALUE` once for each parameter" in found.err


def test_a_schema_file_is_checked_alone(omnigraph: Terminal) -> None:
    assert omnigraph("schema", "check", "s.pg", "--json").json == {
        "file": "s.pg",
        "ok": True,
        "node_types": ["Person"],
        "edge_types": ["Knows"],
        "interfaces": [],
    }
    Path("bad.pg").write_text("node Person { name: Strng }")
    found = omnigraph("schema", "check", "bad.pg")
    assert found.code == 1
    assert "bad.pg:1:21" in found.err


def test_storage_options_reach_the_storage(omnigraph: Terminal) -> None:
    found = omnigraph("snapshot", "s3://bucket/g.omni", "--storage-option", "acces_key_id=x")
    assert found.code == 1
    assert "has no option 'acces_key_id'" in found.err
    assert omnigraph("snapshot", "g.omni", "--storage-option", "x").code == 2


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("check", "--file c.test.yaml"),
        ("commit list", ""),
        ("doctor", "--scrub"),
        ("export", "--out x"),
        ("load", "c.jsonl --mode merge"),
        ("query", "-e x"),
        ("repair", ""),
    ],
)
def test_commands_that_read_a_graph_in_their_own_way_know_storage_options(
    words: str, more: str, omnigraph: Terminal
) -> None:
    Path("c.test.yaml").write_text("expectations:\n  - type: A\n    rules: [{rows: {min: 1}}]\n")
    Path("c.jsonl").write_text("")
    given = ("s3://bucket/g.omni", *more.split(), "--storage-option", "acces_key_id=x")
    found = omnigraph(*words.split(), *given)
    assert "has no option 'acces_key_id'" in found.err + found.out
