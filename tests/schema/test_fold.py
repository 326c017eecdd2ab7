"""A plan says everything: folding it into the accepted schema gives the desired one."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, given, settings

from omnigraph.schema import SchemaIR, compile_schema, plan_migration, plan_schema
from omnigraph.schema.ir.model import IrInterface
from omnigraph.schema.migration.steps import AddType
from support.fold_plan import fold_plan
from support.migrations import schema_chains
from support.schemas import schema_texts
from support.step_kinds import STEP_KINDS

DOMAIN = "01JF0LD0000000000000000000"


def compiled(text: str, accepted: SchemaIR | None = None) -> SchemaIR:
    return compile_schema(text, domain=DOMAIN, accepted=accepted).ir


def numbers(ir: SchemaIR) -> set[int]:
    return {
        number
        for t in ir.types()
        for number in (
            t.type_id,
            *(p.property_id for p in t.properties),
            *(() if isinstance(t, IrInterface) else (t.table_incarnation_id,)),
        )
    }


@given(schema_chains(length=2))
def test_folding_a_plan_gives_the_desired_schema(texts: list[str]) -> None:
    accepted = compiled(texts[0])
    found = plan_schema(texts[1], accepted=accepted)
    if found.plan.supported:
        assert fold_plan(found.plan, accepted) == found.desired.ir
        assert fold_plan(found.plan, accepted).ir_hash == found.desired.ir_hash


@given(schema_chains(length=2))
def test_a_plan_is_empty_exactly_when_nothing_changes(texts: list[str]) -> None:
    accepted = compiled(texts[0])
    found = plan_schema(texts[1], accepted=accepted)
    assert bool(found.plan.steps) == (accepted != found.desired.ir)
    assert plan_schema(texts[0], accepted=accepted).plan.steps == ()


@given(schema_texts())
def test_a_schema_against_itself_needs_no_step(text: str) -> None:
    ir = compiled(text)
    assert compiled(text, ir) == ir
    assert plan_migration(accepted=ir, desired=ir).steps == ()


@given(schema_texts())
def test_everything_can_be_built_from_nothing_and_taken_down_again(text: str) -> None:
    empty, full = compiled(""), compiled(text)
    up = plan_migration(accepted=empty, desired=full)
    assert fold_plan(up, empty) == full
    assert all(isinstance(step, AddType) for step in up.steps)
    down = plan_schema("", accepted=full)
    assert fold_plan(down.plan, full) == down.desired.ir
    assert not numbers(down.desired.ir)


@given(schema_chains(length=5))
def test_numbers_are_never_reused(texts: list[str]) -> None:
    accepted = compiled(texts[0])
    given_out = numbers(accepted)
    assert given_out == set(range(1, accepted.next_identity_id))
    for text in texts[1:]:
        desired = compiled(text, accepted)
        fresh = numbers(desired) - numbers(accepted)
        assert fresh == set(range(accepted.next_identity_id, desired.next_identity_id))
        assert not fresh & given_out
        given_out |= fresh
        accepted = desired


def test_the_random_plans_reach_every_kind_of_step_and_are_mostly_supported() -> None:
    kinds: Counter[str] = Counter()
    verdicts: Counter[bool] = Counter()

    @settings(
        max_examples=250,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(schema_chains(length=2))
    def run(texts: list[str]) -> None:
        plan = plan_schema(texts[1], accepted=compiled(texts[0])).plan
        kinds.update({step.kind for step in plan.steps})
        verdicts[plan.supported] += 1

    run()
    assert {kind.kind for kind in STEP_KINDS} - set(kinds) == set()
    assert verdicts[True] > verdicts[False]


def test_a_name_dropped_and_declared_again_gets_new_numbers() -> None:
    first = compiled("node A { p: String }")
    gone = compiled("", first)
    again = compiled("node A { p: String }", gone)
    assert numbers(first) == {1, 2, 3}
    assert gone.next_identity_id == 4
    assert numbers(again) == {4, 5, 6}


def test_a_renamed_type_keeps_all_of_its_numbers() -> None:
    first = compiled("node A { p: String } edge E: A -> A { @unique(src, dst) }")
    node = 'node B @rename_from("A") { q: String @rename_from(p) }'
    second = compiled(f"{node} edge E: B -> B {{ @unique(src, dst) }}", first)
    assert numbers(second) == numbers(first)
    assert second.next_identity_id == first.next_identity_id


def test_hints_do_nothing_at_init() -> None:
    hinted = compiled('node A @rename_from("B") { p: String @rename_from(q) }')
    assert hinted == compiled("node A { p: String }")
