"""`docs/reference/migrations.md` says what the planner does."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from omnigraph.schema import MigrationPlan, compile_schema, plan_schema
from omnigraph.schema.language.codes import SCHEMA_CODES
from omnigraph.schema.migration.codes import PLAN_CODES
from omnigraph.schema.migration.cost import TIERS
from omnigraph.schema.migration.steps import Step
from support.step_kinds import STEP_KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "migrations.md").read_text("utf-8")
DOMAIN = "01JD0CS0000000000000000000"
ROWS = {"node:Station": 1200, "edge:Feeds": 3400}


def block(kind: str) -> str:
    [found] = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def example(desired: str) -> MigrationPlan:
    accepted = compile_schema(block("pg accepted"), domain=DOMAIN).ir
    return plan_schema(desired, accepted=accepted, row_counts=ROWS).plan


def members(kind: type[Step]) -> list[str]:
    """Members of a step before its price, as the page lists them."""
    from dataclasses import fields

    return [
        f"`{f.metadata.get('member', f.name)}`{'?' if f.metadata.get('optional') else ''}"
        for f in fields(kind)
        if not f.metadata.get("hidden")
    ]


def test_the_worked_example_is_what_the_planner_prints() -> None:
    assert example(block("pg desired")).render() == block("text plan").rstrip("\n")


def test_the_json_of_the_worked_example_is_what_the_planner_returns() -> None:
    plan = example(block("pg desired").replace("since: DateTime", "since: DateTime?"))
    assert plan.supported
    steps = [orjson.dumps(step.to_json()).decode() for step in plan.steps[-2:]]
    assert steps == block("json steps").splitlines()


@pytest.mark.parametrize("kind", STEP_KINDS, ids=lambda kind: kind.kind)
def test_every_step_is_listed_with_its_members(kind: type[Step]) -> None:
    assert f"| `{kind.kind}` | {', '.join(members(kind))} |" in PAGE


@pytest.mark.parametrize("code", PLAN_CODES)
def test_every_code_is_listed(code: str) -> None:
    assert f"`{code}`" in PAGE


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_is_explained(tier: str) -> None:
    assert f"| `{tier}` |" in PAGE


def test_codes_of_the_language_and_of_plans_do_not_overlap() -> None:
    assert not set(SCHEMA_CODES) & set(PLAN_CODES)
