"""Commands on a served graph do what they do on a local one: same exit code, same JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

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
query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }
"""
FILES = {
    "people.pg": SCHEMA,
    "next.pg": SCHEMA.replace("age: I32?", "age: I32?  nick: String?"),
    "no.pg": SCHEMA.replace("since: Date?", "since: Bool?"),
    "people.jsonl": RECORDS,
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
ingest --data loose.jsonl
query all --query people.gq
query all --query people.gq --branch etl
query all --query people.gq --branch nowhere
query all --query bad.gq
query nope --query people.gq
query -e 'query q() { match { $p: Person } return { count($p) as n } }'
query -e 'query q() { insert Person { name: "x" } }'
query all --query people.gq --max-rows 1
query all --query people.gq --explain
mutate age --query people.gq --params '{"n": "ann", "a": 2}'
mutate age --query people.gq --params '{"n": "nobody", "a": 2}'
mutate age --query people.gq --params '{"n": "ann", "a": "x"}'
mutate age --query people.gq --params '{"n": "ann", "a": 2}' --if-commit NO
branch create draft
branch create draft
branch create a/b --from draft
branch list
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
branch merge draft --prefer source
diff main etl
diff 1 main --stat
diff nowhere main
snapshot
snapshot --branch nowhere
export
export --type Person --branch draft
export --type Nope
commit list
commit list --branch draft --limit 2
commit list --filter operation=merge
commit show HEAD
commit show NO
commit changes HEAD
commit revert HEAD
changes poll --start beginning
changes poll --start beginning --kind node --limit 1
changes poll --start never
changes poll --cursor bad
changes baseline --out base.jsonl
blob stat node Person ann photo
blob stat node Person bob photo
blob stat node Nope bob photo
blob get node Person ann photo --offset 1 --length 1
blob get node Person ann photo --offset 9
blob get node Person ann photo --out bytes
tag create v1
tag create v1
tag list
tag delete v1
tag delete v1
log
log --graph
branch merge draft --delete-branch
branch delete etl --yes
branch delete draft --yes
schema show
schema apply --schema no.pg
schema apply --schema next.pg
schema apply --schema next.pg
load --data people.jsonl --mode overwrite --yes
"""
"""In this order, on two graphs that were equal before."""

WITHOUT_JSON = ("export", "blob get")
NOT_SAME = re.compile(
    r'"(graph_commit_id|parent_commit_id|merged_parent_commit_id|created_at|authored_at|uri|id'
    r"|resume_cursor|snapshot_commit_id|cursor|etag|resolved_snapshot|dataset_path|seconds"
    r'|bytes_written|next_page_token|elapsed_ms|source|read|validate|write|commit|table_key)": '
    r'("(?:[^"\\]|\\.)*"|[0-9.]+|null)'
)
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def same(text: str, *places: str) -> str:
    """Return a text without ids, times and places."""
    for place in places:
        text = text.replace(place, "HERE")
    return TIME.sub("TIME", ULID.sub("ID", NOT_SAME.sub(r'"\1": …', text)))


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


def test_every_command_does_the_same_on_a_server(
    terminal: Terminal, server: Served, tmp_path: Path
) -> None:
    assert terminal("init", "--schema", "people.pg", "local.omni").code == 0
    places = (str(tmp_path / "local.omni"), f"{server.url}/graphs/{server.graph}")
    scopes = (("--store", "local.omni"), ("--server", server.url, "--graph", server.graph))
    differing = {}
    for line in COMMANDS.strip().splitlines():
        local, remote = (
            (result.code, same(result.out, *places), _errors(result, *places))
            for result in (_run(terminal, line, scope) for scope in scopes)
        )
        if local != remote:
            differing[line] = (local, remote)
    assert differing == {}


def _run(terminal: Terminal, line: str, scope: tuple[str, ...]) -> Result:
    if "HEAD" in line:
        commits = terminal("commit", "list", "--json", "--limit", "1", *scope).json["commits"]
        line = line.replace("HEAD", commits[0]["graph_commit_id"])
    given = shlex.split(line)
    as_json = [] if line.startswith(WITHOUT_JSON) else ["--json"]
    # `log` has a `--graph` of its own.
    return terminal(*scope, *given, *as_json)


def _errors(result: Result, *places: str) -> str:
    """Return what stands on stderr, without the line that names the target."""
    return re.sub(r"omnigraph .* → .*\n", "", same(result.err, *places))


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
    assert [(one["name"], one["mutation"]) for one in found] == [("age", True), ("all", False)]
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
