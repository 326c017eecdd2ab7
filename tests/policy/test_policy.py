"""Decisions: what rules permit, and the sentences that say so."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import UnavailableError
from omnigraph.names import UnknownChoiceError
from omnigraph.policy import (
    ACTIONS,
    Action,
    Bundle,
    Decision,
    Group,
    Policy,
    PolicyDeniedError,
    PolicyEvaluationError,
    PolicyFileError,
    PolicyInvalidError,
    PolicyKind,
    Rule,
    Scope,
    ScopeKey,
)
from omnigraph.policy.cedar import CedarPolicy, entities, policies, schema_text
from omnigraph.wire import outcome_of
from support import policies as oracle
from support.policies import HOSTILE, groups, rule

EXAMPLE = """
version: 1
groups:
  curators: [act-lena, act-bot]
  owners:   [act-lena]
protected_branches: [main, release]
rules:
  - id: curators-read
    allow:
      actors: { group: curators }
      actions: [read, export]
      branch_scope: any
  - id: curators-edit-drafts
    allow: { actors: { group: curators }, actions: [change], branch_scope: unprotected }
  - id: owners-promote
    allow: { actors: { group: owners }, actions: [branch_merge], target_branch_scope: protected }
  - id: curators-tools
    allow: { actors: { group: curators }, actions: [invoke_query] }
"""

AGENTS = """
version: 1
groups: { agents: [act-scout, act-filer], people: [act-ines] }
protected_branches: [main]
rules:
  - { id: agents-read,    allow: { actors: { group: agents }, actions: [read], branch_scope: any } }
  - { id: agents-tools,   allow: { actors: { group: agents }, actions: [invoke_query] } }
  - { id: agents-write, allow: { actors: { group: agents }, actions: [change], branch_scope: own } }
  - id: agents-branch
    allow:
      actors: { group: agents }
      actions: [branch_create, branch_delete, branch_merge]
      target_branch_scope: own
  - { id: people-decide,  allow: { actors: { group: people }, actions: [read, branch_merge] } }
"""

BRANCHES = (
    None,
    "",
    "main",
    " main\n",
    "MAIN",
    "mainline",
    "main/x",
    "release",
    "draft",
    "agent/act-lena/t",
    "agent/act-lena/t/u",
    "agent/act-lena",
    "agent/act-lena/",
    "agent/act-lena//t",
    "agent/act-lena/../main",
    "agent/act-lena-2/t",
    "Agent/act-lena/t",
    "x/agent/act-lena/t",
    "agent/act-bot/t",
    "agent/act-boť/t",
    "<snapshot>",
    'quote"; //',
    "\x00",
    "half \ud800",
)
ACTORS = ("act-lena", "act-bot", "act-eve", "", " act-lena", "ACT-LENA")


PAIRS = (
    *product(BRANCHES, (None, "main", "draft", "agent/act-lena/t")),
    *product((None, "main", "draft", "agent/act-lena/t"), BRANCHES),
)
"""A branch and a target branch."""


def check_against_oracle(
    bundle: Bundle,
    actors: Iterable[str],
    pairs: Iterable[tuple[str | None, str | None]],
    actions: Iterable[Action] = Action,
) -> None:
    kinds = [kind for kind in PolicyKind if all(r.actions[0].kind is kind for r in bundle.rules)]
    policy = Policy(bundle, kind=kinds[0])
    for actor_id, action, (branch, target) in product(actors, actions, pairs):
        found = policy.decide(actor_id, action, branch, target)
        expected = oracle.decide(bundle, actor_id, action, branch, target)
        assert (found.allowed, found.rule_id, found.message) == expected, (branch, target)


# -- against the oracle ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", [EXAMPLE, AGENTS], ids=["example", "agents"])
def test_decisions_are_those_of_the_oracle_for_everyone_everywhere(text: str) -> None:
    actors = (*ACTORS, "act-scout", "act-filer", "act-ines")
    check_against_oracle(Policy.parse(text).bundle, actors, PAIRS)


@pytest.mark.parametrize(
    ("action", "scope"),
    [
        (action, scope)
        for action, scope in product(Action, [None, *Scope])
        if scope is None or action.scope_key is not None
    ],
)
def test_every_action_with_every_scope_is_decided_as_by_the_oracle(
    action: Action, scope: Scope | None
) -> None:
    on = scope if action.scope_key is ScopeKey.BRANCH else None
    targeting = scope if action.scope_key is ScopeKey.TARGET_BRANCH else None
    bundle = Bundle(
        groups=groups(g=["act-lena"], h=["act-bot"]),
        protected_branches=("main", "release"),
        rules=(rule("only", "g", [action], on=on, targeting=targeting),),
    )
    check_against_oracle(bundle, ACTORS[:3], PAIRS, (action, Action.READ, Action.BRANCH_MERGE))


NAMES = st.sampled_from(["a", "b", "Act One", "act-lena", "é", *HOSTILE[:4]])
BRANCH_NAMES = st.sampled_from(
    ["main", "dev", "agent/a/x", "agent/b/x", "agent/act-lena/y", f"agent/{oracle.slug('é')}/z"]
)


@st.composite
def bundles(draw: st.DrawFn) -> Bundle:
    kind = draw(st.sampled_from([PolicyKind.GRAPH, PolicyKind.GRAPH, PolicyKind.SERVER]))
    members = st.lists(NAMES, min_size=1, max_size=4).map(tuple)
    listed = draw(st.dictionaries(NAMES, members, min_size=1, max_size=3))
    ids = draw(st.lists(NAMES, max_size=5, unique=True))
    return Bundle(
        groups=tuple(Group(name, found) for name, found in listed.items()),
        protected_branches=tuple(draw(st.lists(BRANCH_NAMES, max_size=3))),
        rules=tuple(draw(_rules(rule_id, sorted(listed), kind)) for rule_id in ids),
    )


@st.composite
def _rules(draw: st.DrawFn, rule_id: str, names: list[str], kind: PolicyKind) -> Rule:
    fitting = [action for action in Action if action.kind is kind]
    key = draw(st.sampled_from([None, *ScopeKey])) if kind is PolicyKind.GRAPH else None
    if key is not None:
        fitting = [action for action in fitting if action.scope_key is key]
    actions = draw(st.lists(st.sampled_from(fitting), min_size=1, unique=True))
    scope = draw(st.sampled_from(Scope))
    return rule(
        rule_id,
        draw(st.sampled_from(names)),
        actions,
        on=scope if key is ScopeKey.BRANCH else None,
        targeting=scope if key is ScopeKey.TARGET_BRANCH else None,
    )


@settings(max_examples=40, deadline=None)
@given(bundle=bundles(), data=st.data())
def test_any_bundle_is_decided_as_by_the_oracle(bundle: Bundle, data: st.DataObject) -> None:
    actors = (data.draw(NAMES), data.draw(NAMES))
    branches = (None, data.draw(BRANCH_NAMES), data.draw(BRANCH_NAMES))
    check_against_oracle(bundle, actors, product(branches, branches))


# -- hostile names --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_only_a_name(name: str) -> None:
    bundle = Bundle(
        groups=(Group(name, (name,)), Group("others", ("act-eve",))),
        protected_branches=(name,),
        rules=(
            rule(name, name, [Action.CHANGE], on=Scope.PROTECTED),
            rule("z", "others", [Action.READ]),
        ),
    )
    policy = Policy(bundle, graph_id=name)
    allowed = policy.decide(name, "change", branch=name)
    assert allowed == Decision(True, name, f"policy allowed action 'change' for actor '{name}'")
    assert not policy.decide("act-eve", "change", branch=name).allowed
    assert not policy.decide(name, "read", branch=name).allowed
    assert not policy.decide(name, "change", branch=f"{name}x").allowed


@settings(max_examples=40, deadline=None)
@given(name=st.text(min_size=1).filter(str.strip), other=st.text(min_size=1).filter(str.strip))
def test_any_text_is_a_name(name: str, other: str) -> None:
    bundle = Bundle(
        groups=(Group(name, (other,)),), rules=(rule(other, name, [Action.READ, Action.ADMIN]),)
    )
    policy = Policy(bundle, graph_id=other)
    assert policy.decide(other, Action.READ, branch=name).rule_id == other
    assert policy.decide(name, Action.READ).allowed is (name == other)


# -- consequences ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example() -> Policy:
    return Policy.parse(EXAMPLE)


def scoped(action: Action, scope: Scope) -> Policy:
    is_branch = action.scope_key is ScopeKey.BRANCH
    return Policy(
        Bundle(
            groups=groups(g=["a"]),
            protected_branches=("main",),
            rules=(
                rule(
                    "r",
                    "g",
                    [action],
                    on=scope if is_branch else None,
                    targeting=None if is_branch else scope,
                ),
            ),
        )
    )


@pytest.mark.parametrize("scope", [Scope.PROTECTED, Scope.UNPROTECTED, Scope.OWN])
@pytest.mark.parametrize("action", [action for action in Action if action.scope_key is not None])
def test_without_a_branch_no_limited_rule_holds(action: Action, scope: Scope) -> None:
    policy = scoped(action, scope)
    assert not policy.decide("a", action).allowed
    assert not policy.decide("a", action, "  ", "\t").allowed


@pytest.mark.parametrize("action", [Action.BRANCH_CREATE, Action.BRANCH_MERGE])
def test_the_source_of_a_merge_does_not_matter(action: Action) -> None:
    policy = scoped(action, Scope.UNPROTECTED)
    sources = (None, "main", "draft", "agent/a/x")
    assert all(policy.decide("a", action, source, "draft").allowed for source in sources)
    assert not any(policy.decide("a", action, source, "main").allowed for source in sources)


def test_a_stored_query_needs_its_own_action_and_that_of_its_body(example: Policy) -> None:
    def may(action: str, branch: str | None = None) -> bool:
        return example.decide("act-bot", action, branch).allowed

    assert may("invoke_query")
    assert (may("change", "draft"), may("change", "main")) == (True, False)
    only_tools = Policy(
        Bundle(groups=groups(g=["a"]), rules=(rule("r", "g", [Action.INVOKE_QUERY]),))
    )
    assert only_tools.decide("a", "invoke_query").allowed
    assert not only_tools.decide("a", "read", "main").allowed
    assert not only_tools.decide("a", "change", "main").allowed


def test_branches_are_trimmed(example: Policy) -> None:
    assert example.decide("act-bot", "change", " main\n") == Decision(
        False, None, "policy denied action 'change' on branch 'main' for actor 'act-bot'"
    )


def test_main_is_unprotected_unless_it_is_listed() -> None:
    bundle = Bundle(
        groups=groups(g=["a"]), rules=(rule("r", "g", [Action.CHANGE], on=Scope.UNPROTECTED),)
    )
    assert Policy(bundle).decide("a", "change", "main").allowed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "read", "main"), "policy denied action 'read' for unknown actor 'x'"),
        (("act-bot", "admin"), "policy denied action 'admin' for actor 'act-bot'"),
        (
            ("act-bot", "change", "main"),
            "policy denied action 'change' on branch 'main' for actor 'act-bot'",
        ),
        (
            ("act-bot", "branch_delete", None, "draft"),
            "policy denied action 'branch_delete' targeting branch 'draft' for actor 'act-bot'",
        ),
        (
            ("act-bot", "branch_merge", "draft", "main"),
            (
                "policy denied action 'branch_merge' on branch 'draft' targeting branch 'main' "
                "for actor 'act-bot'"
            ),
        ),
        (
            ("act-lena", "branch-merge", "draft", "main"),
            "policy allowed action 'branch_merge' for actor 'act-lena'",
        ),
    ],
)
def test_the_sentence_of_a_decision(
    example: Policy, arguments: tuple[str, ...], message: str
) -> None:
    assert example.decide(*arguments).message == message


@pytest.mark.parametrize("ids", [("b", "a"), ("a", "b"), ("a:read", "a"), ("Z", "a"), ("é", "z")])
def test_the_smallest_id_of_the_rules_that_hold_is_named(ids: tuple[str, str]) -> None:
    bundle = Bundle(
        groups=groups(g=["x"]),
        rules=(
            *(rule(each, "g", [Action.READ]) for each in ids),
            rule("0", "g", [Action.READ], on=Scope.PROTECTED),
        ),
    )
    assert Policy(bundle).decide("x", "read", "dev").rule_id == min(ids)


def test_no_rules_deny_everything() -> None:
    policy = Policy.parse("version: 1\ngroups: {g: [a]}")
    assert not any(policy.decide("a", action, "main", "main").allowed for action in Action)
    assert policy.decide("b", "read").message.endswith("unknown actor 'b'")
    empty = Policy.parse("version: 1")
    assert empty.actors == frozenset()
    assert not empty.decide("a", "read").allowed


def test_an_actor_has_the_rules_of_all_its_groups(example: Policy) -> None:
    assert example.decide("act-lena", "change", "draft").rule_id == "curators-edit-drafts"
    assert example.decide("act-lena", "branch_merge", "draft", "main").rule_id == "owners-promote"


def test_the_policy_of_a_server_decides_about_the_list_of_graphs_only() -> None:
    text = """
version: 1
kind: server
groups: {ops: [act-ines]}
rules: [{id: list, allow: {actors: {group: ops}, actions: [graph_list]}}]
"""
    policy = Policy.parse(text, kind=PolicyKind.SERVER)
    allowed = [action for action in Action if policy.decide("act-ines", action, "main").allowed]
    assert allowed == [Action.GRAPH_LIST]


def test_an_unknown_action_is_no_denial(example: Policy) -> None:
    with pytest.raises(UnknownChoiceError, match="unknown action 'write'"):
        example.decide("act-bot", "write")


# -- the gate -------------------------------------------------------------------------------------


def test_the_gate_returns_what_allows(example: Policy) -> None:
    assert example.require("act-bot", "read", "main").rule_id == "curators-read"


def test_the_gate_denies_with_the_sentence(example: Policy) -> None:
    with pytest.raises(PolicyDeniedError) as caught:
        example.require("act-bot", "change", "main")
    decision = "policy denied action 'change' on branch 'main' for actor 'act-bot'"
    assert str(caught.value) == f"policy denied: {decision}"
    assert outcome_of(caught.value).http_status == 403


def test_the_gate_denies_without_an_actor(example: Policy) -> None:
    with pytest.raises(PolicyDeniedError, match="no actor"):
        example.require(None, "change", "main")


def test_an_evaluation_that_fails_is_no_denial_but_passes_no_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = Policy.parse(EXAMPLE)
    monkeypatch.setattr("omnigraph.policy.cedar._context", lambda request: {"has_branch": True})
    with pytest.raises(PolicyEvaluationError) as caught:
        policy.decide("act-bot", "change", "draft")
    assert outcome_of(caught.value).http_status == 500
    with pytest.raises(PolicyDeniedError, match=r"^policy evaluation failed: "):
        policy.require("act-bot", "change", "draft")


# -- compiled -------------------------------------------------------------------------------------


def test_every_action_has_traits_and_is_in_the_schema() -> None:
    assert list(ACTIONS) == list(Action)
    assert all(f'action "{action}"' in schema_text() for action in Action)


def test_what_cedar_gets() -> None:
    bundle = Policy.parse(EXAMPLE).bundle
    compiled = json.loads(json.dumps(policies(bundle, "papers")))
    assert list(compiled["staticPolicies"]) == [
        "curators-read:read",
        "curators-read:export",
        "curators-edit-drafts:change",
        "owners-promote:branch_merge",
        "curators-tools:invoke_query",
    ]
    text = str(CedarPolicy(bundle, "papers")._policies)
    assert (
        'permit(principal in Omnigraph::Group::"curators", '
        'action == Omnigraph::Action::"change", resource == Omnigraph::Graph::"papers") '
        "when { (context.has_branch) && ((context.branch_is_protected) == false) };"
    ) in text
    found = json.loads(json.dumps(entities(bundle, "papers")))
    assert [(entity["uid"]["type"], entity["uid"]["id"]) for entity in found] == [
        ("Omnigraph::Group", "curators"),
        ("Omnigraph::Group", "owners"),
        ("Omnigraph::Actor", "act-lena"),
        ("Omnigraph::Actor", "act-bot"),
        ("Omnigraph::Graph", "papers"),
    ]
    assert [parent["id"] for parent in found[2]["parents"]] == ["curators", "owners"]


def test_the_server_is_an_entity_where_a_rule_needs_it() -> None:
    bundle = Bundle(groups=groups(g=["a"]), rules=(rule("r", "g", [Action.GRAPH_LIST]),))
    assert '{"type": "Omnigraph::Server", "id": "root"}' in json.dumps(entities(bundle, "default"))
    permit = json.dumps(policies(bundle, "default"))
    assert (
        '"resource": {"op": "==", "entity": {"type": "Omnigraph::Server", "id": "root"}}' in permit
    )


@pytest.mark.parametrize(
    ("scope", "condition"),
    [
        (Scope.ANY, "true"),
        (Scope.PROTECTED, "(context.has_X) && (context.X_is_protected)"),
        (Scope.UNPROTECTED, "(context.has_X) && ((context.X_is_protected) == false)"),
        (Scope.OWN, "(context.has_X) && (context.X_is_own)"),
    ],
)
@pytest.mark.parametrize("action", [Action.READ, Action.BRANCH_MERGE])
def test_the_condition_of_a_scope(action: Action, scope: Scope, condition: str) -> None:
    branch = "branch" if action is Action.READ else "target_branch"
    text = str(scoped(action, scope)._cedar._policies)
    assert text.endswith(f"when {{ {condition.replace('X', branch)} }};")


def test_what_strict_validation_rejects_is_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.policy.cedar._condition", lambda *_: {"Value": "text"})
    with pytest.raises(PolicyInvalidError, match="Cedar rejects it"):
        Policy.parse(EXAMPLE)


def test_the_table_of_actions_in_the_reference_is_that_of_the_code() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "policy.md"
    rows = re.findall(
        r"^\| `(\w+)` \| (graph|server) \| `?(\w+)`? \|", page.read_text(), re.MULTILINE
    )
    assert rows == [
        (action, traits.kind, traits.scope_key or "none") for action, traits in ACTIONS.items()
    ]


def test_a_policy_can_be_sent_to_another_process(example: Policy) -> None:
    copy = pickle.loads(pickle.dumps(example))
    assert copy.bundle == example.bundle
    assert copy.decide("act-bot", "read") == example.decide("act-bot", "read")


def test_threads_share_a_policy() -> None:
    policy = Policy.parse(EXAMPLE)
    requests = [*product(ACTORS, Action, BRANCHES[:9])] * 3
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda request: policy.decide(*request), requests))
    expected = [oracle.decide(policy.bundle, *request, None) for request in requests]
    assert [(each.allowed, each.rule_id, each.message) for each in found] == expected


def test_names_do_not_fill_the_memory_of_decisions() -> None:
    policy = Policy.parse(EXAMPLE)
    for number in range(200):
        policy.decide("act-bot", "change", f"draft-{number}", f"x{number}")
        policy.decide(f"act-{number}", "change")
    assert len(policy._decided) == 1


def test_a_decision_costs_little() -> None:
    policy = Policy.parse(AGENTS)
    costs = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(200):
            policy.decide("act-scout", "change", "agent/act-scout/fix")
        costs.append((time.perf_counter() - start) / 200)
    assert min(costs) < 100e-6


def test_what_is_asked_of_a_policy(example: Policy) -> None:
    assert example.actors == {"act-lena", "act-bot"}
    assert example.protected_branches == ("main", "release")
    assert example.kind is PolicyKind.GRAPH


# -- files ----------------------------------------------------------------------------------------


def test_a_policy_is_loaded_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    assert Policy.load(path).bundle == Policy.load(str(path)).bundle == Policy.parse(EXAMPLE).bundle


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match=r"none\.yaml' cannot be read: No such file"):
        Policy.load(tmp_path / "none.yaml")
    with pytest.raises(PolicyFileError, match="cannot be read: Is a directory"):
        Policy.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version: \xff", "the text is not UTF-8"),
        (b"#" * 1_048_577, "the text is longer than 1048576 bytes"),
        (b"version: 2", "version must be 1, not 2"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(content)
    with pytest.raises(PolicyInvalidError) as caught:
        Policy.load(path)
    assert str(caught.value) == f"policy '{path}' is invalid: {reason}"


def test_without_cedar_the_extra_is_named() -> None:
    script = """
        import sys
        sys.modules["cedarpy"] = None
        from omnigraph.policy import Policy, read_bundle
        read_bundle("version: 1")
        try:
            Policy.parse("version: 1")
        except Exception as error:
            print(type(error).__mro__[1].__name__, error)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    expected = "a policy needs cedarpy: pip install 'omnigraph[server]'"
    assert found.stdout == f"{UnavailableError.__name__} {expected}\n"
