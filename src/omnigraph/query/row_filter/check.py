"""Checks a filter against one type and turns it into a predicate of a plan.

Every literal gets the exact type of its column where that does not change its value, so that
storage can answer from an index. What is true of a predicate is said once, in
`omnigraph.query.plan.plan`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final
from typing import Literal as OneOfWords

from omnigraph.names import nearest_name
from omnigraph.query.check.cast import choices_cast_to, constant_cast_to
from omnigraph.query.date_literals import parse_date, parse_datetime
from omnigraph.query.language.tree import Comparator
from omnigraph.query.plan.plan import (
    ID_TYPE,
    MIRRORED,
    AllOf,
    AnyOf,
    Compare,
    Constant,
    ConstantValue,
    EndpointValue,
    EntityId,
    InList,
    IsNull,
    Not,
    Predicate,
    Prefix,
    PropertyValue,
    Substring,
)
from omnigraph.query.row_filter import codes
from omnigraph.query.row_filter.parse import parse_row_filter
from omnigraph.schema.catalog import EdgeType, EntityType
from omnigraph.syntax import Diagnostic, Phase, SourceError, SourceText, Span
from omnigraph.syntax.grammar import Token, TreeWalker, span_of
from omnigraph.values import PropType, Scalar

_I64_MAX: Final = 2**63 - 1
_I64_MIN: Final = -(2**63)
_U64_MAX: Final = 2**64 - 1
_DAY_MS: Final = 86_400_000
_NOTHING: Final = AnyOf(())
_LISTED_MAX: Final = 12
_DIGITS_MAX: Final = 400

Stored = PropertyValue | EntityId | EndpointValue


def compile_row_filter(text: str, entity_type: EntityType) -> Predicate:
    """Return the predicate of a filter over the columns of a type.

    Raises `SourceError` with everything that is wrong in the text.

    >>> from omnigraph.schema import compile_schema
    >>> schema = compile_schema("node Ship { hull: String @key }", domain="01J" + "0" * 23)
    >>> compile_row_filter("hull >= 'N'", schema.catalog.node_types["Ship"]).operator
    '>='
    """
    source = SourceText(text, "<filter>")
    check = _Check(entity_type, source)
    predicate = check.transform(parse_row_filter(source))
    if check.problems:
        raise SourceError(check.problems)
    return predicate


_OPERATORS: Final[dict[str, Comparator]] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}

LiteralKind = OneOfWords["text", "integer", "float", "boolean", "null", "date", "timestamp"]


@dataclass(frozen=True)
class _Column:
    """A column by name."""

    name: str
    span: Span


@dataclass(frozen=True)
class _Literal:
    """A value; `value` of dates and timestamps is their text."""

    kind: LiteralKind
    value: str | int | float | bool | None
    span: Span


class _Check(TreeWalker[Token, Predicate]):
    """Builds the predicate, one method per rule of the grammar.

    Problems are collected, and the predicate is used if there are none.
    """

    def __init__(self, entity_type: EntityType, source: SourceText) -> None:
        super().__init__()
        self.problems: list[Diagnostic] = []
        self._entity_type = entity_type
        self._source = source

    # -- rules of the grammar ---------------------------------------------------------------------

    def any_of(self, parts: list[Any]) -> Predicate:
        return AnyOf(_predicates(parts))

    def all_of(self, parts: list[Any]) -> Predicate:
        return AllOf(_predicates(parts))

    def negated(self, parts: list[Any]) -> Predicate:
        return Not(parts[-1])

    def comparison(self, parts: list[Any]) -> Predicate:
        column, operator, literal = parts
        return self._comparison(column, operator, literal, is_mirrored=False)

    def mirrored(self, parts: list[Any]) -> Predicate:
        literal, operator, column = parts
        return self._comparison(column, operator, literal, is_mirrored=True)

    def one_of(self, parts: list[Any]) -> Predicate:
        literals = [part for part in parts if isinstance(part, _Literal)]
        return self._one_of(parts[0], literals, negated=_is_negated(parts))

    def between(self, parts: list[Any]) -> Predicate:
        low, high = (part for part in parts if isinstance(part, _Literal))
        both = AllOf((self._compare(parts[0], ">=", low), self._compare(parts[0], "<=", high)))
        return Not(both) if _is_negated(parts) else both

    def like(self, parts: list[Any]) -> Predicate:
        found = self._like(parts[0], parts[-1])
        return Not(found) if _is_negated(parts) else found

    def null_test(self, parts: list[Any]) -> Predicate:
        stored = self._stored(parts[0])
        return _NOTHING if stored is None else IsNull(stored, _is_negated(parts))

    def truth(self, parts: list[Any]) -> Predicate:
        return self._compare(parts[0], "=", _Literal("boolean", True, parts[0].span))

    def column(self, parts: list[Any]) -> _Column:
        token: Token = parts[0]
        name = token[1:-1].replace("``", "`") if token.type == "QUOTED_NAME" else str(token)
        return _Column(name, span_of(token))

    def text(self, parts: list[Any]) -> _Literal:
        return _Literal("text", _unquoted(parts[0]), span_of(parts[0]))

    def integer(self, parts: list[Any]) -> _Literal:
        return _Literal("integer", _integer(parts[0]), span_of(parts[0]))

    def float(self, parts: list[Any]) -> _Literal:
        return _Literal("float", float(parts[0]), span_of(parts[0]))

    def true(self, parts: list[Any]) -> _Literal:
        return _Literal("boolean", True, span_of(parts[0]))

    def false(self, parts: list[Any]) -> _Literal:
        return _Literal("boolean", False, span_of(parts[0]))

    def null(self, parts: list[Any]) -> _Literal:
        return _Literal("null", None, span_of(parts[0]))

    def date(self, parts: list[Any]) -> _Literal:
        return _Literal("date", _unquoted(parts[1]), _both(*parts))

    def timestamp(self, parts: list[Any]) -> _Literal:
        return _Literal("timestamp", _unquoted(parts[1]), _both(*parts))

    # -- predicates -------------------------------------------------------------------------------

    def _comparison(
        self, column: _Column, written: Token, literal: _Literal, *, is_mirrored: bool
    ) -> Predicate:
        if written == "<=>":
            hint = "write `=` and `IS NULL`"
            self._report(codes.NULL_SAFE, span_of(written), "`<=>` is not supported", hint)
            return _NOTHING
        operator = _OPERATORS[written]
        return self._compare(column, MIRRORED[operator] if is_mirrored else operator, literal)

    def _compare(self, column: _Column, operator: Comparator, literal: _Literal) -> Predicate:
        stored = self._comparable(column)
        if stored is None:
            return _NOTHING
        constant = self._constant(literal, column, stored.prop_type, operator)
        if constant is None:
            return _NOTHING
        return Compare(stored, operator, constant_cast_to(constant, stored.prop_type))

    def _one_of(self, column: _Column, literals: list[_Literal], *, negated: bool) -> Predicate:
        stored = self._comparable(column)
        if stored is None:
            return _NOTHING
        found = [self._constant(literal, column, stored.prop_type, "=") for literal in literals]
        values = tuple(constant.value for constant in found if constant is not None)
        listed = Constant(values, PropType(stored.prop_type.scalar, is_list=True))
        return InList(stored, choices_cast_to(listed, stored.prop_type), negated)

    def _like(self, column: _Column, pattern: Token) -> Predicate:
        stored = self._comparable(column)
        if stored is None:
            return _NOTHING
        if stored.prop_type.scalar is not Scalar.STRING:
            message = f"`LIKE` needs a String, `{column.name}` is {stored.prop_type}"
            self._report(codes.LITERAL_KIND, column.span, message)
            return _NOTHING
        text = _unquoted(pattern)
        part = text.strip("%")
        if any(mark in part for mark in "%_\\") or (text.startswith("%") and text[-1:] != "%"):
            message = f"the pattern '{text}' is neither 'text%' nor '%text%'"
            hint = "filter the rows with Spark for anything else"
            self._report(codes.PATTERN, span_of(pattern), message, hint)
            return _NOTHING
        constant = Constant(part, ID_TYPE)
        if text.startswith("%"):
            return Substring(stored, constant)
        return Prefix(stored, constant) if text.endswith("%") else Compare(stored, "=", constant)

    # -- columns ----------------------------------------------------------------------------------

    def _stored(self, column: _Column) -> Stored | None:
        name = column.name
        if name == "id":
            return EntityId("")
        if isinstance(self._entity_type, EdgeType) and name in ("src", "dst"):
            return EndpointValue("from" if name == "src" else "to")
        prop = self._entity_type.properties.get(name)
        if prop is not None:
            return PropertyValue("", name, prop.prop_type)
        known = list(self._entity_type.arrow_schema.names)
        near = nearest_name(name, known)
        listed = ", ".join(f"`{one}`" for one in known[:_LISTED_MAX])
        more = ", …" if len(known) > _LISTED_MAX else ""
        message = f"`{self._entity_type.name}` has no column `{name}` among {listed}{more}"
        hint = f"did you mean `{near}`?" if near else None
        self._report(codes.COLUMN_UNKNOWN, column.span, message, hint)
        return None

    def _comparable(self, column: _Column) -> Stored | None:
        stored = self._stored(column)
        if stored is None or stored.prop_type.is_plain_scalar:
            return stored
        message = f"`{column.name}` is {stored.prop_type}, which can only be tested for null"
        self._report(codes.COLUMN_NOT_COMPARABLE, column.span, message)
        return None

    # -- literals ---------------------------------------------------------------------------------

    def _constant(
        self, literal: _Literal, column: _Column, wanted: PropType, operator: Comparator
    ) -> Constant | None:
        if literal.kind == "null":
            message = f"`{column.name}` is compared with NULL, which is never true"
            hint = f"write `{column.name} IS NULL` or `{column.name} IS NOT NULL`"
            self._report(codes.NULL_COMPARED, literal.span, message, hint)
            return None
        if literal.kind in ("integer", "float"):
            return self._number(literal, column, wanted)
        if wanted.scalar in (Scalar.DATE, Scalar.DATETIME) and literal.kind != "boolean":
            return self._moment(literal, column, wanted.scalar)
        expected = Scalar.BOOL if literal.kind == "boolean" else Scalar.STRING
        is_moment = literal.kind in ("date", "timestamp")
        if wanted.scalar is not expected or is_moment or not isinstance(literal.value, str | bool):
            self._misfit(literal, column, wanted)
            return None
        is_equality = operator in ("=", "!=")
        if wanted.enum_values and is_equality and literal.value not in wanted.enum_values:
            message = f"'{literal.value}' is not a value of `{column.name}`: {wanted}"
            self._report(codes.LITERAL_KIND, literal.span, message)
            return None
        return Constant(literal.value, PropType(expected))

    def _number(self, literal: _Literal, column: _Column, wanted: PropType) -> Constant | None:
        value = literal.value
        if not wanted.scalar.is_numeric or not isinstance(value, int | float):
            self._misfit(literal, column, wanted)
            return None
        is_too_large = (
            math.isinf(value) if isinstance(value, float) else not _I64_MIN <= value <= _U64_MAX
        )
        if is_too_large:
            message = f"{self._source.text[literal.span.start : literal.span.end]} does not fit"
            self._report(codes.NUMBER_TOO_LARGE, literal.span, f"{message} 64 bits")
            return None
        if isinstance(value, float):
            return Constant(value, PropType(Scalar.F64))
        return Constant(value, PropType(Scalar.I64 if value <= _I64_MAX else Scalar.U64))

    def _moment(self, literal: _Literal, column: _Column, wanted: Scalar) -> Constant | None:
        text = str(literal.value)
        if literal.kind == "timestamp" and wanted is Scalar.DATE:
            self._misfit(literal, column, PropType(wanted))
            return None
        try:
            if wanted is Scalar.DATE:
                value: ConstantValue = parse_date(text)
            elif literal.kind == "date":
                value = parse_date(text) * _DAY_MS
            else:
                value = parse_datetime(text.strip().replace(" ", "T", 1))
        except ValueError:
            form = "YYYY-MM-DD" if wanted is Scalar.DATE else "YYYY-MM-DD HH:MM:SS[.fff][zone]"
            message = f"'{text}' cannot be read as a {wanted}: expected {form}"
            self._report(codes.MOMENT, literal.span, message)
            return None
        return Constant(value, PropType(wanted))

    def _misfit(self, literal: _Literal, column: _Column, wanted: PropType) -> None:
        written = self._source.text[literal.span.start : literal.span.end]
        message = f"`{column.name}` is {wanted} and cannot be compared with {written}"
        self._report(codes.LITERAL_KIND, literal.span, message)

    def _report(self, code: str, span: Span, message: str, hint: str | None = None) -> None:
        phase = Phase.TYPE
        self.problems.append(Diagnostic(code, phase, message, self._source, span, hint=hint))


def _predicates(parts: list[Any]) -> tuple[Predicate, ...]:
    return tuple(part for part in parts if not isinstance(part, Token))


def _is_negated(parts: list[Any]) -> bool:
    return any(isinstance(part, Token) and part.type == "NOT" for part in parts)


def _both(word: Token, text: Token) -> Span:
    return span_of(word).to(span_of(text))


def _integer(token: Token) -> int:
    # Reading a very long number takes quadratic time, and it is too large for every column.
    return int(token) if len(token) <= _DIGITS_MAX else 10**_DIGITS_MAX


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")
