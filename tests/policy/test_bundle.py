"""What is wrong with a bundle: one text case for each message."""

from __future__ import annotations

import pytest

from omnigraph.policy import (
    Action,
    Bundle,
    Group,
    Policy,
    PolicyInvalidError,
    PolicyKind,
    Rule,
    Scope,
    read_bundle,
)
from omnigraph.strict_yaml import BYTES_MAX
from support.cases import Case, check_case, load_cases


@pytest.mark.parametrize("case", load_cases("policy_errors"), ids=str)
def test_case(case: Case, update_cases: bool) -> None:
    kind = PolicyKind(case.sections.get("kind", "graph"))
    with pytest.raises(PolicyInvalidError) as caught:
        read_bundle(case.sections["bundle"], kind=kind)
    check_case(case, "error", caught.value.reason, update_cases)


def test_a_bundle_is_read_as_it_is_written() -> None:
    text = """
version: 1
kind: graph
groups: {curators: [act-lena, "7", act-lena], Owners: [" Ünï "]}
protected_branches: [main, " main"]
rules:
  - id: edit
    allow:
      actors: {group: curators}
      actions: [change, read]
      branch_scope: unprotected
  - {id: merge, allow: {actors: {group: Owners}, actions: [branch_merge], target_branch_scope: own}}
  - {id: run, allow: {actors: {group: Owners}, actions: [invoke_query, admin]}}
"""
    assert read_bundle(text) == Bundle(
        kind=PolicyKind.GRAPH,
        groups=(Group("curators", ("act-lena", "7", "act-lena")), Group("Owners", (" Ünï ",))),
        protected_branches=("main", " main"),
        rules=(
            Rule("edit", "curators", (Action.CHANGE, Action.READ), Scope.UNPROTECTED),
            Rule("merge", "Owners", (Action.BRANCH_MERGE,), None, Scope.OWN),
            Rule("run", "Owners", (Action.INVOKE_QUERY, Action.ADMIN)),
        ),
    )


def test_all_but_the_version_may_be_left_out() -> None:
    assert read_bundle("version: 1") == Bundle()


@pytest.mark.parametrize("kind", PolicyKind)
def test_a_kind_that_agrees_with_the_binding_is_accepted(kind: PolicyKind) -> None:
    assert read_bundle(f"version: 1\nkind: {kind}", kind=kind).kind is kind


def test_without_a_binding_both_kinds_of_rules_are_accepted() -> None:
    groups = (Group("g", ("a",)),)
    rules = [f"- {{id: {a}, allow: {{actors: {{group: g}}, actions: [{a}]}}}}" for a in Action]
    text = "version: 1\ngroups: {g: [a]}\nrules:\n" + "\n".join(rules)
    bundle = read_bundle(text)
    assert (bundle.groups, [rule.actions for rule in bundle.rules]) == (
        groups,
        [(a,) for a in Action],
    )


def test_a_text_that_is_too_long_is_not_parsed() -> None:
    with pytest.raises(PolicyInvalidError, match="longer than 1048576 bytes"):
        read_bundle("version: 1\n#" + "é" * (BYTES_MAX // 2))


def test_a_text_that_has_no_utf_8_form_is_rejected() -> None:
    with pytest.raises(PolicyInvalidError, match="no UTF-8 form"):
        read_bundle("version: 1\n# \ud800")


@pytest.mark.parametrize("text", ["version: 1\n# \x00", "version: \x1b"])
def test_control_characters_are_rejected(text: str) -> None:
    with pytest.raises(PolicyInvalidError, match="not YAML"):
        read_bundle(text)


def test_a_message_names_its_source() -> None:
    with pytest.raises(PolicyInvalidError) as caught:
        read_bundle("version: 3", source="team.yaml")
    assert str(caught.value) == "policy 'team.yaml' is invalid: version must be 1, not 3"


def test_nesting_as_long_as_the_text_is_rejected_at_once() -> None:
    with pytest.raises(PolicyInvalidError, match="nests deeper than 16"):
        read_bundle("version: 1\nrules: " + "[" * 500_000)


def test_a_policy_checks_a_bundle_that_was_built_by_hand() -> None:
    bundle = Bundle(rules=(Rule("a", "nobody", (Action.READ,)),))
    with pytest.raises(PolicyInvalidError, match="rule 'a' names group 'nobody'"):
        Policy(bundle)
