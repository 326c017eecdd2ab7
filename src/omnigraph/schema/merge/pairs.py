"""Finds what both sides have added under one name, each with a number of its own.

Such a pair becomes one identity, the target's, if the rows of both can be rows of one: nodes and
edges need the same key and ends, properties need types that convert into each other and, where
rows exist from before the branches parted, the same value that was filled in. Whether the two
definitions are equal is asked later, as for every identity that both sides have changed. Without a
pair the two stay different things that clash by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from omnigraph.names import TYPE_KINDS
from omnigraph.schema.ir.aliases import Aliases, Pair, pairs_of
from omnigraph.schema.ir.model import IrEdge, IrInterface, IrProperty, IrTable, IrType, SchemaIR
from omnigraph.schema.migration.constraints import key_members
from omnigraph.schema.migration.cost import is_widening
from omnigraph.values import PropType


def united_aliases(*, base: SchemaIR, source: SchemaIR, target: SchemaIR) -> Aliases:
    """Return which numbers mean the same, including what both sides have added."""
    known = [pair for schema in (base, source, target) for pair in pairs_of(schema)]
    for kind in TYPE_KINDS:
        # The ends of edges are compared by the pairs of nodes, so one kind follows the other.
        found = _Pairing(Aliases.of_pairs(known), base=base, source=source, target=target)
        for ours, theirs in found.types(kind):
            known += _type_pairs(ours, theirs)
        found = _Pairing(Aliases.of_pairs(known), base=base, source=source, target=target)
        for ours, theirs in found.shared_types(kind):
            known += found.properties(ours, theirs)
    return Aliases.of_pairs(known)


def _type_pairs(ours: IrType, theirs: IrType) -> Iterator[Pair]:
    yield ours.type_id, theirs.type_id
    if not isinstance(ours, IrInterface) and not isinstance(theirs, IrInterface):
        yield ours.table_incarnation_id, theirs.table_incarnation_id


@dataclass(frozen=True)
class _Pairing:
    """Compares the target ("ours") with the source ("theirs")."""

    aliases: Aliases
    base: SchemaIR
    source: SchemaIR
    target: SchemaIR

    def types(self, kind: str) -> Iterator[tuple[IrType, IrType]]:
        """Yield the types that both sides have added, where they can be one."""
        base, ours, theirs = (
            self._types(schema, kind) for schema in (self.base, self.target, self.source)
        )
        new = {t.name: t for n, t in theirs.items() if n not in base and n not in ours}
        for number, found in ours.items():
            other = new.get(found.name)
            if number in base or number in theirs or other is None:
                continue
            if self._can_be_one(found, other):
                yield found, other

    def shared_types(self, kind: str) -> Iterator[tuple[IrType, IrType]]:
        """Yield the types that both sides have."""
        ours, theirs = self._types(self.target, kind), self._types(self.source, kind)
        yield from ((found, theirs[number]) for number, found in ours.items() if number in theirs)

    def properties(self, ours: IrType, theirs: IrType) -> Iterator[Pair]:
        """Yield the properties of one type that both sides have added."""
        base = self._base_types.get(self.aliases.canonical(ours.type_id))
        known = self._properties(base) if base else {}
        own, others = self._properties(ours), self._properties(theirs)
        new = {p.name: p for n, p in others.items() if n not in known and n not in own}
        for number, prop in own.items():
            other = new.get(prop.name)
            if number in known or number in others or other is None:
                continue
            if not _has_one_fill(prop, other, is_in_base=base is not None):
                continue  # Rows from before the property hold another value on each branch.
            if is_convertible(prop.prop_type, other.prop_type):
                yield prop.property_id, other.property_id

    @cached_property
    def _base_types(self) -> dict[int, IrType]:
        return {self.aliases.canonical(each.type_id): each for each in self.base.types()}

    def _types(self, schema: SchemaIR, kind: str) -> dict[int, IrType]:
        return {self.aliases.canonical(t.type_id): t for t in schema.types() if t.kind == kind}

    def _properties(self, declared: IrType) -> Mapping[int, IrProperty]:
        return {self.aliases.canonical(p.property_id): p for p in declared.properties}

    def _can_be_one(self, ours: IrType, theirs: IrType) -> bool:
        if isinstance(ours, IrInterface) or isinstance(theirs, IrInterface):
            return True
        return self._ends(ours) == self._ends(theirs) and _key(ours) == _key(theirs)

    def _ends(self, found: IrTable) -> tuple[int, ...]:
        if not isinstance(found, IrEdge):
            return ()
        return tuple(
            self.aliases.canonical(end.type_id) for end in (found.from_type, found.to_type)
        )


def _key(found: IrTable) -> tuple[bool, list[tuple[str, PropType]]]:
    """Return whether ids spell a key, and its properties in the order in which they are spelled."""
    members = key_members(found)
    ordered = sorted(found.properties, key=lambda prop: prop.property_id)
    return bool(members), [(p.name, p.prop_type) for p in ordered if p.property_id in members]


def _has_one_fill(one: IrProperty, other: IrProperty, *, is_in_base: bool) -> bool:
    """Whether what both applies wrote into stored rows can be told by one value.

    A required property of a type that is new itself may have been declared with it; then no row of
    that branch was ever without it.
    """
    if one.filled == other.filled:
        return True
    is_required = not (one.prop_type.nullable or other.prop_type.nullable)
    return not is_in_base and is_required and None in (one.filled, other.filled)


def is_convertible(one: PropType, other: PropType) -> bool:
    """Whether values of the types are of one kind, so that each can become the other if it fits."""
    if (one.scalar, one.is_list, one.dimension) == (other.scalar, other.is_list, other.dimension):
        return True
    return is_widening(one, other) or is_widening(other, one)
