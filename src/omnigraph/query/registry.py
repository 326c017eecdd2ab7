"""The registry of stored queries: queries that a server runs by name.

Everything here is a function from texts to values. The caller reads the texts, and checks the types
of a registered query against a live catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from omnigraph.errors import InvalidInputError
from omnigraph.names import nearest_name
from omnigraph.query.json_kinds import described
from omnigraph.query.language import codes
from omnigraph.query.language.parse import TolerantQueries, parse_queries_tolerant
from omnigraph.query.language.tree import QueryDecl, QueryFile
from omnigraph.query.select import QuerySelectionError, listed, select_query
from omnigraph.records import JsonObject
from omnigraph.syntax import Diagnostic, SourceText


@dataclass(frozen=True)
class RegistryEntry:
    """What a registry says about one query: its key, the text that has it, and how it is shown."""

    key: str
    source: SourceText
    expose: bool = True
    tool_name: str | None = None


@dataclass(frozen=True)
class StoredQuery:
    """A query that can be invoked by name."""

    query: QueryDecl
    source: SourceText
    expose: bool
    tool_name: str

    @property
    def name(self) -> str:
        """The name of the query, which is also its key."""
        return self.query.name

    @cached_property
    def catalog_entry(self) -> JsonObject:
        """The JSON form in a list of queries; absent annotations are left out."""
        entry: JsonObject = {"name": self.name, "tool_name": self.tool_name}
        if self.query.description is not None:
            entry["description"] = self.query.description
        if self.query.instruction is not None:
            entry["instruction"] = self.query.instruction
        entry["mutation"] = self.query.is_mutation
        entry["params"] = [described(p.name, p.prop_type) for p in self.query.parameters]
        return entry


@dataclass(frozen=True)
class RegistryProblem:
    """One thing wrong with a registry.

    `key` is the entry it concerns. A mistake in a text is reported once, under the first entry of
    that text, and carries its diagnostic.
    """

    code: str
    key: str
    message: str
    hint: str | None = None
    diagnostic: Diagnostic | None = None


class RegistryError(InvalidInputError):
    """A registry cannot be loaded; carries every problem."""

    code = "OG-REGISTRY"

    def __init__(self, problems: Iterable[RegistryProblem]) -> None:
        self.problems: tuple[RegistryProblem, ...] = tuple(problems)
        hints = (problem.hint for problem in self.problems if problem.hint)
        self.hint = next(hints, "fix the registry, then try again")
        lines = (f"stored query '{problem.key}': {problem.message}" for problem in self.problems)
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class Registry:
    """Stored queries, sorted by name, and what the loader warns about."""

    queries: tuple[StoredQuery, ...] = ()
    warnings: tuple[RegistryProblem, ...] = ()

    @cached_property
    def _by_name(self) -> dict[str, StoredQuery]:
        return {stored.name: stored for stored in self.queries}

    def find(self, name: str) -> StoredQuery:
        """Return a query by name, exposed or not."""
        stored = self._by_name.get(name)
        if stored is None:
            raise QuerySelectionError(name, tuple(self._by_name))
        return stored

    def catalog(self) -> list[JsonObject]:
        """Return the entries of exposed queries, sorted by name."""
        return [stored.catalog_entry for stored in self.queries if stored.expose]


@dataclass(frozen=True)
class LoadedRegistry:
    """What could be loaded, and everything that could not."""

    registry: Registry
    problems: tuple[RegistryProblem, ...]

    def raise_on_errors(self) -> Registry:
        """Return a registry without problems, else raise `RegistryError`."""
        if self.problems:
            raise RegistryError(self.problems)
        return self.registry


def load_registry(entries: Iterable[RegistryEntry]) -> LoadedRegistry:
    """Read all entries; one that is wrong does not keep the others from being loaded.

    A text with a mistake anywhere is not loaded at all: it would be served in part.
    """
    known = tuple(entries)
    texts: dict[SourceText, TolerantQueries] = {}
    stored: dict[str, StoredQuery] = {}
    problems: list[RegistryProblem] = []
    for entry in known:
        if entry.source not in texts:
            texts[entry.source] = parse_queries_tolerant(entry.source)
            problems += _text_problems(entry, texts[entry.source])
        parsed = texts[entry.source]
        if parsed.diagnostics:
            continue
        problem = _entry_problem(entry, parsed.file, stored)
        if problem is not None:
            problems.append(problem)
            continue
        query = select_query(parsed.file, entry.key)
        tool_name = entry.key if entry.tool_name is None else entry.tool_name
        stored[entry.key] = StoredQuery(query, entry.source, entry.expose, tool_name)
    queries = tuple(stored[key] for key in sorted(stored))
    problems += _tool_name_problems(queries)
    return LoadedRegistry(Registry(queries, tuple(_warnings(queries))), tuple(problems))


def _text_problems(entry: RegistryEntry, parsed: TolerantQueries) -> Iterator[RegistryProblem]:
    for diagnostic in parsed.diagnostics:
        yield RegistryProblem(
            diagnostic.code, entry.key, diagnostic.headline, diagnostic.hint, diagnostic
        )


def _entry_problem(
    entry: RegistryEntry, file: QueryFile, stored: dict[str, StoredQuery]
) -> RegistryProblem | None:
    key, text = entry.key, entry.source.name
    names = [query.name for query in file.queries]
    if key in stored:
        message = f"the key '{key}' is registered twice"
        return RegistryProblem(codes.REGISTRY_KEY_REPEATED, key, message, "keep one of the two")
    if not key:
        message = f"the read in '{text}' has no name"
        hint = "write `query name() { … }` around it"
        return RegistryProblem(codes.REGISTRY_KEY_UNKNOWN, key, message, hint)
    if key not in names:
        typo = nearest_name(key, names)
        hint = f"did you mean '{typo}'?" if typo else f"the text has {listed(names)}"
        message = f"'{text}' has no query called '{key}'"
        return RegistryProblem(codes.REGISTRY_KEY_UNKNOWN, key, message, hint)
    if names.count(key) > 1:
        message = f"'{text}' has {names.count(key)} queries called '{key}'"
        return RegistryProblem(codes.QUERY_REPEATED, key, message, "rename all but one of them")
    return None


def _tool_name_problems(queries: Iterable[StoredQuery]) -> Iterator[RegistryProblem]:
    taken: dict[str, str] = {}
    for stored in queries:
        if not stored.expose:
            continue
        first = taken.setdefault(stored.tool_name, stored.name)
        if first != stored.name:
            message = f"tool name '{stored.tool_name}' is already taken by query '{first}'"
            hint = "give one of the two another `tool_name`, or set `expose: false`"
            yield RegistryProblem(codes.TOOL_NAME_REPEATED, stored.name, message, hint)


def _warnings(queries: Iterable[StoredQuery]) -> Iterator[RegistryProblem]:
    for stored in queries:
        vectors = [p.name for p in stored.query.parameters if p.prop_type.is_vector]
        if stored.expose and vectors:
            message = f"parameter `${vectors[0]}` is a vector, which few callers of a tool have"
            hint = "take a String instead: `nearest` embeds it, or set `expose: false`"
            yield RegistryProblem(codes.VECTOR_PARAMETER_EXPOSED, stored.name, message, hint)
