"""Differences of schemas: every change in both directions, also those that no apply makes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from omnigraph.schema import compile_schema, plan_schema, schema_difference
from omnigraph.schema.migration.steps import UnsupportedChange
from support.migrations import schema_chains

DOMAIN = "01JD1FFERENCE0000000000000"


@pytest.mark.parametrize(
    ("before", "after", "forth", "back"),
    [
        (
            "node A { p: I32 }",
            "node A { p: I64? }",
            ["widen property node:A.p from I32 to I64", "make property node:A.p nullable"],
            ["change type of node:A.p from I64? to I32?", "make property node:A.p required"],
        ),
        (
            "node A { p: I32 }",
            "node A { p: String }",
            ["change type of node:A.p from I32 to String"],
            ["change type of node:A.p from String to I32"],
        ),
        (
            "node A {}",
            "node A { p: I32 }",
            ["add property node:A.p: I32"],
            ["drop property node:A.p (soft)"],
        ),
        (
            "node A { p: String }",
            "node A { p: String @key }",
            ["add @key(p) to node:A"],
            ["drop @key(p) of node:A (cannot be undone)"],
        ),
        (
            "node A {} edge E: A -> A",
            "node A {} edge E: A -> A { @key(src, dst) }",
            ["add @key(dst, src) to edge:E"],
            ["drop @key(dst, src) of edge:E (cannot be undone)"],
        ),
        (
            "node A { d: Date @key }",
            "node A { d: DateTime @key }",
            ["widen property node:A.d from Date to DateTime"],
            ["change type of node:A.d from DateTime to Date"],
        ),
    ],
)
def test_every_change_is_a_step(before: str, after: str, forth: list[str], back: list[str]) -> None:
    first = compile_schema(before, domain=DOMAIN).ir
    second = compile_schema(after, domain=DOMAIN, accepted=first).ir
    assert [step.describe() for step in schema_difference(first, second).steps] == forth
    assert [step.describe() for step in schema_difference(second, first).steps] == back


@settings(max_examples=40)
@given(schema_chains(length=2))
def test_a_supported_plan_is_the_difference(texts: list[str]) -> None:
    accepted = compile_schema(texts[0], domain=DOMAIN).ir
    found = plan_schema(texts[1], accepted=accepted)
    differs = schema_difference(accepted, found.desired.ir)
    if found.plan.supported:
        assert differs == found.plan
    for step in (*differs.steps, *schema_difference(found.desired.ir, accepted).steps):
        if isinstance(step, UnsupportedChange):
            assert step.reason.startswith("changing edge endpoints")
