"""Commands on a server under a policy: allowed and refused as the written rules say.

Every command on data, for every actor and branch. What is refused ends with 1 and the sentence of
the rules. On storage no policy is asked, as it is whoever can open it who decides.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.policy import Action, Bundle, read_bundle
from support import policies as oracle
from support.policed import ACTORS, BUNDLE, INSERT, OWN, READ, RECORD, SCHEMA, STORED, token
from support.served_here import Served, serve
from support.terminal import Result, Terminal

Question = tuple[Action, str | None, str | None]
BRANCHES = ("main", "release", "draft", OWN, "missing")
INVOKE: Question = (Action.INVOKE_QUERY, None, None)
LISTED: Question = (Action.READ, None, None)
BLOB = "node Person Ada photo --branch BRANCH"


@dataclass(frozen=True)
class Case:
    """A command about a branch, and what the policy is asked, in this order."""

    line: str
    asked: Callable[[str], list[Question]]


def _on(action: Action) -> Callable[[str], list[Question]]:
    return lambda branch: [(action, branch, None)]


def _onto(action: Action, source: str | None = None) -> Callable[[str], list[Question]]:
    return lambda branch: [(action, source, branch)]


def _both(branch: str) -> list[Question]:
    return [(Action.READ, "draft", None), (Action.READ, branch, None)]


CASES = {
    "query": Case(f"query -e '{READ}' --branch BRANCH", _on(Action.READ)),
    "stored query": Case("query all --branch BRANCH", lambda b: [INVOKE, (Action.READ, b, None)]),
    "snapshot": Case("snapshot --branch BRANCH", _on(Action.READ)),
    "export": Case("export --branch BRANCH", _on(Action.EXPORT)),
    "export to a folder": Case("export --branch BRANCH --out NEW", _on(Action.EXPORT)),
    "commit list": Case("commit list --branch BRANCH", _on(Action.READ)),
    "commit show": Case("commit show HEAD", lambda _: [LISTED]),
    "changes poll": Case("changes poll --branch BRANCH", _on(Action.READ)),
    "changes baseline": Case("changes baseline --out NEW --branch BRANCH", _on(Action.EXPORT)),
    "blob stat": Case(f"blob stat {BLOB}", _on(Action.READ)),
    "blob get": Case(f"blob get {BLOB} --out NEW", _on(Action.READ)),
    "branch list": Case("branch list", lambda _: [LISTED]),
    "branch merge dry": Case("branch merge draft --into BRANCH --dry-run", _both),
    "branch conflicts": Case("branch conflicts draft --into BRANCH --out NEW", _both),
    "tag list": Case("tag list", lambda _: [LISTED]),
    "schema show": Case("schema show --branch BRANCH", _on(Action.READ)),
    "log": Case(
        "log --branch BRANCH",
        # Of a branch that does not exist nothing more is asked.
        lambda b: [(Action.READ, b, None), *([LISTED] if b != "missing" else [])],
    ),
    "mutate": Case(
        f"mutate -e '{INSERT}' --params-file name.json --branch BRANCH",
        _on(Action.CHANGE),
    ),
    "stored mutation": Case(
        "mutate add --params-file name.json --branch BRANCH",
        lambda b: [INVOKE, (Action.CHANGE, b, None)],
    ),
    "load": Case("load --data people.jsonl --mode merge --branch BRANCH", _on(Action.CHANGE)),
    "load on trial": Case(
        "load --data people.jsonl --mode merge --branch BRANCH --dry-run", _on(Action.CHANGE)
    ),
    "commit revert": Case("commit revert HEAD --branch BRANCH", _on(Action.CHANGE)),
    "schema apply": Case(
        "schema apply --schema people.pg --branch BRANCH", _onto(Action.SCHEMA_APPLY)
    ),
    "branch merge": Case("branch merge draft --into BRANCH", _onto(Action.BRANCH_MERGE, "draft")),
    "tag create": Case("tag create BRANCH", _onto(Action.BRANCH_CREATE)),
    "tag delete": Case("tag delete BRANCH", _onto(Action.BRANCH_DELETE)),
    "branch create": Case("branch create BRANCH", _onto(Action.BRANCH_CREATE, "main")),
    "branch delete": Case("branch delete BRANCH --yes", _onto(Action.BRANCH_DELETE)),
}
"""Those that read come first: a branch that was deleted is none to ask about."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("policed")
    root, policy, queries = (folder / name for name in ("people.omni", "p.yaml", "q.gq"))
    policy.write_text(BUNDLE, encoding="utf-8")
    queries.write_text(STORED, encoding="utf-8")
    with Graph.init(root, SCHEMA, durability="process") as graph:
        graph.load(RECORD.encode(), mode="append")
        for branch in ("release", "draft", OWN):
            graph.branch_create(branch)
    tokens = json.dumps({actor: token(actor) for actor in ACTORS})
    environ = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": tokens}
    with serve(root, queries=(queries,), tokens=environ, policy=policy) as found:
        yield found


@pytest.fixture
def bundle() -> Bundle:
    return read_bundle(BUNDLE)


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)
    Path("people.pg").write_text(SCHEMA, encoding="utf-8")
    Path("people.jsonl").write_text(RECORD, encoding="utf-8")
    Path("name.json").write_text('{"name": "Bo"}', encoding="utf-8")
    return Terminal(capsys)


@pytest.mark.parametrize("name", CASES)
def test_a_command_is_decided_as_the_written_rules_say(
    name: str,
    terminal: Terminal,
    served: Served,
    bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES[name]
    scope = ("--server", served.url, "--graph", served.graph)
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", token("act-owner"))
    head = terminal("commit", "list", "--json", *scope).json["commits"][0]["graph_commit_id"]
    branches = BRANCHES if "BRANCH" in case.line else ("main",)
    for number, (actor, branch) in enumerate((a, b) for a in ACTORS for b in branches):
        monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", token(actor))
        words = {"BRANCH": branch, "HEAD": head, "NEW": f"new{number}"}
        line = reduce(lambda text, word: text.replace(*word), words.items(), case.line)
        result = terminal(*shlex.split(line), *scope)
        _check(result, bundle, actor, case.asked(branch), f"{actor}: {line}")


def _check(result: Result, bundle: Bundle, actor: str, asked: list[Question], where: str) -> None:
    decided = [(oracle.decide(bundle, actor, *question), question) for question in asked]
    denied = next(((said, q) for (allowed, _, said), q in decided if not allowed), None)
    if denied is None:
        assert "denied" not in result.err, where
    elif denied[1] == INVOKE:
        assert (result.code, "stored query not found" in result.err) == (1, True), where
    else:
        assert (result.code, denied[0] in result.err) == (1, True), (where, result.err)
        assert result.out == "", where


def test_the_changes_of_a_commit_that_may_not_be_read_are_those_of_no_commit(
    terminal: Terminal, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = ("--server", served.url, "--graph", served.graph)
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", token("act-owner"))
    head = terminal("commit", "list", "--json", *scope).json["commits"][0]["graph_commit_id"]
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", token("act-eve"))
    hidden, unknown = (terminal("commit", "changes", commit, *scope) for commit in (head, "0" * 26))
    assert (hidden.code, unknown.code) == (1, 1)
    assert hidden.err.replace(head, "ID") == unknown.err.replace("0" * 26, "ID")


@pytest.mark.parametrize("given", ["", "wrong", f"{token('act-owner')} x"])
def test_without_a_known_token_nothing_is_done(
    terminal: Terminal, served: Served, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", given)
    scope = ("--server", served.url, "--graph", served.graph)
    for line in ("snapshot", "branch create x", "export"):
        result = terminal(*line.split(), *scope)
        assert (result.code, result.out) == (1, "")
        assert "bearer token" in result.err


def test_on_storage_no_policy_is_asked(terminal: Terminal) -> None:
    assert terminal("init", "--schema", "people.pg", "people.omni").code == 0
    words = ("load", "people.omni", "--data", "people.jsonl", "--mode", "merge")
    assert terminal(*words, "--as", "act-eve").code == 0
