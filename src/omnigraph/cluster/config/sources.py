"""Schemas and queries as the languages see them; equal texts are compiled once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omnigraph.cluster.config.files import Content
from omnigraph.query.check.query import check_query
from omnigraph.query.language.parse import TolerantQueries, parse_queries_tolerant
from omnigraph.query.language.tree import QueryDecl
from omnigraph.schema import Catalog, compile_schema
from omnigraph.schema.language.codes import SCHEMA_LETTER
from omnigraph.syntax import Diagnostic, SourceError
from omnigraph.syntax.grammar import decode_source
from omnigraph.texts import on_one_line

_DOMAIN: Final = "0" * 26
"""Identities of types do not matter here, so all schemas share one domain."""


@dataclass(frozen=True)
class SchemaSource:
    """A schema text, and its catalog unless there are problems; none if it is not UTF-8."""

    text: str | None
    catalog: Catalog | None
    problems: tuple[Diagnostic, ...] = ()


class Sources:
    """Compiles the texts of one configuration."""

    def __init__(self) -> None:
        self._schemas: dict[str, SchemaSource] = {}
        self._queries: dict[str, TolerantQueries] = {}
        self._checks: dict[tuple[str, str, str], tuple[Diagnostic, ...]] = {}

    def schema(self, content: Content) -> SchemaSource:
        """Return a schema; problems are in it."""
        known = self._schemas.get(content.digest)
        if known is None:
            known = self._schemas[content.digest] = _schema(content)
        return known

    def queries(self, content: Content) -> TolerantQueries:
        """Return the queries of a file, and what is wrong in it."""
        known = self._queries.get(content.digest)
        if known is None:
            known = self._queries[content.digest] = parse_queries_tolerant(content.data)
        return known

    def check(
        self, content: Content, query: QueryDecl, schema: Content, catalog: Catalog
    ) -> tuple[Diagnostic, ...]:
        """Return what keeps a query from running on the graphs of a schema."""
        key = (content.digest, query.name, schema.digest)
        known = self._checks.get(key)
        if known is None:
            source = self.queries(content).file.source
            _, known = check_query(query, catalog, source)
            self._checks[key] = known
        return known


def _schema(content: Content) -> SchemaSource:
    try:
        source = decode_source(content.data, content.path, SCHEMA_LETTER)
    except SourceError as problem:
        return SchemaSource(None, None, problem.diagnostics)
    try:
        return SchemaSource(source.text, compile_schema(source, domain=_DOMAIN).catalog)
    except SourceError as problem:
        return SchemaSource(source.text, None, problem.diagnostics)


def message_of(problem: Diagnostic, path: str) -> str:
    """Return a problem of a file on one line, with its position."""
    at = problem.position
    hint = f"; {problem.hint}" if problem.hint else ""
    return on_one_line(f"{path}:{at.line}:{at.column}: {problem.headline}{hint}")
