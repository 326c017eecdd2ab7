"""Tree builder of `.gq` texts: one method per rule of `query.lark`, named like it.

A query that can be read may still hold a mistake that the grammar has no words for: an unknown
parameter type, an annotation given twice. Such mistakes travel with the query as `Problem`s in a
`Draft`.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from omnigraph.dataclass import dataclass
from omnigraph.names import nearest_name
from omnigraph.query.language import codes
from omnigraph.query.language.tree import (
    AggregateCall,
    AllProperties,
    AllRows,
    Assignment,
    Binding,
    Bm25,
    Both,
    Clause,
    Column,
    Comparison,
    Create,
    Delete,
    Either,
    Filter,
    Hop,
    InlineProperty,
    Insert,
    Literal,
    Membership,
    NameRef,
    Nearest,
    Negated,
    NotBlock,
    Now,
    NullTest,
    OptionalBlock,
    OrderKey,
    Parameter,
    PropertyRef,
    QueryDecl,
    ReadBody,
    Rrf,
    TextCall,
    Update,
    Upsert,
    Variable,
)
from omnigraph.syntax import Span
from omnigraph.syntax.grammar import Token, TreeBuilder, span_of
from omnigraph.values import DECLARABLE_SCALARS, VECTOR_DIMENSION_MAX, PropType, Scalar

INT_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**63)
INT_DIGITS_MAX: Final = 19
FLOAT_DIGITS_MAX: Final = 1_000
"""A longer number is rejected unread: converting it could take quadratic time."""

RESERVED_PARAMETER: Final = "__nanograph_now"

PARAMETER_TYPES: Final = (*(scalar.value for scalar in DECLARABLE_SCALARS), "Vector")


@dataclass(frozen=True)
class Problem:
    """A mistake in a query that could otherwise be read."""

    code: str
    message: str
    span: Span
    hint: str | None = None


@dataclass(frozen=True)
class AnnotationText:
    """`@name("text")` as written."""

    name: str
    text: str
    span: Span


@dataclass(frozen=True)
class Draft:
    """A query as written, before the checks of its text.

    `declaration` lacks parameters whose type is a problem, and takes the first of repeated
    annotations.
    """

    declaration: QueryDecl
    annotations: tuple[AnnotationText, ...]
    problems: tuple[Problem, ...]


# -- tokens -------------------------------------------------------------------------------------


def _span(part: Any) -> Span:
    """Return the span of a token or node."""
    if isinstance(part, Token):
        return span_of(part)
    span: Span = part.span
    return span


def _cover(first: Any, last: Any) -> Span:
    """Return the span from the start of one part to the end of another."""
    return _span(first) if first is last else _span(first).to(_span(last))


def _last(parts: list[Any]) -> Any:
    """Return the last part that was written; left-out optional parts are None."""
    return next(part for part in reversed(parts) if part is not None)


_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


def _unquoted(token: Token) -> str:
    inner = token[1:-1]
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], inner) if "\\" in inner else inner


def read_integer(text: str) -> int:
    """Convert digits; a number that cannot be legal becomes one just outside of the range.

    Python refuses to convert very many digits, and leading zeros count.
    """
    digits = text.lstrip("-").lstrip("0")
    is_negative = text[0] == "-"
    if len(digits) > INT_DIGITS_MAX:
        return INT_MIN - 1 if is_negative else INT_MAX + 1
    value = int(digits or "0")
    return -value if is_negative else value


def read_float(text: str) -> float:
    """Convert a decimal number; one with absurdly many digits is infinite."""
    return float(text) if len(text) <= FLOAT_DIGITS_MAX else math.inf


def _edge_name(token: Token) -> str:
    return token[1:-1].strip() if token[0] == "<" else str(token)


# -- parameter types ----------------------------------------------------------------------------


def _parameter_type(
    word: Token, dimension: Token | None, *, is_list: bool, nullable: bool
) -> PropType | Problem:
    span = _cover(word, dimension or word)
    if word not in PARAMETER_TYPES:
        known = nearest_name(word, PARAMETER_TYPES)
        hint = f"did you mean `{known}`?" if known else f"types are {', '.join(PARAMETER_TYPES)}"
        if word == "enum":
            hint = "declare the parameter as `String`; its value is checked when it is written"
        return Problem(codes.PARAMETER_TYPE_UNKNOWN, f"unknown parameter type '{word}'", span, hint)
    if word == "Vector":
        return _vector_type(dimension, span, is_list=is_list, nullable=nullable)
    if dimension is not None:
        message = f"'{word}' takes no dimension, only Vector does"
        return Problem(codes.PARAMETER_TYPE_WRONG, message, span, f"write `{word}`")
    return PropType(Scalar(str(word)), nullable=nullable, is_list=is_list)


def _vector_type(
    dimension: Token | None, span: Span, *, is_list: bool, nullable: bool
) -> PropType | Problem:
    if is_list:
        message = "there are no lists of vectors"
        return Problem(
            codes.PARAMETER_TYPE_WRONG, message, span, "declare one parameter for each vector"
        )
    if dimension is None:
        hint = "write the number of its elements, as in `Vector(3)`"
        return Problem(codes.PARAMETER_TYPE_WRONG, "Vector needs its dimension", span, hint)
    size = read_integer(dimension)
    if not 1 <= size <= VECTOR_DIMENSION_MAX:
        message = f"a vector has 1 to {VECTOR_DIMENSION_MAX} elements, found {dimension[:20]}"
        return Problem(codes.PARAMETER_TYPE_WRONG, message, span)
    return PropType(Scalar.VECTOR, nullable=nullable, dimension=size)


@dataclass(frozen=True)
class _ParameterDraft:
    name: str
    prop_type: PropType | Problem
    span: Span


# -- rules --------------------------------------------------------------------------------------


class _Builder(TreeBuilder[Token, Any]):
    """Builds the nodes of `tree.py`; without state, so one builder serves every parse."""

    # queries

    def start(self, queries: list[Draft]) -> list[Draft]:
        return queries

    def nameless(self, parts: list[ReadBody]) -> list[Draft]:
        # Its place is the start of the text: a read has no span of its own.
        place = Span(0, 0)
        return [Draft(QueryDecl("", (), None, None, parts[0], place, place), (), ())]

    def query(self, parts: list[Any]) -> Draft:
        _, name, _, parameters, _, annotations, _, body, close = parts
        texts: dict[str, str] = {}
        for annotation in annotations:
            texts.setdefault(annotation.name, annotation.text)
        declaration = QueryDecl(
            name=str(name),
            parameters=tuple(
                Parameter(draft.name, draft.prop_type, draft.span)
                for draft in parameters
                if isinstance(draft.prop_type, PropType)
            ),
            description=texts.get("description"),
            instruction=texts.get("instruction"),
            body=body,
            span=_cover(parts[0], close),
            name_span=_cover(name, name),
        )
        wrong = [d.prop_type for d in parameters if isinstance(d.prop_type, Problem)]
        return Draft(declaration, annotations, (*wrong, *_repeated_parameters(parameters)))

    def mutation(self, statements: list[Any]) -> tuple[Any, ...]:
        return tuple(statements)

    def parameters(self, drafts: list[_ParameterDraft | None]) -> tuple[_ParameterDraft, ...]:
        return tuple(draft for draft in drafts if draft is not None)

    def scalar_parameter(self, parts: list[Any]) -> _ParameterDraft:
        variable, _, word, _, dimension, _, mark = parts
        found = _parameter_type(word, dimension, is_list=False, nullable=mark is not None)
        return _ParameterDraft(variable[1:], found, _cover(variable, _last(parts)))

    def list_parameter(self, parts: list[Any]) -> _ParameterDraft:
        variable, _, _, word, _, dimension, _, _, mark = parts
        found = _parameter_type(word, dimension, is_list=True, nullable=mark is not None)
        return _ParameterDraft(variable[1:], found, _cover(variable, _last(parts)))

    def annotations(self, annotations: list[AnnotationText]) -> tuple[AnnotationText, ...]:
        return tuple(annotations)

    def annotation(self, parts: list[Token]) -> AnnotationText:
        name, _, text, close = parts
        return AnnotationText(name[1:], _unquoted(text), _cover(name, close))

    # reads

    def read(self, parts: list[Any]) -> ReadBody:
        (_, _, clauses, _, _, distinct, _, columns, _, order, _, limit, _, offset) = parts
        return ReadBody(
            clauses=clauses,
            columns=columns,
            distinct=distinct is not None,
            order=order or (),
            limit=None if limit is None else _number(limit),
            offset=None if offset is None else _number(offset),
        )

    def clauses(self, clauses: list[Clause]) -> tuple[Clause, ...]:
        return tuple(clauses)

    def not_block(self, parts: list[Any]) -> NotBlock:
        return NotBlock(parts[2], _cover(parts[0], parts[3]))

    def optional_block(self, parts: list[Any]) -> OptionalBlock:
        return OptionalBlock(parts[2], _cover(parts[0], parts[3]))

    def binding(self, parts: list[Any]) -> Binding:
        variable, _, type_name, _, properties, _ = parts
        return Binding(
            variable=variable[1:],
            type_name=str(type_name),
            properties=properties or (),
            span=_cover(variable, _last(parts)),
            type_span=_cover(type_name, type_name),
        )

    def inline_properties(self, found: list[InlineProperty | None]) -> tuple[InlineProperty, ...]:
        return tuple(item for item in found if item is not None)

    def inline_property(self, parts: list[Any]) -> InlineProperty:
        name, value = parts
        return InlineProperty(str(name), value, _cover(name, value))

    def hop(self, parts: list[Any]) -> Hop:
        source, edge, bounds, target = parts
        return _hop(source, None, edge, bounds, target)

    def word_hop(self, parts: list[Any]) -> Hop:
        source, edge, target = parts
        return _hop(source, None, edge, None, target)

    def bound_hop(self, parts: list[Any]) -> Hop:
        source, edge_variable, _, edge, bounds, target = parts
        return _hop(source, edge_variable, edge, bounds, target)

    def bounds(self, parts: list[Any]) -> tuple[int, int | Variable | None]:
        lowest, highest = parts[1], parts[3]
        return read_integer(lowest), None if highest is None else _number(highest)

    def columns(self, columns: list[Column]) -> tuple[Column, ...]:
        return tuple(columns)

    def column(self, parts: list[Any]) -> Column:
        expression, _, alias = parts
        return Column(
            expression,
            None if alias is None else str(alias),
            _cover(expression, alias or expression),
        )

    def every_property(self, parts: list[Any]) -> Column:
        variable, _, star, _, alias = parts
        return Column(
            AllProperties(variable[1:], _cover(variable, star)),
            None if alias is None else str(alias),
            _cover(variable, alias or star),
        )

    def order(self, parts: list[Any]) -> tuple[OrderKey, ...]:
        return tuple(part for part in parts if isinstance(part, OrderKey))

    def order_key(self, parts: list[Any]) -> OrderKey:
        expression, direction = parts[0], parts[1] if len(parts) > 1 else None
        descending = None if direction is None else direction == "desc"
        return OrderKey(expression, descending, _cover(expression, direction or expression))

    # conditions

    def condition(self, parts: list[Any]) -> Filter | TextCall:
        predicate = parts[0]
        if isinstance(predicate, TextCall):
            return predicate
        return Filter(predicate, predicate.span)

    def either(self, parts: list[Any]) -> Either:
        return Either(tuple(parts[::2]), _cover(parts[0], parts[-1]))

    def both(self, parts: list[Any]) -> Both:
        return Both(tuple(parts[::2]), _cover(parts[0], parts[-1]))

    def negated(self, parts: list[Any]) -> Negated:
        return Negated(parts[2], _cover(parts[0], parts[3]))

    def comparison(self, parts: list[Any]) -> Comparison:
        left, operator, right = parts
        return Comparison(left, operator.value, right, _cover(left, right))

    def variable_comparison(self, parts: list[Any]) -> Comparison:
        variable, operator, right = parts
        return self.comparison([_variable(variable), operator, right])

    def variable_property_comparison(self, parts: list[Any]) -> Comparison:
        variable, operator, *reference = parts
        return self.comparison([_variable(variable), operator, self.property_ref(reference)])

    def membership(self, parts: list[Any]) -> Membership:
        operand, choices = parts[0], parts[-1]
        return Membership(operand, choices, len(parts) == 4, _cover(operand, choices))

    def variable_membership(self, parts: list[Any]) -> Membership:
        return self.membership([_variable(parts[0]), *parts[1:]])

    def null_test(self, parts: list[Any]) -> NullTest:
        operand, _, negation, null = parts
        return NullTest(operand, negation is not None, _cover(operand, null))

    def variable_null_test(self, parts: list[Any]) -> NullTest:
        return self.null_test([_variable(parts[0]), *parts[1:]])

    # expressions

    def variable(self, parts: list[Token]) -> Variable:
        return _variable(parts[0])

    def property_ref(self, parts: list[Token]) -> PropertyRef:
        variable, name = parts
        return PropertyRef(variable[1:], str(name), _cover(variable, name))

    def name_ref(self, parts: list[Token]) -> NameRef:
        return NameRef(str(parts[0]), _cover(parts[0], parts[0]))

    row_name = name_ref

    def now(self, parts: list[Token]) -> Now:
        return Now(_cover(parts[0], parts[2]))

    def nearest(self, parts: list[Any]) -> Nearest:
        _, _, variable, _, name, _, query, close = parts
        return Nearest(self.property_ref([variable, name]), query, _cover(parts[0], close))

    def text_call(self, parts: list[Any]) -> TextCall:
        function, field, query = parts[0], parts[2], parts[4]
        edits = parts[6] if function == "fuzzy" else None
        return TextCall(function.value, field, query, edits, _cover(function, parts[-1]))

    def bm25(self, parts: list[Any]) -> Bm25:
        return Bm25(parts[2], parts[4], _cover(parts[0], parts[-1]))

    def rrf(self, parts: list[Any]) -> Rrf:
        weights = None if parts[8] is None else (parts[8], parts[10])
        return Rrf(parts[2], parts[4], parts[6], weights, _cover(parts[0], parts[-1]))

    def aggregate(self, parts: list[Any]) -> AggregateCall:
        function, _, argument, close = parts
        return AggregateCall(function.value, argument, False, _cover(function, close))

    def distinct_count(self, parts: list[Any]) -> AggregateCall:
        function, _, _, argument, close = parts
        return AggregateCall(function.value, argument, True, _cover(function, close))

    def count_named_distinct(self, parts: list[Token]) -> AggregateCall:
        function, _, name, close = parts
        return self.aggregate([function, None, self.name_ref([name]), close])

    def count_rows(self, parts: list[Token]) -> AggregateCall:
        function, _, star, close = parts
        rows = AllRows(_cover(star, star))
        return AggregateCall("count", rows, False, _cover(function, close))

    # literals

    def boolean(self, parts: list[Token]) -> Literal:
        return Literal("bool", parts[0] == "true", _cover(parts[0], parts[0]))

    def string(self, parts: list[Token]) -> Literal:
        return Literal("string", _unquoted(parts[0]), _cover(parts[0], parts[0]))

    def float_literal(self, parts: list[Token]) -> Literal:
        return Literal("float", read_float(parts[0]), _cover(parts[0], parts[0]))

    def integer(self, parts: list[Token]) -> Literal:
        return Literal("int", read_integer(parts[0]), _cover(parts[0], parts[0]))

    def moment(self, parts: list[Any]) -> Literal:
        kind, _, text, close = parts
        return Literal(kind.value, _unquoted(text), _cover(kind, close))

    def list_literal(self, parts: list[Any]) -> Literal:
        items = tuple(part for part in parts if isinstance(part, Literal))
        return Literal("list", items, _cover(parts[0], parts[-1]))

    # mutations

    def insert(self, parts: list[Any]) -> Insert:
        _, type_name, _, fields, close = parts
        return Insert(str(type_name), fields, _cover(parts[0], close), _cover(type_name, type_name))

    def create(self, parts: list[Any]) -> Create:
        _, type_name, _, fields, close = parts
        return Create(str(type_name), fields, _cover(parts[0], close), _cover(type_name, type_name))

    def upsert(self, parts: list[Any]) -> Upsert:
        _, type_name, _, fields, close = parts
        return Upsert(str(type_name), fields, _cover(parts[0], close), _cover(type_name, type_name))

    def update(self, parts: list[Any]) -> Update:
        _, type_name, _, _, fields, _, _, where = parts
        return Update(
            str(type_name), fields, where, _cover(parts[0], where), _cover(type_name, type_name)
        )

    def delete(self, parts: list[Any]) -> Delete:
        _, type_name, _, where = parts
        return Delete(str(type_name), where, _cover(parts[0], where), _cover(type_name, type_name))

    def fields(self, fields: list[Assignment]) -> tuple[Assignment, ...]:
        return tuple(fields)

    def field(self, parts: list[Any]) -> Assignment:
        name, value = parts
        return Assignment(str(name), value, _cover(name, value))


def _repeated_parameters(drafts: tuple[_ParameterDraft, ...]) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for draft in drafts:
        if draft.name in seen:
            message = f"parameter '{draft.name}' is declared twice"
            found.append(
                Problem(codes.PARAMETER_REPEATED, message, draft.span, "keep one of the two")
            )
        elif draft.name == RESERVED_PARAMETER:
            message = f"parameter name '{RESERVED_PARAMETER}' is reserved"
            found.append(
                Problem(
                    codes.PARAMETER_RESERVED,
                    message,
                    draft.span,
                    "use `now()` for the current time",
                )
            )
        elif draft.name == "_":
            message = "`$_` is the wildcard and cannot be a parameter"
            found.append(
                Problem(codes.PARAMETER_RESERVED, message, draft.span, "give the parameter a name")
            )
        seen.add(draft.name)
    return found


def _number(token: Token) -> int | Variable:
    return _variable(token) if token[0] == "$" else read_integer(token)


def _variable(token: Token) -> Variable:
    return Variable(token[1:], _cover(token, token))


def _hop(
    source: Token,
    edge_variable: Token | None,
    edge: Token,
    bounds: tuple[int, int | Variable | None] | None,
    target: Token,
) -> Hop:
    return Hop(
        source=_variable(source),
        edge_variable=None if edge_variable is None else _variable(edge_variable),
        edge=_edge_name(edge),
        edge_span=_cover(edge, edge),
        undirected=edge[0] == "<",
        bounds=bounds,
        target=_variable(target),
        span=_cover(source, target),
    )


QUERY_BUILDER: Final[TreeBuilder[Token, Any]] = _Builder()
"""The tree builder of `query.lark`."""
