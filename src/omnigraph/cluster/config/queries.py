"""The stored queries of a graph, from the three forms in which they are declared.

| form | registers |
|---|---|
| a directory or a file | every query of its `.gq` files, or of the file |
| a list of these | every query of all of them |
| a map `name: {file: path}` | exactly these names |
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph.cluster.config.files import Content, Files, UnreadableError
from omnigraph.cluster.config.model import Queries
from omnigraph.cluster.config.names import check_name
from omnigraph.cluster.config.shape import below
from omnigraph.cluster.config.sources import Sources, message_of
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.names import nearest_name
from omnigraph.query.language.tree import QueryDecl
from omnigraph.strict_yaml import quoted


@dataclass(frozen=True)
class Registered:
    """A query with the file that declares it."""

    query: QueryDecl
    content: Content


class QueryLoader:
    """Collects the queries of one graph; `found` are the findings, `registered` is the result."""

    def __init__(self, files: Files, sources: Sources, path: str) -> None:
        self.registered: dict[str, Registered] = {}
        self.found: list[Diagnostic] = []
        self._files = files
        self._sources = sources
        self._path = path
        self._seen: set[str] = set()
        """Files that are registered, and digests of those whose mistakes are reported."""

    def load(self, queries: Queries) -> None:
        """Read everything that is declared."""
        if isinstance(queries, Mapping):
            for name, file in queries.items():
                self._load_named(name, file)
            return
        for where, spelled in self._spelled(queries):
            self._load_path(where, spelled)

    def _spelled(self, queries: str | tuple[str, ...]) -> Iterator[tuple[str, str]]:
        if isinstance(queries, str):
            yield self._path, queries
            return
        for index, spelled in enumerate(queries):
            yield f"{self._path}[{index}]", spelled

    def _load_path(self, where: str, spelled: str) -> None:
        try:
            listed = self._files.list_queries(spelled)
        except UnreadableError as problem:
            message = f"the folder {quoted(spelled)} cannot be listed: {problem}"
            self.found.append(error("query_dir_unreadable", where, message))
            return
        if listed == []:
            message = f"the folder {quoted(spelled)} has no .gq file"
            self.found.append(warning("query_dir_empty", where, message))
        for path in [spelled] if listed is None else listed:
            self._load_file(where, path)

    def _load_file(self, where: str, path: str) -> None:
        real = os.path.realpath(self._files.locate(path)) if "\0" not in path else path
        if real in self._seen:
            return
        self._seen.add(real)
        content = self._read(where, path)
        if content is None:
            return
        parsed = self._sources.queries(content)
        self._note_problems(where, content)
        for query in () if parsed.diagnostics else parsed.queries:
            self.found += check_name("query", query.name, below(self._path, query.name))
            self._register(query, content)

    def _register(self, query: QueryDecl, content: Content) -> None:
        where = below(self._path, query.name)
        first = self.registered.get(query.name)
        if first is not None:
            places = sorted({first.content.path, content.path})
            message = f"the query is declared twice, in {' and '.join(map(quoted, places))}"
            self.found.append(error("duplicate_query_name", where, message))
            return
        self.registered[query.name] = Registered(query, content)

    def _load_named(self, name: str, file: str) -> None:
        where = below(self._path, name)
        self.found += check_name("query", name, where)
        content = self._read(f"{where}.file", file)
        if content is None:
            return
        parsed = self._sources.queries(content)
        if parsed.diagnostics:
            if content.digest not in self._seen:
                self._seen.add(content.digest)
                self._note_problems(f"{where}.file", content)
            return
        declared = [query for query in parsed.queries if query.name == name]
        if not declared:
            names = [query.name for query in parsed.queries]
            message = _mismatch(name, content, names)
            self.found.append(error("query_key_mismatch", where, message))
            return
        for query in declared:
            self._register(query, content)

    def _read(self, where: str, path: str) -> Content | None:
        return self._files.read_declared(
            path, code="query_file_missing", where=where, found=self.found
        )

    def _note_problems(self, where: str, content: Content) -> None:
        self.found += [
            error("query_parse_error", where, message_of(problem, content.path))
            for problem in self._sources.queries(content).diagnostics
        ]


def _mismatch(name: str, content: Content, declared: list[str]) -> str:
    near = nearest_name(name, declared)
    known = ", ".join(sorted(declared)) or "no query"
    remedy = f"did you mean {quoted(near)}?" if near else f"it has {known}"
    return f"{quoted(content.path)} declares no query {quoted(name)}; {remedy}"
