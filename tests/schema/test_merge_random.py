"""Merges of random schemas: what holds for all of them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from omnigraph.schema import (
    AcceptedTexts,
    Aliases,
    CompiledSchema,
    MergedSchema,
    SchemaChoices,
    SchemaIR,
    compile_stored,
    read_ir,
    schema_difference,
)
from omnigraph.schema.ir.renumber import renumbered
from support.diverged import Diverged, diverged, steps_from

Declarations = dict[tuple[str, int], Any]


def messages(merged: MergedSchema) -> list[str]:
    """The messages without saying which side is which."""
    return sorted(re.sub("source|target", "side", found.message) for found in merged.conflicts)


def stored(schema: CompiledSchema) -> AcceptedTexts:
    return AcceptedTexts(schema.source.text, schema.ir)


def declarations(ir: SchemaIR, aliases: Aliases) -> Declarations:
    """Types without their members, and properties of bodies, by canonical number."""
    found: Declarations = {}
    for each in renumbered(ir, aliases).types():
        bare = replace(each, properties=())
        found["type", each.type_id] = bare if each.kind == "interface" else _bare(bare)
        for prop in each.properties:
            if prop.declared_directly:
                found["property", prop.property_id] = replace(
                    prop,
                    satisfies_interface_properties=(),
                    property_constraints=(),
                    embed_source=None,
                    filled=None,
                )
            else:
                found["property", prop.property_id] = None
    return found


def _bare(found: Any) -> Any:
    """Leave out rules, which have identities of their own, and names of other types."""
    changed: dict[str, Any] = {"constraints": (), "table_incarnation_id": 1}
    if found.kind == "edge":
        changed |= {"from_type": found.from_type.type_id, "to_type": found.to_type.type_id}
        changed |= {"cardinality": None}
    else:
        changed |= {"implements": tuple(ref.type_id for ref in found.implements)}
    return replace(found, **changed)


def changes(base: Declarations, side: Declarations) -> Declarations:
    return {
        identity: side.get(identity)
        for identity in base.keys() | side.keys()
        if side.get(identity, "none") != base.get(identity, "none")
    }


def a_merged_schema_is_stored_as_every_other(case: Diverged) -> None:
    merged = case.merged()
    if merged.schema is None:
        assert merged.conflicts
        return
    assert merged.conflicts == ()
    text, ir = merged.schema.source.text, merged.schema.ir
    assert compile_stored(text, ir).ir == ir
    assert read_ir(ir.to_json()) == ir
    assert merged.schema.catalog == compile_stored(text, ir).catalog
    assert steps_from(case.target, merged).supported
    assert steps_from(case.source, merged).supported


def a_merged_schema_has_the_changes_of_both_sides(case: Diverged) -> None:
    merged = case.merged()
    if merged.schema is None:
        return
    base, source, target, both = (
        declarations(ir, merged.aliases)
        for ir in (case.base.ir, case.source.ir, case.target.ir, merged.schema.ir)
    )
    for side in (source, target):
        for identity, wanted in changes(base, side).items():
            assert both.get(identity) == wanted, identity
    untouched = base.keys() - changes(base, source).keys() - changes(base, target).keys()
    assert {each: both.get(each) for each in untouched} == {each: base[each] for each in untouched}
    new = both.keys() - base.keys() - source.keys() - target.keys()
    assert len(new) == case.numbers_taken()


def merging_again_either_way_changes_nothing_more(case: Diverged) -> None:
    merged = case.merged()
    if merged.schema is None:
        return
    there = stored(merged.schema)
    back = Diverged(case.source, there, case.source).merged()
    assert back.schema is not None
    assert schema_difference(there.ir, back.schema.ir, back.aliases).steps == ()
    again = Diverged(there, stored(back.schema), there).merged()
    assert again.schema is not None
    assert steps_from(there, again).steps == ()
    assert again.schema.source.text == there.text
    third = Diverged(stored(back.schema), stored(again.schema), stored(back.schema)).merged()
    assert third.schema == back.schema


def swapping_the_sides_changes_only_who_owns_the_numbers(case: Diverged) -> None:
    one, other = case.merged(), case.swapped().merged()
    assert (one.schema is None) == (other.schema is None)
    if one.schema is None or other.schema is None:
        assert messages(one) == messages(other)
        return
    assert one.schema.shape_hash == other.schema.shape_hash
    known = Aliases.of(one.schema.ir, other.schema.ir)
    assert schema_difference(one.schema.ir, other.schema.ir, known).steps == ()
    assert {(d.type_name, d.property_name) for d in one.dropped} == {
        (d.type_name, d.property_name) for d in other.dropped
    }


def a_choice_of_side_settles_every_conflict(case: Diverged) -> None:
    merged = case.merged()
    for side in ("source", "target"):
        settled = case.merged(SchemaChoices(prefer=side))
        assert settled.schema is not None, [c.message for c in settled.conflicts]
        assert compile_stored(settled.schema.source.text, settled.schema.ir).ir == settled.schema.ir
        if merged.schema is not None:
            assert settled.schema == merged.schema


CLAIMS = (
    a_merged_schema_is_stored_as_every_other,
    a_merged_schema_has_the_changes_of_both_sides,
    merging_again_either_way_changes_nothing_more,
    swapping_the_sides_changes_only_who_owns_the_numbers,
    a_choice_of_side_settles_every_conflict,
)


@settings(max_examples=40)
@given(diverged())
def test_random_merges_keep_all_claims(case: Diverged) -> None:
    for claim in CLAIMS:
        claim(case)


@pytest.mark.slow
@given(diverged(edits_max=6))
def test_many_random_merges_keep_all_claims(case: Diverged) -> None:
    for claim in CLAIMS:
        claim(case)


def test_the_random_merges_are_often_united_and_often_not() -> None:
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=80,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(diverged())
    def run(case: Diverged) -> None:
        merged: MergedSchema = case.merged()
        if merged.schema is None:
            outcomes["conflict"] += 1
        elif merged.schema.source.text in (case.source.text, case.target.text):
            outcomes["one text"] += 1
        else:
            outcomes["written"] += 1

    run()
    assert min(outcomes[each] for each in ("conflict", "one text", "written")) > 5
