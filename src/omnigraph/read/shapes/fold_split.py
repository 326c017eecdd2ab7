"""Which hops of an aggregate are folded: counted and added up, not written out as rows.

`match { $a: Person  $a knows $b  $b knows $c } return { count($c) }` needs no row per path,
and from `$b` not even one per edge. A pipeline is split into operators whose rows are needed and
the rest:

1. A variable is *needed* when a group depends on it, when a filter or a block compares it with
   another one, or when an aggregate has to see its values one by one: with `distinct`, or sums of
   floats, which depend on their order.
2. Hops are folded unless they lead to a needed variable. Filters and negations over one variable
   go with that variable.
3. The tree of hops may start at any of its nodes. Each start gives a split; the one with the least
   estimated work is taken, and a pipeline that is not split is one of the candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.query.plan.plan import (
    AggregateValue,
    AntiJoin,
    CycleEnd,
    EntityId,
    Expand,
    Filter,
    NodeScan,
    Operator,
    PropertyValue,
    ReadPlan,
    Value,
)
from omnigraph.query.plan.walk import needed_variables, value_variables
from omnigraph.read.liveness import ignores_repeats
from omnigraph.read.planner import (
    Estimates,
    leading_part,
    possible_scans,
    rooted_at,
    turned,
)
from omnigraph.values import PropType, Scalar

_WHOLE: Final = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)
_ROW_WORK: Final = 8.0
"""Writing out a row takes as long as looking at so many steps."""
_LITTLE_WORK: Final = 1_000.0
"""Below this no other start is looked for."""
_ARRIVING_WORK: Final = 4.0
_TEST_SHARE: Final = 0.5


@dataclass(frozen=True)
class FoldSplit:
    """A pipeline of an aggregate in two parts: `kept + folded` has the same rows."""

    kept: tuple[Operator, ...]
    folded: tuple[Operator, ...]
    work: float = 0.0
    """Estimated, in steps."""


def best_split(plan: ReadPlan, estimates: Estimates) -> FoldSplit | None:
    """Return the cheapest way to run an aggregate with folded hops; None to write all out."""
    if not plan.is_aggregate or plan.ranking is not None or not plan.pipeline:
        return None
    needed = needed_as_rows(plan)
    if needed is None or (ignores_repeats(plan) and not _has_folded_extremes(plan, needed)):
        return None
    best: FoldSplit | None = None
    for pipeline in arrangements(plan.pipeline):
        split = split_pipeline(pipeline, needed)
        work = work_of(split, estimates)
        if best is None or work < best.work:
            best = replace(split, work=work)
        if best.folded and best.work < _LITTLE_WORK:
            break
    return best if best is not None and best.folded else None


# -- what is needed as rows ---------------------------------------------------------------------


def needed_as_rows(plan: ReadPlan) -> frozenset[str] | None:
    """Return the variables of groups and aggregates whose rows matter; None when all rows do."""
    needed: set[str] = set()
    for column in plan.columns:
        value = column.expression
        if isinstance(value, AggregateValue) and _is_float_sum(value):
            return None
        if not isinstance(value, AggregateValue) or not _is_foldable(value):
            needed |= set(value_variables(value))
    return frozenset(needed)


def _is_float_sum(value: AggregateValue) -> bool:
    is_sum = value.function in ("sum", "avg") and not value.distinct
    return is_sum and not _is_whole(value.argument.prop_type)


def is_whole_sum(value: AggregateValue) -> bool:
    """Whether an aggregate adds whole numbers up."""
    return value.function in ("sum", "avg") and _is_whole(value.argument.prop_type)


def _is_foldable(value: AggregateValue) -> bool:
    """Whether an aggregate can be made from totals of nodes."""
    if value.function in ("min", "max"):
        return isinstance(value.argument, PropertyValue) and not value.argument.prop_type.is_list
    if value.distinct:
        return False
    if value.function == "count":
        return isinstance(value.argument, PropertyValue | EntityId)
    return isinstance(value.argument, PropertyValue) and _is_whole(value.argument.prop_type)


def _is_whole(prop_type: PropType) -> bool:
    return not prop_type.is_list and prop_type.scalar in _WHOLE


def _has_folded_extremes(plan: ReadPlan, needed: frozenset[str]) -> bool:
    """Whether groups ask for the extreme of another variable: sets of pairs would be many."""
    values: list[Value] = [column.expression for column in plan.columns]
    return bool(plan.group_keys) and any(
        isinstance(value, AggregateValue) and not needed.issuperset(value_variables(value))
        for value in values
    )


# -- splitting ----------------------------------------------------------------------------------


def arrangements(pipeline: tuple[Operator, ...]) -> Iterator[tuple[Operator, ...]]:
    """Yield the pipeline as it is, and rooted at each of its other nodes."""
    yield pipeline
    part = leading_part(pipeline)
    if part is None:
        return
    rest = pipeline[len(part.operators) :]
    if not all(_is_test(operator) for operator in (*part.others, *rest)):
        return
    for root in possible_scans(part):
        if root != part.scan.variable:
            yield (*rooted_at(part, root, set()), *rest)


def split_pipeline(pipeline: tuple[Operator, ...], needed: frozenset[str]) -> FoldSplit:
    """Separate the hops that lead to nothing needed, with the tests of their variables.

    They can run last: no other operator depends on what they add to a row.
    """
    wanted = set(needed)
    for operator in pipeline:
        if not _is_hop(operator) and not _is_test(operator):
            wanted |= set(needed_variables(operator))
    folded: set[int] = set()
    for position in reversed(range(len(pipeline))):
        operator = pipeline[position]
        if not isinstance(operator, Expand) or not _is_hop(operator):
            continue
        if {operator.target, operator.edge_variable} & wanted:
            wanted.add(operator.source)
        else:
            folded.add(position)
    names = {name for position in folded for name in introduced(pipeline[position])}
    for position, operator in enumerate(pipeline):
        if _is_test(operator) and names.issuperset(needed_variables(operator)):
            folded.add(position)
    kept = tuple(op for place, op in enumerate(pipeline) if place not in folded)
    return FoldSplit(kept, tuple(pipeline[place] for place in sorted(folded)))


def _is_hop(operator: Operator) -> bool:
    return isinstance(operator, Expand) and not isinstance(operator.target, CycleEnd)


def _is_test(operator: Operator) -> bool:
    """Whether an operator only drops rows, by one variable."""
    if not isinstance(operator, Filter | AntiJoin):
        return False
    return len(set(needed_variables(operator))) == 1


def introduced(operator: Operator) -> set[str]:
    """Return the variables that a hop introduces; nothing for other operators."""
    if not isinstance(operator, Expand):
        return set()
    return {name for name in (operator.target, operator.edge_variable) if name is not None}


# -- estimates ----------------------------------------------------------------------------------


def work_of(split: FoldSplit, estimates: Estimates) -> float:
    """Estimate the work of a split, in steps."""
    work, rows = 0.0, 1.0
    nodes: dict[str, float] = {}
    for operator in split.kept:
        if isinstance(operator, NodeScan):
            nodes[operator.variable] = estimates.nodes(operator.type_name, operator.filters)
            rows *= nodes[operator.variable]
            work += rows
        elif isinstance(operator, Expand):
            rows *= estimates.fanout(operator) * _share(estimates, operator)
            nodes[operator.target] = min(rows, _passing(estimates, operator))
            work += rows * _ROW_WORK
        else:
            rows *= _TEST_SHARE
    return work + _folded_work(split.folded, nodes, estimates)


def _folded_work(
    folded: tuple[Operator, ...], nodes: dict[str, float], estimates: Estimates
) -> float:
    work = 0.0
    hops = [operator for operator in folded if isinstance(operator, Expand)]
    behind = {hop.source for hop in hops}
    tested = {name for test in folded for name in needed_variables(test)} - behind
    for hop in hops:
        starts = nodes.get(hop.source, estimates.everything(hop.source_type))
        steps = starts * max(estimates.fanout(hop), 1.0)
        passing = _passing(estimates, hop)
        nodes[hop.target] = min(steps, passing)
        is_counted = hop.target not in behind and not hop.target_filters
        if is_counted and {hop.target, hop.edge_variable}.isdisjoint(tested):
            work += starts
            continue
        everywhere = estimates.everything(hop.source_type)
        back = (
            passing
            * estimates.fanout(turned(hop, NodeScan(hop.source, hop.source_type)))
            * _ARRIVING_WORK
            + everywhere
        )
        work += min(steps, back)
    return work


def _share(estimates: Estimates, hop: Expand) -> float:
    return _passing(estimates, hop) / max(estimates.everything(hop.target_type), 1.0)


def _passing(estimates: Estimates, hop: Expand) -> float:
    return estimates.nodes(hop.target_type, hop.target_filters)
