"""Compiling trees that no text can spell, and files of several queries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.query import (
    cached_queries,
    compile_queries,
    compile_query,
    compile_text,
    parse_queries,
    print_plan,
)
from omnigraph.query.check.connected import connected
from omnigraph.query.compile import CATALOGS_PER_TEXT_MAX
from omnigraph.query.language.tree import Filter, Membership, PropertyRef, ReadBody
from omnigraph.query.plan.plan import MutationPlan
from omnigraph.schema import compile_schema
from omnigraph.syntax import SourceError, Span
from support.catalogs import crew_catalog

HERE = Span(0, 0)


def test_membership_in_a_list_property_is_containment() -> None:
    file = parse_queries("query q() { match { $c: Crew } return { $c.tag } }")
    (query,) = file.queries
    body = query.body
    assert isinstance(body, ReadBody)
    member = Membership(PropertyRef("c", "tag", HERE), PropertyRef("c", "skills", HERE), True, HERE)
    changed = replace(query, body=replace(body, clauses=(*body.clauses, Filter(member, HERE))))
    plan = compile_query(changed, crew_catalog(), file.source)
    assert "where not (c.skills has c.tag)" in print_plan(plan)


def test_a_file_gives_one_plan_per_query_in_order() -> None:
    file = parse_queries(
        "query b() { match { $c: Crew } return { $c } } query a($t: String) "
        "{ delete Crew where tag = $t }"
    )
    assert [plan.name for plan in compile_queries(file, crew_catalog())] == ["b", "a"]


def test_problems_of_all_queries_come_in_source_order() -> None:
    file = parse_queries(
        "query b() { match { $c: Crw } return { $d } }\nquery a() { delete Crw where tag = 1 }"
    )
    with pytest.raises(SourceError) as raised:
        compile_queries(file, crew_catalog())
    found = [(d.position.line, d.code, d.subject) for d in raised.value.diagnostics]
    assert found == [
        (1, "T1", "query 'b'"),
        (1, "T101", "query 'b'"),
        (2, "T10", "query 'a'"),
    ]


@pytest.mark.parametrize(
    ("statement", "strict"),
    [
        ("insert Crew { tag: $t }", False),
        ("upsert Crew { tag: $t }", False),
        ("update Crew set { rank: 1 } where tag = $t", True),
        ("delete Crew where tag = $t", True),
        ("insert Crew { tag: $t } delete Crew where tag = $t", True),
    ],
)
def test_updates_and_deletes_make_a_mutation_strict(statement: str, strict: bool) -> None:
    file = parse_queries(f"query q($t: String) {{ {statement} }}")
    (plan,) = compile_queries(file, crew_catalog())
    assert isinstance(plan, MutationPlan)
    assert plan.is_strict is strict


def test_parts_are_numbered_by_first_appearance() -> None:
    assert connected(["b", "a", "c"], [("a", "c"), ("a", "a")]) == {"b": 0, "a": 1, "c": 1}
    assert connected([], []) == {}


TWO = (
    "query a() { match { $c: Crew } return { $c } } query b() { match { $c: Crew } return { $c } }"
)


def test_a_text_is_parsed_and_compiled_once() -> None:
    catalog = crew_catalog()
    queries = cached_queries(TWO)
    plans = compile_text(TWO, catalog)
    assert cached_queries(TWO) is queries
    assert all(again is plan for again, plan in zip(queries.plans(catalog), plans, strict=True))
    assert queries.plan(queries.file.queries[1], catalog) is plans[1]


def test_a_cached_text_has_a_plan_for_each_catalog() -> None:
    text = "query q() { match { $s: Ship } return { $s.hull } }"
    known, unknown = (
        compile_schema(f"node {name} {{ hull: String @key }}", domain="01J" + "0" * 23).catalog
        for name in ("Ship", "Boat")
    )
    (plan,) = compile_text(text, known)
    with pytest.raises(SourceError, match="Ship"):
        compile_text(text, unknown)
    assert compile_text(text, known) == (plan,)


def test_a_cached_text_forgets_the_plans_of_the_oldest_catalog() -> None:
    text = "query q() { match { $s: Ship } return { $s.hull } }"
    catalogs = [
        compile_schema("node Ship { hull: String @key }", domain="01J" + "0" * 23).catalog
        for _ in range(CATALOGS_PER_TEXT_MAX + 1)
    ]
    queries = cached_queries(text)
    (first, second, *_) = [queries.plans(catalog) for catalog in catalogs]
    assert queries.plans(catalogs[1])[0] is second[0]
    assert queries.plans(catalogs[0])[0] is not first[0]
