"""`omnigraph policy validate`, `test` and `explain` on files."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from omnigraph.policy import Action, read_bundle
from support import policies as oracle
from support.policed import ACTORS, BUNDLE, OWN
from support.terminal import Terminal

SERVER_BUNDLE = """
version: 1
groups: {operators: [act-owner, act-reader]}
rules: [{id: list, allow: {actors: {group: operators}, actions: [graph_list]}}]
"""
CASES = """
version: 1
cases:
  - {id: drafter-drafts, actor: act-drafter, action: change, branch: draft, expect: allow}
  - {id: drafter-main, actor: act-drafter, action: change, branch: main, expect: deny}
  - id: scout-merges
    actor: act-scout
    action: branch-merge
    branch: main
    target_branch: agent/act-scout/x
    expect: allow
"""


@pytest.fixture
def bundle(omnigraph: Terminal) -> str:
    Path("people.yaml").write_text(BUNDLE)
    Path("server.yaml").write_text(SERVER_BUNDLE)
    Path("cases.yaml").write_text(CASES)
    return "people.yaml"


def test_a_valid_policy_is_named_with_its_actors(omnigraph: Terminal, bundle: str) -> None:
    result = omnigraph("policy", "validate", "--policy", bundle)
    assert (result.code, result.out) == (0, "policy valid: bundle 'people' [5 actors]\n")


def test_the_policy_of_a_server_is_checked_as_one(omnigraph: Terminal, bundle: str) -> None:
    result = omnigraph("policy", "validate", "--policy", "server.yaml", "--kind", "server")
    assert (result.code, result.out) == (0, "policy valid: bundle 'server' [2 actors]\n")
    wrong = omnigraph("policy", "validate", "--policy", "server.yaml")
    assert (wrong.code, wrong.out) == (1, "")
    assert "server-scoped action 'graph_list'" in wrong.err
    assert omnigraph("policy", "validate", "--policy", bundle, "--kind", "server").code == 1


def test_tests_that_pass_are_counted(omnigraph: Terminal, bundle: str) -> None:
    result = omnigraph("policy", "test", "--policy", bundle, "--tests", "cases.yaml")
    assert (result.code, result.out) == (0, "policy tests passed: 3 cases\n")


def test_every_test_that_fails_has_a_line(omnigraph: Terminal, bundle: str) -> None:
    swapped = CASES.replace("expect: allow", "expect: ?").replace("expect: deny", "expect: allow")
    Path("cases.yaml").write_text(swapped.replace("expect: ?", "expect: deny"))
    result = omnigraph("policy", "test", "--policy", bundle, "--tests", "cases.yaml")
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines() == [
        "policy tests failed:",
        "drafter-drafts: expected Deny but got allow",
        "drafter-main: expected Allow but got deny",
        "scout-merges: expected Deny but got allow",
    ]


def test_a_decision_is_explained(omnigraph: Terminal, bundle: str) -> None:
    asked = ("policy", "explain", "--policy", bundle, "--actor", "act-drafter")
    allowed = omnigraph(*asked, "--action", "change", "--branch", "draft")
    assert (allowed.code, allowed.out.splitlines()) == (
        0,
        [
            "decision: allow",
            "actor: act-drafter",
            "action: change",
            "branch: draft",
            "matched_rule: draft",
            "message: policy allowed action 'change' for actor 'act-drafter'",
        ],
    )
    denied = omnigraph(
        *asked, "--action", "branch-merge", "--branch", "draft", "--target-branch", "main"
    )
    assert (denied.code, denied.out.splitlines()) == (
        0,
        [
            "decision: deny",
            "actor: act-drafter",
            "action: branch_merge",
            "branch: draft",
            "target_branch: main",
            (
                "message: policy denied action 'branch_merge' on branch 'draft'"
                " targeting branch 'main' for actor 'act-drafter'"
            ),
        ],
    )


@pytest.mark.parametrize("actor", ACTORS)
def test_what_is_explained_is_what_the_written_rules_say(
    omnigraph: Terminal, bundle: str, actor: str
) -> None:
    written = read_bundle(BUNDLE)
    graph_actions = [action for action in Action if action is not Action.GRAPH_LIST]
    for action, branch, target in product(
        graph_actions, (None, "main", "draft", OWN), (None, "main", OWN)
    ):
        allowed, rule_id, message = oracle.decide(written, actor, action, branch, target)
        named = {"--branch": branch, "--target-branch": target}
        more = [word for flag, name in named.items() if name for word in (flag, name)]
        spelled = action.replace("_", "-")
        lines = omnigraph(
            *("policy", "explain", "--policy", bundle, "--actor", actor, "--action", spelled),
            *more,
        ).out.splitlines()
        assert lines[0] == f"decision: {'allow' if allowed else 'deny'}"
        assert lines[-1] == f"message: {message}"
        assert (f"matched_rule: {rule_id}" in lines) == allowed


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("validate",), "or `--policy FILE`"),
        (("validate", "--cluster", "c"), "[config_dir_not_found] c: "),
        (("explain", "--cluster", "c", "--actor", "a", "--action", "read"), "not ready to serve"),
        (("validate", "--policy", "people.yaml", "--store", "g"), "give `--cluster <dir|uri>`"),
        (("validate", "--policy", "people.yaml", "--as", "a"), "--as does not apply"),
        (
            ("explain", "--policy", "people.yaml", "--actor", "a", "--action", "fly"),
            "unknown action 'fly'",
        ),
        (("validate", "--policy", "cases.yaml"), "unknown key 'cases'"),
        (("test", "--policy", "people.yaml", "--tests", "people.yaml"), "unknown key 'groups'"),
    ],
)
def test_a_call_that_cannot_be_answered_is_an_error(
    omnigraph: Terminal, bundle: str, args: tuple[str, ...], problem: str
) -> None:
    result = omnigraph("policy", *args)
    assert (result.code, result.out) == (1, "")
    assert problem in result.err


def test_a_file_that_is_missing_is_wrong_usage(omnigraph: Terminal) -> None:
    assert omnigraph("policy", "validate", "--policy", "none.yaml").code == 2


def test_the_name_of_the_graph_does_not_change_decisions(omnigraph: Terminal, bundle: str) -> None:
    asked = ("policy", "explain", "--policy", bundle, "--actor", "act-owner", "--action", "read")
    assert omnigraph(*asked, "--graph", "papers").out == omnigraph(*asked).out
