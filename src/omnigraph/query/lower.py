"""From a typed query to its plan.

One block becomes one pipeline:

1. Variables that hops link form a part. A part without a known variable starts with a scan: of the
   ranked variable if it is there, else of the first variable with a binding. The ranked part comes
   first, the others follow in the order of the text.
2. Hops with a known end follow: away from the source, or reversed from the target. A hop between
   two known ends runs into a temporary, and `SameId` closes the cycle.
3. Each filter stands as early as its variables allow: on the operator that introduces its only
   node variable, else right after the last of them is known. What a repeated binding asks for is
   one more filter.
4. Optional blocks, then filters over what they introduce, then `not` blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from omnigraph.query.check.checked import CheckedBlock, CheckedRead
from omnigraph.query.check.connected import connected
from omnigraph.query.plan.plan import (
    REVERSED,
    AllOf,
    AntiJoin,
    CycleEnd,
    Expand,
    Filter,
    NodeScan,
    Operator,
    OptionalMatch,
    Predicate,
    ReadPlan,
    SameId,
)
from omnigraph.query.plan.walk import needed_variables, predicate_variables


def lower_read(checked: CheckedRead) -> ReadPlan:
    """Return the plan of a read; its operators do not know yet which columns they fetch."""
    ranking = checked.plan.ranking
    ranked = ranking.variable if ranking else None
    pipeline = _BlockLowering(checked.block, frozenset(), count(1), ranked).lower()
    return replace(checked.plan, pipeline=tuple(pipeline))


@dataclass
class _BlockLowering:
    block: CheckedBlock
    outer: frozenset[str]
    cycle_numbers: Iterator[int]
    """Makes the names of closed cycles unique in the whole plan."""
    ranked: str | None = None
    operators: list[Operator] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    waiting: list[tuple[Predicate, frozenset[str]]] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)

    def lower(self) -> list[Operator]:
        self.known = set(self.outer)
        self._collect_filters()
        self._collect_types()
        self._place_filters()
        for names, hops in self._parts():
            self._lower_part(names, hops)
        for optional in self.block.optionals:
            self._lower_optional(optional)
            self._place_filters()
        for negated in self.block.nots:
            self._lower_not(negated)
        return self.operators

    def _collect_filters(self) -> None:
        written = [f for binding in self.block.bindings for f in binding.filters]
        for predicate in (*written, *self.block.filters):
            for conjunct in _conjuncts(predicate):
                self.waiting.append((conjunct, predicate_variables(conjunct)))

    def _collect_types(self) -> None:
        for binding in self.block.bindings:
            self.types[binding.variable] = binding.type_name
        for hop in self.block.hops:
            self.types[hop.source] = hop.source_type
            self.types[hop.target] = hop.target_type

    # -- parts ----------------------------------------------------------------------------------

    def _parts(self) -> list[tuple[list[str], list[Expand]]]:
        """Return the connected parts, each with its bound variables first and with its hops."""
        hops = self.block.hops
        bound = [binding.variable for binding in self.block.bindings]
        links = [(hop.source, hop.target) for hop in hops]
        numbers = connected((*bound, *(end for link in links for end in link)), links)
        parts: dict[int, tuple[list[str], list[Expand]]] = {}
        for name, number in numbers.items():
            parts.setdefault(number, ([], []))[0].append(name)
        for hop in hops:
            parts[numbers[hop.source]][1].append(hop)
        ordered = [parts[number] for number in sorted(parts)]
        return sorted(ordered, key=lambda part: self.ranked not in part[0])

    def _lower_part(self, names: list[str], hops: list[Expand]) -> None:
        if self.known.isdisjoint(names):
            ranked = [name for name in names if name == self.ranked]
            self._scan((ranked or names)[0])
        remaining = list(hops)
        while remaining:
            hop = next(h for h in remaining if h.source in self.known or h.target in self.known)
            remaining.remove(hop)
            self._lower_hop(hop)

    def _scan(self, variable: str) -> None:
        filters = self._take_pushable(variable)
        self._add(NodeScan(variable, self.types[variable], filters), variable)

    # -- hops -----------------------------------------------------------------------------------

    def _lower_hop(self, hop: Expand) -> None:
        is_reversed = hop.source not in self.known
        if is_reversed:
            hop = _reversed(hop)
        closes = hop.target in self.known
        introduced = CycleEnd.of(hop.target, next(self.cycle_numbers)) if closes else hop.target
        filters = () if closes else self._take_pushable(introduced)
        is_chain = hop.source_type == hop.target_type
        expand = replace(
            hop,
            target=introduced,
            max=hop.max if is_chain else 1,
            target_filters=filters,
            is_reversed=is_reversed and is_chain and hop.min > 1,
        )
        if not closes:
            self._add(expand, introduced, hop.edge_variable)
            return
        self.operators.append(expand)
        self._add(Filter(SameId(hop.target, introduced)), hop.edge_variable)

    def _add(self, operator: Operator, *introduced: str | None) -> None:
        self.operators.append(operator)
        self.known |= {name for name in introduced if name is not None}
        self._place_filters()

    # -- filters --------------------------------------------------------------------------------

    def _take_pushable(self, variable: str) -> tuple[Predicate, ...]:
        """Remove and return the filters that need no other variable than this node."""
        alone = frozenset((variable,))
        taken = tuple(predicate for predicate, needs in self.waiting if needs == alone)
        if taken:
            self.waiting = [item for item in self.waiting if item[1] != alone]
        return taken

    def _place_filters(self) -> None:
        """Add the filters whose variables are known; one without variables comes first of all."""
        ready = [predicate for predicate, needs in self.waiting if needs <= self.known]
        if ready:
            self.waiting = [item for item in self.waiting if not item[1] <= self.known]
            self.operators += [Filter(predicate) for predicate in ready]

    # -- blocks ---------------------------------------------------------------------------------

    def _inner(self, block: CheckedBlock) -> tuple[tuple[Operator, ...], tuple[str, ...]]:
        """Return the pipeline of a block, and the known variables that it mentions, sorted."""
        pipeline = _BlockLowering(block, frozenset(self.known), self.cycle_numbers).lower()
        mentioned = {name for operator in pipeline for name in needed_variables(operator)}
        return tuple(pipeline), tuple(sorted(mentioned & self.known))

    def _lower_optional(self, block: CheckedBlock) -> None:
        pipeline, outer = self._inner(block)
        self.operators.append(OptionalMatch(outer, pipeline, block.introduces))
        self.known |= set(block.introduces)

    def _lower_not(self, block: CheckedBlock) -> None:
        pipeline, outer = self._inner(block)
        self.operators.append(AntiJoin(outer, pipeline, _is_existence_test(pipeline)))


def _conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    if not isinstance(predicate, AllOf):
        return (predicate,)
    return tuple(inner for operand in predicate.operands for inner in _conjuncts(operand))


def _reversed(hop: Expand) -> Expand:
    return replace(
        hop,
        source=hop.target,
        source_type=hop.target_type,
        target=hop.source,
        target_type=hop.source_type,
        direction=REVERSED[hop.direction],
    )


def _is_existence_test(pipeline: tuple[Operator, ...]) -> bool:
    if len(pipeline) != 1 or not isinstance(pipeline[0], Expand):
        return False
    expand = pipeline[0]
    has_one_step = expand.min == expand.max == 1 and expand.max_parameter is None
    return has_one_step and not expand.target_filters
