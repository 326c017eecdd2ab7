"""The tree of a filter text: what was written, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOfWords

from omnigraph.query.language.tree import Comparator
from omnigraph.syntax import Span

LiteralKind = OneOfWords["text", "integer", "float", "boolean", "null", "date", "timestamp"]


@dataclass(frozen=True)
class Column:
    """A column by name."""

    name: str
    span: Span


@dataclass(frozen=True)
class Literal:
    """A value; `value` of dates and timestamps is their text."""

    kind: LiteralKind
    value: str | int | float | bool | None
    span: Span


@dataclass(frozen=True)
class Comparison:
    """`column operator literal`; `is_null_safe` stands for the operator `<=>`."""

    column: Column
    operator: Comparator
    literal: Literal
    span: Span
    is_null_safe: bool = False


@dataclass(frozen=True)
class OneOf:
    """`column [NOT] IN (…)`."""

    column: Column
    literals: tuple[Literal, ...]
    negated: bool


@dataclass(frozen=True)
class Between:
    """`column [NOT] BETWEEN low AND high`."""

    column: Column
    low: Literal
    high: Literal
    negated: bool


@dataclass(frozen=True)
class Like:
    """`column [NOT] LIKE 'pattern'`."""

    column: Column
    pattern: Literal
    negated: bool


@dataclass(frozen=True)
class NullTest:
    """`column IS [NOT] NULL`."""

    column: Column
    negated: bool


@dataclass(frozen=True)
class Truth:
    """A boolean column by itself."""

    column: Column


@dataclass(frozen=True)
class AllOf:
    """Parts joined by `AND`."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class AnyOf:
    """Parts joined by `OR`."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Negation:
    """`NOT part`."""

    part: Node


Node = Comparison | OneOf | Between | Like | NullTest | Truth | AllOf | AnyOf | Negation
