"""Row filters as data.

The packages above describe which rows they want with these records; only the Lance adapter turns
them into text. Values are Arrow scalars of the column's exact type wherever that matters: an index
is probed only when literal and column agree.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import pyarrow as pa

from omnigraph.dataclass import dataclass

Value: TypeAlias = str | int | float | bool | pa.Scalar
"""A literal. Plain Python values stand for string, 64-bit integer, double and boolean."""

Operator = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Comparison:
    """`column operator value`; a null never matches."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True)
class OneOf:
    """The column's value is one of these; an empty tuple matches nothing."""

    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class IsNull:
    """The column has no value."""

    column: str


@dataclass(frozen=True)
class StartsWith:
    """The column's text begins with `prefix`, letter case included."""

    column: str
    prefix: str


@dataclass(frozen=True)
class Contains:
    """The column's text has `part` somewhere, letter case included."""

    column: str
    part: str


@dataclass(frozen=True)
class AllOf:
    """Every part matches; without parts every row does."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one part matches; without parts no row does."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Negation:
    """The part does not match. SQL logic: where the part is unknown, so is this."""

    part: Filter


Filter = Comparison | OneOf | IsNull | StartsWith | Contains | AllOf | AnyOf | Negation


def filter_columns(row_filter: Filter) -> frozenset[str]:
    """Return the names of the columns that a filter uses."""
    match row_filter:
        case AllOf(parts) | AnyOf(parts):
            return frozenset().union(*(filter_columns(part) for part in parts))
        case Negation(part):
            return filter_columns(part)
        case _:
            return frozenset({row_filter.column})
