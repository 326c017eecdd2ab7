"""From the text of queries to their plans.

A text is parsed into one tree per query. Each query then goes through `PASSES`, in order:

| pass | takes | gives |
|---|---|---|
| `check` | the tree | names and types resolved against a catalog, or diagnostics |
| `lower` | a checked read | operators; a checked mutation is its own plan |
| `prune` | the plan of a read | the same plan, with the columns that each operator fetches |

`cached_queries` is the one cache of trees and plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from omnigraph.cache import BoundedCache
from omnigraph.dataclass import dataclass
from omnigraph.query.check.checked import CheckedRead
from omnigraph.query.check.query import check_query
from omnigraph.query.language.parse import QueryText, parse_queries, text_length
from omnigraph.query.language.tree import QueryDecl, QueryFile
from omnigraph.query.lower import lower_read
from omnigraph.query.plan.plan import Plan, ReadPlan
from omnigraph.query.plan.prune import prune_read
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax import Diagnostic, SourceError, SourceText

CATALOGS_PER_TEXT_MAX: Final = 4
"""Branches with different schemas may run the same text; more than a few at a time is rare."""
TEXTS_MAX: Final = 512
TEXT_BYTES_MAX: Final = 2 * 1024 * 1024
"""A tree takes some twenty times the memory of its text."""
_SHARES_MIN: Final = 8


# -- passes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compilation:
    """One query on its way to a plan; a pass that finds problems is the last one to run."""

    catalog: Catalog
    source: SourceText
    form: QueryDecl | CheckedRead | Plan | None
    diagnostics: tuple[Diagnostic, ...] = ()


def check(given: Compilation) -> Compilation:
    """Resolve names and types against the catalog."""
    if not isinstance(given.form, QueryDecl):
        return given
    checked, found = check_query(given.form, given.catalog, given.source)
    return replace(given, form=checked, diagnostics=found)


def lower(given: Compilation) -> Compilation:
    """Turn a checked read into a pipeline of operators."""
    if not isinstance(given.form, CheckedRead):
        return given
    return replace(given, form=lower_read(given.form))


def prune(given: Compilation) -> Compilation:
    """Fill in the columns that each operator of a read fetches."""
    if not isinstance(given.form, ReadPlan):
        return given
    return replace(given, form=prune_read(given.form))


PASSES: Final[tuple[Callable[[Compilation], Compilation], ...]] = (check, lower, prune)


def try_compile(
    query: QueryDecl, catalog: Catalog, source: SourceText
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan, or None and what is wrong. Never raises."""
    state = Compilation(catalog, source, query)
    for run in PASSES:
        state = run(state)
        if state.diagnostics:
            return None, state.diagnostics
    if isinstance(state.form, QueryDecl | CheckedRead):
        raise TypeError("the passes gave no plan")
    return state.form, ()


def compile_query(query: QueryDecl, catalog: Catalog, source: SourceText) -> Plan:
    """Return the plan of one query, or raise `SourceError` with everything that is wrong in it.

    `source` is the text that the query was parsed from: `QueryFile.source`.
    """
    plan, found = try_compile(query, catalog, source)
    if plan is None:
        raise SourceError(found)
    return plan


def compile_queries(file: QueryFile, catalog: Catalog) -> tuple[Plan, ...]:
    """Return the plans of all queries of a file; the problems of all of them are raised at once."""
    plans: list[Plan] = []
    problems: list[Diagnostic] = []
    for query in file.queries:
        plan, found = try_compile(query, catalog, file.source)
        problems += found
        if plan is not None:
            plans.append(plan)
    if problems:
        raise SourceError(problems)
    return tuple(plans)


# -- the cache ----------------------------------------------------------------------------------


class CachedQueries:
    """The queries of one text, and their plans for the most recent catalogs.

    Safe to share between threads: two that compile the same query at the same time get equal plans,
    and either plan may stay.
    """

    def __init__(self, file: QueryFile) -> None:
        self.file = file
        self._plans: tuple[tuple[Catalog, dict[int, Plan]], ...] = ()

    def plan(self, query: QueryDecl, catalog: Catalog) -> Plan:
        """Return the plan of a query of `file`, or raise `SourceError`."""
        plans = self._plans_for(catalog)
        plan = plans.get(id(query))
        if plan is None:
            plan = plans[id(query)] = compile_query(query, catalog, self.file.source)
        return plan

    def plans(self, catalog: Catalog) -> tuple[Plan, ...]:
        """Return the plans of all queries, or raise `SourceError` with the problems of all."""
        plans, queries = self._plans_for(catalog), self.file.queries
        if len(plans) < len(queries):
            compiled = compile_queries(self.file, catalog)
            plans.update(zip(map(id, queries), compiled, strict=True))
        return tuple([plans[id(query)] for query in queries])

    def _plans_for(self, catalog: Catalog) -> dict[int, Plan]:
        """Return the plans for a catalog by the identity of their query, which `file` keeps."""
        for known, plans in self._plans:
            if known is catalog:
                return plans
        plans = {}
        self._plans = ((catalog, plans), *self._plans[: CATALOGS_PER_TEXT_MAX - 1])
        return plans


_TEXTS: Final = BoundedCache[CachedQueries](
    TEXT_BYTES_MAX, entries_max=TEXTS_MAX, shares_min=_SHARES_MIN
)


def cached_queries(text: QueryText) -> CachedQueries:
    """Return the queries of a text with their plans; the same text again is a look-up.

    Raises `SourceError` with everything that is wrong in the text.
    """
    queries = _TEXTS.get(text)
    if queries is None:
        queries = CachedQueries(parse_queries(text))
        _TEXTS.put(text, queries, text_length(text))
    return queries


def compile_text(text: QueryText, catalog: Catalog) -> tuple[Plan, ...]:
    """Return the plans of all queries of a text; the same text and catalog again are a look-up.

    >>> from omnigraph.schema import compile_schema
    >>> schema = compile_schema("node Ship { hull: String @key }", domain="01J" + "0" * 23)
    >>> plans = compile_text("query all() { match { $s: Ship } return { $s } }", schema.catalog)
    >>> plans[0].name
    'all'
    """
    return cached_queries(text).plans(catalog)
