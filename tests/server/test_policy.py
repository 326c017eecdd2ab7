"""The policy at the boundary: what the rules say is what the server does, whatever is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from omnigraph.policy import Action, Bundle, Policy, PolicyEvaluationError, read_bundle
from omnigraph.server.access import Gate, Mode
from omnigraph.server.errors import ForbiddenError, PolicyFailedError
from support import policies as oracle
from support.policed import (
    ACTORS,
    BRANCHES,
    BUNDLE,
    INSERT,
    OWN,
    READ,
    RECORD,
    SCHEMA,
    Answer,
    Policed,
    bearer,
    token,
)

Question = tuple[Action, str | None, str | None]
SERVER_BUNDLE = """
version: 1
kind: server
groups: {operators: [act-owner]}
rules: [{id: list, allow: {actors: {group: operators}, actions: [graph_list]}}]
"""
MUTATION = {"query": INSERT, "params": {"name": "Bo"}}
NDJSON = "application/x-ndjson"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Policed:
    return Policed(tmp_path_factory.mktemp("policed"), server_bundle=SERVER_BUNDLE)


@pytest.fixture
def fresh(tmp_path: Path) -> Policed:
    return Policed(tmp_path)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return read_bundle(BUNDLE)


# -- the matrix -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A route: how to ask it about a branch, and the questions that the policy is asked."""

    ask: Callable[[Policed, str, str], Answer]
    asked: Callable[[str], list[Question]]


def _on(action: Action) -> Callable[[str], list[Question]]:
    return lambda branch: [(action, branch, None)]


def _always(*questions: Question) -> Callable[[str], list[Question]]:
    return lambda _: list(questions)


def _get(path: str) -> Callable[[Policed, str, str], Answer]:
    """Ask with GET; `{}` is the branch."""
    return lambda s, actor, branch: s.ask(actor, "GET", path.format(quote(branch, safe="")))


def _post(path: str, **body: Any) -> Callable[[Policed, str, str], Answer]:
    """Ask with POST; `{}` in a text of the body is the branch."""

    def ask(s: Policed, actor: str, branch: str) -> Answer:
        filled = {key: branch if value == "{}" else value for key, value in body.items()}
        return s.ask(actor, "POST", path, filled)

    return ask


READ_ON = _on(Action.READ)
CHANGE_ON = _on(Action.CHANGE)
INVOKE: Question = (Action.INVOKE_QUERY, None, None)
BLOB = "/blob?entity=node&type=Person&id=Ada&property=photo&branch={}"
CASES = {
    "snapshot": Case(_get("/snapshot?branch={}"), READ_ON),
    "query": Case(_post("/query", query=READ, branch="{}"), READ_ON),
    "read": Case(_post("/read", query_source=READ, branch="{}"), READ_ON),
    "mutate": Case(_post("/mutate", **MUTATION, branch="{}"), CHANGE_ON),
    "change": Case(_post("/change", **MUTATION, branch="{}"), CHANGE_ON),
    "mutate if": Case(
        lambda s, a, b: s.ask(
            a,
            "POST",
            "/mutate/if-graph-commit",
            {**MUTATION, "branch": b},
            omnigraph_if_graph_commit="0" * 26,
        ),
        CHANGE_ON,
    ),
    "queries": Case(_get("/queries"), _always((Action.READ, "main", None))),
    "schema": Case(_get("/schema"), _always((Action.READ, None, None))),
    "schema of a branch": Case(_get("/schema?branch={}"), READ_ON),
    "schema diff": Case(
        _get("/schema/diff?from=main&to={}"),
        lambda b: [(Action.READ, "main", None), (Action.READ, b, None)],
    ),
    "schema apply": Case(
        _post("/schema/apply", schema_source=SCHEMA, branch="{}"),
        lambda b: [(Action.SCHEMA_APPLY, None, b)],
    ),
    "branches": Case(_get("/branches"), _always((Action.READ, None, None))),
    "branch create": Case(
        _post("/branches", name="{}", **{"from": "main"}),
        lambda b: [(Action.BRANCH_CREATE, "main", b)],
    ),
    "branch delete": Case(
        lambda s, a, b: s.ask(a, "DELETE", f"/branches/{quote(b, safe='')}"),
        lambda b: [(Action.BRANCH_DELETE, None, b)],
    ),
    "merge": Case(
        _post("/branches/merge", source="draft", target="{}"),
        lambda b: [(Action.BRANCH_MERGE, "draft", b)],
    ),
    "merge dry run": Case(
        _post("/branches/merge", source="draft", target="{}", dry_run=True),
        lambda b: [(Action.READ, "draft", None), (Action.READ, b, None)],
    ),
    "conflicts": Case(
        _get("/branches/conflicts?source=draft&target={}"),
        lambda b: [(Action.READ, "draft", None), (Action.READ, b, None)],
    ),
    "commits": Case(_get("/commits?branch={}"), READ_ON),
    "commit": Case(_get(f"/commits/{'0' * 26}"), _always((Action.READ, None, None))),
    "changes": Case(_get("/changes?start=beginning&branch={}"), READ_ON),
    "baseline": Case(_post("/changes/baseline", branch="{}"), _on(Action.EXPORT)),
    "export": Case(_post("/export", branch="{}"), _on(Action.EXPORT)),
    "blob": Case(_get(BLOB), READ_ON),
    "blob head": Case(lambda s, a, b: s.ask(a, "HEAD", BLOB.format(quote(b, safe=""))), READ_ON),
    "revert": Case(_post(f"/commits/{'0' * 26}/revert", branch="{}"), CHANGE_ON),
    "tags": Case(_get("/tags"), _always((Action.READ, None, None))),
    "tag create": Case(_post("/tags", name="{}"), lambda b: [(Action.BRANCH_CREATE, None, b)]),
    "tag delete": Case(
        lambda s, a, b: s.ask(a, "DELETE", f"/tags/{quote(b, safe='')}"),
        lambda b: [(Action.BRANCH_DELETE, None, b)],
    ),
    "stored read": Case(
        _post("/queries/all", branch="{}"), lambda b: [INVOKE, (Action.READ, b, None)]
    ),
    "stored mutation": Case(
        _post("/queries/add", branch="{}", params={"name": "Cy"}),
        lambda b: [INVOKE, (Action.CHANGE, b, None)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_route_decides_as_the_written_rules_say(
    name: str, server: Policed, bundle: Bundle
) -> None:
    case = CASES[name]
    for actor in ACTORS:
        for branch in BRANCHES:
            answer = case.ask(server, actor, branch)
            _check(answer, bundle, actor, case.asked(branch), f"{name} {actor} {branch}")


@pytest.mark.parametrize("route", ["/load", "/ingest", "/load/ndjson", "/load/ndjson/with-options"])
@pytest.mark.parametrize("source", [None, "main"])
def test_a_load_asks_about_the_branch_that_it_would_make(
    route: str, source: str | None, server: Policed, bundle: Bundle
) -> None:
    for actor in ACTORS:
        for branch in BRANCHES:
            asked: list[Question] = [(Action.CHANGE, branch, None)]
            if source is not None and branch not in server.graph.branch_list():
                asked.insert(0, (Action.BRANCH_CREATE, source, branch))
            answer = _load(server, route, actor, branch, source)
            _check(answer, bundle, actor, asked, f"{route} {actor} {branch}")


def _load(server: Policed, route: str, actor: str, branch: str, source: str | None) -> Answer:
    if route.startswith("/load/ndjson"):
        fork = "" if source is None else f"&from={source}"
        path = f"{route}?branch={quote(branch, safe='')}{fork}"
        return server.ask(actor, "POST", path, RECORD.encode(), content_type=NDJSON)
    body = {"data": RECORD, "branch": branch}
    return server.ask(actor, "POST", route, body if source is None else body | {"from": source})


def _check(answer: Answer, bundle: Bundle, actor: str, asked: list[Question], where: str) -> None:
    decided = [(oracle.decide(bundle, actor, *question), question) for question in asked]
    denied = next(((said, q) for (allowed, _, said), q in decided if not allowed), None)
    if denied is None:
        assert answer.status not in (401, 403, 500), where
    elif denied[1] == INVOKE:
        assert (answer.status, answer.json["error"]) == (404, "stored query not found"), where
    elif not answer.body:
        assert answer.status == 403, where
    else:
        assert (answer.status, answer.json["error"]) == (403, denied[0]), where


def test_only_a_server_policy_lets_graphs_be_listed(server: Policed, fresh: Policed) -> None:
    for actor in ACTORS:
        answer = server.send("GET", "/graphs", [bearer(actor)])
        assert answer.status == (200 if actor == "act-owner" else 403), actor
        assert fresh.send("GET", "/graphs", [bearer(actor)]).status == 403


# -- who asks -------------------------------------------------------------------------------------


def test_nothing_but_the_token_says_who_asks(fresh: Policed) -> None:
    owner = {"x-actor-id": "act-owner", "x-forwarded-user": "act-owner", "from": "act-owner"}
    given = [bearer("act-reader"), *owner.items()]
    body = {**MUTATION, "actor": "act-owner", "actor_id": "act-owner", "as": "act-owner"}
    path = "/graphs/people/mutate?actor=act-owner&actor_id=act-owner&as=act-owner"
    answer = fresh.send("POST", path, given, body)
    assert (answer.status, answer.json["error"]) == (
        403,
        "policy denied action 'change' on branch 'main' for actor 'act-reader'",
    )
    given[0] = bearer("act-drafter")
    done = fresh.send("POST", path, given, body | {"branch": "draft"})
    assert (done.status, done.json["actor_id"]) == (200, "act-drafter")
    assert fresh.graph.list_commits("draft")[0].actor_id == "act-drafter"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", token("act-owner"))],
        [("authorization", f"bearer {token('act-owner')}")],
        [("authorization", f"BEARER {token('act-owner')}")],
        [("authorization", f"Basic {token('act-owner')}")],
        [("authorization", f"Bearer  {token('act-owner')}")],
        [("authorization", f"Bearer {token('act-owner')} ")],
        [("authorization", f" Bearer {token('act-owner')}")],
        [("authorization", f"Bearer\t{token('act-owner')}")],
        [("authorization", f"Bearer {token('act-owner')}\0")],
        [("authorization", f"Bearer {token('act-owner').upper()}")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer \xff\xfe")],
        [("authorization", f"Bearer {token('act-eve')}, Bearer {token('act-owner')}")],
        [bearer("act-owner"), bearer("act-owner")],
        [bearer("act-eve"), bearer("act-owner")],
        [("proxy-authorization", f"Bearer {token('act-owner')}")],
        [("cookie", f"token={token('act-owner')}; authorization=Bearer")],
    ],
)
def test_what_is_no_bearer_token_lets_nobody_in(
    headers: list[tuple[str, str]], server: Policed
) -> None:
    for method, path in [
        ("GET", "/graphs"),
        ("GET", "/graphs/people/schema"),
        ("HEAD", "/graphs/people/schema"),
        ("POST", "/graphs/people/mutate"),
        ("GET", "/graphs/nothing-here/schema"),
    ]:
        answer = server.send(method, path, headers, MUTATION)
        assert answer.status == 401, (method, path)
        if method != "HEAD":
            assert answer.json["code"] == "unauthorized"
        assert all(name != b"www-authenticate" for name, _ in answer.headers)


def test_a_token_in_the_query_string_is_none(server: Policed) -> None:
    path = f"/graphs/people/schema?token={token('act-owner')}&access_token={token('act-owner')}"
    assert server.send("GET", path).status == 401


def test_a_revert_brings_nothing_of_a_branch_that_may_not_be_read(fresh: Policed) -> None:
    """Undoing a deletion inserts what was deleted, so it would be a way to read it."""
    remove = "query remove($name: String) { delete Person where name = $name }"
    deleted = fresh.graph.mutate(remove, params={"name": "of release"}, branch="release").commit
    assert deleted is not None
    commit_id = deleted.graph_commit_id
    path, body = f"/commits/{commit_id}/revert", {"branch": "draft"}
    refused = fresh.ask("act-drafter", "POST", path, body)
    unknown = fresh.ask("act-drafter", "POST", f"/commits/{'0' * 26}/revert", body)
    assert refused.status == unknown.status == 404
    assert refused.body.replace(commit_id.encode(), b"0" * 26) == unknown.body
    shown = fresh.ask("act-drafter", "POST", "/query", {"query": READ, "branch": "draft"}).json
    assert {"p.name": "of release"} not in shown["rows"]
    assert fresh.ask("act-owner", "POST", path, body).status == 200


def test_a_commit_of_its_own_branch_is_reverted_without_a_right_to_read(fresh: Policed) -> None:
    fresh.policy.write_text(
        "version: 1\n"
        "groups: {drafters: [act-drafter]}\n"
        "rules: [{id: w, allow: {actors: {group: drafters}, actions: [change]}}]\n"
    )
    assert fresh.reloader.refresh()
    made = fresh.ask("act-drafter", "POST", "/mutate", {**MUTATION, "branch": "draft"}).json
    path = f"/commits/{made['commit']['graph_commit_id']}/revert"
    assert fresh.ask("act-drafter", "POST", path, {"branch": "draft"}).status == 200
    assert fresh.ask("act-drafter", "POST", path, {"branch": "release"}).status == 404


def test_the_number_of_a_version_says_nothing_to_those_who_may_not_read_main(
    server: Policed,
) -> None:
    path = "/diff?from=draft&to=version:9999"
    assert server.ask("act-drafter", "GET", path).status == 403
    assert server.ask("act-owner", "GET", path).status == 404


# -- names of branches ----------------------------------------------------------------------------

TRICKS = (
    " main",
    "main ",
    "main\t",
    "\u00a0main",
    "main\0",
    "main\n",
    "Main",
    "MAIN",
    "m\u0430in",
    "main\u200b",
    "ma\u0131n",
    "\uff4dain",
    "main/",
    "/main",
    "./main",
    "../main",
    "draft/../main",
    "main/.",
    "main%00",
    "%6dain",
    "main%2F",
    "main.",
    "refs/heads/main",
    "@",
    "HEAD",
    "",
    "null",
)


@pytest.mark.parametrize("trick", TRICKS)
def test_no_spelling_reaches_a_protected_branch(trick: str, fresh_main: Policed) -> None:
    """A drafter may do everything on branches that are not protected, and nothing on others."""
    server, before = fresh_main, fresh_main.head()
    encoded = quote(trick, safe="")
    answers = [
        server.ask("act-drafter", "POST", "/mutate", {**MUTATION, "branch": trick}),
        server.ask("act-drafter", "POST", "/load", {"data": RECORD, "branch": trick}),
        server.ask(
            "act-drafter",
            "POST",
            f"/load/ndjson?branch={encoded}",
            RECORD.encode(),
            content_type=NDJSON,
        ),
        server.ask("act-drafter", "POST", "/branches/merge", {"source": "draft", "target": trick}),
        server.ask("act-drafter", "DELETE", f"/branches/{encoded}"),
        server.ask("act-drafter", "POST", "/query", {"query": READ, "branch": trick}),
        server.ask("act-drafter", "GET", f"/snapshot?branch={encoded}"),
        server.ask("act-drafter", "POST", "/export", {"branch": trick}),
    ]
    statuses = [answer.status for answer in answers]
    assert all(400 <= status < 500 for status in statuses), statuses
    assert server.head() == before
    assert server.graph.branch_list() == ["main", OWN, "draft", "release"]


@pytest.fixture(scope="module")
def fresh_main(tmp_path_factory: pytest.TempPathFactory) -> Policed:
    """A server that no test of this module may change."""
    return Policed(tmp_path_factory.mktemp("tricks"))


@pytest.mark.parametrize(
    "path",
    [
        "/graphs/people%2Fmutate",
        "/graphs/people/../people/mutate",
        "/graphs/./people/mutate",
        "/graphs//people/mutate",
        "//graphs/people/mutate",
        "/graphs/people/mutate/",
        "/graphs/people/mutate%2F",
        "/graphs/people/mutate;x=1",
        "/graphs/PEOPLE/mutate",
        "/graphs/people%00/mutate",
        "/graphs/people/%6dutate",
        "/graphs/%70eople/mutate",
        "/graphs/people/mutate%20",
        "/mutate",
        "/graphs/people/mutate?graph_id=other",
    ],
)
def test_no_spelling_of_a_path_goes_round_the_policy(path: str, fresh_main: Policed) -> None:
    before = fresh_main.head()
    assert fresh_main.send("POST", path, [], MUTATION).status in (400, 401, 404)
    answer = fresh_main.send("POST", path, [bearer("act-reader")], MUTATION)
    assert answer.status in (400, 403, 404, 405)
    assert fresh_main.head() == before


# -- what a denied actor can learn ----------------------------------------------------------------


def test_a_stored_mutation_needs_change_as_well(fresh_main: Policed) -> None:
    body = {"params": {"name": "Cy"}}
    answer = fresh_main.ask("act-reader", "POST", "/queries/add", body)
    assert (answer.status, answer.json["error"]) == (
        403,
        "policy denied action 'change' on branch 'main' for actor 'act-reader'",
    )
    conditional = fresh_main.ask(
        "act-reader",
        "POST",
        "/queries/add/if-graph-commit",
        body,
        omnigraph_if_graph_commit=fresh_main.head(),
    )
    assert conditional.status == 403
    assert fresh_main.ask("act-caller", "POST", "/queries/all", {}).status == 403


def test_a_query_that_may_not_be_called_is_unknown(fresh_main: Policed) -> None:
    denied = fresh_main.ask("act-drafter", "POST", "/queries/add", {})
    unknown = fresh_main.ask("act-owner", "POST", "/queries/nothing", {})
    assert denied.status == unknown.status == 404
    assert denied.body == unknown.body


def test_a_query_route_does_not_run_a_mutation(fresh_main: Policed) -> None:
    before = fresh_main.head()
    answer = fresh_main.ask("act-reader", "POST", "/query", MUTATION)
    assert answer.status == 400
    assert fresh_main.ask("act-reader", "POST", "/read", {"query_source": INSERT}).status == 400
    assert fresh_main.head() == before


def test_the_changes_of_a_hidden_commit_are_those_of_an_unknown_one(fresh_main: Policed) -> None:
    hidden = fresh_main.head("release")
    found = fresh_main.ask("act-drafter", "GET", f"/commits/{hidden}/changes")
    unknown_id = hidden[:-1] + ("0" if hidden[-1] != "0" else "1")
    unknown = fresh_main.ask("act-drafter", "GET", f"/commits/{unknown_id}/changes")
    assert found.status == unknown.status == 404
    assert found.body.replace(hidden.encode(), b"?") == unknown.body.replace(
        unknown_id.encode(), b"?"
    )
    shown = fresh_main.ask("act-drafter", "GET", f"/commits/{fresh_main.head('draft')}/changes")
    assert shown.status == 200


def test_the_snapshot_of_a_hidden_commit_is_not_read(fresh_main: Policed) -> None:
    hidden = fresh_main.head("release")
    for answer in (
        fresh_main.ask("act-drafter", "POST", "/query", {"query": READ, "snapshot": hidden}),
        fresh_main.ask("act-drafter", "POST", "/read", {"query_source": READ, "snapshot": hidden}),
        fresh_main.ask("act-drafter", "GET", BLOB.replace("branch={}", f"snapshot={hidden}")),
        fresh_main.ask("act-drafter", "GET", BLOB.replace("branch={}", "at=9999999999999999")),
        fresh_main.ask("act-drafter", "POST", "/query", {"query": READ, "at": 9999999999999999}),
        fresh_main.ask("act-drafter", "POST", "/export", {"snapshot": hidden}),
        fresh_main.ask("act-drafter", "POST", "/export", {"at": 9999999999999999}),
        fresh_main.ask("act-drafter", "GET", "/diff?from=draft&to=time:9999999999999999"),
        fresh_main.ask("act-drafter", "GET", f"/diff?from={hidden}&to=draft"),
        fresh_main.ask("act-drafter", "GET", f"/diff?from=draft&to=commit:{hidden}"),
        fresh_main.ask("act-drafter", "GET", "/diff?from=draft&to=version:1"),
    ):
        assert answer.status == 403
        assert b"of release" not in answer.body
    both = {"query": READ, "snapshot": hidden, "branch": "draft"}
    assert fresh_main.ask("act-drafter", "POST", "/query", both).status == 400


def test_a_tag_does_not_open_a_hidden_commit(fresh: Policed) -> None:
    hidden = {"name": "mine", "graph_commit_id": fresh.head("release")}
    assert fresh.ask("act-drafter", "POST", "/tags", hidden).status == 200
    read = fresh.ask("act-drafter", "POST", "/query", {"query": READ, "tag": "mine"})
    assert (read.status, read.json["error"]) == (
        403,
        "policy denied action 'read' on branch 'release' for actor 'act-drafter'",
    )
    assert fresh.ask("act-drafter", "GET", "/diff?from=tag:mine&to=draft").status == 403
    assert fresh.ask("act-drafter", "POST", "/export", {"tag": "mine"}).status == 403
    assert fresh.ask("act-drafter", "GET", BLOB.replace("branch={}", "tag=mine")).status == 403
    assert fresh.ask("act-reader", "DELETE", "/tags/mine").status == 403
    assert [tag.name for tag in fresh.graph.tag_list()] == ["mine"]
    assert fresh.ask("act-drafter", "DELETE", "/tags/mine").status == 200


def test_a_load_into_a_missing_branch_tells_a_stranger_nothing(fresh_main: Policed) -> None:
    answers = [
        fresh_main.ask("act-eve", "POST", "/load", {"data": RECORD, "branch": branch})
        for branch in ("draft", "missing")
    ]
    assert [answer.status for answer in answers] == [403, 403]
    assert answers[0].body == answers[1].body


def test_an_unknown_name_shows_no_name_that_may_not_be_listed(fresh: Policed) -> None:
    fresh.graph.tag_create("secret-one", actor_id="act-owner")
    asked: list[tuple[str, str, object]] = [
        ("GET", "/snapshot?branch=releas", None),
        ("GET", "/diff?from=draft&to=branch:releas", None),
        ("POST", "/query", {"query": READ, "branch": "releas"}),
        ("POST", "/query", {"query": READ, "tag": "secret-on"}),
        ("POST", "/branches/merge", {"source": "releas", "target": "draft"}),
        ("DELETE", "/branches/releas", None),
        ("DELETE", "/tags/secret-on", None),
    ]
    for method, path, body in asked:
        answer = fresh.ask("act-drafter", method, path, body)
        assert answer.status == 404, path
        assert answer.json["omnigraph"]["facts"].get("nearest") is None, path
        assert b"release" not in answer.body, path
        assert b"secret-one" not in answer.body, path
    shown = fresh.ask("act-reader", "GET", "/snapshot?branch=releas")
    assert shown.json["omnigraph"]["facts"]["nearest"] == "release"


def test_a_difference_tells_a_stranger_no_name_of_a_branch(fresh_main: Policed) -> None:
    for name in ("release", "branch:release", "missing", "branch:missing"):
        for path in (f"/diff?from={name}&to=main", f"/diff?from=main&to={name}"):
            answer = fresh_main.ask("act-eve", "GET", path)
            assert answer.status == 403, path


def test_head_and_options_show_nothing_that_get_does_not(fresh_main: Policed) -> None:
    for path in ("/schema", "/branches", "/commits?branch=main", "/snapshot?branch=main"):
        allowed = fresh_main.ask("act-reader", "HEAD", path)
        denied = fresh_main.ask("act-eve", "HEAD", path)
        assert (allowed.status, denied.status) == (200, 403)
        options = fresh_main.ask("act-eve", "OPTIONS", path)
        assert (options.status, options.body) == (405, b"")
        assert fresh_main.ask(None, "OPTIONS", path).body == b""


# -- merges ---------------------------------------------------------------------------------------


def test_a_merge_that_may_not_delete_merges_and_says_why(fresh: Policed) -> None:
    body = {"source": "draft", "target": "main", "delete_branch": True}
    answer = fresh.ask("act-owner", "POST", "/branches/merge", body)
    assert answer.status == 200
    assert answer.json["branch_deleted"] is False
    assert answer.json["branch_delete_error"] == (
        "policy denied action 'branch_delete' targeting branch 'draft' for actor 'act-owner'"
    )
    assert "draft" in fresh.graph.branch_list()
    assert fresh.head() == answer.json["commit"]["graph_commit_id"]


def test_an_agent_reaches_only_its_own_branches(fresh: Policed) -> None:
    before = fresh.head()
    for target in ("main", "release", "draft", "agent/act-scout2/x", "agent/act-scout"):
        merge = {"source": OWN, "target": target}
        assert fresh.ask("act-scout", "POST", "/branches/merge", merge).status == 403
        fork = {"data": RECORD, "branch": target, "from": OWN}
        assert fresh.ask("act-scout", "POST", "/load", fork).status == 403
        name = {"name": target, "from": OWN}
        assert fresh.ask("act-scout", "POST", "/branches", name).status == 403
    fork = {"data": RECORD, "branch": "agent/act-scout/new", "from": "main"}
    made = fresh.ask("act-scout", "POST", "/load", fork)
    assert (made.status, made.json["branch_created"]) == (200, True)
    assert fresh.head() == before


@pytest.mark.parametrize("is_asked", [True, False], ids=["by the route", "by the engine"])
def test_whoever_may_not_change_a_schema_brings_none_by_a_merge_or_a_revert(
    fresh: Policed, monkeypatch: pytest.MonkeyPatch, *, is_asked: bool
) -> None:
    described = SCHEMA.replace("node Person", 'node Person @description("People")')
    changed = fresh.graph.schema.apply(described, branch="draft").commit
    assert changed is not None
    if not is_asked:
        monkeypatch.setattr(Gate, "require", lambda *_, **__: None)
    before = fresh.head("draft"), fresh.head(OWN)
    revert = f"/commits/{changed.graph_commit_id}/revert"
    for path, body in [
        (revert, {"branch": "draft"}),
        ("/branches/merge", {"source": "draft", "target": OWN}),
    ]:
        refused = fresh.ask("act-drafter", "POST", path, body)
        assert refused.status == 403, path
        assert "action 'schema_apply' targeting branch" in refused.json["error"], path
    assert (fresh.head("draft"), fresh.head(OWN)) == before
    assert fresh.ask("act-owner", "POST", revert, {"branch": "draft"}).status == 200
    assert fresh.graph.schema.source(branch="draft") == SCHEMA
    # Without a change of the schema a merge needs no right to make one.
    body = {"source": OWN, "target": "draft"}
    assert fresh.ask("act-drafter", "POST", "/branches/merge", body).status == 200


# -- the second line ------------------------------------------------------------------------------


def test_the_engine_refuses_what_a_route_forgets_to_ask(
    fresh: Policed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gate, "require", lambda *_, **__: None)
    before = fresh.head()
    for path, body in [
        ("/mutate", MUTATION),
        ("/load", {"data": RECORD}),
        ("/branches", {"name": "new"}),
        ("/branches/merge", {"source": "draft"}),
        ("/schema/apply", {"schema_source": SCHEMA}),
        ("/tags", {"name": "new"}),
        (f"/commits/{before}/revert", {}),
        ("/queries/add", {"params": {"name": "Cy"}}),
    ]:
        answer = fresh.ask("act-reader", "POST", path, body)
        assert answer.status == 403, path
        assert answer.json["error"].startswith("policy denied: policy denied action"), path
    for path in ("/branches/draft", "/tags/new"):
        assert fresh.ask("act-reader", "DELETE", path).status == 403
    assert fresh.head() == before
    assert "draft" in fresh.graph.branch_list()


def test_a_policy_allows_nothing_to_nobody() -> None:
    """Every route that asks has an actor; one that forgets its token must not be a way in."""
    for action in ("read", "change", "export"):
        with pytest.raises(ForbiddenError):
            Gate(Mode.POLICY, Policy.parse(BUNDLE)).require(None, action, branch="draft")


class _Broken(Policy):
    """A policy that cannot be evaluated."""

    def decide(self, *_: object, **__: object) -> Any:
        raise PolicyEvaluationError("no decision")


def test_a_policy_that_cannot_be_evaluated_is_no_denial(
    fresh: Policed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Policy, "decide", _Broken.decide)
    for method, path, body in [
        ("GET", "/schema", None),
        ("POST", "/mutate", MUTATION),
        ("POST", "/queries/all", {}),
        ("GET", f"/commits/{fresh.head()}/changes", None),
    ]:
        answer = fresh.ask("act-owner", method, path, body)
        assert answer.status == 500, path
        assert answer.json["code"] == "internal"
        assert answer.json["error"] == "policy: no decision"
    with pytest.raises(PolicyFailedError):
        Gate(Mode.POLICY, Policy.parse(BUNDLE)).require("act-owner", "read")


# -- reading files again --------------------------------------------------------------------------


def test_a_changed_policy_holds_at_the_boundary_and_in_the_engine(fresh: Policed) -> None:
    assert not fresh.reloader.refresh()
    body = {**MUTATION, "branch": "draft"}
    assert fresh.ask("act-drafter", "POST", "/mutate", body).status == 200
    fresh.policy.write_text(BUNDLE.replace("[read, export, change]", "[read, export]"))
    assert fresh.reloader.refresh()
    denied = fresh.ask("act-drafter", "POST", "/mutate", body)
    assert denied.status == 403
    again = BUNDLE.replace("drafters: [act-drafter]", "drafters: [act-reader]")
    fresh.policy.write_text(again)
    assert fresh.reloader.refresh()
    # The engine holds the same bundle: the old one would refuse this.
    done = fresh.ask("act-reader", "POST", "/mutate", {**body, "params": {"name": "Dee"}})
    assert done.status == 200


def test_changed_queries_are_served(fresh: Policed) -> None:
    assert fresh.ask("act-owner", "POST", "/queries/more", {}).status == 404
    fresh.queries.write_text(READ.replace("all", "more"))
    assert fresh.reloader.refresh()
    assert fresh.ask("act-owner", "POST", "/queries/more", {}).status == 200
    assert fresh.ask("act-owner", "POST", "/queries/all", {}).status == 404


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("policy", "version: 2"),
        ("policy", "rules: ["),
        ("policy", SERVER_BUNDLE),
        ("queries", "query all( {"),
        ("queries", f"{READ}\n{READ}"),
        ("queries", READ.replace("$p.name", "$p.nmae")),
    ],
)
def test_files_that_do_not_load_change_nothing(
    file: str, text: str, fresh: Policed, caplog: pytest.LogCaptureFixture
) -> None:
    other = "queries" if file == "policy" else "policy"
    changed = {"policy": "version: 1", "queries": READ.replace("all", "more")}
    getattr(fresh, file).write_text(text)
    getattr(fresh, other).write_text(changed[other])
    assert not fresh.reloader.refresh()
    assert "stay as they were" in caplog.text
    # Neither the broken file nor the good one next to it holds.
    assert fresh.ask("act-reader", "POST", "/queries/all", {}).status == 200
    assert not fresh.reloader.refresh()
    assert caplog.text.count("stay as they were") == 1


def test_a_policy_that_is_removed_holds_on(fresh: Policed) -> None:
    fresh.policy.unlink()
    assert not fresh.reloader.refresh()
    assert fresh.ask("act-reader", "POST", "/mutate", MUTATION).status == 403
    assert fresh.ask("act-reader", "GET", "/schema").status == 200


def test_asked_for_the_files_are_read_even_if_they_look_the_same(fresh: Policed) -> None:
    assert not fresh.reloader.refresh()
    assert fresh.reloader.refresh(is_asked_for=True)
