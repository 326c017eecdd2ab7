"""The gate of an embedded handle: every write is decided, and decided first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph, OmnigraphError, OpenMode, Policy, engine
from omnigraph.engine import LoadRequest
from omnigraph.errors import DeniedError
from omnigraph.graph.authorize import ActorBoundError
from omnigraph.policy import Action, PolicyDeniedError, PolicyInvalidError, PolicyKind
from omnigraph.wire import outcome_of
from support import policies as oracle
from support.inline_engine import InlineEngine

SCHEMA = "node Person { name: String @key }"
INSERT = "query add($name: String) { insert Person { name: $name } }"
CREATE = 'query add() { create Person { name: "Bo" } }'
ROW = b'{"type": "Person", "data": {"name": "Ada"}}'

BUNDLE = """
version: 1
groups:
  readers: [act-reader]
  editors: [act-editor]
  owners: [act-owner]
  agents: [act-scout]
protected_branches: [main, release]
rules:
  - {id: read, allow: {actors: {group: readers}, actions: [read, export]}}
  - {id: edit, allow: {actors: {group: editors}, actions: [change], branch_scope: unprotected}}
  - id: cut
    allow:
      actors: {group: editors}
      actions: [branch_create, branch_delete]
      target_branch_scope: unprotected
  - id: own-all
    allow:
      actors: {group: owners}
      actions: [change, schema_apply, branch_create, branch_delete, branch_merge]
  - {id: scout-write, allow: {actors: {group: agents}, actions: [change], branch_scope: own}}
  - id: scout-branch
    allow:
      actors: {group: agents}
      actions: [branch_create, branch_delete, branch_merge]
      target_branch_scope: own
"""
SERVER_BUNDLE = """
version: 1
groups: {operators: [act-owner]}
rules: [{id: list, allow: {actors: {group: operators}, actions: [graph_list]}}]
"""
ACTORS = ("act-reader", "act-editor", "act-owner", "act-scout", "act-eve", "Act-Owner")
BRANCHES = ("main", "release", "draft", "agent/act-scout/x", "agent/act-scout2/x", "Main")


@dataclass(frozen=True)
class Write:
    """A write of a handle, and what the policy is asked about it for a branch."""

    run: Callable[[Graph, str, str | None], object]
    asked: Callable[[str], tuple[tuple[Action, str | None, str | None], ...]]


def _changes(branch: str) -> tuple[tuple[Action, str | None, str | None], ...]:
    return ((Action.CHANGE, branch, None),)


def _forks(branch: str) -> tuple[tuple[Action, str | None, str | None], ...]:
    return ((Action.CHANGE, branch, None), (Action.BRANCH_CREATE, "main", branch))


WRITES = {
    "mutate": Write(
        lambda g, b, a: g.mutate(INSERT, params={"name": "Bo"}, branch=b, actor_id=a), _changes
    ),
    "mutate with retries": Write(
        lambda g, b, a: g.mutate(CREATE, branch=b, actor_id=a, retries=2), _changes
    ),
    "delete rows": Write(
        lambda g, b, a: g.delete_rows({"node:Person": ["Bo"]}, branch=b, actor_id=a), _changes
    ),
    "load": Write(lambda g, b, a: g.load(ROW, mode="merge", branch=b, actor_id=a), _changes),
    "load dry run": Write(
        lambda g, b, a: g.load(ROW, mode="merge", branch=b, actor_id=a, dry_run=True), _changes
    ),
    "load tables": Write(
        lambda g, b, a: g.load_tables(nodes={}, mode="merge", branch=b, actor_id=a), _changes
    ),
    "load that forks": Write(
        lambda g, b, a: g.load(ROW, mode="merge", branch=b, from_branch="main", actor_id=a), _forks
    ),
    "embed": Write(lambda g, b, a: g.embed(branch=b, actor_id=a), _changes),
    "revert": Write(lambda g, b, a: g.commit_revert("0" * 26, branch=b, actor_id=a), _changes),
    "schema": Write(
        lambda g, b, a: g.apply_schema(SCHEMA, actor_id=a),
        lambda b: ((Action.SCHEMA_APPLY, None, "main"),),
    ),
    "branch create": Write(
        lambda g, b, a: g.branch_create(b, actor_id=a),
        lambda b: ((Action.BRANCH_CREATE, None, b),),
    ),
    "branch create from": Write(
        lambda g, b, a: g.branch_create_from("main", b, actor_id=a),
        lambda b: ((Action.BRANCH_CREATE, "main", b),),
    ),
    "branch delete": Write(
        lambda g, b, a: g.branch_delete(b, actor_id=a),
        lambda b: ((Action.BRANCH_DELETE, None, b),),
    ),
    "merge": Write(
        lambda g, b, a: g.branch_merge("other", b, actor_id=a),
        lambda b: ((Action.BRANCH_MERGE, "other", b),),
    ),
    "tag create": Write(
        lambda g, b, a: g.tag_create(b, actor_id=a), lambda b: ((Action.BRANCH_CREATE, None, b),)
    ),
    "tag delete": Write(
        lambda g, b, a: g.tag_delete(b, actor_id=a), lambda b: ((Action.BRANCH_DELETE, None, b),)
    ),
}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy.parse(BUNDLE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Graph.init(tmp_path / "graph", SCHEMA).close()
    return tmp_path / "graph"


def _outcome(call: Callable[[], object]) -> str | None:
    """Return the sentence of a denial, None if the policy lets the call through."""
    try:
        call()
    except PolicyDeniedError as error:
        return str(error)
    except OmnigraphError:
        return None
    return None


@pytest.mark.parametrize("name", WRITES)
def test_every_write_is_decided_as_the_written_rules_say(
    name: str, root: Path, policy: Policy
) -> None:
    write = WRITES[name]
    with Graph.open(root, policy=policy, auto_optimize=False) as graph:
        for actor in ACTORS:
            for branch in BRANCHES:
                asked = write.asked(branch)
                if name == "load that forks" and branch in graph.branch_list():
                    asked = asked[:1]
                decided = [oracle.decide(policy.bundle, actor, *question) for question in asked]
                denials = [f"policy denied: {said}" for allowed, _, said in decided if not allowed]
                found = _outcome(partial(write.run, graph, branch, actor))
                assert found == (denials[0] if denials else None), (actor, branch)


@pytest.mark.parametrize("name", WRITES)
def test_the_decision_comes_before_storage_is_touched(
    name: str, root: Path, policy: Policy
) -> None:
    graph = Graph.open(root, policy=policy)
    shutil.rmtree(root)
    with pytest.raises(PolicyDeniedError):
        WRITES[name].run(graph, "main", "act-reader")
    with pytest.raises(PolicyDeniedError, match="no actor"):
        WRITES[name].run(graph, "main", None)


@pytest.mark.parametrize("name", WRITES)
def test_a_handle_with_an_actor_acts_for_no_other(name: str, root: Path, policy: Policy) -> None:
    with Graph.open(root, policy=policy, actor_id="act-reader") as graph:
        with pytest.raises(ActorBoundError, match="acts for 'act-reader', not for 'act-owner'"):
            WRITES[name].run(graph, "main", "act-owner")
        with pytest.raises(PolicyDeniedError, match="'act-reader'"):
            WRITES[name].run(graph, "main", None)
    assert issubclass(ActorBoundError, DeniedError)


def test_the_actor_of_the_handle_is_that_of_its_commits(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(BUNDLE)
    with Graph.init(tmp_path / "g", SCHEMA, policy=path, actor_id="act-owner") as graph:
        graph.mutate(INSERT, params={"name": "Ada"})
        graph.branch_create("draft")
        graph.load(ROW.replace(b"Ada", b"Bo"), mode="append", branch="draft")
        graph.branch_merge("draft", actor_id="act-owner")
        assert graph.tag_create("v1").actor_id == "act-owner"
        assert {commit.actor_id for commit in graph.list_commits()} == {"act-owner"}
    with Graph.open(tmp_path / "g", policy=str(path)) as graph:
        graph.mutate(INSERT, params={"name": "Cy"}, branch="draft", actor_id="act-editor")
        assert graph.list_commits("draft")[0].actor_id == "act-editor"


def test_an_actor_without_a_policy_is_the_default_of_the_handle(root: Path) -> None:
    with Graph.open(root, actor_id="act-ines") as graph:
        graph.mutate(INSERT, params={"name": "Ada"})
        assert graph.list_commits()[0].actor_id == "act-ines"
        with pytest.raises(ActorBoundError):
            graph.mutate(INSERT, params={"name": "Bo"}, actor_id="act-lena")


def test_a_denied_write_leaves_nothing(root: Path, policy: Policy) -> None:
    with Graph.open(root, policy=policy, actor_id="act-reader") as graph:
        before = graph.list_commits()
        for write in WRITES.values():
            with pytest.raises(PolicyDeniedError):
                write.run(graph, "draft", None)
        assert graph.list_commits() == before
        assert graph.branch_list() == ["main"]
        assert graph.tag_list() == []


def test_a_load_makes_no_branch_that_may_not_be_made(root: Path) -> None:
    text = BUNDLE.replace("actions: [change], branch_scope: own", "actions: [change]")
    with Graph.open(root, policy=Policy.parse(text), actor_id="act-scout") as graph:
        with pytest.raises(PolicyDeniedError, match="'branch_create' on branch 'main' targeting"):
            graph.load(ROW, mode="merge", branch="draft", from_branch="main")
        assert graph.branch_list() == ["main"]
        # It exists, so nothing is made: `change` is enough.
        assert graph.load(ROW, mode="merge", branch="main", from_branch="main").commit is not None


@pytest.mark.parametrize("asked", [" main ", "main\t", "\nmain"])
def test_blanks_around_a_branch_do_not_unprotect_it(asked: str, root: Path, policy: Policy) -> None:
    with Graph.open(root, policy=policy, actor_id="act-editor") as graph:
        with pytest.raises(PolicyDeniedError):
            graph.mutate(INSERT, params={"name": "Ada"}, branch=asked)
        with pytest.raises(PolicyDeniedError):
            graph.branch_merge("draft", asked)


@pytest.mark.parametrize(
    "asked", ["main\0", "m\u0430in", "main%00", "main/", "../main", "main.lock/.."]
)
def test_a_name_that_looks_like_a_branch_is_none(asked: str, root: Path, policy: Policy) -> None:
    with Graph.open(root, policy=policy, actor_id="act-editor") as graph:
        before = graph.head_commit_id_for_branch()
        with pytest.raises(OmnigraphError):
            graph.mutate(INSERT, params={"name": "Ada"}, branch=asked)
        with pytest.raises(OmnigraphError):
            graph.branch_create(asked)
        assert graph.head_commit_id_for_branch() == before
        assert graph.branch_list() == ["main"]


def test_the_bound_branch_is_the_one_that_is_decided(root: Path, policy: Policy) -> None:
    with Graph.open(root, policy=policy, actor_id="act-editor") as graph:
        graph.branch_create("draft")
        with pytest.raises(PolicyDeniedError, match="on branch 'main'"):
            graph.mutate(INSERT, params={"name": "Ada"})
        graph.sync_branch("draft")
        assert graph.mutate(INSERT, params={"name": "Ada"}).commit is not None


def test_reads_and_dry_runs_of_merges_are_not_decided_by_the_engine(
    root: Path, policy: Policy
) -> None:
    with Graph.open(root) as graph:
        graph.branch_create("draft")
    with Graph.open(root, policy=policy, actor_id="act-eve") as graph:
        assert (
            graph.query("query q() { match { $p: Person } return { $p.name } }").to_pylist() == []
        )
        assert graph.branch_merge("draft", dry_run=True).commit is None


def test_another_policy_holds_for_another_handle_of_the_open_graph(
    root: Path, policy: Policy
) -> None:
    with Graph.open(root, policy=policy) as graph:
        wider = graph.with_policy(None)
        narrower = graph.with_policy(policy, actor_id="act-reader")
        assert wider.mutate(INSERT, params={"name": "Ada"}).commit is not None
        with pytest.raises(PolicyDeniedError):
            narrower.mutate(INSERT, params={"name": "Bo"})
        with pytest.raises(PolicyDeniedError, match="no actor"):
            graph.mutate(INSERT, params={"name": "Bo"})
        assert graph.snapshot().commit_id == wider.snapshot().commit_id


def test_a_policy_that_is_not_one_of_a_graph_is_refused(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(SERVER_BUNDLE)
    with pytest.raises(PolicyInvalidError, match="server-scoped"):
        Graph.open(root, policy=path)
    with pytest.raises(PolicyInvalidError, match="of a server"):
        Graph.open(root, policy=Policy.load(path, kind=PolicyKind.SERVER))


class _StartedError(Exception):
    """A job was started."""


class _Watched(InlineEngine):
    """Notes for whom a job would run, instead of running it."""

    def __init__(self) -> None:
        super().__init__()
        self.actors: list[str | None] = []

    def load(self, request: LoadRequest) -> Any:
        self.actors.append(request.options.actor_id)
        raise _StartedError

    def merge_workers(self, *_: object, **__: object) -> Any:
        self.actors.append("merge")
        raise _StartedError


def test_a_job_of_spark_is_decided_before_it_starts(
    root: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = _Watched()
    monkeypatch.setitem(engine._engines, watched.name, watched)
    rows = root.parent / "rows.jsonl"
    rows.write_bytes(ROW)
    with Graph.open(root) as graph:
        graph.branch_create("draft")
    calls: list[Callable[[Graph], object]] = [
        lambda g: g.load(rows, mode="merge", engine="spark"),
        lambda g: g.branch_merge("draft", engine="spark"),
    ]
    for call in calls:
        with (
            Graph.open(root, policy=policy, actor_id="act-editor") as graph,
            pytest.raises(PolicyDeniedError),
        ):
            call(graph)
        assert watched.actors == []
    for call in calls:
        with (
            Graph.open(root, policy=policy, actor_id="act-owner") as graph,
            pytest.raises(_StartedError),
        ):
            call(graph)
    assert watched.actors == ["act-owner", "merge"]


def test_an_invalid_policy_keeps_a_graph_from_being_made(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("version: 2")
    with pytest.raises(PolicyInvalidError):
        Graph.init(tmp_path / "g", SCHEMA, policy=path)
    assert not (tmp_path / "g").exists()


def test_a_denial_is_403_and_ends_a_command_with_1() -> None:
    outcome = outcome_of(PolicyDeniedError("policy denied: x"))
    assert (outcome.http_status, outcome.exit_code) == (403, 1)
    assert outcome_of(ActorBoundError("a", "b")).http_status == 403


def test_a_read_only_handle_says_so_before_it_asks_the_policy(root: Path, policy: Policy) -> None:
    graph = Graph.open(root, mode=OpenMode.READ_ONLY, policy=policy, actor_id="act-owner")
    with pytest.raises(OmnigraphError, match="opened for writing"):
        graph.branch_create("x")


def test_without_a_policy_its_libraries_are_not_loaded(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from omnigraph import Graph\n"
        f"with Graph.init({str(tmp_path / 'g')!r}, {SCHEMA!r}) as graph:\n"
        f"    graph.load({ROW!r}, mode='append')\n"
        "print(sorted(name for name in sys.modules if name in ('cedarpy', 'yaml')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
