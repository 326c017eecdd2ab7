"""Errors as the outside sees them."""

from __future__ import annotations

import pytest

from omnigraph.errors import ConflictError, NotFoundError, OmnigraphError, PreconditionError
from omnigraph.manifest.errors import ExpectedVersionMismatchError, PreconditionFailedError
from omnigraph.wire import error_json, outcome_of, precondition_json
from omnigraph.wire.outcomes import OUTCOMES
from omnigraph.write.rules.violations import ValidationError, Violation


@pytest.mark.parametrize(
    ("error", "status", "exit_code"),
    [
        (PreconditionFailedError("a", "b"), 412, 4),
        (ExpectedVersionMismatchError("node:T", 1, 2), 409, 1),
        (ConflictError("busy"), 409, 1),
        (NotFoundError("none"), 404, 1),
        (OmnigraphError("what"), 500, 1),
    ],
)
def test_an_error_has_the_row_of_its_nearest_base(
    error: OmnigraphError, status: int, exit_code: int
) -> None:
    outcome = outcome_of(error)
    assert (outcome.http_status, outcome.exit_code) == (status, exit_code)


def test_every_branch_of_the_tree_has_a_row() -> None:
    branches = {
        kind for kind in OmnigraphError.__subclasses__() if kind.__module__ == "omnigraph.errors"
    }
    assert branches | {OmnigraphError, PreconditionError} == set(OUTCOMES)


def test_a_lost_compare_and_swap_names_both_heads() -> None:
    assert precondition_json(PreconditionFailedError("a", "b")) == {
        "error": "the head of the branch is b, not a",
        "precondition_failure": {"expected": "a", "actual": "b"},
    }


def test_an_error_about_rows_carries_every_violation_as_details() -> None:
    found = Violation(3, "Paper", "state", "lost", "enum", "V201", "invalid enum value")
    error = ValidationError(violations=(found,), total=1, totals={"enum": 1}, place="line")
    assert error_json(error) == {
        "error": "line 3: invalid enum value",
        "code": "OG-VALIDATION",
        "details": {"violations": [found.to_json()], "total": 1, "totals": {"enum": 1}},
        "hint": "correct the rows; a load leaves them out with `--on-error quarantine`",
    }


def test_an_error_without_further_facts_has_neither_details_nor_hint() -> None:
    assert error_json(NotFoundError("none")) == {"error": "none", "code": "OG-NOT-FOUND"}
