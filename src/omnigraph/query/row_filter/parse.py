"""Turns the text of a filter into its tree."""

from __future__ import annotations

from typing import Any, Final

from omnigraph.query.language.tree import Comparator
from omnigraph.query.plan.plan import MIRRORED
from omnigraph.query.row_filter import tree
from omnigraph.query.row_filter.codes import FILTER_LETTER
from omnigraph.syntax import SourceError, SourceText, Span
from omnigraph.syntax.grammar import Grammar, Token, TreeBuilder, span_of

_DIGITS_MAX: Final = 400
_ENDS_EARLY: Final = "002"
_OPERATORS: Final[dict[str, Comparator]] = {
    "=": "=",
    "==": "=",
    "<=>": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}


class _Builder(TreeBuilder[Token, list[tree.Node]]):
    """Builds nodes while the parser reduces."""

    def start(self, children: list[Any]) -> list[tree.Node]:
        return [children[0]]

    def any_of(self, children: list[Any]) -> tree.AnyOf:
        return tree.AnyOf(_nodes(children))

    def all_of(self, children: list[Any]) -> tree.AllOf:
        return tree.AllOf(_nodes(children))

    def negated(self, children: list[Any]) -> tree.Negation:
        return tree.Negation(children[-1])

    def comparison(self, children: list[Any]) -> tree.Comparison:
        column, operator, literal = children
        return _comparison(column, _OPERATORS[operator], literal, operator)

    def mirrored(self, children: list[Any]) -> tree.Comparison:
        literal, operator, column = children
        return _comparison(column, MIRRORED[_OPERATORS[operator]], literal, operator)

    def one_of(self, children: list[Any]) -> tree.OneOf:
        literals = tuple(child for child in children if isinstance(child, tree.Literal))
        return tree.OneOf(children[0], literals, _is_negated(children))

    def between(self, children: list[Any]) -> tree.Between:
        low, high = (child for child in children if isinstance(child, tree.Literal))
        return tree.Between(children[0], low, high, _is_negated(children))

    def like(self, children: list[Any]) -> tree.Like:
        token: Token = children[-1]
        pattern = tree.Literal("text", _unquoted(token), span_of(token))
        return tree.Like(children[0], pattern, _is_negated(children))

    def null_test(self, children: list[Any]) -> tree.NullTest:
        return tree.NullTest(children[0], _is_negated(children))

    def truth(self, children: list[Any]) -> tree.Truth:
        return tree.Truth(children[0])

    def column(self, children: list[Any]) -> tree.Column:
        token: Token = children[0]
        name = token[1:-1].replace("``", "`") if token.type == "QUOTED_NAME" else str(token)
        return tree.Column(name, span_of(token))

    def text(self, children: list[Any]) -> tree.Literal:
        return tree.Literal("text", _unquoted(children[0]), span_of(children[0]))

    def integer(self, children: list[Any]) -> tree.Literal:
        return tree.Literal("integer", _integer(children[0]), span_of(children[0]))

    def float(self, children: list[Any]) -> tree.Literal:
        return tree.Literal("float", float(children[0]), span_of(children[0]))

    def true(self, children: list[Any]) -> tree.Literal:
        return tree.Literal("boolean", True, span_of(children[0]))

    def false(self, children: list[Any]) -> tree.Literal:
        return tree.Literal("boolean", False, span_of(children[0]))

    def null(self, children: list[Any]) -> tree.Literal:
        return tree.Literal("null", None, span_of(children[0]))

    def date(self, children: list[Any]) -> tree.Literal:
        return tree.Literal("date", _unquoted(children[-1]), _both(*children))

    def timestamp(self, children: list[Any]) -> tree.Literal:
        return tree.Literal("timestamp", _unquoted(children[-1]), _both(*children))


def _comparison(
    column: tree.Column, operator: Comparator, literal: tree.Literal, written: Token
) -> tree.Comparison:
    is_null_safe = written == "<=>"
    return tree.Comparison(column, operator, literal, span_of(written), is_null_safe=is_null_safe)


def _both(word: Token, text: Token) -> Span:
    return Span(span_of(word).start, span_of(text).end)


def _nodes(children: list[Any]) -> tuple[tree.Node, ...]:
    return tuple(child for child in children if not isinstance(child, Token))


def _is_negated(children: list[Any]) -> bool:
    return any(isinstance(child, Token) and child.type == "NOT" for child in children)


def _integer(token: Token) -> int:
    # Reading a very long number takes quadratic time, and it is too large for every column.
    return int(token) if len(token) <= _DIGITS_MAX else 10**_DIGITS_MAX


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


GRAMMAR: Final = Grammar[tree.Node](
    package="omnigraph.query.row_filter",
    file="filter.lark",
    builder=_Builder(),
    letter=FILTER_LETTER,
    # A filter is one piece: nothing in it looks like the start of another one.
    declaration=r"(?P<kind>(?!))(?P<name>)",
    terminals={
        "NAME": "a column",
        "QUOTED_NAME": "a column",
        "STRING": "a string",
        "INT": "a number",
        "FLOAT": "a number",
        "TRUE": "a boolean",
        "FALSE": "a boolean",
        "COMPARE": "a comparison",
        "DATE": "a date",
        "TIMESTAMP": "a timestamp",
        "AND": "`AND`",
        "OR": "`OR`",
        "NOT": "`NOT`",
        "IN": "`IN`",
        "IS": "`IS`",
        "LIKE": "`LIKE`",
        "BETWEEN": "`BETWEEN`",
        "NULL": "`NULL`",
    },
)


def parse_row_filter(source: SourceText) -> tree.Node:
    """Return the tree of a filter, or raise `SourceError`."""
    parsed = GRAMMAR.parse(source)
    # Behind text that cannot be read, an early end is only a consequence.
    misread = [found for found in parsed.diagnostics if not found.code.endswith(_ENDS_EARLY)]
    if misread:
        raise SourceError(misread)
    return parsed.raise_on_errors()[0]
