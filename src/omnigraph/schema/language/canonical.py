"""The canonical form: one spelling for all texts that mean the same.

Sorts what a checked schema leaves unordered, and spells the shape for the shape hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.schema.json_form import (
    Json,
    JsonObject,
    annotations_json,
    cardinality_json,
    digest,
    prop_type_json,
    sorted_annotations,
)
from omnigraph.schema.language.shape import (
    Bound,
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


def _name(declared: ShapeInterface | ShapeNode | ShapeEdge | ShapeProperty) -> str:
    return declared.name


def _interface(interface: ShapeInterface) -> JsonObject:
    return {"name": interface.name, "properties": _properties(interface.properties)}


def _node(node: ShapeNode) -> JsonObject:
    return {
        "name": node.name,
        "annotations": annotations_json(sorted_annotations(node.annotations)),
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
        "annotations": annotations_json(sorted_annotations(edge.annotations)),
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
        "annotations": annotations_json(sorted_annotations(prop.annotations)),
        "property_constraints": [*sorted(set(prop.property_constraints))],
        "embed_source": embed,
        "declared_directly": prop.declared_directly,
        "satisfies_interface_properties": [
            {"owner_type_name": type_name, "property_name": name}
            for type_name, name in sorted(set(prop.satisfies))
        ],
    }


def _constraints(constraints: Iterable[ShapeConstraint]) -> list[Json]:
    return [_constraint(c) for c in canonical_constraints(constraints)]


def canonical_constraints(constraints: Iterable[ShapeConstraint]) -> list[ShapeConstraint]:
    """Sort constraints by kind, then members; sort the members; drop what is repeated."""
    sorted_members = [replace(c, fields=tuple(sorted(set(c.fields)))) for c in constraints]
    # Keyed by spelling, not by value: bounds 1 and 1.0 are equal numbers and different bounds.
    distinct = {_constraint_order(c): c for c in sorted_members}
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
