"""What a merge of schemas says beyond the merged schema: drops, odd identities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.ir.model import IrInterface, IrTable, SchemaIR
from omnigraph.schema.merge.facts import (
    ConstraintIdentity,
    Declared,
    Identity,
    PropertyIdentity,
    TypeIdentity,
)
from omnigraph.schema.merge.model import Dropped, Side
from omnigraph.schema.merge.unite import Finding, Sides
from omnigraph.schema.migration.constraints import key_members

_OTHER: Final[dict[Side, Side]] = {"source": "target", "target": "source"}


def dropped_by_one_side(sides: Sides, merged: Declared) -> Iterator[Dropped]:
    """Yield types and properties with values that one side has and the other has dropped.

    What a side has added, and a choice has taken out again, counts as dropped by the other side.
    """
    for side, other in _OTHER.items():
        ours = sides.of(side)
        for number, found in sides.of(other).types.items():
            if isinstance(found, IrInterface):
                continue
            is_kept = number in merged.types
            is_missing = number not in ours.types
            if is_missing and (number in sides.base.types or not is_kept):
                yield Dropped(
                    side, found.kind, found.type_id, found.name, None, found.type_id, is_kept
                )
            if is_kept:
                yield from _dropped_properties(found, side, sides, merged, is_new=is_missing)


def _dropped_properties(
    found: IrTable, side: Side, sides: Sides, merged: Declared, *, is_new: bool
) -> Iterator[Dropped]:
    """Yield what a type of one side has lost; what a whole new type keeps is no loss."""
    ours, base = sides.of(side).properties, sides.base.properties
    for prop in found.properties:
        number = merged.aliases.canonical(prop.property_id)
        is_kept = number in merged.properties
        if number not in ours and (not is_kept or (number in base and not is_new)):
            yield Dropped(
                side,
                found.kind,
                found.type_id,
                found.name,
                prop.name,
                prop.property_id,
                is_kept,
            )


def undone_drops(sides: Sides, merged: Declared) -> Iterator[Finding]:
    """Find properties that a side has dropped and that an interface brings back."""
    for each in dropped_by_one_side(sides, merged):
        if not each.is_kept or each.property_name is None:
            continue
        number = merged.aliases.canonical(each.number)
        declared, prop = merged.properties[number]
        identity = merged.identity_of(declared, prop)
        involved: set[Identity] = {identity, *merged.offers_of(prop)}
        other = _OTHER[each.side]
        message = f"dropped on the {each.side}, but an interface of the {other} gives it"
        yield Finding(identity, message, frozenset(involved))


def respelled_keys(sides: Sides, merged: Declared) -> Iterator[Finding]:
    """Find keys whose members ids spell in another order than those of a side."""
    for number, found in merged.types.items():
        if isinstance(found, IrInterface):
            continue
        for side in _OTHER:
            there = sides.of(side).types.get(number)
            if there is None or isinstance(there, IrInterface):
                continue
            ours, theirs = _key(found, merged), _key(there, sides.of(side))
            if ours != theirs and sorted(map(str, ours)) == sorted(map(str, theirs)):
                message = f"ids of the {side} spell the members of the key in another order"
                yield Finding(ConstraintIdentity(number, "key"), message, frozenset())
                break


def ambiguous(ir: SchemaIR, aliases: Aliases) -> Iterator[Finding]:
    """Find what is one thing on another branch and two things here."""
    first: dict[int, str] = {}
    for found in ir.types():
        number = aliases.canonical(found.type_id)
        name = f"{found.kind}:{found.name}"
        if first.setdefault(number, name) != name:
            yield _one_of_two(TypeIdentity(number), first[number], name)
        for prop in found.properties:
            each = aliases.canonical(prop.property_id)
            if first.setdefault(each, f"{name}.{prop.name}") != f"{name}.{prop.name}":
                identity = PropertyIdentity(number, each)
                yield _one_of_two(identity, first[each], f"{name}.{prop.name}")


def _one_of_two(identity: Identity, one: str, other: str) -> Finding:
    message = (
        f"{one} and {other} are two on this branch and one on another; "
        f"drop one of them before the merge"
    )
    return Finding(identity, message, frozenset())


def _key(found: IrTable, declared: Declared) -> list[int | str]:
    """Return the members of a key in the order in which ids spell them."""
    members = key_members(found)
    ordered = sorted(found.properties, key=lambda prop: prop.property_id)
    columns: list[int | str] = [each for each in ("src", "dst") if each in members]
    canonical = declared.aliases.canonical
    return columns + [canonical(p.property_id) for p in ordered if p.property_id in members]
