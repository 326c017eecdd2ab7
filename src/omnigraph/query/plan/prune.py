"""Which columns of a variable a plan needs after the operator that introduces it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from omnigraph.query.plan.plan import (
    AggregateValue,
    AntiJoin,
    Expand,
    Filter,
    NodeScan,
    Operator,
    OptionalMatch,
    Predicate,
    PropertyValue,
    ReadPlan,
    RrfRanking,
    Score,
    Value,
)
from omnigraph.query.plan.walk import predicate_values, walk_operators

_Needs = defaultdict[str, set[str]]


def prune_read(plan: ReadPlan) -> ReadPlan:
    """Fill in the properties that each operator has to fetch."""
    needs: _Needs = defaultdict(set)
    _add_pipeline(needs, plan.pipeline)
    _add_values(needs, (column.expression for column in plan.columns), plan)
    _add_values(needs, (key.expression for key in plan.order), plan)
    return replace(plan, pipeline=_filled(plan.pipeline, needs))


def _add_pipeline(needs: _Needs, pipeline: tuple[Operator, ...]) -> None:
    for operator in walk_operators(pipeline):
        if isinstance(operator, Filter):
            _add_predicate(needs, operator.predicate)


def _add_predicate(needs: _Needs, predicate: Predicate) -> None:
    for value in predicate_values(predicate):
        if isinstance(value, PropertyValue):
            needs[value.variable].add(value.property)


def _add_values(needs: _Needs, values: Iterable[Value], plan: ReadPlan) -> None:
    for value in values:
        if isinstance(value, PropertyValue):
            needs[value.variable].add(value.property)
        elif isinstance(value, AggregateValue):
            _add_values(needs, [value.argument], plan)
        elif isinstance(value, Score) and value.ranking != plan.ranking:
            # A score that ranks nothing is computed from the column itself.
            ranking = value.ranking
            arms = [ranking.first, ranking.second] if isinstance(ranking, RrfRanking) else [ranking]
            for arm in arms:
                needs[arm.variable].add(arm.property)


def _filled(pipeline: tuple[Operator, ...], needs: _Needs) -> tuple[Operator, ...]:
    return tuple(_filled_operator(operator, needs) for operator in pipeline)


def _filled_operator(operator: Operator, needs: _Needs) -> Operator:
    match operator:
        case NodeScan():
            properties = _sorted(needs, operator.variable)
            return replace(operator, properties=properties) if properties else operator
        case Expand():
            properties = _sorted(needs, operator.target)
            edge_properties = _sorted(needs, operator.edge_variable)
            if not properties and not edge_properties:
                return operator
            return replace(operator, properties=properties, edge_properties=edge_properties)
        case OptionalMatch():
            return replace(operator, pipeline=_filled(operator.pipeline, needs))
        case AntiJoin():
            inner: _Needs = defaultdict(set)
            _add_pipeline(inner, operator.pipeline)
            return replace(operator, pipeline=_filled(operator.pipeline, inner))
        case Filter():
            return operator


def _sorted(needs: _Needs, variable: str | None) -> tuple[str, ...]:
    return tuple(sorted(needs[variable])) if variable in needs and variable is not None else ()
