"""Commands on a served graph do what they do on a local one: same exit code, same JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from omnigraph.cli.app import root
from omnigraph.cli.capabilities import Capability, rule_of
from support.served_here import Served, serve
from support.terminal import Result, Terminal

SCHEMA = """\
node Person { name: String @key  age: I32?  photo: Blob? }
edge Knows: Person -> Person { since: Date? }
"""
RECORDS = """\
{"type": "Person", "data": {"name": "ann", "age": 1, "photo": "base64:AQID"}}
{"type": "Person", "data": {"name": "bob"}}
{"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "k1", "since": "2020-01-01"}}
"""
QUERIES = """\
query all() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }
query named($n: String) { match { $p: Person { name: $n } } return { $p.age } }
query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }
"""
FILES = {
    "people.pg": SCHEMA,
    "next.pg": SCHEMA.replace("age: I32?", "age: I32?  nick: String?"),
    "less.pg": SCHEMA.replace("  photo: Blob?", ""),
    "no.pg": SCHEMA.replace("since: Date?", "since: Bool?"),
    "people.jsonl": RECORDS,
    "one.jsonl": '{"type": "Person", "data": {"name": "bob", "age": 8}}\n',
    "twice.jsonl": '{"type": "Person", "data": {"name": "eve", "age": 1}}\n' * 2,
    "params.json": '{"n": "bob"}',
    "broken.jsonl": '{"type": "Person", "data": {"nme": "x"}}\n',
    "loose.jsonl": '{"type": "Person", "data": {"name": "dan", "age": "old", "shoe": 3}}\n',
    "people.gq": QUERIES,
    "bad.gq": "query all() { match { $p: Person } return { $p.nmae } }",
}
COMMANDS = """
load --data people.jsonl --mode append
load --data people.jsonl --mode append
load --data broken.jsonl --mode merge
load --data nowhere.jsonl --mode merge
load --data people.jsonl --mode merge --branch etl --from main
load --data people.jsonl --mode merge --branch nowhere
load --data twice.jsonl --mode merge
load --data twice.jsonl --mode merge --on-duplicate last --dry-run
load --data twice.jsonl --mode merge --on-duplicate last
load --data people.jsonl --mode append --dry-run
load --data one.jsonl --mode overwrite --branch etl --yes
load --data one.jsonl --mode overwrite --branch etl --cascade --yes
load --data one.jsonl --mode merge --embed all --branch etl
load --data one.jsonl --mode sideways
ingest --data loose.jsonl
ingest --data nowhere.jsonl
ingest --data loose.jsonl --branch new --mode append
ingest --data loose.jsonl --branch new2 --from nowhere
query all --query people.gq
query all --query people.gq --branch etl
query all --query people.gq --branch nowhere
query all --query bad.gq
query nope --query people.gq
query -e 'query q() { match { $p: Person } return { count($p) as n } }'
query -e 'query q() { insert Person { name: "x" } }'
query all --query people.gq --max-rows 1
query all --query people.gq --explain
query all --query people.gq --snapshot HEAD
query all --query people.gq --snapshot NO
query all --query people.gq --snapshot HEAD --branch main
query all --query people.gq --timeout 30
query named --query people.gq --params '{"n": "ann"}'
query named --query people.gq --params-file params.json
query named --query people.gq
query named --query people.gq --params '{"n": 99999999999999999999999}'
query named --query people.gq --params nonsense
query all
mutate age --query people.gq --params '{"n": "ann", "a": 2}'
mutate age --query people.gq --params '{"n": "nobody", "a": 2}'
mutate age --query people.gq --params '{"n": "ann", "a": "x"}'
mutate age --query people.gq --params '{"n": "ann", "a": 2}' --if-commit NO
mutate age --query people.gq --params '{"n": "ann", "a": 7}' --if-commit HEAD
mutate age --query people.gq --params '{"n": "ann", "a": 2}' --branch nowhere
mutate -e 'query q() { match { $p: Person } return { $p.name } }'
branch create draft
branch create draft
branch create a/b --from draft
branch create x --from nowhere
branch create 'a//b'
branch create main
branch list
branch delete main --yes
branch merge nowhere
branch merge draft --into nowhere
branch merge draft --prefer sideways
branch conflicts nowhere --out none.jsonl
branch delete nowhere --yes
branch delete draft --yes
branch delete a/b --yes
mutate age --query people.gq --params '{"n": "bob", "a": 3}' --branch draft
branch merge draft --dry-run
branch merge draft
branch merge draft
mutate age --query people.gq --params '{"n": "bob", "a": 4}' --branch draft
mutate age --query people.gq --params '{"n": "bob", "a": 5}'
branch merge draft
branch conflicts draft --out conflicts.jsonl
branch merge draft --strategy property
branch conflicts draft --strategy property --out more.jsonl
branch merge draft --resolve nowhere.jsonl
branch merge draft --resolve conflicts.jsonl
branch merge draft --prefer source
diff main etl
diff 1 main --stat
diff nowhere main
diff main etl --kind node --op insert --type Person
diff main etl --type Nope
snapshot
snapshot --branch nowhere
export
export --type Person --branch draft
export --type Nope
export --branch nowhere
export --format parquet
export --out SIDE-jsonl
export --out SIDE-jsonl
export --out SIDE-parquet --format parquet --branch draft
export --out SIDE-csv --format csv --type Person
export --out SIDE-none --type Nope
commit list
commit list --branch draft --limit 2
commit list --filter operation=merge
commit list --branch nowhere
commit list --filter nonsense
commit show HEAD
commit show NO
commit changes HEAD
commit changes HEAD --limit 1
commit changes HEAD --kind edge
commit changes HEAD --page-token bad
commit changes NO
commit revert HEAD
commit revert NO
commit revert HEAD --branch nowhere
changes poll --start beginning
changes poll --start beginning --kind node --limit 1
changes poll --start never
changes poll --cursor bad
changes poll --branch nowhere
changes poll --start beginning --type Nope
changes poll --start after:HEAD
changes poll --limit 0
changes poll --limit 9999
changes baseline --out base.jsonl
changes baseline --out base.jsonl --type Person --op insert
changes baseline --out none.jsonl --branch nowhere
changes baseline --out none.jsonl --type Nope
blob stat node Person ann photo
blob stat node Person bob photo
blob stat node Nope bob photo
blob stat node Person ann age
blob stat node Person ann photo --branch draft
blob stat node Person ann photo --snapshot HEAD
blob stat node Person ann photo --snapshot NO
blob stat node Person ann photo --branch main --snapshot HEAD
blob stat edge Knows k1 photo
blob get node Person bob photo
blob get node Person ann photo --length 0
blob get node Person ann photo --snapshot HEAD
blob get node Person ann photo --offset 1 --length 1
blob get node Person ann photo --offset 9
blob get node Person ann photo --out bytes
tag create v1
tag create v1
tag create v2 HEAD
tag create v3 NO
tag create 'a//b'
tag list
diff v1 v2
diff tag:v1 main
tag delete v1
tag delete v1
log
log --graph
log --limit 2
log --branch draft
log --branch nowhere
log --limit 0
lineage show HEAD
lineage show Person
lineage show NO
lineage emit --to file:events
lineage emit --to nowhere
branch merge draft --delete-branch
branch delete etl --yes
branch delete draft --yes
schema show
schema show --branch etl
schema show --branch nowhere
schema apply --schema nowhere.pg
schema apply --schema bad.gq
schema apply --schema less.pg
schema apply --schema no.pg
schema apply --schema next.pg
schema apply --schema next.pg
branch create wide
schema apply --schema people.pg --branch wide --allow-data-loss
schema diff main wide
schema diff wide main
schema diff main nowhere
branch merge wide
branch merge wide --allow-data-loss
load --data people.jsonl --mode overwrite --yes
"""
"""In this order, on two graphs that were equal before."""

WITHOUT_JSON = ("export", "blob get")
NOT_SAME = re.compile(
    r'"(graph_commit_id|parent_commit_id|merged_parent_commit_id|created_at|authored_at|uri|id'
    r"|resume_cursor|snapshot_commit_id|cursor|etag|resolved_snapshot|dataset_path|seconds"
    r"|bytes_written|engine_reason|next_page_token|elapsed_ms|source|read|validate|write|commit"
    r'|table_key|graph_manifest_version)": '
    r'("(?:[^"\\]|\\.)*"|[0-9.]+|null)'
)
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
VERSION = re.compile(r"(manifest[_ ]version(?:=|: | ))\d+")
"""A process that ends leaves a compact manifest, and a server does not end."""
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\b\d{16}\b")
TOKEN = re.compile(r"\b[A-Za-z0-9_-]{80,}|\b[0-9a-f]{32}\b")


def same(text: str, *places: str) -> str:
    """Return a text without ids, times and places."""
    for place in (*places, str(Path("here").absolute()), str(Path("there").absolute())):
        text = text.replace(place, "HERE")
    text = TOKEN.sub("TOKEN", NOT_SAME.sub(r'"\1": …', text))
    text = VERSION.sub(r"\1…", text)
    return TIME.sub("TIME", ULID.sub("ID", text))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("OMNIGRAPH_HOME", str(home))
    for name in ("OMNIGRAPH_BEARER_TOKEN", "OMNIGRAPH_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def terminal(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    return Terminal(capsys)


@pytest.fixture
def server(terminal: Terminal, tmp_path: Path) -> Iterator[Served]:
    assert terminal("init", "--schema", "people.pg", "served.omni").code == 0
    with serve(tmp_path / "served.omni", queries=(tmp_path / "people.gq",)) as served:
        yield served


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_every_command_does_the_same_on_a_server(
    terminal: Terminal, server: Served, tmp_path: Path, as_json: bool
) -> None:
    assert terminal("init", "--schema", "people.pg", "local.omni").code == 0
    places = (str(tmp_path / "local.omni"), f"{server.url}/graphs/{server.graph}")
    scopes = (("--store", "local.omni"), ("--server", server.url, "--graph", server.graph))
    differing = {}
    codes: dict[str, set[bool]] = {name: set() for name in ANY_COMMANDS}
    for line in COMMANDS.strip().splitlines():
        local, remote = (
            (result.code, same(result.out, *places), _errors(result, *places))
            for result in (
                _run(terminal, line, scope, as_json=as_json, side=side)
                for side, scope in zip(("here", "there"), scopes, strict=True)
            )
        )
        if local != remote and line not in ONLY_SERVED:
            differing[line] = (local, remote)
        codes[_name(line)].add(local[0] == 0)
    assert differing == {}
    assert {name: seen for name, seen in codes.items() if seen != {True, False}} == {
        # They fail only when the graph cannot be reached.
        "branch list": {True},
        "tag list": {True},
    }


def _leaves(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None:
            yield from _leaves(found, (*words, name))


ANY_COMMANDS = {"ingest"} | {
    " ".join(words)
    for words in _leaves(root, ())
    if (rule := rule_of(words)) is not None and rule.capability is Capability.DATA
}
"""The commands that work on a store and on a server; `ingest` is not listed."""
ONLY_SERVED = ("query all", "lineage show HEAD", "lineage show Person")
"""A stored query is a server's, and so is the name of a job that it does."""


def _name(line: str) -> str:
    words = line.split()
    return words[0] if words[0] in ANY_COMMANDS else " ".join(words[:2])


def _run(
    terminal: Terminal, line: str, scope: tuple[str, ...], *, as_json: bool = True, side: str = ""
) -> Result:
    if "HEAD" in line:
        line = line.replace("HEAD", _commits(terminal, scope)[0]["graph_commit_id"])
    given = shlex.split(line.replace("SIDE", side))
    has_json = not line.startswith(WITHOUT_JSON) or "--out SIDE" in line
    return terminal(*given, *scope, *(["--json"] if as_json and has_json else []))


def _commits(terminal: Terminal, scope: tuple[str, ...]) -> list[dict[str, Any]]:
    # A list of commits takes no actor.
    plain = scope[: scope.index("--as")] if "--as" in scope else scope
    found: list[dict[str, Any]] = terminal("commit", "list", "--json", *plain).json["commits"]
    return found


def _errors(result: Result, *places: str) -> str:
    """Return what stands on stderr, without the line that names the target."""
    return re.sub(r"omnigraph .* → .*\n", "", same(result.err, *places))


def test_the_actor_of_a_token_is_shown_as_one_that_is_given(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token of ann, commands print what they print with `--as ann`."""
    for name in ("local.omni", "served.omni"):
        assert terminal("init", "--schema", "people.pg", name).code == 0
    (tmp_path / "policy.yaml").write_text(EVERYTHING, encoding="utf-8")
    tokens = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ann": "TOKEN-1"}'}
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "TOKEN-1")
    with serve("served.omni", tokens=tokens, policy=tmp_path / "policy.yaml") as server:
        places = (str(tmp_path / "local.omni"), f"{server.url}/graphs/{server.graph}")
        scopes = (
            ("--store", "local.omni", "--as", "ann"),
            ("--server", server.url, "--graph", server.graph),
        )
        for line in WRITES.strip().splitlines():
            here, there = (_run(terminal, line, scope) for scope in scopes)
            assert (here.code, there.code) == (0, 0), (line, there.err)
            assert same(here.out, *places) == same(there.out, *places), line
            if not line.startswith(("load", "tag delete", "schema", "commit revert")):
                assert '"actor_id": "ann"' in there.out, line
        local, remote = ([one["actor_id"] for one in _commits(terminal, s)] for s in scopes)
        assert local == remote


WRITES = """
load --data people.jsonl --mode merge
ingest --data loose.jsonl
mutate age --query people.gq --params '{"n": "ann", "a": 2}'
commit revert HEAD
branch create draft
mutate age --query people.gq --params '{"n": "ann", "a": 3}' --branch draft
branch merge draft --delete-branch
branch create draft
branch delete draft --yes
tag create v1
tag delete v1
schema apply --schema next.pg
"""
EVERYTHING = """
version: 1
groups: {all: [ann]}
rules:
  - id: all
    allow:
      actors: {group: all}
      actions: [read, export, change, schema_apply, branch_create, branch_delete, branch_merge]
"""


@pytest.mark.parametrize(
    "words",
    [
        "log --server URL --graph ID",
        "log --graph ID --server URL",
        "--server URL log --graph ID",
        "--server URL --graph ID log",
        "log --server URL --graph=ID",
    ],
)
def test_the_history_of_a_graph_of_a_server_is_listed_or_drawn(
    terminal: Terminal, server: Served, words: str
) -> None:
    given = words.replace("URL", server.url).replace("ID", server.graph).split()
    plain, drawn = terminal(*given), terminal(*given, "--graph")
    assert (plain.code, drawn.code) == (0, 0), plain.err + drawn.err
    assert drawn.out == f"* {plain.out}"
    assert terminal(*given, "--graph", "--limit", "1").out == drawn.out


def test_the_word_after_graph_is_an_address_where_no_server_is_named(
    terminal: Terminal, server: Served
) -> None:
    drawn = terminal("log", "--graph", "served.omni")
    assert (drawn.code, drawn.out[:2]) == (0, "* ")
    assert terminal("log", "served.omni", "--graph").out == drawn.out
    assert "already a single graph" in terminal("log", "served.omni", "--graph=x").err


def test_the_line_of_a_write_says_that_it_is_served(terminal: Terminal, server: Served) -> None:
    result = terminal("branch", "create", "x", "--server", server.url, "--graph", server.graph)
    url = f"{server.url}/graphs/{server.graph}"
    assert (result.code, result.err) == (0, f"omnigraph branch create → {url} (served)\n")


@pytest.mark.parametrize(
    "line",
    [
        "mutate -e 'query q() { insert Person { name: \"x\" } }'",
        "branch create x",
        "load --data people.jsonl --mode merge",
        "schema apply --schema next.pg",
        "tag create x",
    ],
)
def test_a_served_write_takes_no_actor(terminal: Terminal, server: Served, line: str) -> None:
    scope = ("--server", server.url, "--graph", server.graph)
    result = terminal(*shlex.split(line), "--as", "eve", *scope)
    assert result.code == 1
    assert "not allowed on a served write" in result.err
    assert len(terminal("commit", "list", "--json", *scope).json["commits"]) == 1


def test_destructive_commands_on_a_server_need_consent(terminal: Terminal, server: Served) -> None:
    scope = ("--server", server.url, "--graph", server.graph, "--json")
    for line in ("branch delete x", "load --data people.jsonl --mode overwrite"):
        result = terminal(*line.split(), *scope)
        assert result.code == 1
        assert "refusing destructive" in result.err


def test_a_stored_query_is_run_by_its_name(terminal: Terminal, server: Served) -> None:
    scope = ("--server", server.url, "--graph", server.graph)
    assert terminal("load", "--data", "people.jsonl", "--mode", "merge", *scope).code == 0
    rows = terminal("query", "all", "--json", *scope).json["rows"]
    assert [row["p.name"] for row in rows] == ["ann", "bob"]
    params = '{"n": "ann", "a": 9}'
    changed = terminal("mutate", "age", "--params", params, "--json", *scope)
    assert changed.json["affected_nodes"] == 1
    wrong = terminal("query", "age", *scope)
    assert wrong.code == 1
    assert "mutate" in wrong.err
    assert "needs a server" in terminal("query", "all", "--store", "served.omni").err


def test_the_stored_queries_are_listed(terminal: Terminal, server: Served) -> None:
    scope = ("--server", server.url, "--graph", server.graph)
    found = terminal("queries", "list", "--json", *scope).json["queries"]
    assert [(one["name"], one["mutation"]) for one in found] == [
        ("age", True),
        ("all", False),
        ("named", False),
    ]
    assert found[0]["params"] == [
        {"name": "n", "type": "string", "nullable": False},
        {"name": "a", "type": "int", "nullable": False},
    ]
    assert "mutation  age($n: string, $a: int)" in terminal("queries", "list", *scope).out
    assert terminal("queries", "list", "--profile", "none").code == 1


def test_an_alias_runs_a_stored_read(terminal: Terminal, server: Served, home: Path) -> None:
    (home / "config.yaml").write_text(
        f"servers: {{lab: {{url: '{server.url}'}}}}\n"
        f"aliases: {{who: {{server: lab, graph: {server.graph}, query: all}},"
        f" grow: {{server: lab, graph: {server.graph}, query: age, args: [n, a]}}}}\n"
    )
    scope = ("--server", "lab", "--graph", server.graph)
    assert terminal("load", "--data", "people.jsonl", "--mode", "merge", *scope).code == 0
    assert [row["p.name"] for row in terminal("alias", "who", "--json").json["rows"]] == [
        "ann",
        "bob",
    ]
    assert "unknown alias 'what' (defined: grow, who)" in terminal("alias", "what").err
    assert "too many" in terminal("alias", "who", "x").err
    assert "mutate" in terminal("alias", "grow", "ann", "3").err
    refused = terminal("alias", "who", *scope)
    assert "--server, --graph does not apply" in refused.err


def test_engine_spark_on_a_server_is_wrong_usage(terminal: Terminal, server: Served) -> None:
    scope = ("--server", server.url, "--graph", server.graph, "--engine", "spark")
    assert terminal("load", "--data", "people.jsonl", "--mode", "merge", *scope).code == 2
    assert terminal("diff", "main", "main", *scope).code == 2


# -- addresses ------------------------------------------------------------------------------------


def test_names_profiles_and_defaults_lead_to_a_server(
    terminal: Terminal, server: Served, home: Path
) -> None:
    (home / "config.yaml").write_text(
        f"servers: {{lab: {{url: '{server.url}/'}}}}\n"
        f"profiles: {{p: {{server: lab, default_graph: {server.graph}}}, q: {{server: lab}}}}\n"
        f"defaults: {{server: lab, default_graph: {server.graph}}}\n"
    )
    assert terminal("snapshot").code == 0
    assert terminal("snapshot", "--profile", "p").code == 0
    assert terminal("snapshot", "--server", "lab", "--graph", server.graph).code == 0
    assert "unknown server 'bar' (defined: lab)" in terminal("snapshot", "--server", "bar").err
    missing = terminal("snapshot", "--graph", "other")
    assert (missing.code, "graph 'other' not found" in missing.err) == (1, True)


def test_a_server_that_lists_no_graphs_is_taken_as_the_address(
    terminal: Terminal, server: Served
) -> None:
    url = f"{server.url}/graphs/{server.graph}"
    assert terminal("branch", "list", "--server", url).out == "main\n"


def test_a_server_that_does_not_answer_is_an_error(terminal: Terminal) -> None:
    result = terminal("snapshot", "--server", "http://127.0.0.1:1", "--graph", "g", "--json")
    assert result.code == 1
    assert json.loads(result.err)["code"] == "OG-SERVER-UNREACHABLE"
