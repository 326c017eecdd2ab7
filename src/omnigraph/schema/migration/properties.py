"""The property part of a migration plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from omnigraph.schema.defaults import DefaultValue, default_text, read_default
from omnigraph.schema.ir.model import IrEmbed, IrProperty, IrType
from omnigraph.schema.migration.constraints import Pricing, key_members
from omnigraph.schema.migration.cost import changes_spelling, is_widening
from omnigraph.schema.migration.steps import (
    AddProperty,
    DropMode,
    DropProperty,
    ExtendEnum,
    MoveProperty,
    NarrowEnum,
    OpenEnum,
    RelaxProperty,
    RenameProperty,
    RequireEnum,
    RequireProperty,
    RetypeProperty,
    Step,
    UnsupportedChange,
    UpdateEmbed,
    UpdatePropertyMetadata,
    WidenProperty,
)
from omnigraph.values import PropType


@dataclass(frozen=True)
class PropertyPlanner:
    """Compares the properties of one type before and after."""

    old: IrType
    new: IrType
    price: Pricing
    mode: DropMode
    is_difference: bool = False

    def steps(self) -> Iterator[tuple[int, Step]]:
        """Yield each step with the number of its property: changes by name, then drops."""
        known = {p.property_id: p for p in self.old.properties}
        kept = {p.property_id for p in self.new.properties}
        for prop in self.new.properties:
            before = known.get(prop.property_id)
            changes = self._added(prop) if before is None else self._changed(before, prop)
            for step in changes:
                yield prop.property_id, step
        for prop in self.old.properties:
            if prop.property_id not in kept:
                dropped = DropProperty(
                    self.price("destructive"), self.new.kind, self.new.name, prop.name, self.mode
                )
                yield prop.property_id, dropped

    def empty_columns(self) -> frozenset[int]:
        """Return the new properties that are null in every stored row.

        In a difference one may have been filled, and made nullable since.
        """
        known = {p.property_id for p in self.old.properties}
        return frozenset(
            p.property_id
            for p in self.new.properties
            if p.property_id not in known and p.prop_type.nullable and p.filled is None
        )

    # -- additions -------------------------------------------------------------------------------

    def _added(self, prop: IrProperty) -> Iterator[Step]:
        default: DefaultValue | None = None
        if self.new.kind != "interface" and not prop.prop_type.nullable:
            text = default_text(prop.annotations)
            if text is not None:
                default = read_default(prop.prop_type, text)
            elif not self.is_difference:
                yield self._unsupported_addition(prop)
                return
        yield AddProperty(
            self.price("rewrite"),
            self.new.kind,
            self.new.name,
            prop.name,
            prop.prop_type,
            default,
            _without_annotation_constraints(prop),
        )

    def _unsupported_addition(self, prop: IrProperty) -> Step:
        remedy = f"declare it as {prop.prop_type.with_nullable(True)}"
        if not (prop.prop_type.is_list or prop.prop_type.is_vector):
            remedy += " or give it @default(<literal>)"
        return UnsupportedChange(
            self.price("validated"),
            self._entity(prop),
            f"new required property '{prop.name}' requires a backfill of the stored rows; {remedy}",
            "OG-MF-103",
        )

    # -- changes ---------------------------------------------------------------------------------

    def _changed(self, old: IrProperty, new: IrProperty) -> Iterator[Step]:
        kind, type_name, name = self.new.kind, self.new.name, new.name
        if old.name != name:
            yield RenameProperty(self.price("rewrite"), kind, type_name, old.name, name)
        if old.prop_type != new.prop_type:
            yield from self._retyped(old.prop_type, new)
        if old.annotations != new.annotations:
            yield UpdatePropertyMetadata(
                self.price("metadata"), kind, type_name, name, new.annotations
            )
        if _embed_identity(old.embed_source) != _embed_identity(new.embed_source):
            yield self._embedded_differently(new)
        if old.declared_directly != new.declared_directly:
            yield MoveProperty(self.price("metadata"), kind, type_name, name, new.declared_directly)

    def _retyped(self, old: PropType, prop: IrProperty) -> Iterator[Step]:
        new = prop.prop_type
        if (old.scalar, old.is_list, old.dimension) == (new.scalar, new.is_list, new.dimension):
            yield from self._enum_changed(old, prop)
        else:
            refusal = None if self.is_difference else self._refusal(old, prop)
            if refusal is not None:
                yield refusal
                return
            changed = WidenProperty if is_widening(old, new) else RetypeProperty
            yield changed(
                self.price("rewrite"),
                self.new.kind,
                self.new.name,
                prop.name,
                old,
                new.with_nullable(old.nullable),
            )
        yield from self._nullability_changed(old, prop)

    def _refusal(self, old: PropType, prop: IrProperty) -> Step | None:
        new = prop.prop_type
        if not is_widening(old, new):
            return self._unsupported_type(old, prop, _why_not_widened(old, new))
        if changes_spelling(old, new) and self._is_in_key(prop):
            why = "it is a member of @key, so the ids of stored rows would change"
            return self._unsupported_type(old, prop, why)
        return None

    def _is_in_key(self, prop: IrProperty) -> bool:
        return self.new.kind != "interface" and prop.property_id in key_members(self.new)

    def _enum_changed(self, old: PropType, prop: IrProperty) -> Iterator[Step]:
        kind, type_name, name = self.new.kind, self.new.name, prop.name
        before, after = old.enum_values, prop.prop_type.enum_values
        if before is None and after is not None:
            yield RequireEnum(self.price("validated"), kind, type_name, name, after)
        elif before is not None and after is None:
            yield OpenEnum(self.price("metadata"), kind, type_name, name)
        elif before is not None and after is not None:
            added = tuple(value for value in after if value not in before)
            removed = tuple(value for value in before if value not in after)
            if added:
                yield ExtendEnum(self.price("metadata"), kind, type_name, name, added)
            if removed:
                yield NarrowEnum(self.price("validated"), kind, type_name, name, removed)

    def _nullability_changed(self, old: PropType, prop: IrProperty) -> Iterator[Step]:
        if old.nullable and not prop.prop_type.nullable:
            code = None if self.new.kind == "interface" else "OG-MF-104"
            yield RequireProperty(
                self.price("validated"), self.new.kind, self.new.name, prop.name, code
            )
        elif prop.prop_type.nullable and not old.nullable:
            yield RelaxProperty(self.price("rewrite"), self.new.kind, self.new.name, prop.name)

    def _unsupported_type(self, old: PropType, prop: IrProperty, why: str) -> Step:
        return UnsupportedChange(
            self.price("destructive"),
            self._entity(prop),
            f"changing property type of '{prop.name}' from {old} to {prop.prop_type} is not "
            f"supported: {why}; add a property of the new type and load it",
            "OG-MF-106",
        )

    def _embedded_differently(self, prop: IrProperty) -> Step:
        embed = prop.embed_source
        return UpdateEmbed(
            self.price("metadata"),
            self.new.kind,
            self.new.name,
            prop.name,
            embed.by_name if embed else None,
            embed is not None and self.new.kind != "interface",
            embed,
        )

    def _entity(self, prop: IrProperty) -> str:
        return f"{self.new.kind}:{self.new.name}.{prop.name}"


def _why_not_widened(old: PropType, new: PropType) -> str:
    if old.is_vector and new.is_vector:
        return "stored vectors have another size"
    if is_widening(new, old):
        return "stored values may not fit the narrower type"
    return "only I32 to I64, U32 to U64 or I64, F32 to F64 and Date to DateTime keep stored values"


def _embed_identity(embed: IrEmbed | None) -> tuple[int | str, str | None] | None:
    return None if embed is None else (embed.source.identity, embed.model)


def _without_annotation_constraints(prop: IrProperty) -> IrProperty:
    """Constraints are steps of their own, also where the property is new."""
    return replace(prop, property_constraints=())
