"""Turns the text of a filter into the tree of its grammar, `filter.lark`."""

from __future__ import annotations

from typing import Any, Final

from omnigraph.query.row_filter.codes import FILTER_LETTER
from omnigraph.syntax import SourceError, SourceText
from omnigraph.syntax.grammar import Grammar, Token, TreeBuilder

_ENDS_EARLY: Final = "002"


class _Parsed(TreeBuilder[Token, list[Any]]):
    """Leaves the tree as the parser makes it."""

    def start(self, children: list[Any]) -> list[Any]:
        return children


GRAMMAR: Final = Grammar[Any](
    package="omnigraph.query.row_filter",
    file="filter.lark",
    builder=_Parsed(),
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


def parse_row_filter(source: SourceText) -> Any:
    """Return the tree of a filter, or raise `SourceError`."""
    parsed = GRAMMAR.parse(source)
    # Behind text that cannot be read, an early end is only a consequence.
    misread = [found for found in parsed.diagnostics if not found.code.endswith(_ENDS_EARLY)]
    if misread:
        raise SourceError(misread)
    return parsed.raise_on_errors()[0]
