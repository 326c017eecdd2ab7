"""Merges of schemas over several branches, and what conflicts show."""

from __future__ import annotations

from omnigraph.schema import (
    AcceptedTexts,
    CompiledSchema,
    MergedSchema,
    SchemaChoices,
    schema_difference,
)
from support.diverged import MERGE_NUMBERS, Diverged, accepted, diverged_texts, steps_from


def stored(merged: MergedSchema) -> AcceptedTexts:
    assert merged.schema is not None, merged.conflicts
    return AcceptedTexts(merged.schema.source.text, merged.schema.ir)


def also(schema: AcceptedTexts) -> dict[str, tuple[int, ...]]:
    return {p.name: (p.property_id, *p.also) for t in schema.ir.types() for p in t.properties}


# -- several branches ----------------------------------------------------------------------------


def test_a_merge_the_other_way_keeps_each_side_to_its_numbers() -> None:
    case = diverged_texts("node A {}", "node A { x: I32? }", "node A { x: I32? }")
    there = stored(case.merged())
    assert also(there) == {"x": (2000, 1000)}
    back = Diverged(case.source, there, case.source).merged()
    assert also(stored(back)) == {"x": (1000, 2000)}
    assert steps_from(case.source, back).steps == ()
    assert steps_from(there, back).steps == ()


def test_a_branch_that_knows_only_the_other_number_sees_no_drop() -> None:
    """Two branches have merged each other; a third one was made before that."""
    case = diverged_texts("node A {}", "node A { x: I32? }", "node A { x: I32? }")
    draft, main = case.source, case.target
    third = accepted("node A { x: I64? }", base=draft.ir, free=5000)
    draft_again = stored(Diverged(main, main, draft).merged())
    assert also(draft_again) == {"x": (1000,)}
    draft_merged = stored(Diverged(case.base, main, draft).merged())
    main_merged = stored(Diverged(main, draft_merged, main).merged())
    assert also(main_merged) == {"x": (2000, 1000)}
    # The common ancestor of the third branch and of main is now the draft as it was.
    found = Diverged(draft, third, main_merged).merged()
    assert [step.describe() for step in steps_from(main_merged, found).steps] == [
        "widen property node:A.x from I32? to I64?"
    ]
    assert also(stored(found)) == {"x": (2000, 1000)}


def test_three_branches_that_add_the_same_have_one_identity() -> None:
    base = accepted("node A {}")
    text = "node A { x: I32? } node B { y: I32? }"
    one, two, three = (accepted(text, base=base.ir, free=free) for free in (1000, 2000, 3000))
    both = stored(Diverged(base, one, two).merged())
    all_three = stored(Diverged(base, both, three).merged())
    [node] = [each for each in all_three.ir.nodes if each.name == "B"]
    assert (node.type_id, node.also) == (3000, (1000, 1003, 2000, 2003))
    assert also(all_three) == {"x": (3001, 1001, 2001), "y": (3002, 1002, 2002)}
    back = Diverged(one, all_three, one).merged()
    assert steps_from(one, back).steps == ()


def test_one_thing_there_and_two_things_here_is_refused() -> None:
    base = accepted("node A {}")
    one = accepted("node A { x: I32? }", base=base.ir, free=1000)
    two = accepted("node A { x: I32? }", base=base.ir, free=2000)
    united = stored(Diverged(base, one, two).merged())
    renamed = accepted("node A { y: I32? @rename_from(x) }", base=one.ir, free=4000)
    separate = stored(Diverged(base, two, renamed).merged())
    assert also(separate) == {"x": (2000,), "y": (1000,)}
    for case in (Diverged(base, united, separate), Diverged(base, separate, united)):
        for choice in (SchemaChoices(), SchemaChoices(prefer="source")):
            [found] = case.merged(choice).conflicts
            assert found.identity == "property:2000"
            assert "node:A.x and node:A.y are two on this branch" in found.message


# -- conflicts -----------------------------------------------------------------------------------


def test_a_conflict_shows_three_definitions() -> None:
    case = diverged_texts(
        "node A { p: I32 }", "node A { p: I64 }", "node A { q: I32 @rename_from(p) }"
    )
    [found] = case.merged().conflicts
    assert (found.identity, found.name) == ("property:2", "node:A.q")
    for form, name, scalar in (
        (found.base, "p", "I32"),
        (found.source, "p", "I64"),
        (found.target, "q", "I32"),
    ):
        assert isinstance(form, dict)
        assert form["name"] == name
        assert form["prop_type"]["scalar"] == scalar  # type: ignore[call-overload,index]  # JSON of a known shape


def test_a_conflict_of_names_shows_the_two_that_have_it() -> None:
    case = diverged_texts(
        "node A { p: I32 }", "node A { q: I32 @rename_from(p) }", "node A { p: I32  q: I32? }"
    )
    [found] = case.merged().conflicts
    assert (found.identity, found.name, found.base) == ("property:2000", "node:A.q", None)
    assert isinstance(found.source, dict)
    assert isinstance(found.target, dict)
    assert (found.source["property_id"], found.target["property_id"]) == (2, 2000)


def test_conflicts_of_rules_show_them_as_text() -> None:
    case = diverged_texts(
        "node A { p: I32 } edge E: A -> A",
        "node A { p: I32 @range(p, 0..) } edge E: A -> A @card(0..1)",
        "node A { p: I32 @range(p, 1..2.5) } edge E: A -> A @card(0..2)",
    )
    rule, card = case.merged().conflicts
    assert rule.name == "@range(p) of node:A"
    assert (rule.base, rule.source, rule.target) == (
        None,
        ["@range(p, 0..)"],
        ["@range(p, 1..2.5)"],
    )
    assert card.base == {"min": 0, "max": None}
    assert (card.source, card.target) == ({"min": 0, "max": 1}, {"min": 0, "max": 2})


def test_notes_and_rules_are_told_apart() -> None:
    case = diverged_texts(
        "node A { p: I32 @unique }",
        "node A { p: I32  @unique(p) }",
        "node A { p: I32 @unique @unique(p) }",
    )
    [found] = case.merged().conflicts
    assert (found.base, found.source) == (["p @unique"], ["@unique(p)"])
    assert found.target == ["p @unique", "@unique(p)"]


# -- the result ----------------------------------------------------------------------------------


def test_without_aliases_the_schema_of_the_only_side_that_changed_is_taken_as_it_is() -> None:
    text = "node A { x: I32 @default(5) } node B {}"
    case = diverged_texts("node A {}", text, "node A {}")
    forward, backward = case.merged(), case.swapped().merged()
    assert stored(forward) == stored(backward) == case.source
    assert case.numbers_taken() == 0


def test_a_value_that_rows_were_filled_with_comes_along() -> None:
    case = diverged_texts(
        "node A {}", "node A { x: I32 @default(5) }", "node A { y: F32 @default(0.1) }"
    )
    schema = case.merged().schema
    assert isinstance(schema, CompiledSchema)
    filled = {name: p.filled for name, p in schema.catalog.node_types["A"].properties.items()}
    assert filled == {"x": 5, "y": 0.10000000149011612}


def test_merging_takes_no_number_that_it_does_not_need() -> None:
    case = diverged_texts("node A {}", "node A { x: I32? }", "node A { y: I32? }")
    assert case.numbers_taken() == 0
    interfaces = diverged_texts(
        "interface I {} node A {}",
        "interface I { x: I32? } node A {}",
        "interface I {} node A implements I {}",
    )
    merged = interfaces.merged()
    assert interfaces.numbers_taken() == 1
    [node] = stored(merged).ir.nodes
    assert [p.property_id for p in node.properties] == [MERGE_NUMBERS]
    assert stored(merged).ir.next_identity_id == MERGE_NUMBERS + 1
    steps = schema_difference(interfaces.source.ir, stored(merged).ir).steps
    assert [step.kind for step in steps] == ["update_implements", "add_property"]
