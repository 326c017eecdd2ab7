"""The shape of a schema: its checked, canonical meaning without identities.

Two texts that differ only in comments, order or rename hints have equal shapes. Types, properties,
enum values and the members of key, unique and index lists are sorted by name and free of
duplicates; constraints are sorted by kind, then members.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from omnigraph.schema.catalog import Annotation, Cardinality, EmbedSource, Number
from omnigraph.schema.json_form import JsonObject
from omnigraph.schema.language.tree import RuleKind
from omnigraph.syntax import Span
from omnigraph.values import PropType


@dataclass(frozen=True)
class Bound:
    """One end of a range. `1` and `1.0` are different bounds, as they are spelled differently."""

    kind: Literal["Integer", "Float"]
    value: Number

    @classmethod
    def of(cls, value: Number | None) -> Bound | None:
        """Wrap a number; an open end stays `None`."""
        if value is None:
            return None
        if isinstance(value, int):
            return cls("Integer", value)
        # Adding zero turns -0.0 into 0.0, which would compare equal and hash differently.
        return cls("Float", value + 0.0)

    def to_json(self) -> JsonObject:
        """Spell the bound."""
        return {self.kind: self.value}


@dataclass(frozen=True, order=True)
class ShapeConstraint:
    """A rule of a body, or of an annotation that stands for one.

    `key`, `unique` and `index` use `fields`, which may name `src` and `dst` on an edge; `range` and
    `check` have exactly one.
    """

    kind: RuleKind
    fields: tuple[str, ...]
    min: Number | None = None
    max: Number | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class ShapeProperty:
    """An effective property of a type.

    `property_constraints` holds the annotation forms (`key`, `unique`, `index`), sorted.
    `annotations` holds every other annotation except `rename_from` and `embed`. `satisfies` lists
    the interface properties that this one fulfils as (interface, property) pairs, sorted;
    `declared_directly` is false where an interface injected it. `rename_from` is a hint for
    planning, not part of the meaning.
    """

    name: str
    prop_type: PropType
    annotations: tuple[Annotation, ...] = ()
    property_constraints: tuple[RuleKind, ...] = ()
    embed: EmbedSource | None = None
    declared_directly: bool = True
    satisfies: tuple[tuple[str, str], ...] = ()
    rename_from: str | None = field(default=None, compare=False)
    span: Span = field(default=Span(0, 0), compare=False)


@dataclass(frozen=True)
class ShapeInterface:
    """An interface; its properties are all declared directly."""

    name: str
    properties: tuple[ShapeProperty, ...]
    span: Span = field(default=Span(0, 0), compare=False)


@dataclass(frozen=True)
class ShapeNode:
    """A node type. `constraints` holds the rule forms only."""

    name: str
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...]
    properties: tuple[ShapeProperty, ...]
    constraints: tuple[ShapeConstraint, ...]
    rename_from: str | None = field(default=None, compare=False)
    span: Span = field(default=Span(0, 0), compare=False)


@dataclass(frozen=True)
class ShapeEdge:
    """An edge type. `constraints` holds the rule forms only."""

    name: str
    from_type: str
    to_type: str
    cardinality: Cardinality
    annotations: tuple[Annotation, ...]
    properties: tuple[ShapeProperty, ...]
    constraints: tuple[ShapeConstraint, ...]
    rename_from: str | None = field(default=None, compare=False)
    span: Span = field(default=Span(0, 0), compare=False)


@dataclass(frozen=True)
class SchemaShape:
    """All types of a schema, each kind sorted by name."""

    interfaces: tuple[ShapeInterface, ...] = ()
    nodes: tuple[ShapeNode, ...] = ()
    edges: tuple[ShapeEdge, ...] = ()
