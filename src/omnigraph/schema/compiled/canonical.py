"""The canonical form: one spelling for all texts that mean the same.

Sorts what a checked schema leaves unordered, spells the shape without identities for the shape
hash, and recovers the shape from a compiled schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.schema.catalog import EmbedSource
from omnigraph.schema.compiled.ir import Bound, IrConstraint, IrProperty, SchemaIR
from omnigraph.schema.compiled.jsonform import (
    Json,
    JsonObject,
    cardinality_json,
    digest,
    notes_json,
    prop_type_json,
    sorted_notes,
)
from omnigraph.schema.language.shape import (
    SchemaShape,
    ShapeConstraint,
    ShapeEdge,
    ShapeInterface,
    ShapeNode,
    ShapeProperty,
)


def shape_hash(shape: SchemaShape) -> str:
    """Return `sha256:<hex>` of the identity-free schema.

    Texts that differ only in comments, order or rename hints have equal shape hashes.
    """
    return digest(shape_json(shape))


def shape_json(shape: SchemaShape) -> JsonObject:
    """Spell a shape like the compiled schema, with names in place of references and no numbers."""
    return {
        "interfaces": [_interface(t) for t in sorted(shape.interfaces, key=_name)],
        "nodes": [_node(t) for t in sorted(shape.nodes, key=_name)],
        "edges": [_edge(t) for t in sorted(shape.edges, key=_name)],
    }


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
                constraints=tuple(_shape_constraint(c) for c in t.constraints),
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
                constraints=tuple(_shape_constraint(c) for c in t.constraints),
            )
            for t in ir.edges
        ),
    )


def _name(declared: ShapeInterface | ShapeNode | ShapeEdge | ShapeProperty) -> str:
    return declared.name


def _interface(interface: ShapeInterface) -> JsonObject:
    return {"name": interface.name, "properties": _properties(interface.properties)}


def _node(node: ShapeNode) -> JsonObject:
    return {
        "name": node.name,
        "annotations": notes_json(sorted_notes(node.annotations)),
        "implements": [*sorted(set(node.implements))],
        "properties": _properties(node.properties),
        "constraints": _constraints(node.constraints),
    }


def _edge(edge: ShapeEdge) -> JsonObject:
    return {
        "name": edge.name,
        "from_type": edge.from_type,
        "to_type": edge.to_type,
        "cardinality": cardinality_json(edge.cardinality),
        "annotations": notes_json(sorted_notes(edge.annotations)),
        "properties": _properties(edge.properties),
        "constraints": _constraints(edge.constraints),
    }


def _properties(properties: Iterable[ShapeProperty]) -> list[Json]:
    return [_property(p) for p in sorted(properties, key=_name)]


def _property(prop: ShapeProperty) -> JsonObject:
    embed: JsonObject | None = None
    if prop.embed is not None:
        embed = {"source": prop.embed.source, "model": prop.embed.model}
    return {
        "name": prop.name,
        "prop_type": prop_type_json(prop.prop_type),
        "annotations": notes_json(sorted_notes(prop.annotations)),
        "property_constraints": [*sorted(set(prop.property_constraints))],
        "embed_source": embed,
        "declared_directly": prop.declared_directly,
        "satisfies_interface_properties": [
            {"owner_type_name": owner, "property_name": name}
            for owner, name in sorted(set(prop.satisfies))
        ],
    }


def _constraints(constraints: Iterable[ShapeConstraint]) -> list[Json]:
    return [_constraint(c) for c in canonical_constraints(constraints)]


def canonical_constraints(constraints: Iterable[ShapeConstraint]) -> list[ShapeConstraint]:
    """Sort constraints by kind, then members; sort the members; drop what is repeated."""
    compact_manifest = [replace(c, fields=tuple(sorted(set(c.fields)))) for c in constraints]
    # Keyed by spelling, not by value: bounds 1 and 1.0 are equal numbers and different bounds.
    distinct = {_constraint_order(c): c for c in compact_manifest}
    return [distinct[order] for order in sorted(distinct)]


def _constraint_order(constraint: ShapeConstraint) -> tuple[str, tuple[str, ...], str]:
    rest = f"{Bound.of(constraint.min)}{Bound.of(constraint.max)}{constraint.pattern}"
    return constraint.kind, constraint.fields, rest


def _constraint(constraint: ShapeConstraint) -> JsonObject:
    if constraint.kind == "range":
        low, high = Bound.of(constraint.min), Bound.of(constraint.max)
        return {
            "kind": constraint.kind,
            "field": constraint.fields[0],
            "min": low.to_json() if low else None,
            "max": high.to_json() if high else None,
        }
    if constraint.kind == "check":
        return {
            "kind": constraint.kind,
            "field": constraint.fields[0],
            "pattern": constraint.pattern,
        }
    return {"kind": constraint.kind, "fields": [*constraint.fields]}


def _shapes(properties: Iterable[IrProperty]) -> tuple[ShapeProperty, ...]:
    return tuple(_shape_property(p) for p in properties)


def _shape_property(prop: IrProperty) -> ShapeProperty:
    embed = prop.embed_source
    return ShapeProperty(
        name=prop.name,
        prop_type=prop.prop_type,
        annotations=prop.annotations,
        property_constraints=prop.property_constraints,
        embed=EmbedSource(embed.source.property_name, embed.model) if embed else None,
        declared_directly=prop.declared_directly,
        satisfies=tuple(
            sorted(
                (ref.owner_type_name, ref.property_name)
                for ref in prop.satisfies_interface_properties
            )
        ),
    )


def _shape_constraint(constraint: IrConstraint) -> ShapeConstraint:
    return ShapeConstraint(
        kind=constraint.kind,
        fields=tuple(field.name for field in constraint.fields),
        min=constraint.min.value if constraint.min else None,
        max=constraint.max.value if constraint.max else None,
        pattern=constraint.pattern,
    )
