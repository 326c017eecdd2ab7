"""Random query trees, as any text could have them, and texts that are almost queries."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from hypothesis import strategies as st

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
    Expr,
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
    Predicate,
    PropertyRef,
    QueryDecl,
    QueryFile,
    ReadBody,
    Rrf,
    Statement,
    TextCall,
    Update,
    Upsert,
    Variable,
)
from omnigraph.syntax import SourceText, Span
from omnigraph.values import DECLARABLE_SCALARS, PropType, Scalar

NOWHERE = Span(0, 0)

WORDS = (
    *("query", "match", "return", "distinct", "order", "limit", "offset", "as", "asc", "desc"),
    *("not", "optional", "and", "or", "in", "is", "null", "contains", "starts_with", "true"),
    *("false", "date", "datetime", "now", "nearest", "search", "match_text", "fuzzy", "bm25"),
    *("rrf", "count", "sum", "avg", "min", "max", "insert", "upsert", "update", "delete", "set"),
    *("create", "where", "from", "to", "id"),
)
"""Every word of the language, and a few that are special to people."""


def without_spans(node: Any) -> Any:
    """Return the same tree with every place set to `NOWHERE`."""
    if isinstance(node, Span):
        return NOWHERE
    if isinstance(node, tuple):
        return tuple(without_spans(item) for item in node)
    if dataclasses.is_dataclass(node) and not isinstance(node, type | PropType):
        fields = {f.name: without_spans(getattr(node, f.name)) for f in dataclasses.fields(node)}
        return type(node)(**fields)
    return node


# -- words --------------------------------------------------------------------------------------

plain_names = st.from_regex(r"[a-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: name not in WORDS
)
names = plain_names | st.sampled_from(WORDS)
type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,5}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
variables = st.builds(Variable, names, st.just(NOWHERE))


# -- expressions --------------------------------------------------------------------------------

_scalars = st.one_of(
    st.builds(Literal, st.sampled_from(("string", "date", "datetime")), texts, st.just(NOWHERE)),
    st.builds(Literal, st.just("int"), st.integers(-(2**63), 2**63 - 1), st.just(NOWHERE)),
    st.builds(
        Literal,
        st.just("float"),
        st.floats(allow_nan=False, allow_infinity=False),
        st.just(NOWHERE),
    ),
    st.builds(Literal, st.just("bool"), st.booleans(), st.just(NOWHERE)),
)


def _lists(items: st.SearchStrategy[Literal]) -> st.SearchStrategy[Literal]:
    return st.builds(
        Literal, st.just("list"), st.lists(items, max_size=3).map(tuple), st.just(NOWHERE)
    )


literals = st.recursive(_scalars, _lists, max_leaves=4)
properties = st.builds(PropertyRef, names, names, st.just(NOWHERE))
values = literals | variables | st.just(Now(NOWHERE))


def _calls(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Nearest, properties, inner, st.just(NOWHERE)),
        _text_calls(inner),
        st.builds(Bm25, inner, inner, st.just(NOWHERE)),
        st.builds(Rrf, inner, inner, st.none() | inner, st.none(), st.just(NOWHERE)),
        st.builds(Rrf, inner, inner, inner, st.tuples(properties, properties), st.just(NOWHERE)),
        st.builds(
            AggregateCall,
            st.sampled_from(("count", "sum", "avg", "min", "max")),
            inner,
            st.just(False),
            st.just(NOWHERE),
        ),
        st.builds(AggregateCall, st.just("count"), inner, st.just(True), st.just(NOWHERE)),
        st.just(AggregateCall("count", AllRows(NOWHERE), False, NOWHERE)),
    )


def _text_calls(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[TextCall]:
    return st.one_of(
        st.builds(
            TextCall,
            st.sampled_from(("search", "match_text")),
            inner,
            inner,
            st.none(),
            st.just(NOWHERE),
        ),
        st.builds(TextCall, st.just("fuzzy"), inner, inner, st.none() | inner, st.just(NOWHERE)),
    )


def _expressions(bare: st.SearchStrategy[str]) -> st.SearchStrategy[Expr]:
    leaves = values | properties | st.builds(NameRef, bare, st.just(NOWHERE))
    return st.recursive(leaves, _calls, max_leaves=4)


_constant_words = ("true", "false")
operands = _expressions(plain_names)
"""What stands in conditions: a name that is also a word could change what follows it."""

column_expressions = _expressions(names.filter(lambda name: name not in _constant_words))


# -- conditions ---------------------------------------------------------------------------------

_choices = _lists(literals) | variables
_comparators = st.sampled_from(("=", "!=", "<", "<=", ">", ">=", "contains", "starts_with"))


def _tests(
    left: st.SearchStrategy[Expr], right: st.SearchStrategy[Expr]
) -> st.SearchStrategy[Predicate]:
    return st.one_of(
        st.builds(Comparison, left, _comparators, right, st.just(NOWHERE)),
        st.builds(NullTest, left, st.booleans(), st.just(NOWHERE)),
        st.builds(
            Membership,
            left.filter(lambda operand: not isinstance(operand, TextCall)),
            _choices,
            st.booleans(),
            st.just(NOWHERE),
        ),
    )


def _combinations(inner: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Both, several, st.just(NOWHERE)),
        st.builds(Either, several, st.just(NOWHERE)),
        st.builds(Negated, inner, st.just(NOWHERE)),
    )


predicates = st.recursive(_tests(operands, operands), _combinations, max_leaves=5)

_row_names = st.builds(NameRef, names, st.just(NOWHERE))
_no_constants = literals.filter(lambda literal: literal.kind != "bool")
_row_left = st.one_of(_row_names, _no_constants, variables, st.just(Now(NOWHERE)))
_row_right = values | st.builds(
    NameRef, names.filter(lambda name: name not in (*_constant_words, "null")), st.just(NOWHERE)
)
row_predicates = st.recursive(_tests(_row_left, _row_right), _combinations, max_leaves=5)


# -- clauses ------------------------------------------------------------------------------------

_pairs = st.lists(st.builds(InlineProperty, names, values, st.just(NOWHERE)), max_size=3)
_bindings = st.builds(
    Binding, names, type_names, _pairs.map(tuple), st.just(NOWHERE), st.just(NOWHERE)
)
_numbers = st.integers(0, 2**63 - 1) | variables
_bounds = st.none() | st.tuples(st.integers(0, 2**63 - 1), st.none() | _numbers)
_hops = st.builds(
    Hop,
    variables,
    st.none() | variables,
    names.filter(lambda name: name != "not"),
    st.just(NOWHERE),
    st.booleans(),
    _bounds,
    variables,
    st.just(NOWHERE),
)
_filters = st.builds(Filter, predicates, st.just(NOWHERE))
_leaf_clauses = st.one_of(_bindings, _hops, _filters, _text_calls(operands))


def _blocks(inner: st.SearchStrategy[Clause]) -> st.SearchStrategy[Clause]:
    clauses = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.builds(NotBlock, clauses, st.just(NOWHERE)) | st.builds(
        OptionalBlock, clauses, st.just(NOWHERE)
    )


clauses = st.recursive(_leaf_clauses, _blocks, max_leaves=4)


# -- queries ------------------------------------------------------------------------------------

_columns = st.builds(
    Column,
    column_expressions | st.builds(AllProperties, names, st.just(NOWHERE)),
    st.none() | names,
    st.just(NOWHERE),
)


def _order_key(expression: Expr, descending: bool | None) -> OrderKey:
    direction = None if isinstance(expression, Nearest) else descending
    return OrderKey(expression, direction, NOWHERE)


_order_keys = st.builds(_order_key, column_expressions, st.none() | st.booleans())
_paging = st.one_of(
    st.just((None, None)),
    st.tuples(_numbers, st.none() | _numbers),
)


def _read(
    clauses: list[Clause],
    columns: list[Column],
    distinct: bool,
    order: list[OrderKey],
    paging: tuple[int | Variable | None, int | Variable | None],
) -> ReadBody:
    return ReadBody(tuple(clauses), tuple(columns), distinct, tuple(order), *paging)


reads = st.builds(
    _read,
    st.lists(clauses, min_size=1, max_size=4),
    st.lists(_columns, min_size=1, max_size=3),
    st.booleans(),
    st.lists(_order_keys, max_size=2),
    _paging,
)

_fields = st.lists(
    st.builds(Assignment, names, values, st.just(NOWHERE)), min_size=1, max_size=3
).map(tuple)
_places = (st.just(NOWHERE), st.just(NOWHERE))
statements: st.SearchStrategy[Statement] = st.one_of(
    st.builds(Insert, type_names, _fields, *_places),
    st.builds(Create, type_names, _fields, *_places),
    st.builds(Upsert, type_names, _fields, *_places),
    st.builds(Update, type_names, _fields, row_predicates, *_places),
    st.builds(Delete, type_names, row_predicates, *_places),
)

_plain_types = st.builds(
    PropType, st.sampled_from(DECLARABLE_SCALARS), nullable=st.booleans(), is_list=st.booleans()
)
_vector_types = st.builds(
    PropType, st.just(Scalar.VECTOR), nullable=st.booleans(), dimension=st.integers(1, 2**31 - 1)
)
parameters = st.lists(
    st.builds(Parameter, names, _plain_types | _vector_types, st.just(NOWHERE)),
    max_size=4,
    unique_by=lambda parameter: parameter.name,
).map(lambda found: tuple(p for p in found if p.name not in ("_", "__nanograph_now")))

query_decls = st.builds(
    QueryDecl,
    names,
    parameters,
    st.none() | texts,
    st.none() | texts,
    reads | st.lists(statements, min_size=1, max_size=3).map(tuple),
    *_places,
)
nameless_reads = st.builds(
    lambda body: QueryDecl("", (), None, None, body, NOWHERE, NOWHERE), reads
)
query_files = st.builds(
    lambda queries: QueryFile(SourceText(""), tuple(queries)),
    st.lists(query_decls, max_size=3) | st.tuples(nameless_reads),
)


# -- almost queries -----------------------------------------------------------------------------

MARKS = (
    *("{", "}", "(", ")", "[", "]", ",", ":", ".", "?", "=", "!=", "<", "<=", ">", ">=", "<>"),
    *("-", "+", "#", "'", '"', "/*", "*/", "//", "@", "$", "\\", "\n", "\r\n", "\t", " ", "\0"),
    *("-1", "0", "1.5", "2.5e-3", "1e999", "9223372036854775808", "007", ".5", "5."),
    *("$c", "$_", "$c.tag", "$C", "Crew", "String", "Vector(3)", "[String]?", "mentors", "{1,2}"),
    *('"x"', '"\\n"', '"\\q"', "@description", "@x", "\u00a0", "\u00fc", "\U0001f680", "\ufeff"),
)


def token_soup(random: Random, length: int) -> str:
    """Return words and marks of the language in random order."""
    pool = WORDS + MARKS
    return "".join(random.choice(pool) + random.choice(("", " ", " ")) for _ in range(length))


def mutated(random: Random, text: str) -> str:
    """Return a text with a few characters or words dropped, doubled, swapped or replaced."""
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(text) + 1)
        to = min(at + random.randint(0, 8), len(text))
        piece = random.choice(
            ("", text[at:to] * 2, random.choice(MARKS), random.choice(WORDS), text[to:at:-1])
        )
        text = text[:at] + piece + text[to:]
    return text
