"""Properties of lowering: what holds for the plan of every query that compiles."""

from __future__ import annotations

import copy
import pickle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.query import ReadPlan, compile_query, parse_queries, print_plan
from omnigraph.query.check.codes import TYPE_CODES
from omnigraph.query.compile import try_compile
from omnigraph.query.language.tree import QueryDecl
from omnigraph.query.plan.plan import (
    AntiJoin,
    Expand,
    Filter,
    NodeScan,
    Operator,
    OptionalMatch,
    SameId,
)
from omnigraph.query.plan.walk import predicate_variables, value_variables, walk_operators
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax import SourceText
from support.catalogs import crew_catalog, rich_catalog
from support.queries import query_decls
from support.query_texts import CrewText, with_known_names

SOURCE = SourceText("")


def compiled(text: str, catalog: Catalog | None = None) -> ReadPlan:
    file = parse_queries(text)
    plan = compile_query(file.queries[0], catalog or crew_catalog(), file.source)
    assert isinstance(plan, ReadPlan)
    return plan


def check_scope(pipeline: tuple[Operator, ...], outer: frozenset[str]) -> frozenset[str]:
    """Follow a pipeline; every operator may only mention what is known by then."""
    known = set(outer)
    for operator in pipeline:
        match operator:
            case NodeScan():
                assert operator.variable not in known
                known.add(operator.variable)
                for predicate in operator.filters:
                    assert predicate_variables(predicate) == {operator.variable}
            case Expand():
                assert operator.source in known
                assert operator.target not in known
                known.add(operator.target)
                for predicate in operator.target_filters:
                    assert predicate_variables(predicate) == {operator.target}
                if operator.edge_variable is not None:
                    assert operator.edge_variable not in known
                    known.add(operator.edge_variable)
            case Filter(predicate):
                assert predicate_variables(predicate) <= known
            case AntiJoin():
                assert set(operator.outer) <= known
                check_scope(operator.pipeline, frozenset(known))
            case OptionalMatch():
                assert set(operator.outer) <= known
                inner = check_scope(operator.pipeline, frozenset(known))
                assert set(operator.introduces) <= inner
                known |= set(operator.introduces)
    return frozenset(known)


def conditions_of(plan: ReadPlan) -> int:
    found = 0
    for operator in walk_operators(plan.pipeline):
        match operator:
            case NodeScan():
                found += len(operator.filters)
            case Expand():
                found += len(operator.target_filters)
            case Filter(predicate):
                found += not isinstance(predicate, SameId)
            case _:
                pass
    return found


def fetched(pipeline: tuple[Operator, ...]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for operator in walk_operators(pipeline):
        if isinstance(operator, NodeScan):
            found |= {(operator.variable, name) for name in operator.properties}
        elif isinstance(operator, Expand):
            found |= {(operator.target, name) for name in operator.properties}
    return found


@given(st.randoms(use_true_random=False))
def test_a_plan_mentions_only_known_variables_and_keeps_every_condition(random: Random) -> None:
    writer = CrewText(random)
    text = writer.query()
    plan = compiled(text)
    known = check_scope(plan.pipeline, frozenset())
    assert {variable.name for variable in plan.variables} <= known
    assert conditions_of(plan) == writer.conditions
    for value in (*(c.expression for c in plan.columns), *(k.expression for k in plan.order)):
        assert set(value_variables(value)) <= known


@given(st.randoms(use_true_random=False))
def test_compiling_is_deterministic_and_plans_survive_pickling(random: Random) -> None:
    text = CrewText(random).query()
    plan = compiled(text)
    again = compiled(text + " ")
    assert plan == again
    assert print_plan(plan) == print_plan(again)
    assert pickle.dumps(copy.deepcopy(plan)) == pickle.dumps(again)
    assert copy.deepcopy(plan) == plan


@given(st.randoms(use_true_random=False))
def test_a_returned_property_is_fetched(random: Random) -> None:
    plan = compiled(CrewText(random).query())
    wanted = {
        (column.expression.variable, column.expression.property)
        for column in plan.columns
        if hasattr(column.expression, "property")
    }
    assert wanted <= fetched(plan.pipeline)


@pytest.mark.parametrize("catalog", [crew_catalog(), rich_catalog()], ids=["crew", "rich"])
@given(query_decls, st.randoms(use_true_random=False))
def test_any_tree_gives_a_plan_or_documented_problems(
    catalog: Catalog, query: QueryDecl, random: Random
) -> None:
    for tree in (query, with_known_names(query, catalog, random)):
        plan, found = try_compile(tree, catalog, SOURCE)
        assert (plan is None) == bool(found)
        assert {diagnostic.code for diagnostic in found} <= set(TYPE_CODES)
        assert all(d.message.startswith(f"{d.code}: ") for d in found)
        if plan is not None:
            assert print_plan(plan)
            if isinstance(plan, ReadPlan):
                check_scope(plan.pipeline, frozenset())
