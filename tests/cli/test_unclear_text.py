"""Text of callers and stored text on the command line: refused, hidden or escaped."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli.app import COMMANDS
from omnigraph.graph import arguments, authorize
from support.terminal import Terminal

SCHEMA = "node P { k: String @key  t: String? }\nedge E: P -> P { w: String? }"
FIND = "query q($s: String?) { match { $p: P } return { $p.k as k, $p.t as t } }"
UNFIT = "a\x1b[31m\x9b31m\nomnigraph:recovery\t\u202e\u2028\x7f\rb"


@pytest.fixture
def graph(omnigraph: Terminal, tmp_path: Path) -> str:
    (tmp_path / "s.pg").write_text(SCHEMA)
    assert omnigraph("init", "--schema", "s.pg", "g.omni").code == 0
    return "g.omni"


# -- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["query", "mutate"])
@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize(
    ("params", "said"),
    [
        ('{"s": ' + "[" * 3_000 + "]" * 3_000 + "}", "nest deeper than 128"),
        ('{"s": ' + '{"a":' * 3_000 + "1" + "}" * 3_000 + "}", "nest deeper than 128"),
        ('{"s": "a", "s": "b"}', "the name 's' stands twice"),
        ('{"s": [{"a": 1, "a": 1}]}', "the name 'a' stands twice"),
        ('{"s": "\\ud800"}', "surrogate"),
        ('{"s": NaN}', "not a JSON value"),
    ],
)
def test_parameters_that_are_unclear_are_refused(
    omnigraph: Terminal,
    graph: str,
    tmp_path: Path,
    *,
    command: str,
    as_file: bool,
    params: str,
    said: str,
) -> None:
    (tmp_path / "params.json").write_text(params)
    given = ["--params-file", "params.json"] if as_file else ["--params", params]
    query = FIND if command == "query" else "query q($s: String) { insert P { k: $s } }"
    done = omnigraph(command, "--store", graph, "-e", query, *given)
    assert done.code == 1
    assert said in done.err
    assert "Recursion" not in done.err


# -- actors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("actor", ["", " ", "a\nomnigraph:recovery", "Omnigraph:x", "x" * 257])
@pytest.mark.parametrize("place", ["flag", "file"])
def test_an_actor_that_is_none_is_refused(
    omnigraph: Terminal,
    graph: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    place: str,
    actor: str,
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"type":"P","data":{"k":"a"}}')
    said: list[str] = ["--as", actor]
    if place == "file":
        monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
        (tmp_path / "config.yaml").write_text(json.dumps({"operator": {"actor": actor}}))
        said = []
    for words in (
        ["load", graph, "--data", "rows.jsonl", "--mode", "merge"],
        ["mutate", "--store", graph, "-e", 'query q() { insert P { k: "x" } }'],
        ["branch", "create", "dev", "--store", graph],
        ["tag", "create", "v1", "--store", graph],
        ["schema", "apply", "--schema", "s.pg", graph],
    ):
        done = omnigraph(*words, *said, "--json")
        error = json.loads(done.err[done.err.index("{") :])
        assert (done.code, error["code"]) == (1, "OG-ACTOR"), words


# -- stored text ----------------------------------------------------------------------------------


@pytest.fixture
def unfit(graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a graph whose rows, actors and messages would steer a terminal."""
    rows = [
        {"type": "P", "data": {"k": UNFIT, "t": UNFIT}},
        {"type": "P", "data": {"k": "b", "t": UNFIT}},
        {"edge": "E", "from": UNFIT, "to": "b", "data": {"w": UNFIT}},
    ]
    lines = "\n".join(map(json.dumps, rows)).encode()
    # Graphs of older versions may hold such texts.
    monkeypatch.setattr(authorize, "check_actor", lambda _: None)
    monkeypatch.setattr(arguments, "check_commit_texts", lambda **_: None)
    with Graph.open(tmp_path / graph) as opened:
        opened.branch_create("old")
        opened.load(lines, mode="append", actor_id=UNFIT, message=UNFIT, properties={UNFIT: UNFIT})
    return graph


def require_quiet(text: str, kept: str = "\n") -> None:
    found = {c for c in text if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"}}
    assert found <= set(kept), text
    assert "\u202e" not in text
    assert not any(line.startswith("omnigraph:") for line in text.splitlines())


TEXT_COMMANDS = [
    ["commit", "list"],
    ["log"],
    ["log", "--graph"],
    ["changes", "poll", "--start", "beginning"],
    ["diff", "old", "main"],
    ["recovery", "list"],
    ["query", "-e", FIND, "--format", "table"],
    ["query", "-e", FIND, "--format", "kv"],
    ["query", "-e", FIND, "--format", "jsonl"],
    ["query", "-e", FIND, "--format", "json"],
    ["diff", "old", "main", "--format", "jsonl"],
]


@pytest.mark.parametrize("words", TEXT_COMMANDS, ids=" ".join)
def test_stored_text_does_not_steer_the_terminal(
    omnigraph: Terminal, unfit: str, words: list[str]
) -> None:
    done = omnigraph(*words, "--store", unfit)
    assert done.code == 0, done.err
    assert "x1b[31m" in done.out or "u001b[31m" in done.out or words[0] == "recovery", done.out
    require_quiet(done.out)
    require_quiet(done.err)


def test_one_commit_is_shown_without_steering_the_terminal(omnigraph: Terminal, unfit: str) -> None:
    listed = json.loads(omnigraph("commit", "list", "--store", unfit, "--json").out)
    newest = listed["commits"][0]
    assert newest["actor_id"] == UNFIT, "JSON has the text as it is"
    for words in (["show"], ["changes"]):
        done = omnigraph("commit", *words, newest["graph_commit_id"], "--store", unfit)
        assert done.code == 0
        require_quiet(done.out)
        as_json = omnigraph("commit", *words, newest["graph_commit_id"], "--store", unfit, "--json")
        require_quiet(as_json.out)
        json.loads(as_json.out)


def test_csv_has_the_text_as_it_is(omnigraph: Terminal, unfit: str) -> None:
    done = omnigraph("query", "--store", unfit, "-e", FIND, "--format", "csv")
    assert "\x1b[31m" in done.out


# -- secrets of addresses -------------------------------------------------------------------------

SECRETS = (
    "s3://KEY:SECRET@lake/g",
    "s3://KEY:SEC/SECRET@lake/g",
    "https://SECRET@example.org/g",
    "https://me:SECRET@example.org/g?X-Amz-Signature=SECRET",
    "az://c/g?se=1&sig=SECRET",
    "s3:/KEY:SECRET@lake/g",
)
WORDS = [
    ["snapshot", "{}"],
    ["init", "--schema", "s.pg", "{}"],
    ["branch", "list", "--store", "{}"],
    ["branch", "list", "--server", "{}"],
    ["query", "--store", "{}", "-e", FIND],
    ["commit", "list", "--uri", "{}"],
    ["load", "{}", "--data", "rows.jsonl", "--mode", "merge"],
    ["load", "g.omni", "--data", "{}", "--mode", "merge"],
    ["load", "g.omni", "--data", "rows.jsonl", "--mode", "merge", "--external-blob-base", "{}"],
    ["cleanup", "{}", "--keep", "1", "--confirm"],
    ["optimize", "{}"],
    ["doctor", "{}", "--no-spark"],
    ["recovery", "status", "{}"],
    ["optimize", "--cluster", "{}"],
    ["snapshot", "{}", "{}"],
    ["snapshot", "{}", "--store", "{}"],
    ["{}"],
]


@pytest.mark.parametrize("address", SECRETS)
def test_no_message_repeats_the_secret_of_an_address(
    omnigraph: Terminal,
    graph: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"type":"P","data":{"k":"a"}}')
    for form in ([], ["--json"]):
        for words in WORDS:
            done = omnigraph(
                *(word.format(address) if "{}" in word else word for word in words), *form
            )
            assert done.code != 0 or words[0] == "doctor", words
            assert "SECRET" not in done.out + done.err, words
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    settings = {"defaults": {"store": address}, "profiles": {"p": {"store": address}}}
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    for words in (
        ["profile", "list"],
        ["profile", "show", "p"],
        ["profile", "show"],
        ["snapshot"],
        ["snapshot", "--profile", "p"],
        ["doctor", "--no-spark"],
    ):
        for form in ([], ["--json"]):
            done = omnigraph(*words, *form)
            assert "SECRET" not in done.out + done.err, words


def test_the_sweep_knows_the_commands() -> None:
    assert {words[0] for words in WORDS if "{}" not in words[0]} <= set(COMMANDS)
