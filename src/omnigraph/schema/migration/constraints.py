"""The constraint part of a migration plan.

A constraint is the same one as long as its kind, its members' numbers and its arguments are, no
matter whether it is written as an annotation or as a rule. Changed arguments are one constraint
less and one more; the tier of the new one tells whether stored rows have to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from omnigraph.schema.ir.model import ConstraintIdentity, IrConstraint, IrPropertyRef, IrType
from omnigraph.schema.language.shape import ShapeConstraint
from omnigraph.schema.language.spell import rule_text
from omnigraph.schema.migration.cost import Price, Tier, is_implied
from omnigraph.schema.migration.steps import (
    AddConstraint,
    DropConstraint,
    Form,
    Step,
    UnsupportedChange,
    UpdateConstraintForm,
)

Pricing = Callable[[Tier], Price]


@dataclass(frozen=True)
class _Declared:
    """A constraint and the forms in which it is written."""

    rule: IrConstraint
    forms: tuple[Form, ...]


def constraint_steps(
    old: IrType,
    new: IrType,
    *,
    price: Pricing,
    empty_columns: frozenset[int],
    is_difference: bool = False,
) -> Iterator[Step]:
    """Compare the constraints of one type: drops, changed forms, then additions.

    `empty_columns` are the properties that this plan adds without filling them. A difference lists
    changes of a key like all others, a plan refuses those that would leave ids behind.
    """
    before, after = _declared(old), _declared(new)
    current = {p.property_id: p.name for p in new.properties}
    for identity, known in _in_order(before):
        if identity not in after:
            named = _named(known.rule, current)
            refusal = None if is_difference else _refused_drop(new, named, price)
            yield refusal or DropConstraint(price("metadata"), new.kind, new.name, named, identity)
    for identity, wanted in _in_order(after):
        known = before.get(identity, wanted)
        if known.forms != wanted.forms:
            yield UpdateConstraintForm(
                price("metadata"),
                new.kind,
                new.name,
                _named(wanted.rule, current),
                known.forms,
                wanted.forms,
                wanted.rule,
            )
    for identity, wanted in _in_order(after):
        if identity not in before:
            named = _named(wanted.rule, {})
            refusal = None if is_difference else _refused_addition(new, named, price)
            tier = _addition_tier(identity, before, empty_columns)
            yield refusal or AddConstraint(
                price(tier), new.kind, new.name, named, wanted.forms, wanted.rule
            )


def key_members(declared: IrType) -> frozenset[int | str]:
    """Return the identities of the key's members."""
    keys = [identity for identity in _declared(declared) if identity.kind == "key"]
    return frozenset(member for key in keys for member in key.members)


def _refused_addition(found: IrType, named: ShapeConstraint, price: Pricing) -> Step | None:
    if named.kind != "key" or found.kind == "interface" or _is_empty_edge(found, price):
        return None
    reason = (
        f"adding constraint {rule_text(named)} to the existing {found.kind} type "
        f"'{found.name}' would replace the ids of its stored rows; "
        f"declare a new type with this key and load the rows into it"
    )
    return UnsupportedChange(price("destructive"), f"{found.kind}:{found.name}", reason)


def _refused_drop(found: IrType, named: ShapeConstraint, price: Pricing) -> Step | None:
    if named.kind != "key" or found.kind != "edge" or _is_empty_edge(found, price):
        return None
    reason = (
        f"removing constraint {rule_text(named)} from the existing edge type '{found.name}' "
        f"would leave ids that spell a key; declare a new type and load the rows into it"
    )
    return UnsupportedChange(price("destructive"), f"{found.kind}:{found.name}", reason)


def _is_empty_edge(entity_type: IrType, price: Pricing) -> bool:
    """Whether an edge type is known to have no rows, so that no id depends on its key."""
    return entity_type.kind == "edge" and price("validated").row_count == 0


def _addition_tier(
    added: ConstraintIdentity,
    before: Mapping[ConstraintIdentity, _Declared],
    empty_columns: frozenset[int],
) -> Tier:
    """Decide whether stored rows could break the rule; nulls pass every constraint."""
    # A key is added to an edge type without rows only.
    if added.kind in ("index", "key"):
        return "metadata"
    if added.members & empty_columns or is_implied(added, before):
        return "metadata"
    return "validated"


def _declared(entity_type: IrType) -> dict[ConstraintIdentity, _Declared]:
    found: dict[ConstraintIdentity, _Declared] = {}
    for prop in entity_type.properties:
        member = IrPropertyRef(entity_type.type_id, entity_type.name, prop.property_id, prop.name)
        for kind in prop.property_constraints:
            rule = IrConstraint(kind, (member,))
            found[rule.identity] = _Declared(rule, ("note",))
    for rule in entity_type.constraints:
        known = found.get(rule.identity)
        forms: tuple[Form, ...] = ("note", "rule") if known else ("rule",)
        found[rule.identity] = _Declared(rule, forms)
    return found


def _in_order(
    declared: Mapping[ConstraintIdentity, _Declared],
) -> list[tuple[ConstraintIdentity, _Declared]]:
    return sorted(declared.items(), key=lambda item: item[1].rule.order)


def _named(rule: IrConstraint, current: Mapping[int, str]) -> ShapeConstraint:
    """Spell a constraint with the names that its members have after the plan's renames."""
    if not current:
        return rule.by_name
    names = [
        current.get(field.property_id or 0, field.name)
        if isinstance(field, IrPropertyRef)
        else field.name
        for field in rule.fields
    ]
    return replace(rule.by_name, fields=tuple(sorted(names)))
