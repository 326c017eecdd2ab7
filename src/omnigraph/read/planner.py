"""Arranges the operators of a plan: start at the most selective node, then follow the hops.

The resulting rows stay the same. A part is a scan and the expansions that grow from
it; its hops form a tree, so it may start at any of its nodes: the expansions on the way from the
new start to the old one are reversed. A ranked variable stays where its part starts. Parts inside
`not` and optional blocks are arranged like others; hops from an outer variable are not reordered.

Estimates come from row counts of the manifest, from what can be measured for less than a guess may
cost (`omnigraph.read.operators.measure`), and else from the form of the filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Final, Literal, TypeAlias

from omnigraph.dataclass import dataclass
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


Origin: TypeAlias = Literal["counted", "sampled", "guessed"]
Measured: TypeAlias = tuple[float, Origin]
Measure: TypeAlias = Callable[[str, tuple[Predicate, ...]], Measured | None]
"""Counts the nodes of a type that pass filters, all or a sample; None when that is not cheap."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """What is known or guessed about the rows of a snapshot."""

    row_count: Callable[[str], int]
    bindings: Bindings
    measure: Measure | None = None
    _passing: dict[tuple[str, tuple[Predicate, ...]], Measured] = field(default_factory=dict)

    def everything(self, type_name: str) -> float:
        """Return how many nodes of a type there are."""
        return float(self.row_count(TableKey.node(type_name)))

    def edges(self, type_name: str) -> int:
        """Return how many edges of a type there are."""
        return self.row_count(TableKey.edge(type_name))

    def nodes(self, type_name: str, filters: tuple[Predicate, ...]) -> float:
        """Return about how many nodes of a type pass filters."""
        return self._known(type_name, filters)[0]

    def origin(self, type_name: str, filters: tuple[Predicate, ...]) -> Origin:
        """Return how the number of nodes is known; a guess is made from the form of the filters."""
        return self._known(type_name, filters)[1]

    def _known(self, type_name: str, filters: tuple[Predicate, ...]) -> Measured:
        if not filters:
            return self.everything(type_name), "counted"
        key = (type_name, filters)
        if key not in self._passing:
            measured = None if self.measure is None else self.measure(type_name, filters)
            self._passing[key] = measured or (self.guess(type_name, filters), "guessed")
        return self._passing[key]

    def guess(self, type_name: str, filters: tuple[Predicate, ...]) -> float:
        """Return about how many nodes of a type pass filters, by the form of these."""
        rows = self.everything(type_name)
        for predicate in filters:
            rows = min(rows, _estimate(predicate, rows, self.bindings))
        return rows

    def fanout(self, expand: Expand) -> float:
        """Return about how many nodes one source reaches, whatever their filters."""
        edges = self.edges(expand.edge) * (2 if expand.direction == "both" else 1)
        degree = edges / max(self.everything(expand.source_type), 1.0)
        everything = self.everything(expand.target_type)
        reached, step = 0.0, 1.0
        for hop in range(1, min(expand.max, _HOPS_ESTIMATED_MAX) + 1):
            step = min(step * degree, everything)
            reached += step if hop >= expand.min else 0.0
        return min(reached, everything)


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


# -- arranging ----------------------------------------------------------------------------------


def arrange(plan: ReadPlan, estimates: Estimates) -> ReadPlan:
    """Return a plan with the same rows that starts each part where the fewest nodes are."""
    if len(plan.pipeline) == 1:
        return plan
    ranked = plan.ranking.variable if plan.ranking is not None else None
    arranger = _Arranger(estimates, ranked)
    return replace(plan, pipeline=arranger.pipeline(plan.pipeline, frozenset()))


@dataclass(frozen=True)
class _Arranger:
    estimates: Estimates
    ranked: str | None

    def pipeline(
        self, pipeline: tuple[Operator, ...], outer: frozenset[str]
    ) -> tuple[Operator, ...]:
        """Arrange the operators of the query or of a block; `outer` is what is known before."""
        arranged: list[Operator] = []
        known = set(outer)
        rest = list(pipeline)
        while rest:
            part = leading_part(rest)
            if part is None:
                operator = rest.pop(0)
                arranged.append(self._block(operator, known))
                known |= _makes(operator)
                continue
            del rest[: len(part.operators)]
            root = _best_root(part, self.estimates, self.ranked)
            arranged += part.operators if root is None else rooted_at(part, root, known)
            known |= possible_scans(part).keys()
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
class Part:
    """A scan, the expansions from its variables, and the filters between them."""

    scan: NodeScan
    expands: tuple[Expand, ...]
    others: tuple[Operator, ...]
    """Filters, and expansions that close a cycle, in their order."""
    operators: tuple[Operator, ...]


def leading_part(pipeline: Sequence[Operator]) -> Part | None:
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
    return Part(scan, tuple(expands), tuple(others), tuple(taken))


def _introduced(expand: Expand) -> set[str]:
    return {name for name in (expand.target, expand.edge_variable) if name is not None}


def _best_root(part: Part, estimates: Estimates, ranked: str | None) -> str | None:
    """Return the variable to start a part with; None to leave it as it is."""
    if not part.expands or part.scan.variable == ranked:
        return None
    scans = possible_scans(part)
    guesses = {name: estimates.guess(one.type_name, one.filters) for name, one in scans.items()}
    sizes: dict[str, float] = {}
    for name in sorted(guesses, key=lambda name: guesses[name]):
        sizes[name] = estimates.nodes(scans[name].type_name, scans[name].filters)
        if sizes[name] <= EQUALITY_ROWS:
            # So few that measuring the others costs more than it can save.
            return None if name == part.scan.variable else name
    best = min(sizes, key=lambda name: sizes[name])
    return best if sizes[best] * _GAIN_MIN <= sizes[part.scan.variable] else None


def possible_scans(part: Part) -> dict[str, NodeScan]:
    """Return what scanning each node variable of a part would look like, the present one first."""
    scans = {part.scan.variable: part.scan}
    for expand in part.expands:
        scans[expand.target] = NodeScan(
            expand.target, expand.target_type, expand.target_filters, expand.properties
        )
    return scans


def rooted_at(part: Part, root: str, before: set[str]) -> tuple[Operator, ...]:
    """Grow the tree of a part from another of its nodes; `before` lists earlier variables."""
    scans = possible_scans(part)
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
