"""Gives the numbers of both sides to the declarations of a merged schema.

A thing that the target has keeps the target's number, everything else the source's. What an
interface injects into a node has the number that a side gave to it there; where no side has it, it
gets a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from omnigraph.schema.ir.build import Numbers, TypeKey, build_ir
from omnigraph.schema.ir.identity import number_the_rest
from omnigraph.schema.ir.model import Filled, IrInterface, IrProperty, IrType, SchemaIR
from omnigraph.schema.language.shape import (
    SchemaShape,
    ShapeEdge,
    ShapeInterface,
    ShapeNode,
    ShapeProperty,
)
from omnigraph.schema.merge.facts import Declared, Fact, Identity, PropertyIdentity, TypeFact
from omnigraph.schema.merge.unite import Sides
from omnigraph.schema.merge.wanted import Names


def numbered(
    shape: SchemaShape,
    facts: Mapping[Identity, Fact],
    sides: Sides,
    free: Iterator[int],
) -> SchemaIR:
    """Compile a merged shape under the numbers of its parts."""
    return _Numbering(shape, facts, sides).build(free)


@dataclass(frozen=True)
class _Numbering:
    shape: SchemaShape
    facts: Mapping[Identity, Fact]
    sides: Sides

    def build(self, free: Iterator[int]) -> SchemaIR:
        numbers = Numbers()
        for key, declared in self._declared():
            number = self._types[key]
            found = self._side_with_type(number).types[number]
            numbers.types[key] = found.type_id
            numbers.also[found.type_id] = self._also_of_type(number, found)
            if not isinstance(found, IrInterface):
                numbers.incarnations[key] = found.table_incarnation_id
            for prop in declared.properties:
                self._number_property(numbers, key, number, prop)
        highest = number_the_rest(self.shape, numbers, free)
        schemas = [each.ir for each in self._all]
        return build_ir(
            self.shape,
            numbers,
            domain=self.sides.target.ir.schema_identity_domain,
            next_identity_id=max([highest + 1, *(ir.next_identity_id for ir in schemas)]),
        )

    def _number_property(
        self, numbers: Numbers, key: TypeKey, type_id: int, prop: ShapeProperty
    ) -> None:
        number = self._members[type_id].get(prop.name)
        if number is None:
            number = self._injected(type_id, prop)
        if number is None:
            return
        kept = self._kept_property(number)
        numbers.properties[key, prop.name] = kept.property_id
        numbers.also[kept.property_id] = self._also_of_property(number, kept)
        described = self._described_property(type_id, number) or kept
        filled = described.filled
        if filled is None and not prop.prop_type.nullable:
            # One branch has declared it together with its type, another has added it later.
            filled = next(self._fills_of(number), None)
        if filled is not None:
            numbers.filled[kept.property_id] = filled

    # -- finding the parts -----------------------------------------------------------------------

    def _declared(self) -> Iterator[tuple[TypeKey, ShapeInterface | ShapeNode | ShapeEdge]]:
        yield from ((TypeKey("interface", each.name), each) for each in self.shape.interfaces)
        yield from ((TypeKey("node", each.name), each) for each in self.shape.nodes)
        yield from ((TypeKey("edge", each.name), each) for each in self.shape.edges)

    @property
    def _all(self) -> tuple[Declared, ...]:
        return self.sides.target, self.sides.source, self.sides.base

    @cached_property
    def _types(self) -> dict[TypeKey, int]:
        return {
            TypeKey(fact.kind, fact.name): identity.type_id
            for identity, fact in self.facts.items()
            if isinstance(fact, TypeFact)
        }

    @cached_property
    def _members(self) -> dict[int, dict[str, int]]:
        """The numbers of all known properties, by type and merged name."""
        names = Names(self.facts)
        found: dict[int, dict[str, int]] = {number: {} for number in self._types.values()}
        for each in self.facts:
            if isinstance(each, PropertyIdentity):
                name = names.of_member(each.type_id, each.property_id)
                if name is not None:
                    found[each.type_id][name] = each.property_id
        return found

    def _injected(self, type_id: int, prop: ShapeProperty) -> int | None:
        """Find what a side calls the property that an interface gives to this node.

        A property that the merged node has under another name is another one: its interface has
        renamed what it offers, and the node has not.
        """
        known = {*self._members[type_id].values()}
        offers = {
            PropertyIdentity(interface, self._members[interface][name])
            for interface, name in (
                (self._types[TypeKey("interface", ref.owner_type_name)], ref.property_name)
                for ref in prop.satisfies
            )
        }
        for side in (self.sides.target, self.sides.source):
            declared = side.types.get(type_id)
            for found in declared.properties if declared else ():
                number = side.aliases.canonical(found.property_id)
                if number not in known and offers & {*side.offers_of(found)}:
                    return number
        return None

    def _side_with_type(self, number: int) -> Declared:
        return next(side for side in self._all if number in side.types)

    def _kept_property(self, number: int) -> IrProperty:
        """Return the property whose number stays: the target's, else the source's."""
        return next(side.properties[number][1] for side in self._all if number in side.properties)

    def _described_property(self, type_id: int, number: int) -> IrProperty | None:
        """Return the property of the side whose definition was taken, if it is the source's."""
        identity = PropertyIdentity(type_id, number)
        source, target = self.sides.source, self.sides.target
        fact = self.facts.get(identity)
        is_source = fact == source.facts.get(identity) != target.facts.get(identity)
        return source.properties[number][1] if is_source and number in source.properties else None

    def _fills_of(self, number: int) -> Iterator[Filled]:
        """Yield what applies have written into stored rows for a property."""
        found = (side.properties[number][1] for side in self._all if number in side.properties)
        yield from (prop.filled for prop in found if prop.filled is not None)

    # -- numbers of other branches ---------------------------------------------------------------

    def _also_of_property(self, number: int, kept: IrProperty) -> tuple[int, ...]:
        found = [side.properties[number][1] for side in self._all if number in side.properties]
        known = {each for prop in found for each in (prop.property_id, *prop.also)}
        return tuple(sorted(known - {kept.property_id}))

    def _also_of_type(self, number: int, kept: IrType) -> tuple[int, ...]:
        found = [side.types[number] for side in self._all if number in side.types]
        known = {pair for each in found for pair in _lives(each)}
        others = sorted(pair for pair in known if pair[0] != kept.type_id)
        return tuple(each for pair in others for each in pair)


def _lives(found: IrType) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of a type, with that of its table, here and on other branches."""
    if isinstance(found, IrInterface):
        yield from ((each,) for each in (found.type_id, *found.also))
        return
    yield found.type_id, found.table_incarnation_id
    yield from zip(found.also[::2], found.also[1::2], strict=True)
