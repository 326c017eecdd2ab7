"""Numbers of a plan that arrive with the request: `limit $n`, `offset $n`, `{1,$k}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from omnigraph.query.language import codes
from omnigraph.query.params import BoundValue, Params, ParamsError, param_problem
from omnigraph.query.plan.plan import (
    AntiJoin,
    Expand,
    NearestRanking,
    Operator,
    OptionalMatch,
    Ranking,
    ReadPlan,
    RrfRanking,
)
from omnigraph.query.plan.walk import walk_operators

RRF_DEPTH_FACTOR: Final = 4
RRF_DEPTH_MIN: Final = 100
"""An arm of a fused ranking ranks `RRF_DEPTH_FACTOR` times the limit, at least this many rows."""


def with_numbers(plan: ReadPlan, params: Params) -> ReadPlan:
    """Return the plan with the numbers of a request, or raise `ParamsError`."""
    limit, offset = plan.limit, plan.offset
    if plan.limit_parameter is not None:
        limit = _number(plan.limit_parameter, params, "a limit", least=0)
    if plan.offset_parameter is not None:
        offset = _number(plan.offset_parameter, params, "an offset", least=0)
    if (limit, offset) != (plan.limit, plan.offset):
        wanted = candidates_of(plan.ranking, limit, offset)
        plan = replace(plan, limit=limit, offset=offset, candidates=wanted)
    if any(_has_open_bound(operator) for operator in walk_operators(plan.pipeline)):
        plan = replace(plan, pipeline=_bounded(plan.pipeline, params))
    return plan


def candidates_of(ranking: Ranking | None, limit: int | None, offset: int | None) -> int | None:
    """Return how many nodes a ranking keeps; None for all."""
    if limit is None:
        return None
    wanted = limit + (offset or 0)
    if isinstance(ranking, NearestRanking):
        return wanted
    if isinstance(ranking, RrfRanking):
        return max(wanted * RRF_DEPTH_FACTOR, RRF_DEPTH_MIN)
    return None


def _has_open_bound(operator: Operator) -> bool:
    return isinstance(operator, Expand) and operator.max_parameter is not None


def _bounded(pipeline: tuple[Operator, ...], params: Params) -> tuple[Operator, ...]:
    return tuple(_bounded_operator(operator, params) for operator in pipeline)


def _bounded_operator(operator: Operator, params: Params) -> Operator:
    if isinstance(operator, AntiJoin | OptionalMatch):
        return replace(operator, pipeline=_bounded(operator.pipeline, params))
    if not isinstance(operator, Expand) or operator.max_parameter is None:
        return operator
    highest = _number(operator.max_parameter, params, "the bound of a hop", least=operator.min)
    is_chain = operator.source_type == operator.target_type
    return replace(operator, max=highest if is_chain else 1, max_parameter=None)


def _number(name: str, params: Mapping[str, BoundValue], what: str, *, least: int) -> int:
    found = params[name].value
    if isinstance(found, int) and found >= least:
        return found
    shown = "null" if found is None else str(found)
    problem = f"{what} is a whole number from {least}, found {shown}"
    raise ParamsError([param_problem(codes.PARAM_RANGE, name, problem)])
