"""The shape of a schema: its checked, canonical meaning without identities.

Two texts that differ only in comments, order or rename hints have equal shapes. Types, properties,
enum values and the members of key, unique and index lists are sorted by name and free of
duplicates; constraints are sorted by kind, then members; annotations by their JSON.

The JSON form of a shape, from which its hash is taken, consists of the fields that compare.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, NamedTuple

from omnigraph.dataclass import dataclass
from omnigraph.records import Json, JsonObject, Stored, member, to_json
from omnigraph.schema.catalog import Annotation, Cardinality, EmbedSource, Number
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


def read_bound(at: Stored) -> Bound:
    """Take the end of a range."""
    is_float = isinstance(at.value, dict) and "Float" in at.value
    kind: Literal["Integer", "Float"] = "Float" if is_float else "Integer"
    number = at.members(kind)[kind]
    # The values are those of a JSON reader: true and false are the only integers of another type.
    if type(number.value) is not (float if is_float else int):
        raise number.fail("a float" if is_float else "an integer")
    return Bound(kind, number.value)


@to_json.register(Bound)
def _bound_json(bound: Bound) -> JsonObject:
    return {bound.kind: bound.value}


def constraint_json(
    kind: RuleKind,
    members: list[Json],
    *,
    low: Bound | None = None,
    high: Bound | None = None,
    pattern: str | None = None,
) -> JsonObject:
    """Spell a constraint, whatever its members look like."""
    if kind == "range":
        return {"kind": kind, "field": members[0], "min": to_json(low), "max": to_json(high)}
    if kind == "check":
        return {"kind": kind, "field": members[0], "pattern": pattern}
    return {"kind": kind, "fields": members}


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


@to_json.register(ShapeConstraint)
def _constraint_json(rule: ShapeConstraint) -> JsonObject:
    low, high = Bound.of(rule.min), Bound.of(rule.max)
    return constraint_json(rule.kind, [*rule.fields], low=low, high=high, pattern=rule.pattern)


class ShapePropertyRef(NamedTuple):
    """A property of an interface."""

    owner_type_name: str
    property_name: str


@to_json.register(ShapePropertyRef)
def _property_ref_json(ref: ShapePropertyRef) -> JsonObject:
    return {**ref._asdict()}


@dataclass(frozen=True)
class ShapeProperty:
    """An effective property of a type.

    `property_constraints` holds the annotation forms (`key`, `unique`, `index`), sorted.
    `annotations` holds every other annotation except `rename_from` and `embed`. `satisfies` lists
    the interface properties that this one fulfils, sorted;
    `declared_directly` is false where an interface injected it. `rename_from` is a hint for
    planning, not part of the meaning.
    """

    name: str
    prop_type: PropType
    annotations: tuple[Annotation, ...] = ()
    property_constraints: tuple[RuleKind, ...] = ()
    embed: EmbedSource | None = field(default=None, metadata=member("embed_source"))
    declared_directly: bool = True
    satisfies: tuple[ShapePropertyRef, ...] = field(
        default=(), metadata=member("satisfies_interface_properties")
    )
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
