"""Recovers the shape of a schema, which has no identities, from its IR."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.schema.ir.model import IrProperty, SchemaIR
from omnigraph.schema.language.shape import (
    SchemaShape,
    ShapeEdge,
    ShapeInterface,
    ShapeNode,
    ShapeProperty,
    ShapePropertyRef,
)


def shape_of(ir: SchemaIR) -> SchemaShape:
    """Forget the numbers of a compiled schema."""
    return SchemaShape(
        interfaces=tuple(ShapeInterface(t.name, _shapes(t.properties)) for t in ir.interfaces),
        nodes=tuple(
            ShapeNode(
                name=t.name,
                annotations=t.annotations,
                implements=tuple(sorted(ref.type_name for ref in t.implements)),
                properties=_shapes(t.properties),
                constraints=tuple(c.by_name for c in t.constraints),
            )
            for t in ir.nodes
        ),
        edges=tuple(
            ShapeEdge(
                name=t.name,
                from_type=t.from_type.type_name,
                to_type=t.to_type.type_name,
                cardinality=t.cardinality,
                annotations=t.annotations,
                properties=_shapes(t.properties),
                constraints=tuple(c.by_name for c in t.constraints),
            )
            for t in ir.edges
        ),
    )


def _shapes(properties: Iterable[IrProperty]) -> tuple[ShapeProperty, ...]:
    return tuple(_shape_property(p) for p in properties)


def _shape_property(prop: IrProperty) -> ShapeProperty:
    return ShapeProperty(
        name=prop.name,
        prop_type=prop.prop_type,
        annotations=prop.annotations,
        property_constraints=prop.property_constraints,
        embed=prop.embed_source.by_name if prop.embed_source else None,
        declared_directly=prop.declared_directly,
        satisfies=tuple(
            sorted(
                ShapePropertyRef(ref.owner_type_name, ref.property_name)
                for ref in prop.satisfies_interface_properties
            )
        ),
    )
