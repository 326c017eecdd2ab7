"""Compiling trees that no text can spell, and files of several queries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.query import compile_queries, compile_query, parse_queries, print_plan
from omnigraph.query.check.connected import connected
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


def test_the_same_query_of_the_same_text_and_catalog_is_compiled_once() -> None:
    text = "query all() { match { $s: Ship } return { $s.hull } }"
    first, second = (
        compile_schema("node Ship { hull: String @key }", domain="01J" + "0" * 23).catalog
        for _ in range(2)
    )
    file = parse_queries(text)
    plan = compile_query(file.queries[0], first, file.source)
    assert compile_query(file.queries[0], first, file.source) is plan
    assert compile_query(file.queries[0], second, file.source) is not plan
