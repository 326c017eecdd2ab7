"""Tests of policies, and the lines of the commands: text cases."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from omnigraph.policy import Policy, PolicyInvalidError
from omnigraph.policy.cases import explain_lines, load_cases, parse_cases, run_cases, validate_line
from support import cases
from support.cases import Case, check_case


@pytest.mark.parametrize("case", cases.load_cases("policy_tests"), ids=str)
def test_a_file_of_tests(case: Case, update_cases: bool) -> None:
    policy = Policy.parse(case.sections["bundle"])
    try:
        lines = run_cases(policy, parse_cases(case.sections["tests"])).lines()
    except PolicyInvalidError as error:
        lines = [str(error)]
    check_case(case, "output", "\n".join(lines), update_cases)


@pytest.mark.parametrize("case", cases.load_cases("policy_explain"), ids=str)
def test_an_explanation(case: Case, update_cases: bool) -> None:
    policy = Policy.parse(case.sections["bundle"])
    words = [
        word.encode().decode("unicode_escape") for word in shlex.split(case.sections["request"])
    ]
    actor_id, action, branch, target_branch = (*words, "-", "-")[:4]
    lines = explain_lines(
        policy,
        actor_id,
        action,
        None if branch == "-" else branch,
        None if target_branch == "-" else target_branch,
    )
    check_case(case, "output", "\n".join(lines), update_cases)


def test_the_line_of_a_valid_policy_counts_each_actor_once() -> None:
    policy = Policy.parse("version: 1\ngroups: {g: [a, b, a], h: [b]}")
    assert validate_line(policy, "readers") == "policy valid: bundle 'readers' [2 actors]"


def test_a_file_is_loaded_and_named(tmp_path: Path) -> None:
    path = tmp_path / "tests.yaml"
    path.write_text("version: 1\ncases: []", encoding="utf-8")
    report = run_cases(Policy.parse("version: 1"), load_cases(path))
    assert (report.passed, report.lines()) == (True, ["policy tests passed: 0 cases"])
    path.write_text("version: 2\ncases: []", encoding="utf-8")
    with pytest.raises(
        PolicyInvalidError, match=r"^policy test file '.*tests.yaml' is invalid: version"
    ):
        load_cases(path)
