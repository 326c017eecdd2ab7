"""From a parsed query to its plan: type check, then lowering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from omnigraph.query.cache import TextCache
from omnigraph.query.check.checked import CheckedRead
from omnigraph.query.check.query import check_query
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.language.tree import QueryDecl, QueryFile
from omnigraph.query.lower import lower_read
from omnigraph.query.plan.plan import MutationPlan, Plan
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax import Diagnostic, SourceError, SourceText

_PLANS: Final[TextCache[tuple[Plan, ...]]] = TextCache()
_PLAN_OF: Final[TextCache[Plan]] = TextCache()


@dataclass(frozen=True, eq=False)
class _Same:
    """A cache key that is equal for one object only, and keeps that object alive."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def compile_text(text: str, catalog: Catalog) -> tuple[Plan, ...]:
    """Return the plans of all queries of a text; the same text and catalog again are a look-up.

    >>> from omnigraph.schema import compile_schema
    >>> schema = compile_schema("node Ship { hull: String @key }", domain="01J" + "0" * 23)
    >>> plans = compile_text("query all() { match { $s: Ship } return { $s } }", schema.catalog)
    >>> plans[0].name
    'all'
    """
    return _PLANS.get_or_compute(
        (text, _Same(catalog)),
        len(text),
        lambda: compile_queries(parse_queries(text), catalog),
    )


def compile_query(query: QueryDecl, catalog: Catalog, source: SourceText) -> Plan:
    """Return the plan of one query, or raise `SourceError` with everything that is wrong in it.

    `source` is the text that the query was parsed from: `QueryFile.source`. The same query and
    catalog again are a look-up.
    """
    return _PLAN_OF.get_or_compute(
        (_Same(query), _Same(catalog)),
        len(source.text),
        lambda: _compiled(query, catalog, source),
    )


def _compiled(query: QueryDecl, catalog: Catalog, source: SourceText) -> Plan:
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


def try_compile(
    query: QueryDecl, catalog: Catalog, source: SourceText
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Return the plan, or None and what is wrong. Never raises."""
    checked = check_query(query, catalog, source)
    if isinstance(checked.query, CheckedRead):
        return lower_read(checked.query), ()
    plan: MutationPlan | None = checked.query
    return plan, checked.diagnostics
