"""The tree of a `.pg` text: what was written, in the order in which it was written.

Two trees are equal when they say the same; places in the text do not count.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from omnigraph.dataclass import dataclass
from omnigraph.syntax import SourceText, Span
from omnigraph.values import PropType

RuleKind = Literal["key", "unique", "index", "range", "check"]
Number = int | float


@dataclass(frozen=True)
class AnnotationDecl:
    """`@name(value, key=value, …)`; all values are strings already.

    `span` covers `@name`; `kwarg_spans` covers the names of the keywords.
    """

    name: str
    value: str | None
    kwargs: tuple[tuple[str, str], ...]
    span: Span = field(compare=False)
    value_span: Span | None = field(default=None, compare=False)
    kwarg_spans: tuple[Span, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class RuleDecl:
    """A rule of a body. `key`, `unique`, `index` use `fields`; the others have one field.

    `span` covers `@kind`, `value_span` the pattern of a check.
    """

    kind: RuleKind
    fields: tuple[str, ...]
    span: Span = field(compare=False)
    field_spans: tuple[Span, ...] = field(compare=False)
    min: Number | None = None
    max: Number | None = None
    pattern: str | None = None
    value_span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class PropertyDecl:
    """`name: type @annotation …`. `span` covers the name; enum values are sorted."""

    name: str
    prop_type: PropType
    annotations: tuple[AnnotationDecl, ...]
    span: Span = field(compare=False)
    type_span: Span = field(compare=False)


@dataclass(frozen=True)
class TypeRef:
    """The name of another type, and where it was written."""

    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True)
class InterfaceDecl:
    """`interface Name { … }`. `span` covers the name."""

    name: str
    properties: tuple[PropertyDecl, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class NodeDecl:
    """`node Name @annotation … implements A, B { … }`. `span` covers the name."""

    name: str
    annotations: tuple[AnnotationDecl, ...]
    implements: tuple[TypeRef, ...]
    properties: tuple[PropertyDecl, ...]
    rules: tuple[RuleDecl, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class EdgeDecl:
    """`edge Name: From -> To @card(min..max) @annotation … { … }`. `span` covers the name."""

    name: str
    from_type: TypeRef
    to_type: TypeRef
    cardinality: tuple[int, int | None] | None
    annotations: tuple[AnnotationDecl, ...]
    properties: tuple[PropertyDecl, ...]
    rules: tuple[RuleDecl, ...]
    span: Span = field(compare=False)


Declaration = InterfaceDecl | NodeDecl | EdgeDecl


@dataclass(frozen=True)
class SchemaTree:
    """All declarations of one text, in order."""

    source: SourceText = field(compare=False)
    declarations: tuple[Declaration, ...]
