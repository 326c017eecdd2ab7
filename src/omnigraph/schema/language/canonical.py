"""The canonical form: one order for all texts that mean the same, and the hash of a shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.records import to_json
from omnigraph.schema.json_form import digest
from omnigraph.schema.language.shape import Bound, SchemaShape, ShapeConstraint


def shape_hash(shape: SchemaShape) -> str:
    """Return `sha256:<hex>` of the identity-free schema.

    Texts that differ only in comments, order or rename hints have equal shape hashes. The JSON is
    that of the compiled schema, with names in place of references and no numbers.
    """
    return digest(to_json(shape))


def canonical_constraints(constraints: Iterable[ShapeConstraint]) -> list[ShapeConstraint]:
    """Sort constraints by kind, then members; sort the members; drop what is repeated."""
    sorted_members = [replace(c, fields=tuple(sorted(set(c.fields)))) for c in constraints]
    # Keyed by spelling, not by value: bounds 1 and 1.0 are equal numbers and different bounds.
    distinct = {_constraint_order(c): c for c in sorted_members}
    return [distinct[order] for order in sorted(distinct)]


def _constraint_order(constraint: ShapeConstraint) -> tuple[str, tuple[str, ...], str]:
    rest = f"{Bound.of(constraint.min)}{Bound.of(constraint.max)}{constraint.pattern}"
    return constraint.kind, constraint.fields, rest
