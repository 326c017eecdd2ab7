"""Declared graphs: schema, stored queries, embedding provider, bases of external blobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from omnigraph.cluster.addresses import Address
from omnigraph.cluster.config.blob_bases import load_blob_bases
from omnigraph.cluster.config.files import Content, Files
from omnigraph.cluster.config.model import GraphConfig
from omnigraph.cluster.config.names import resolve_provider
from omnigraph.cluster.config.queries import QueryLoader, Registered
from omnigraph.cluster.config.shape import below
from omnigraph.cluster.config.sources import SchemaSource, Sources, message_of
from omnigraph.cluster.desired import BlobBase
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.syntax import Diagnostic as Problem
from omnigraph.syntax import Phase


@dataclass(frozen=True)
class LoadedGraph:
    """What is known of a graph."""

    schema: Content | None
    schema_text: str | None
    queries: Mapping[str, Registered]
    provider: Address | None
    blob_bases: tuple[BlobBase, ...]


class GraphLoader:
    """Loads graphs that share files and texts."""

    def __init__(self, files: Files, providers: Iterable[str]) -> None:
        self._files = files
        self._providers = frozenset(providers)
        self._sources = Sources()

    def load(self, graph_id: str, config: GraphConfig) -> tuple[LoadedGraph, list[Diagnostic]]:
        """Return what is known of a graph, and what is wrong with it."""
        path = below("graphs", graph_id)
        found: list[Diagnostic] = []
        content, schema = self._schema(config.schema, f"{path}.schema", found)
        queries = QueryLoader(self._files, self._sources, f"{path}.queries")
        queries.load(config.queries)
        found += queries.found
        found += self._check(queries.registered, content, schema, f"{path}.queries")
        provider = self._provider(config.embedding_provider, path, found)
        bases, wrong_bases = load_blob_bases(config.external_blobs, f"{path}.external_blobs")
        text = None if schema is None else schema.text
        loaded = LoadedGraph(content, text, queries.registered, provider, bases)
        return loaded, [*found, *wrong_bases]

    def _schema(
        self, spelled: str, path: str, found: list[Diagnostic]
    ) -> tuple[Content | None, SchemaSource | None]:
        content = self._files.read_declared(
            spelled, code="schema_file_missing", where=path, found=found
        )
        if content is None:
            return None, None
        schema = self._sources.schema(content)
        found += [
            error(_schema_code(each), path, message_of(each, content.path))
            for each in schema.problems
        ]
        return content, schema

    def _check(
        self,
        queries: Mapping[str, Registered],
        content: Content | None,
        schema: SchemaSource | None,
        path: str,
    ) -> list[Diagnostic]:
        if not queries:
            return []
        if content is None or schema is None or schema.catalog is None:
            message = "the queries were not checked, because the schema has errors"
            return [warning("query_typecheck_skipped", path, message)]
        return [
            error(
                "query_typecheck_error", below(path, name), message_of(problem, each.content.path)
            )
            for name, each in sorted(queries.items())
            for problem in self._sources.check(each.content, each.query, content, schema.catalog)
        ]

    def _provider(
        self, reference: str | None, path: str, found: list[Diagnostic]
    ) -> Address | None:
        if reference is None:
            return None
        where = f"{path}.embedding_provider"
        address, wrong = resolve_provider(reference, self._providers, where)
        found += wrong
        return address


def _schema_code(problem: Problem) -> str:
    return "schema_parse_error" if problem.phase is Phase.PARSE else "schema_catalog_error"
