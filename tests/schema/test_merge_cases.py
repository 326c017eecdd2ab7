"""Merges of schemas as text: what both sides make of a base, and what the merge makes of that.

`base` is a text. `source` and `target` are the texts that each side applies, one after the other
where a line `....` separates them; a side without a section applies nothing. `choose` is a side, or
lines of an identity and a side. Numbers of the source begin at 1000, those of the target at 2000,
those of the merge at 3000.

`text` is the stored text of the merged schema and `report` what else there is to say; or
`conflicts` has one line for each. The merge runs again with the sides swapped. It must come to the
same schema, up to who owns the numbers, or to as many conflicts.
"""

from __future__ import annotations

import pytest

from omnigraph.schema import (
    AcceptedTexts,
    Aliases,
    Dropped,
    MergedSchema,
    SchemaChoices,
    SchemaIR,
    compile_stored,
    read_ir,
    schema_difference,
)
from omnigraph.schema.merge.model import Side
from support.cases import Case, check_case, load_cases
from support.diverged import (
    BASE_NUMBERS,
    SOURCE_NUMBERS,
    TARGET_NUMBERS,
    Diverged,
    accepted,
    steps_from,
)

CASES = load_cases("schema_merge")


def applied(texts: str, base: AcceptedTexts | None, free: int) -> AcceptedTexts:
    current = base
    for text in texts.split("\n....\n"):
        current = accepted(f"{text}\n", base=current.ir if current else None, free=free)
        free = max(free, current.ir.next_identity_id)
    assert current is not None
    return current


def diverged(case: Case) -> Diverged:
    base = applied(case.sections["base"], None, BASE_NUMBERS)
    source, target = (
        applied(case.sections[side], base, free) if side in case.sections else base
        for side, free in (("source", SOURCE_NUMBERS), ("target", TARGET_NUMBERS))
    )
    return Diverged(base, source, target)


def choices(case: Case, *, is_swapped: bool = False) -> SchemaChoices:
    other: dict[str, Side] = {"source": "target", "target": "source"}
    same: dict[str, Side] = {"source": "source", "target": "target"}
    sides = other if is_swapped else same
    chosen = case.sections.get("choose", "")
    if chosen in sides:
        return SchemaChoices(prefer=sides[chosen])
    pairs = [line.split() for line in chosen.splitlines()]
    return SchemaChoices(by_identity={identity: sides[side] for identity, side in pairs})


def report(sides: Diverged, merged: MergedSchema, numbers_taken: int) -> str:
    assert merged.schema is not None
    lines = [f"target: {step.describe()}" for step in steps_from(sides.target, merged).steps]
    lines += [f"source: {step.describe()}" for step in steps_from(sides.source, merged).steps]
    lines += [f"also: {line}" for line in also(merged.schema.ir)]
    lines += [f"dropped: {dropped(each)}" for each in merged.dropped]
    if numbers_taken:
        lines.append(f"new numbers: {numbers_taken}")
    return "\n".join(lines)


def also(ir: SchemaIR) -> list[str]:
    found = []
    for each in ir.types():
        owner = f"{each.kind}:{each.name}"
        if each.also:
            found.append(f"{owner} {each.type_id} also {', '.join(map(str, each.also))}")
        found += [
            f"{owner}.{prop.name} {prop.property_id} also {', '.join(map(str, prop.also))}"
            for prop in each.properties
            if prop.also
        ]
    return found


def dropped(each: Dropped) -> str:
    name = f".{each.property_name}" if each.property_name else ""
    fate = "kept" if each.is_kept else "gone"
    return f"{each.type_kind}:{each.type_name}{name} by {each.side}, {fate}"


def conflicts(merged: MergedSchema) -> str:
    return "\n".join(f"{c.identity} {c.name}: {c.message}" for c in merged.conflicts)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_merge(case: Case, update_cases: bool) -> None:
    sides, chosen = diverged(case), choices(case)
    merged = sides.merged(chosen)
    if merged.schema is None:
        check_case(case, "conflicts", conflicts(merged), update_cases)
        return
    ir, text = merged.schema.ir, merged.schema.source.text
    assert "conflicts" not in case.sections
    check_case(case, "text", text, update_cases)
    taken = sides.numbers_taken(chosen)
    check_case(case, "report", report(sides, merged, taken), update_cases)
    assert read_ir(ir.to_json()) == ir
    assert compile_stored(text, ir).ir == ir


@pytest.mark.parametrize("case", CASES, ids=str)
def test_swapped(case: Case) -> None:
    sides = diverged(case)
    one, other = sides.merged(choices(case)), sides.swapped().merged(choices(case, is_swapped=True))
    assert len(one.conflicts) == len(other.conflicts)
    if one.schema is None or other.schema is None:
        assert one.schema is other.schema
        return
    assert one.schema.shape_hash == other.schema.shape_hash
    known = Aliases.of(one.schema.ir, other.schema.ir)
    assert schema_difference(one.schema.ir, other.schema.ir, known).steps == ()
