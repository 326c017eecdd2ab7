"""Calls that need no open graph: files in, a result out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from omnigraph.clock import SystemClock
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.scrub.report import ScrubReport, ScrubRequest
from omnigraph.maintenance.scrub.scrub import scrub
from omnigraph.manifest.layout import SCHEMA_STATE
from omnigraph.manifest.repository import assemble, require_graph
from omnigraph.query import LintReport, SchemaSource, lint_queries
from omnigraph.query.compile import try_compile
from omnigraph.query.language.parse import parse_queries_tolerant
from omnigraph.query.registry import (
    Registry,
    RegistryEntry,
    RegistryError,
    RegistryProblem,
    load_registry,
)
from omnigraph.schema import Catalog, compile_schema
from omnigraph.search.embedding.client import LazyEmbeddingClient
from omnigraph.search.embedding.file import EmbedFileRequest, EmbedFileResult, embed_file
from omnigraph.store import StoreSettings, connect, open_objects
from omnigraph.store.errors import ObjectNotFoundError
from omnigraph.store.uri import parse_root
from omnigraph.syntax import SourceError, SourceText
from omnigraph.syntax.grammar import decode_source


def init_from_file(
    uri: str,
    schema_path: Path,
    *,
    force: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Graph:
    """Make a new graph with the schema in a file."""
    return Graph.init(uri, schema_path, force=force, storage_options=storage_options)


def graph_identity(uri: str) -> str | None:
    """Return what tells a graph from another one at the same root; none without a graph there.

    It costs one small request: nothing is opened.
    """
    objects = open_objects(StoreSettings(parse_root(uri)))
    try:
        state = orjson.loads(objects.get(SCHEMA_STATE).data)
    except (ObjectNotFoundError, orjson.JSONDecodeError):
        return None
    domain = state.get("schema_identity_domain") if isinstance(state, dict) else None
    return None if domain is None else str(domain)


def scrub_graph(
    uri: str, request: ScrubRequest, *, storage_options: Mapping[str, str] | None = None
) -> ScrubReport:
    """Compare the files of a graph with their checksums, also of one that cannot be opened."""
    repository = assemble(connect(uri, storage_options=storage_options), SystemClock())
    require_graph(repository)
    return scrub(repository, request)


def embed_records(request: EmbedFileRequest) -> EmbedFileResult:
    """Make the vectors of records in a file, with the provider of the environment."""
    return embed_file(request, LazyEmbeddingClient(SystemClock(), environ=os.environ).get)


def read_schema_file(schema_path: Path) -> Catalog:
    """Return what a schema file declares, without a graph."""
    schema = decode_source(schema_path.read_bytes(), str(schema_path), "S")
    return compile_schema(schema, domain=SystemClock().ulid()).catalog


def lint_files(*, query_path: Path, schema_path: Path) -> LintReport:
    """Check a file of queries against a schema file, without a graph."""
    return lint_queries(
        query_path.read_bytes(),
        read_schema_file(schema_path),
        schema_source=SchemaSource("file", str(schema_path)),
        query_path=str(query_path),
    )


def require_queries_hold(registry: Registry, schema: str) -> None:
    """Raise unless every stored query compiles against a schema."""
    problems = queries_that_break(registry, schema)
    if problems:
        raise RegistryError(problems)


def queries_that_break(registry: Registry, schema: str) -> list[RegistryProblem]:
    """Return why stored queries do not compile against a schema."""
    if not registry.queries:
        return []
    catalog = compile_schema(schema, domain=SystemClock().ulid()).catalog
    problems = []
    for stored in registry.queries:
        _, found = try_compile(stored.query, catalog, stored.source)
        problems += [
            RegistryProblem(each.code, stored.name, each.message, each.hint) for each in found
        ]
    return problems


def register_queries(texts: Mapping[str, str]) -> Registry:
    """Return stored queries by name, each with the text of the file that declares it."""
    sources = {text: SourceText(text, f"{name}.gq") for name, text in sorted(texts.items())}
    entries = [RegistryEntry(name, sources[text]) for name, text in sorted(texts.items())]
    return load_registry(entries).raise_on_errors()


def load_queries(paths: Sequence[Path]) -> Registry:
    """Return the queries of files, and of the `.gq` files of folders, as stored queries."""
    entries = []
    for path in paths:
        for file in sorted(path.glob("**/*.gq")) if path.is_dir() else [path]:
            source = decode_source(file.read_bytes(), str(file), "Q")
            parsed = parse_queries_tolerant(source)
            if parsed.diagnostics and not parsed.queries:
                # No entry would stand for the file, and the registry would not look at it.
                raise SourceError(parsed.diagnostics)
            entries += [RegistryEntry(query.name, source) for query in parsed.file.queries]
    return load_registry(entries).raise_on_errors()
