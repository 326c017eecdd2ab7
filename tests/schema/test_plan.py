"""Migration plans: every row of the tables as a text case, and claims about all of them."""

from __future__ import annotations

import pickle

import orjson
import pytest

from omnigraph.schema import (
    IdentityResolutionError,
    SchemaIR,
    UnsupportedMigrationError,
    compile_schema,
    plan_migration,
    plan_schema,
)
from omnigraph.schema.migration.codes import MIGRATION_CODES
from omnigraph.schema.migration.cost import TIERS
from omnigraph.schema.migration.steps import UnsupportedChange
from omnigraph.syntax import SourceError
from support.cases import Case, check_case, load_cases
from support.fold_plan import fold_plan
from support.step_kinds import STEP_KINDS

DOMAIN = "01JMIGRATE0000000000000000"
CASES = load_cases("migrations")


def accepted_of(case: Case) -> SchemaIR:
    return compile_schema(case.sections["old"], domain=DOMAIN).ir


def row_counts(case: Case) -> dict[str, int] | None:
    if "rows" not in case.sections:
        return None
    pairs = [line.split() for line in case.sections["rows"].splitlines()]
    return {key: int(rows) for key, rows in pairs}


def planned(case: Case) -> str:
    try:
        found = plan_schema(
            case.sections["new"],
            accepted=accepted_of(case),
            allow_data_loss=case.sections.get("options") == "allow_data_loss",
            row_counts=row_counts(case),
        )
    except SourceError as error:
        return "\n".join(f"{d.code} {d.headline}\n  help: {d.hint}" for d in error.diagnostics)
    return "\n".join(orjson.dumps(step.to_json()).decode() for step in found.plan.steps)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plan(case: Case, update_cases: bool) -> None:
    check_case(case, "plan", planned(case), update_cases)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_planned_case_keeps_the_general_claims(case: Case) -> None:
    accepted = accepted_of(case)
    try:
        found = plan_schema(case.sections["new"], accepted=accepted)
    except SourceError:
        return
    plan, desired = found.plan, found.desired.ir
    assert plan.supported == (not plan.unsupported)
    if plan.supported:
        assert fold_plan(plan, accepted) == desired
    assert bool(plan.steps) == (desired != accepted)
    assert plan_migration(accepted=desired, desired=desired).steps == ()
    for step in plan.steps:
        assert step.tier in TIERS
        assert "\n" not in step.render()
        form = step.to_json()
        owner = str(form.get("type_kind") or form["entity"])
        assert (step.table_key is None) == owner.startswith("interface")


def test_the_cases_show_every_kind_of_step() -> None:
    shown = "\n".join(case.sections.get("plan", "") for case in CASES)
    missing = [kind.kind for kind in STEP_KINDS if f'"kind":"{kind.kind}"' not in shown]
    assert missing == []


def test_the_cases_show_every_code_that_a_step_can_carry() -> None:
    shown = "\n".join(case.sections.get("plan", "") for case in CASES)
    carried = [code for code, meaning in MIGRATION_CODES.items() if "(reserved" not in meaning]
    assert [code for code in carried if f'"code":"{code}"' not in shown] == []


def test_plan_json_is_supported_and_steps() -> None:
    accepted = compile_schema("node A {}", domain=DOMAIN).ir
    plan = plan_schema("node A { p: I32? }", accepted=accepted).plan
    assert list(plan.to_json()) == ["supported", "steps"]
    assert plan.to_json()["supported"] is True
    assert plan_schema("node A { p: I32 }", accepted=accepted).plan.to_json()["supported"] is False


def test_the_first_unsupported_change_is_raised_with_its_code() -> None:
    accepted = compile_schema("node A {} edge E: A -> A", domain=DOMAIN).ir
    text = "node A { p: I32 } node B {} edge E: A -> B"
    plan = plan_schema(text, accepted=accepted).plan
    assert len(plan.unsupported) == 2
    with pytest.raises(UnsupportedMigrationError, match=r"^\[OG-MF-103\] new required") as caught:
        plan.raise_if_unsupported()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.change == caught.value.change
    assert str(copy) == str(caught.value)
    with pytest.raises(UnsupportedMigrationError):
        fold_plan(plan, accepted)


def test_a_reason_without_code_stands_alone() -> None:
    accepted = compile_schema("node A {} node B {} edge E: A -> A", domain=DOMAIN).ir
    plan = plan_schema("node A {} node B {} edge E: A -> B", accepted=accepted).plan
    [change] = plan.unsupported
    assert isinstance(change, UnsupportedChange)
    assert change.message == change.reason
    assert "code" not in change.to_json()


def test_the_tier_of_a_plan_is_its_most_expensive_one() -> None:
    accepted = compile_schema("node A { p: I32  q: I32? }", domain=DOMAIN).ir

    def tier(text: str) -> str | None:
        return plan_schema(text, accepted=accepted).plan.tier

    assert tier("node A { p: I32  q: I32? }") is None
    assert tier("node A { p: I32 @index  q: I32? }") == "metadata"
    assert tier("node A { p: I64 @index  q: I32? }") == "rewrite"
    assert tier("node A { p: I64 @index  q: I32 }") == "validated"
    assert tier("node A { p: I64 @index }") == "destructive"


def test_people_read_a_verdict_and_one_line_per_step() -> None:
    accepted = compile_schema("node A { p: I32 }", domain=DOMAIN).ir
    plan = plan_schema(
        'node A { p: I64 @check(q, "a\\nb") q: String? }',
        accepted=accepted,
        row_counts={"node:A": 1},
    ).plan
    assert plan.render().splitlines() == [
        "supported: yes",
        "- widen property node:A.p from I32 to I64 [rewrite, node:A, 1 row]",
        "- add property node:A.q: String? [rewrite, node:A, 1 row]",
        '- add @check(q, "a\\nb") to node:A [metadata, node:A, 1 row]',
    ]
    empty = plan_schema("node A { p: I32 }", accepted=accepted).plan
    assert empty.render() == "supported: yes\nno schema changes"


def test_identity_problems_are_source_errors_with_a_place() -> None:
    accepted = compile_schema("node A {}", domain=DOMAIN).ir
    text = 'node B @rename_from("X") {}'
    with pytest.raises(IdentityResolutionError) as caught:
        plan_schema(text, accepted=accepted)
    [found] = caught.value.diagnostics
    assert text[found.span.start : found.span.end] == "B"
    assert "schema identity resolution failed: " in str(caught.value)
