"""Arranges the operators of a plan: start at the most selective node, then follow the hops.

The resulting rows stay the same. A part is a scan and the expansions that grow from
it; its hops form a tree, so it may start at any of its nodes: the expansions on the way from the
new start to the old one are reversed. A ranked variable stays where its part starts. Parts inside
`not` and optional blocks are arranged like others; hops from an outer variable are not reordered.

Estimates come from row counts of the manifest and from the form of the filters; nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.names import TableKey
from omnigraph.query.bindings import Bindings
from omnigraph.query.plan.plan import (
    REVERSED,
    AllOf,
    AntiJoin,
    AnyOf,
    Compare,
    Constant,
    CurrentTime,
    CycleEnd,
    EntityId,
    Expand,
    Filter,
    InList,
    IsNull,
    NodeScan,
    Operator,
    OptionalMatch,
    ParameterValue,
    Predicate,
    PropertyValue,
    ReadPlan,
    TextMatch,
)
from omnigraph.query.plan.walk import predicate_variables

EQUALITY_ROWS: Final = 10.0
"""The most rows that an equality is expected to leave; a hundredth of a type if that is fewer."""
_EQUALITY_SHARE: Final = 0.01
_RANGE_SHARE: Final = 0.3
_TEXT_SHARE: Final = 0.05
_NULL_SHARE: Final = 0.1
_OTHER_SHARE: Final = 0.5
_HOPS_ESTIMATED_MAX: Final = 32
"""More hops than this are estimated as so many: the bound of a hop may be any number."""
_GAIN_MIN: Final = 2.0
"""A part starts elsewhere only when that promises at least this many times fewer rows."""


@dataclass(frozen=True)
class Statistics:
    """What is known about a snapshot without reading data."""

    row_count: Callable[[str], int]

    def nodes(self, type_name: str) -> int:
        """Return how many nodes of a type there are."""
        return self.row_count(TableKey.node(type_name))

    def edges(self, type_name: str) -> int:
        """Return how many edges of a type there are."""
        return self.row_count(TableKey.edge(type_name))


# -- estimates ----------------------------------------------------------------------------------


def estimated_nodes(
    statistics: Statistics, type_name: str, filters: tuple[Predicate, ...], bindings: Bindings
) -> float:
    """Estimate how many nodes of a type pass filters."""
    rows = float(statistics.nodes(type_name))
    for predicate in filters:
        rows = min(rows, _estimate(predicate, rows, bindings))
    return rows


def _estimate(  # noqa: PLR0911 - one line per kind of predicate
    predicate: Predicate, rows: float, bindings: Bindings
) -> float:
    match predicate:
        case Compare(left, "=", right) if _is_lookup(left, right) or _is_lookup(right, left):
            return min(EQUALITY_ROWS, max(rows * _EQUALITY_SHARE, 1.0))
        case InList(_, choices, False):
            items = bindings.value_of(choices).value
            count = len(items) if isinstance(items, tuple) else 1
            return count * min(EQUALITY_ROWS, max(rows * _EQUALITY_SHARE, 1.0))
        case Compare(_, operator, _) if operator != "!=":
            return rows * _RANGE_SHARE
        case TextMatch():
            return rows * _TEXT_SHARE
        case IsNull(_, negated):
            return rows if negated else rows * _NULL_SHARE
        case AllOf(operands):
            for operand in operands:
                rows = min(rows, _estimate(operand, rows, bindings))
            return rows
        case AnyOf(operands):
            return min(rows, sum(_estimate(operand, rows, bindings) for operand in operands))
        case _:
            return rows * _OTHER_SHARE


def _is_lookup(stored: object, value: object) -> bool:
    return isinstance(stored, PropertyValue | EntityId) and isinstance(
        value, Constant | ParameterValue | CurrentTime
    )


def estimated_fanout(statistics: Statistics, expand: Expand) -> float:
    """Estimate how many nodes one source reaches."""
    edges = statistics.edges(expand.edge) * (2 if expand.direction == "both" else 1)
    degree = edges / max(statistics.nodes(expand.source_type), 1)
    everything = float(statistics.nodes(expand.target_type))
    reached, step = 0.0, 1.0
    for hop in range(1, min(expand.max, _HOPS_ESTIMATED_MAX) + 1):
        step = min(step * degree, everything)
        reached += step if hop >= expand.min else 0.0
    return min(reached, everything)


# -- arranging ----------------------------------------------------------------------------------


def arrange(plan: ReadPlan, statistics: Statistics, bindings: Bindings) -> ReadPlan:
    """Return a plan with the same rows that starts each part where the fewest nodes are."""
    if len(plan.pipeline) == 1:
        return plan
    ranked = plan.ranking.variable if plan.ranking is not None else None
    arranger = _Arranger(statistics, bindings, ranked)
    return replace(plan, pipeline=arranger.pipeline(plan.pipeline, frozenset()))


@dataclass(frozen=True)
class _Arranger:
    statistics: Statistics
    bindings: Bindings
    ranked: str | None

    def pipeline(
        self, pipeline: tuple[Operator, ...], outer: frozenset[str]
    ) -> tuple[Operator, ...]:
        """Arrange the operators of the query or of a block; `outer` is what is known before."""
        arranged: list[Operator] = []
        known = set(outer)
        rest = list(pipeline)
        while rest:
            part = _leading_part(rest)
            if part is None:
                operator = rest.pop(0)
                arranged.append(self._block(operator, known))
                known |= _makes(operator)
                continue
            del rest[: len(part.operators)]
            root = _best_root(part, self.statistics, self.bindings, self.ranked)
            arranged += part.operators if root is None else _rooted_at(part, root, known)
            known |= _possible_scans(part).keys()
            known |= {e.edge_variable for e in part.expands if e.edge_variable is not None}
        return tuple(arranged)

    def _block(self, operator: Operator, known: set[str]) -> Operator:
        """Arrange the pipeline of a `not` or an optional block."""
        if not isinstance(operator, AntiJoin | OptionalMatch) or len(operator.pipeline) == 1:
            return operator
        return replace(operator, pipeline=self.pipeline(operator.pipeline, frozenset(known)))


def _makes(operator: Operator) -> set[str]:
    if isinstance(operator, Expand):
        return _introduced(operator)
    return set(operator.introduces) if isinstance(operator, OptionalMatch) else set()


@dataclass(frozen=True)
class _Part:
    """A scan, the expansions from its variables, and the filters between them."""

    scan: NodeScan
    expands: tuple[Expand, ...]
    others: tuple[Operator, ...]
    """Filters, and expansions that close a cycle, in their order."""
    operators: tuple[Operator, ...]


def _leading_part(pipeline: list[Operator]) -> _Part | None:
    """Return the part that a pipeline starts with; None when it does not start with a scan."""
    scan = pipeline[0]
    if not isinstance(scan, NodeScan):
        return None
    known = {scan.variable}
    taken: list[Operator] = [scan]
    expands: list[Expand] = []
    others: list[Operator] = []
    for operator in pipeline[1:]:
        if isinstance(operator, Expand) and operator.source in known:
            if isinstance(operator.target, CycleEnd):
                others.append(operator)
                known |= _introduced(operator)
            else:
                expands.append(operator)
                known |= _introduced(operator)
        elif isinstance(operator, Filter):
            others.append(operator)
        else:
            break
        taken.append(operator)
    return _Part(scan, tuple(expands), tuple(others), tuple(taken))


def _introduced(expand: Expand) -> set[str]:
    return {name for name in (expand.target, expand.edge_variable) if name is not None}


def _best_root(
    part: _Part, statistics: Statistics, bindings: Bindings, ranked: str | None
) -> str | None:
    """Return the variable to start a part with; None to leave it as it is."""
    if not part.expands or part.scan.variable == ranked:
        return None
    sizes = {
        name: estimated_nodes(statistics, scan.type_name, scan.filters, bindings)
        for name, scan in _possible_scans(part).items()
    }
    best = min(sizes, key=lambda name: sizes[name])
    return best if sizes[best] * _GAIN_MIN <= sizes[part.scan.variable] else None


def _possible_scans(part: _Part) -> dict[str, NodeScan]:
    """Return what scanning each node variable of a part would look like, the present one first."""
    scans = {part.scan.variable: part.scan}
    for expand in part.expands:
        scans[expand.target] = NodeScan(
            expand.target, expand.target_type, expand.target_filters, expand.properties
        )
    return scans


def _rooted_at(part: _Part, root: str, before: set[str]) -> tuple[Operator, ...]:
    """Grow the tree of a part from another of its nodes; `before` lists earlier variables."""
    scans = _possible_scans(part)
    operators: list[Operator] = [scans[root]]
    known = {root, *before}
    waiting = list(part.expands)
    others = list(part.others)
    _add_ready(others, known, operators)
    while waiting:
        expand = next(e for e in waiting if e.source in known or e.target in known)
        waiting.remove(expand)
        step = expand if expand.source in known else turned(expand, scans[expand.source])
        operators.append(step)
        known |= _introduced(step)
        _add_ready(others, known, operators)
    return (*operators, *others)


def turned(expand: Expand, source: NodeScan) -> Expand:
    """Return the expansion from its target to its source."""
    is_chain = expand.source_type == expand.target_type
    return replace(
        expand,
        source=expand.target,
        source_type=expand.target_type,
        target=expand.source,
        target_type=expand.source_type,
        direction=REVERSED[expand.direction],
        target_filters=source.filters,
        properties=source.properties,
        is_reversed=not expand.is_reversed and is_chain and expand.min > 1,
    )


def _add_ready(others: list[Operator], known: set[str], operators: list[Operator]) -> None:
    """Add the filters and cycle closings whose variables are known, in their order."""
    for operator in tuple(others):
        if not _needs(operator) <= known:
            continue
        if isinstance(operator, Expand):
            known |= _introduced(operator)
        others.remove(operator)
        operators.append(operator)


def _needs(operator: Operator) -> frozenset[str]:
    if isinstance(operator, Filter):
        return predicate_variables(operator.predicate)
    if isinstance(operator, Expand) and isinstance(operator.target, CycleEnd):
        # Closing a cycle waits for both ends: `b@1` is compared with `b`.
        return frozenset({operator.source, operator.target.variable})
    return frozenset()
