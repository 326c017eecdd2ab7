"""Folding the steps of a plan into the accepted schema gives the desired one.

This is the proof that a plan says everything: `fold_plan(plan, accepted) == desired` for every
supported plan. Steps are applied one after the other; names inside references may lag behind until
the end, when every reference takes the current name of what its number stands for. Which interface
properties a property satisfies follows from the interfaces that its node implements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TypeVar

from omnigraph.names import TypeKind
from omnigraph.schema.ir.build import TypeKey
from omnigraph.schema.ir.model import (
    ConstraintIdentity,
    IrConstraint,
    IrEdge,
    IrEmbed,
    IrField,
    IrInterface,
    IrNode,
    IrProperty,
    IrPropertyRef,
    IrSystemField,
    IrTable,
    IrType,
    IrTypeRef,
    SchemaIR,
)
from omnigraph.schema.migration.plan import MigrationPlan
from omnigraph.schema.migration.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropConstraint,
    DropProperty,
    DropType,
    ExtendEnum,
    Form,
    MoveProperty,
    NarrowEnum,
    OpenEnum,
    PropertyStep,
    RelaxProperty,
    RenameProperty,
    RenameType,
    RequireEnum,
    RequireProperty,
    Step,
    UpdateCardinality,
    UpdateConstraintForm,
    UpdateEmbed,
    UpdateImplements,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
)
from omnigraph.values import PropType

_AnyType = TypeVar("_AnyType", bound=IrType)


def fold_plan(plan: MigrationPlan, accepted: SchemaIR) -> SchemaIR:
    """Apply every step to the accepted schema; an unsupported plan is an error."""
    plan.raise_if_unsupported()
    draft = _Draft({TypeKey(t.kind, t.name): t for t in accepted.types()})
    for step in plan.steps:
        _apply(step, draft)
    return _Linker.of(draft.types.values()).schema(accepted)


@dataclass
class _Draft:
    """The schema between two steps."""

    types: dict[TypeKey, IrType]

    def edit(self, kind: TypeKind, name: str, change: Callable[[IrType], IrType]) -> None:
        key = TypeKey(kind, name)
        self.types[key] = change(self.types[key])

    def edit_property(self, step: PropertyStep, change: Callable[[IrProperty], IrProperty]) -> None:
        self.edit(
            step.type_kind,
            step.type_name,
            lambda t: _with_properties(
                t, [change(p) if p.name == step.property_name else p for p in t.properties]
            ),
        )

    def retype(self, step: PropertyStep, change: Callable[[PropType], PropType]) -> None:
        self.edit_property(step, lambda p: replace(p, prop_type=change(p.prop_type)))


# -- one rule per kind of step -------------------------------------------------------------------


@singledispatch
def _apply(step: Step, _draft: _Draft) -> None:
    raise TypeError(f"no rule folds a step of kind '{step.kind}'")


@_apply.register
def _(step: AddType, draft: _Draft) -> None:
    draft.types[TypeKey(step.type_kind, step.name)] = step.declaration


@_apply.register
def _(step: RenameType, draft: _Draft) -> None:
    renamed = draft.types.pop(TypeKey(step.type_kind, step.from_name))
    draft.types[TypeKey(step.type_kind, step.to_name)] = replace(renamed, name=step.to_name)


@_apply.register
def _(step: DropType, draft: _Draft) -> None:
    del draft.types[TypeKey(step.type_kind, step.name)]


@_apply.register
def _(step: UpdateTypeMetadata, draft: _Draft) -> None:
    draft.edit(
        step.type_kind, step.name, lambda t: replace(_table(t), annotations=step.annotations)
    )


@_apply.register
def _(step: UpdateImplements, draft: _Draft) -> None:
    draft.edit(
        step.type_kind, step.type_name, lambda t: replace(_node(t), implements=step.interfaces)
    )


@_apply.register
def _(step: UpdateCardinality, draft: _Draft) -> None:
    draft.edit(
        step.type_kind, step.type_name, lambda t: replace(_edge(t), cardinality=step.cardinality)
    )


@_apply.register
def _(step: AddProperty, draft: _Draft) -> None:
    draft.edit(
        step.type_kind,
        step.type_name,
        lambda t: _with_properties(t, [*t.properties, step.declaration]),
    )


@_apply.register
def _(step: RenameProperty, draft: _Draft) -> None:
    def renamed(prop: IrProperty) -> IrProperty:
        return replace(prop, name=step.to_name) if prop.name == step.from_name else prop

    draft.edit(
        step.type_kind,
        step.type_name,
        lambda t: _with_properties(t, [renamed(p) for p in t.properties]),
    )


@_apply.register
def _(step: DropProperty, draft: _Draft) -> None:
    draft.edit(
        step.type_kind,
        step.type_name,
        lambda t: _with_properties(t, [p for p in t.properties if p.name != step.property_name]),
    )


@_apply.register
def _(step: ExtendEnum, draft: _Draft) -> None:
    draft.retype(step, lambda t: _with_values(t, {*_values(t), *step.added_values}))


@_apply.register
def _(step: NarrowEnum, draft: _Draft) -> None:
    draft.retype(step, lambda t: _with_values(t, {*_values(t)} - {*step.removed_values}))


@_apply.register
def _(step: OpenEnum, draft: _Draft) -> None:
    draft.retype(step, lambda t: replace(t, enum_values=None))


@_apply.register
def _(step: RequireEnum, draft: _Draft) -> None:
    draft.retype(step, lambda t: _with_values(t, step.enum_values))


@_apply.register
def _(step: WidenProperty, draft: _Draft) -> None:
    draft.retype(step, lambda _: step.property_type)


@_apply.register
def _(step: RelaxProperty, draft: _Draft) -> None:
    draft.retype(step, lambda t: t.with_nullable(True))


@_apply.register
def _(step: RequireProperty, draft: _Draft) -> None:
    draft.retype(step, lambda t: t.with_nullable(False))


@_apply.register
def _(step: UpdatePropertyMetadata, draft: _Draft) -> None:
    draft.edit_property(step, lambda p: replace(p, annotations=step.annotations))


@_apply.register
def _(step: UpdateEmbed, draft: _Draft) -> None:
    draft.edit_property(step, lambda p: replace(p, embed_source=step.embed))


@_apply.register
def _(step: MoveProperty, draft: _Draft) -> None:
    draft.edit_property(step, lambda p: replace(p, declared_directly=step.declared_directly))


@_apply.register
def _(step: AddConstraint, draft: _Draft) -> None:
    draft.edit(step.type_kind, step.type_name, lambda t: _in_forms(t, step.rule, step.forms))


@_apply.register
def _(step: DropConstraint, draft: _Draft) -> None:
    draft.edit(step.type_kind, step.type_name, lambda t: _without(t, step.identity))


@_apply.register
def _(step: UpdateConstraintForm, draft: _Draft) -> None:
    draft.edit(
        step.type_kind,
        step.type_name,
        lambda t: _in_forms(_without(t, step.rule.identity), step.rule, step.to_forms),
    )


# -- small edits ---------------------------------------------------------------------------------


def _table(declared: IrType) -> IrTable:
    if isinstance(declared, IrInterface):
        raise TypeError(f"interface '{declared.name}' has no notes and no rules")
    return declared


def _node(declared: IrType) -> IrNode:
    if not isinstance(declared, IrNode):
        raise TypeError(f"{declared.kind} '{declared.name}' implements no interfaces")
    return declared


def _edge(declared: IrType) -> IrEdge:
    if not isinstance(declared, IrEdge):
        raise TypeError(f"{declared.kind} '{declared.name}' has no cardinality")
    return declared


def _with_properties(declared: IrType, properties: Iterable[IrProperty]) -> IrType:
    return replace(declared, properties=tuple(sorted(properties, key=lambda p: p.name)))


def _values(prop_type: PropType) -> tuple[str, ...]:
    return prop_type.enum_values or ()


def _with_values(prop_type: PropType, values: Iterable[str]) -> PropType:
    return replace(prop_type, enum_values=tuple(sorted(values)))


def _in_forms(declared: IrType, rule: IrConstraint, forms: tuple[Form, ...]) -> IrType:
    if "note" in forms:
        declared = _with_properties(
            declared,
            [
                replace(p, property_constraints=tuple(sorted({*p.property_constraints, rule.kind})))
                if p.property_id in rule.identity.members
                else p
                for p in declared.properties
            ],
        )
    if "rule" in forms:
        table = _table(declared)
        declared = replace(table, constraints=(*table.constraints, rule))
    return declared


def _without(declared: IrType, identity: ConstraintIdentity) -> IrType:
    def stripped(prop: IrProperty) -> IrProperty:
        if identity.members != {prop.property_id}:
            return prop
        kept = tuple(kind for kind in prop.property_constraints if kind != identity.kind)
        return replace(prop, property_constraints=kept)

    declared = _with_properties(declared, [stripped(p) for p in declared.properties])
    if isinstance(declared, IrInterface):
        return declared
    kept = tuple(rule for rule in declared.constraints if rule.identity != identity)
    return replace(declared, constraints=kept)


# -- references ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Linker:
    """Gives every reference the current name of its target, and restores the canonical order."""

    types: dict[int, IrType]
    properties: dict[int, IrProperty]

    @classmethod
    def of(cls, types: Iterable[IrType]) -> _Linker:
        by_number = {t.type_id: t for t in types}
        return cls(by_number, {p.property_id: p for t in by_number.values() for p in t.properties})

    def schema(self, accepted: SchemaIR) -> SchemaIR:
        linked = [self._linked(t) for t in sorted(self.types.values(), key=lambda t: t.name)]
        return SchemaIR(
            schema_identity_domain=accepted.schema_identity_domain,
            next_identity_id=max(accepted.next_identity_id, self._highest() + 1),
            interfaces=tuple(t for t in linked if isinstance(t, IrInterface)),
            nodes=tuple(t for t in linked if isinstance(t, IrNode)),
            edges=tuple(t for t in linked if isinstance(t, IrEdge)),
        )

    def _highest(self) -> int:
        incarnations = (
            t.table_incarnation_id for t in self.types.values() if not isinstance(t, IrInterface)
        )
        return max((*self.types, *self.properties, *incarnations), default=0)

    def _linked(self, declared: IrType) -> IrType:
        entity_type = self._with_linked_properties(declared)
        if isinstance(entity_type, IrInterface):
            return entity_type
        rules = [replace(c, fields=self._fields(c.fields)) for c in entity_type.constraints]
        rules.sort(key=lambda rule: rule.order)
        if isinstance(entity_type, IrNode):
            links = [self._type_ref(ref) for ref in entity_type.implements]
            links.sort(key=lambda ref: ref.type_id)
            return replace(entity_type, implements=tuple(links), constraints=tuple(rules))
        return replace(
            entity_type,
            from_type=self._type_ref(entity_type.from_type),
            to_type=self._type_ref(entity_type.to_type),
            constraints=tuple(rules),
        )

    def _with_linked_properties(self, declared: _AnyType) -> _AnyType:
        properties = tuple(
            replace(
                p,
                embed_source=self._embed(p.embed_source),
                satisfies_interface_properties=self._satisfied(declared, p),
            )
            for p in declared.properties
        )
        return replace(declared, properties=properties)

    def _satisfied(self, declared: IrType, prop: IrProperty) -> tuple[IrPropertyRef, ...]:
        if not isinstance(declared, IrNode):
            return ()
        found = [
            IrPropertyRef(interface.type_id, interface.name, other.property_id, other.name)
            for interface in (self.types[ref.type_id] for ref in declared.implements)
            for other in interface.properties
            if other.name == prop.name
        ]
        return tuple(sorted(found, key=lambda ref: ref.property_id or 0))

    def _embed(self, embed: IrEmbed | None) -> IrEmbed | None:
        return None if embed is None else replace(embed, source=self._property_ref(embed.source))

    def _fields(self, fields: Iterable[IrField]) -> tuple[IrField, ...]:
        return tuple(sorted(map(self._field, fields), key=lambda field: field.name))

    def _field(self, field: IrField) -> IrField:
        if isinstance(field, IrSystemField):
            entity_type = self.types[field.stable_table_id]
            return replace(field, table_type_name=entity_type.name)
        return self._property_ref(field)

    def _type_ref(self, ref: IrTypeRef) -> IrTypeRef:
        return IrTypeRef(ref.type_id, self.types[ref.type_id].name)

    def _property_ref(self, ref: IrPropertyRef) -> IrPropertyRef:
        name = ref.property_name
        if ref.property_id is not None:
            name = self.properties[ref.property_id].name
        entity_type = self.types[ref.owner_type_id]
        return IrPropertyRef(entity_type.type_id, entity_type.name, ref.property_id, name)
