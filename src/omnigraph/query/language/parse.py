"""Turns a `.gq` text into its tree.

    >>> file = parse_queries('query all() { match { $c: Crew } return { $c.tag } }')
    >>> file.queries[0].name
    'all'

Every mistake of a text is found in one pass over it and raised once, as a `SourceError`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.query.language.build import QUERY_BUILDER, Draft, Problem
from omnigraph.query.language.codes import QUERY_LETTER
from omnigraph.query.language.functions import FUNCTIONS
from omnigraph.query.language.textcheck import draft_problems, number_problems
from omnigraph.query.language.tree import QueryDecl, QueryFile
from omnigraph.query.late import syntax_hints
from omnigraph.syntax import Diagnostic, Phase, SourceError, SourceText, Span
from omnigraph.syntax.grammar import Grammar, decode_source

_TERMINALS: Final = {
    "VAR": "a variable",
    "NAME": "a name",
    "FIELD": "a name",
    "TYPE": "a type name",
    "ANNOTATION": "a note",
    "STRING": "a string",
    "INT": "a number",
    "FLOAT": "a number",
    "NAT": "a whole number",
    "TRUE": "a boolean",
    "FALSE": "a boolean",
    "COMPARE": "a comparison",
    "UNDIRECTED": "`<edge>`",
    **{name.upper(): "a function" for name in FUNCTIONS},
}

GRAMMAR: Final = Grammar[Draft](
    package="omnigraph.query.language",
    file="query.lark",
    builder=QUERY_BUILDER,
    letter=QUERY_LETTER,
    declaration=r"(?P<kind>query)\s+(?P<name>[a-z_][A-Za-z0-9_]*)",
    terminals=_TERMINALS,
)

DIAGNOSTICS_MAX: Final = 100
"""More mistakes than a person reads; the rest are reported when these are fixed."""

_NOT_LOOKED_AT: Final = {f"{QUERY_LETTER}007", f"{QUERY_LETTER}008"}
"""A text of this size, or that is no text, is not searched for anything else."""


@dataclass(frozen=True)
class TolerantQueries:
    """What could be read of a text: queries without mistakes, and every mistake in source order."""

    file: QueryFile
    diagnostics: tuple[Diagnostic, ...]

    @property
    def queries(self) -> tuple[QueryDecl, ...]:
        """The queries that have no mistake."""
        return self.file.queries


QueryText: TypeAlias = SourceText | str | bytes
"""A text of queries; with a name that messages use, or without one."""


def text_length(source: QueryText) -> int:
    """Return the length of a text, in characters or bytes."""
    return len(source.text if isinstance(source, SourceText) else source)


def parse_queries(source: QueryText) -> QueryFile:
    """Return the queries of a text, or raise `SourceError` with everything that is wrong in it."""
    parsed = _parse(_as_source(source))
    if parsed.diagnostics:
        raise SourceError(parsed.diagnostics)
    return parsed.file


def parse_queries_tolerant(source: QueryText) -> TolerantQueries:
    """Return every query that can be read, and what is wrong with the others; never raises."""
    try:
        known = _as_source(source)
    except SourceError as error:
        return TolerantQueries(QueryFile(error.diagnostics[0].source, ()), error.diagnostics)
    return _parse(known)


def _parse(source: SourceText) -> TolerantQueries:
    parsed = GRAMMAR.parse(source)
    if any(diagnostic.code in _NOT_LOOKED_AT for diagnostic in parsed.diagnostics):
        return TolerantQueries(QueryFile(source, ()), parsed.diagnostics)
    problems = [(draft, draft_problems(draft)) for draft in parsed.declarations]
    numbers = number_problems(source.text)
    if not parsed.diagnostics and not numbers and not any(found for _, found in problems):
        queries = tuple(draft.declaration for draft in parsed.declarations)
        return TolerantQueries(QueryFile(source, queries), ())
    unread = [
        syntax_hints.explain(diagnostic) for diagnostic in _without_consequences(parsed.diagnostics)
    ]
    starts = {diagnostic.span.start for diagnostic in unread}
    found = [
        *unread,
        *(_diagnostic(source, problem) for _, found in problems for problem in found),
        *(_diagnostic(source, p) for p in numbers if p.span.start not in starts),
    ]
    diagnostics = SourceError(_with_subjects(source, found)).diagnostics[:DIAGNOSTICS_MAX]
    readable = tuple(
        draft.declaration
        for draft, own in problems
        if not own and not _touches(draft.declaration.span, numbers)
    )
    return TolerantQueries(QueryFile(source, readable), diagnostics)


def _without_consequences(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Leave out braces that seem empty because the parser skipped the faulty line inside them."""
    faulty_lines: set[int] = set()
    for diagnostic in diagnostics:
        text, at = diagnostic.source.text, diagnostic.span.start
        before = len(text[:at].rstrip())
        is_consequence = (
            text[at : at + 1] == "}"
            and before > 0
            and diagnostic.source.position(before - 1).line in faulty_lines
            and diagnostic.position.line not in faulty_lines
        )
        faulty_lines.add(diagnostic.position.line)
        if not is_consequence:
            yield diagnostic


def _touches(span: Span, problems: Iterable[Problem]) -> bool:
    return any(span.start <= problem.span.start < span.end for problem in problems)


def _diagnostic(source: SourceText, problem: Problem) -> Diagnostic:
    return Diagnostic(
        problem.code, Phase.PARSE, problem.message, source, problem.span, hint=problem.hint
    )


# -- reading the text ---------------------------------------------------------------------------


def _as_source(source: SourceText | str | bytes) -> SourceText:
    if isinstance(source, bytes):
        return decode_source(source, "<text>", QUERY_LETTER)
    return SourceText(source) if isinstance(source, str) else source


# -- naming the query ---------------------------------------------------------------------------

_DECLARATION: Final = re.compile(
    r'"(?:[^"\\]|\\.)*+"?'
    r"|//[^\n]*"
    r"|/\*(?:[^*]|\*(?!/))*+(?:\*/)?"
    r"|(?<![A-Za-z0-9_$@.])query[ \t\r\n]+(?P<name>[a-z_][A-Za-z0-9_]*)[ \t\r\n]*\(",
    re.DOTALL,
)


def _with_subjects(source: SourceText, diagnostics: list[Diagnostic]) -> Iterable[Diagnostic]:
    """Name the query around each diagnostic that does not name it yet."""
    if all(diagnostic.subject for diagnostic in diagnostics):
        return diagnostics
    found = [match for match in _DECLARATION.finditer(source.text) if match["name"]]
    starts, names = [match.start() for match in found], [match["name"] for match in found]
    return [_with_subject(diagnostic, starts, names) for diagnostic in diagnostics]


def _with_subject(diagnostic: Diagnostic, starts: list[int], names: list[str]) -> Diagnostic:
    before = bisect_right(starts, diagnostic.span.start)
    if diagnostic.subject or not before:
        return diagnostic
    return replace(diagnostic, subject=f"query '{names[before - 1]}'")
