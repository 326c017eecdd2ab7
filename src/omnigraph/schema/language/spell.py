"""Annotations, rules and properties as `.pg` text."""

from __future__ import annotations

from decimal import Decimal

from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.schema.language.quote import quote
from omnigraph.schema.language.shape import ShapeConstraint
from omnigraph.schema.language.tree import Number


def annotation_text(annotation: Annotation) -> str:
    """Spell an annotation.

    >>> annotation_text(Annotation("unit", "m", (("si", "yes"),)))
    '@unit("m", si="yes")'
    """
    if annotation.value is None:
        return f"@{annotation.name}"
    arguments = [
        quote(annotation.value),
        *(f"{name}={quote(text)}" for name, text in annotation.kwargs),
    ]
    return f"@{annotation.name}({', '.join(arguments)})"


def rule_text(rule: ShapeConstraint) -> str:
    """Spell a rule of a body.

    >>> rule_text(ShapeConstraint("range", ("depth",), min=-50.0, max=4000))
    '@range(depth, -50.0..4000)'
    """
    if rule.kind == "range":
        return f"@range({rule.fields[0]}, {number_text(rule.min)}..{number_text(rule.max)})"
    if rule.kind == "check":
        return f"@check({rule.fields[0]}, {quote(rule.pattern or '')})"
    return f"@{rule.kind}({', '.join(rule.fields)})"


def number_text(number: Number | None) -> str:
    """Spell the end of a range; the language has no exponents, and an open end has no text.

    >>> number_text(1e21)
    '1000000000000000000000.0'
    """
    if number is None:
        return ""
    if isinstance(number, int):
        return str(number)
    digits = format(Decimal(repr(number)), "f")
    return digits if "." in digits else f"{digits}.0"


def cardinality_text(cardinality: Cardinality) -> str:
    """Spell the bounds of an edge type.

    >>> cardinality_text(Cardinality(0, 3))
    '@card(0..3)'
    """
    high = "" if cardinality.max is None else cardinality.max
    return f"@card({cardinality.min}..{high})"
