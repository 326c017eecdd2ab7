"""Tests of a policy, and the lines that `omnigraph policy validate`, `test` and `explain` print.

version: 1
cases:
  - id: bot-cannot-touch-main
    actor: act-bot               # need not be in any group
    action: change
    branch: main                 # optional, as target_branch
    expect: deny                 # allow or deny
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omnigraph.policy.actions import Action
from omnigraph.policy.errors import PolicyInvalidError
from omnigraph.policy.policy import Decision, Policy, read_text
from omnigraph.strict_yaml import (
    StrictYamlError,
    Value,
    as_choice,
    as_list,
    as_map,
    as_text,
    check_keys,
    check_number,
    check_version,
    quoted,
    read_yaml,
)
from omnigraph.texts import on_one_line

_WHAT: Final = "policy test file"


class Expectation(StrEnum):
    """What a case expects."""

    ALLOW = "allow"
    DENY = "deny"

    @classmethod
    def of(cls, decision: Decision) -> Expectation:
        """Return the word for a decision."""
        return cls.ALLOW if decision.allowed else cls.DENY


@dataclass(frozen=True)
class PolicyCase:
    """One request and the decision that is expected."""

    id: str
    actor_id: str
    action: Action
    expect: Expectation
    branch: str | None = None
    target_branch: str | None = None


@dataclass(frozen=True)
class CaseReport:
    """The cases that were run, and a line for each that failed."""

    cases_total: int
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every case got what it expected."""
        return not self.failures

    def lines(self) -> list[str]:
        """Return what `omnigraph policy test` prints."""
        if self.passed:
            return [f"policy tests passed: {self.cases_total} cases"]
        return ["policy tests failed:", *self.failures]


def parse_cases(text: str, *, source: str | None = None) -> tuple[PolicyCase, ...]:
    """Read a file of tests; `source` is its name in messages."""
    try:
        return _cases(read_yaml(text))
    except StrictYamlError as error:
        raise PolicyInvalidError(str(error), what=_WHAT, source=source) from error


def load_cases(path: str | os.PathLike[str]) -> tuple[PolicyCase, ...]:
    """Read a file of tests from this machine."""
    return parse_cases(read_text(path, _WHAT), source=os.fspath(path))


def run_cases(policy: Policy, cases: tuple[PolicyCase, ...]) -> CaseReport:
    """Run every case, also after a failure."""
    return CaseReport(len(cases), tuple(_failures(policy, cases)))


def _failures(policy: Policy, cases: tuple[PolicyCase, ...]) -> Iterator[str]:
    for case in cases:
        decision = policy.decide(case.actor_id, case.action, case.branch, case.target_branch)
        found = Expectation.of(decision)
        if found is not case.expect:
            expected = case.expect.capitalize()
            yield f"{on_one_line(case.id)}: expected {expected} but got {found}"


# -- lines ----------------------------------------------------------------------------------------


def validate_line(policy: Policy, bundle_name: str) -> str:
    """Return what `omnigraph policy validate` prints."""
    name = on_one_line(bundle_name)
    return f"policy valid: bundle '{name}' [{len(policy.actors)} actors]"


def explain_lines(
    policy: Policy,
    actor_id: str,
    action: Action | str,
    branch: str | None = None,
    target_branch: str | None = None,
) -> list[str]:
    """Return what `omnigraph policy explain` prints; a name never makes a line of its own."""
    action = Action.parse(action)
    decision = policy.decide(actor_id, action, branch, target_branch)
    facts = {
        "decision": Expectation.of(decision),
        "actor": actor_id,
        "action": action,
        "branch": branch,
        "target_branch": target_branch,
        "matched_rule": decision.rule_id,
        "message": decision.message,
    }
    return [f"{key}: {on_one_line(value)}" for key, value in facts.items() if value is not None]


# -- the file -------------------------------------------------------------------------------------


def _cases(document: Value) -> tuple[PolicyCase, ...]:
    members = as_map(document, "the file")
    check_keys(members, "the file", required=("version", "cases"))
    check_number(members["version"], "version")
    listed = as_list(members["cases"], "cases")
    cases = tuple(_case(value, index) for index, value in enumerate(listed))
    check_version(members["version"])
    _check_names(cases)
    return cases


def _case(value: Value, index: int) -> PolicyCase:
    place = f"cases[{index}]"
    members = as_map(value, place)
    case_id = members.get("id")
    where = f"case {quoted(case_id)}" if isinstance(case_id, str) else place
    required = ("id", "actor", "action", "expect")
    check_keys(members, where, required=required, optional=("branch", "target_branch"))
    action = as_text(members["action"], f"{where}: action").replace("-", "_")
    return PolicyCase(
        id=as_text(members["id"], f"{where}: id"),
        actor_id=as_text(members["actor"], f"{where}: actor"),
        action=Action(as_choice(action, Action, where, "action")),
        expect=Expectation(as_choice(members["expect"], Expectation, where, "expect")),
        branch=_optional_text(members, "branch", where),
        target_branch=_optional_text(members, "target_branch", where),
    )


def _optional_text(members: dict[str, Value], key: str, where: str) -> str | None:
    return as_text(members[key], f"{where}: {key}") if key in members else None


def _check_names(cases: tuple[PolicyCase, ...]) -> None:
    seen: set[str] = set()
    for index, case in enumerate(cases):
        if not case.id.strip():
            raise StrictYamlError(f"cases[{index}] has a blank id")
        if case.id in seen:
            raise StrictYamlError(f"two cases have the id {quoted(case.id)}")
        seen.add(case.id)
        if not case.actor_id.strip():
            raise StrictYamlError(f"case {quoted(case.id)} has a blank actor")
