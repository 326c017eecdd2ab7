"""A compiled schema under the numbers that stand for all others."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.dataclass import dataclass
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.ir.model import (
    IrConstraint,
    IrEdge,
    IrField,
    IrInterface,
    IrNode,
    IrProperty,
    IrPropertyRef,
    IrTypeRef,
    SchemaIR,
)


def renumbered(ir: SchemaIR, aliases: Aliases) -> SchemaIR:
    """Replace each number by its canonical one and leave out `also`.

    The result is for comparisons: two schemas of one graph that mean the same have equal numbers.
    """
    numbers = _Renumbering(aliases)
    return replace(
        ir,
        interfaces=tuple(numbers.interface(each) for each in ir.interfaces),
        nodes=tuple(numbers.node(each) for each in ir.nodes),
        edges=tuple(numbers.edge(each) for each in ir.edges),
    )


@dataclass(frozen=True)
class _Renumbering:
    aliases: Aliases

    def interface(self, found: IrInterface) -> IrInterface:
        number = self.aliases.canonical(found.type_id)
        return replace(found, type_id=number, properties=self._properties(found), also=())

    def node(self, found: IrNode) -> IrNode:
        return replace(
            found,
            type_id=self.aliases.canonical(found.type_id),
            table_incarnation_id=self.aliases.canonical(found.table_incarnation_id),
            implements=tuple(
                sorted(map(self._type_ref, found.implements), key=lambda ref: ref.type_id)
            ),
            properties=self._properties(found),
            constraints=tuple(map(self._constraint, found.constraints)),
            also=(),
        )

    def edge(self, found: IrEdge) -> IrEdge:
        return replace(
            found,
            type_id=self.aliases.canonical(found.type_id),
            table_incarnation_id=self.aliases.canonical(found.table_incarnation_id),
            from_type=self._type_ref(found.from_type),
            to_type=self._type_ref(found.to_type),
            properties=self._properties(found),
            constraints=tuple(map(self._constraint, found.constraints)),
            also=(),
        )

    def _properties(self, found: IrInterface | IrNode | IrEdge) -> tuple[IrProperty, ...]:
        return tuple(map(self._property, found.properties))

    def _property(self, found: IrProperty) -> IrProperty:
        embed = found.embed_source
        return replace(
            found,
            property_id=self.aliases.canonical(found.property_id),
            embed_source=embed and replace(embed, source=self._property_ref(embed.source)),
            satisfies_interface_properties=tuple(
                sorted(
                    map(self._property_ref, found.satisfies_interface_properties),
                    key=lambda ref: ref.property_id or 0,
                )
            ),
            also=(),
        )

    def _constraint(self, found: IrConstraint) -> IrConstraint:
        return replace(found, fields=tuple(map(self._field, found.fields)))

    def _field(self, found: IrField) -> IrField:
        if isinstance(found, IrPropertyRef):
            return self._property_ref(found)
        return replace(
            found,
            stable_table_id=self.aliases.canonical(found.stable_table_id),
            table_incarnation_id=self.aliases.canonical(found.table_incarnation_id),
        )

    def _type_ref(self, found: IrTypeRef) -> IrTypeRef:
        return replace(found, type_id=self.aliases.canonical(found.type_id))

    def _property_ref(self, found: IrPropertyRef) -> IrPropertyRef:
        number = found.property_id
        return replace(
            found,
            owner_type_id=self.aliases.canonical(found.owner_type_id),
            property_id=None if number is None else self.aliases.canonical(number),
        )
