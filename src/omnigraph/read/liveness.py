"""Which variables the rest of a plan still needs, and whether repeated rows matter to it.

1. A variable that nothing after an operator mentions is dropped there. No row is dropped.
2. When the result only depends on *which* rows there are (a distinct result, or aggregates that
   see each value once), equal rows are merged as soon as they are equal.
"""

from __future__ import annotations

from omnigraph.query.plan.plan import AggregateValue, Operator, ReadPlan, Value
from omnigraph.query.plan.walk import needed_variables, value_variables

_SET_AGGREGATES = ("min", "max")


def ignores_repeats(plan: ReadPlan) -> bool:
    """Whether merging equal rows of the pipeline leaves the result unchanged."""
    if plan.ranking is not None:
        return False
    if not plan.is_aggregate:
        return plan.distinct
    return all(
        value.distinct or value.function in _SET_AGGREGATES
        for column in plan.columns
        if isinstance(value := column.expression, AggregateValue)
    )


def result_variables(plan: ReadPlan) -> frozenset[str]:
    """Return the variables that the result is made from."""
    values: list[Value] = [column.expression for column in plan.columns]
    values += [key.expression for key in plan.order]
    found = {name for value in values for name in value_variables(value)}
    if plan.ranking is not None:
        found.add(plan.ranking.variable)
    return frozenset(found)


def live_after(
    pipeline: tuple[Operator, ...], wanted: frozenset[str]
) -> tuple[frozenset[str], ...]:
    """Return for each operator the variables that are still needed after it."""
    live: list[frozenset[str]] = []
    needed = wanted
    for operator in reversed(pipeline):
        live.append(needed)
        needed |= frozenset(needed_variables(operator))
    return tuple(reversed(live))
