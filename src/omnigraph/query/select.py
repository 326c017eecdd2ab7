"""Chooses one query of a file by its name, and checks whether it reads or writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from omnigraph.errors import InvalidInputError
from omnigraph.names import ArgumentError, nearest_name
from omnigraph.query.language.tree import QueryDecl, QueryFile

_NAMES_SHOWN_MAX: Final = 10


class QuerySelectionError(InvalidInputError):
    """A file has no query of the wanted name, or no name was given and one is needed."""

    code = "OG-QUERY-SELECTION"
    wanted: str | None
    known: tuple[str, ...]

    def _message(self) -> str:
        if self.wanted is not None:
            return f"query '{self.wanted}' not found"
        if not self.known:
            return "the text has no query: name one, and give the text that has it"
        return f"the text has {len(self.known)} queries, so the name of one is needed"

    def _hint(self) -> str | None:
        if not self.known:
            return None
        typo = nearest_name(self.wanted, self.known) if self.wanted else None
        return f"did you mean '{typo}'?" if typo else f"it has {listed(self.known)}"


def select_query(file: QueryFile, name: str | None = None) -> QueryDecl:
    """Return the query called `name`, or without a name the only query of the file.

    Of several queries with one name the first is meant; `repeated_queries` finds the others.
    """
    if not isinstance(name, str | None):
        raise ArgumentError.of("name", "the name of a query (parameters are `params=`)", name)
    for query in file.queries:
        if query.name == name or (name is None and len(file.queries) == 1):
            return query
    raise QuerySelectionError(name, tuple(query.name for query in file.queries))


def repeated_queries(file: QueryFile) -> tuple[QueryDecl, ...]:
    """Return each query whose name an earlier query of the file already has."""
    seen: set[str] = set()
    repeated: list[QueryDecl] = []
    for query in file.queries:
        if query.name in seen:
            repeated.append(query)
        seen.add(query.name)
    return tuple(repeated)


class QueryKindError(InvalidInputError):
    """A read was asked for and the query writes, or the reverse."""

    code = "OG-QUERY-KIND"
    name: str
    is_mutation: bool

    def _message(self) -> str:
        kind = "mutation" if self.is_mutation else "read"
        subject = f"'{self.name}'" if self.name else "the query"
        return f"{subject} is a {kind} — use {self._command}"

    def _hint(self) -> str:
        return f"`{self._command}`"

    @property
    def _command(self) -> str:
        return f"omnigraph {'mutate' if self.is_mutation else 'query'} {self.name}".rstrip()


def require_kind(query: QueryDecl, *, expect_mutation: bool | None) -> None:
    """Raise `QueryKindError` unless the query is of the expected kind; None expects nothing."""
    if expect_mutation is not None and expect_mutation != query.is_mutation:
        raise QueryKindError(query.name, query.is_mutation)


def listed(names: Iterable[str]) -> str:
    """Quote names in order, the first ones of many, for a message."""
    known = sorted(set(names) - {""})
    if not known:
        return "no query"
    shown = ", ".join(f"'{name}'" for name in known[:_NAMES_SHOWN_MAX])
    return shown + (
        f" and {len(known) - _NAMES_SHOWN_MAX} more" if known[_NAMES_SHOWN_MAX:] else ""
    )
