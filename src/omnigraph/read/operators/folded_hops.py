"""Hops of an aggregate whose rows are counted and added up instead of written out.

The hops that hang off a row form a tree. What a node contributes to an aggregate is known once the
hops behind it are: the number of paths behind a node is the product over its hops, of the sum over
the ends of the hop. Numbers are therefore made from the leaves to the rows, one per node of a type
and hop, and the paths themselves are never listed.

1. A *total* is such a number per node: how many paths there are, the sum of a property over them,
   how many of them have a value, or the smallest or largest value as a code.
2. Only nodes that the rows can reach are looked at, where these are few. Where the ends that pass
   their filters are few, the hop is walked from these, against its direction.
3. Which plans ask for this is decided in `omnigraph.read.shapes.fold_split`. `fold_hops` returns
   None when the adjacency is not in memory or totals might not fit 63 bits; then the rows of the
   hops are written out, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.names import TableKey
from omnigraph.query.plan.plan import (
    REVERSED,
    AggregateValue,
    Expand,
    NodeScan,
    Operator,
    PropertyValue,
    ReadPlan,
)
from omnigraph.query.plan.walk import needed_variables, value_variables
from omnigraph.read.access.adjacency import TopologyHops
from omnigraph.read.access.value_codes import NULL_CODE, Coded, coded
from omnigraph.read.context import Context
from omnigraph.read.operators.project import values_of
from omnigraph.read.operators.scan import passing, scan_nodes
from omnigraph.read.row_table import NULL, Entities, RowIds, RowTable, distinct_ids
from omnigraph.search.topology import traverse
from omnigraph.search.topology.csr import Ints, Mask
from omnigraph.search.topology.path_sums import (
    Walk,
    arrived_totals,
    step_bound,
    step_counts,
    step_totals,
)
from omnigraph.search.topology.row_numbers import Numbering
from omnigraph.search.topology.topology import Topology

Totals: TypeAlias = npt.NDArray[np.int64]
RunPipeline: TypeAlias = Callable[[tuple[Operator, ...], RowTable], RowTable]

TOTAL_MAX: Final = 2**62
_EXACT_MAX: Final = 2**53
_FAR_SHARE: Final = 4
"""All nodes of a type are looked at when a hop has at least one step for this many of them."""
_ARRIVING_COST: Final = 4
"""Adding up at the far end of steps takes so many times longer than at the near end."""
_LIVE_SHARE: Final = 4
_EDGES_READ_SHARE: Final = 8
"""Edge properties are read as a whole when at least one in this many edges is walked."""


ChannelKind: TypeAlias = Literal["sum", "present", "min", "max"]


@dataclass(frozen=True)
class Channel:
    """A number that is made along the hops for an aggregate over a property."""

    kind: ChannelKind
    variable: str
    name: str
    """The property."""

    @property
    def nothing(self) -> int:
        """The number of a node without any path."""
        return {"min": TOTAL_MAX, "max": NULL_CODE}.get(self.kind, 0)

    @property
    def is_extreme(self) -> bool:
        """Whether it is the code of a value, and not a sum."""
        return self.kind in ("min", "max")

    @property
    def add(self) -> np.ufunc:
        """How the numbers of two paths become one."""
        return {"min": np.minimum, "max": np.maximum}.get(self.kind, np.add)


@dataclass(frozen=True, eq=False)
class FoldedHops:
    """What folded hops contribute to each row; rows that no path continues are left out."""

    variables: frozenset[str]
    """The variables of the paths."""
    counts: Totals
    """How many paths continue the row."""
    totals: Mapping[Channel, Totals]
    values: Mapping[tuple[str, str], pa.Array]
    """What the codes of a property stand for, ascending."""


def channels_of(value: AggregateValue) -> tuple[Channel, ...]:
    """Return what an aggregate over a property of a folded variable is made from."""
    argument = value.argument
    if not isinstance(argument, PropertyValue):
        return ()
    kinds: dict[str, tuple[ChannelKind, ...]] = {
        "count": ("present",),
        "sum": ("sum", "present"),
        "avg": ("sum", "present"),
        "min": ("min",),
        "max": ("max",),
    }
    return tuple(
        Channel(kind, argument.variable, argument.property) for kind in kinds[value.function]
    )


def fold_hops(
    context: Context,
    rows: RowTable,
    plan: ReadPlan,
    folded: tuple[Operator, ...],
    run: RunPipeline,
) -> tuple[RowTable, FoldedHops] | None:
    """Count the hops that follow some rows; None when they must be written out.

    `folded` are expansions, and filters and negations over one variable of theirs, which `run`
    evaluates.
    """
    tree = _Tree.of(folded)
    wanted = _wanted_channels(plan, tree.variables)
    try:
        found, hops = _Folding(context, tree, wanted, run).rows(rows)
    except _NotFoldedError:
        return None
    if float(hops.counts.sum(dtype=np.float64)) >= TOTAL_MAX:
        return None
    return (found, hops) if _others_fit(context, found, plan, hops) else None


class _NotFoldedError(Exception):
    """The rows must be written out; never leaves this module."""


def _wanted_channels(plan: ReadPlan, variables: frozenset[str]) -> tuple[Channel, ...]:
    found: dict[Channel, None] = {}
    for column in plan.columns:
        value = column.expression
        if isinstance(value, AggregateValue) and variables & set(value_variables(value)):
            found |= dict.fromkeys(channels_of(value))
    return tuple(found)


# -- the tree -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Tree:
    """Folded hops by the variable that they start from, and the tests of each variable."""

    hops: Mapping[str, tuple[Expand, ...]]
    tests: Mapping[str, tuple[Operator, ...]]
    variables: frozenset[str]

    @classmethod
    def of(cls, folded: tuple[Operator, ...]) -> _Tree:
        hops: dict[str, tuple[Expand, ...]] = {}
        tests: dict[str, tuple[Operator, ...]] = {}
        variables: set[str] = set()
        for operator in folded:
            if isinstance(operator, Expand):
                hops[operator.source] = (*hops.get(operator.source, ()), operator)
                variables |= {operator.target, operator.edge_variable or operator.target}
            else:
                (variable,) = set(needed_variables(operator))
                tests[variable] = (*tests.get(variable, ()), operator)
        return cls(hops, tests, frozenset(variables))


@dataclass(frozen=True, eq=False)
class _Paths:
    """Totals of some nodes, by their position; `counts` is None when each has exactly one path."""

    nodes: Ints | None
    """Dense ids, ascending; None for all nodes of the type."""
    counts: Totals | None
    totals: Mapping[Channel, Totals] = field(default_factory=dict)

    def times(self, other: _Paths) -> _Paths:
        """Combine with the totals of another hop from the same nodes."""
        counts = _product(self.counts, other.counts)
        totals = {
            channel: _carried(channel, numbers, other.counts)
            for channel, numbers in self.totals.items()
        }
        totals |= {
            channel: _carried(channel, numbers, self.counts)
            for channel, numbers in other.totals.items()
        }
        return _Paths(self.nodes, counts, totals)

    def live(self) -> _Paths:
        """Leave nodes without a path out where most have none."""
        if self.counts is None:
            return self
        is_live = self.counts > 0
        if int(np.count_nonzero(is_live)) * _LIVE_SHARE > len(is_live):
            return self
        picks = np.flatnonzero(is_live)
        nodes = picks if self.nodes is None else self.nodes[picks]
        totals = {channel: numbers[picks] for channel, numbers in self.totals.items()}
        return _Paths(nodes, self.counts[picks], totals)


def _product(left: Totals | None, right: Totals | None) -> Totals | None:
    if left is None or right is None:
        return right if left is None else left
    _check_product(left, right)
    return left * right


def _carried(channel: Channel, numbers: Totals, counts: Totals | None) -> Totals:
    """Return the totals of a channel where each path continues in `counts` ways."""
    if counts is None:
        return numbers
    if channel.is_extreme:
        return np.where(counts > 0, numbers, np.int64(channel.nothing))
    _check_product(numbers, counts)
    return numbers * counts


def _check_product(left: Totals, right: Totals) -> None:
    if _largest(left) * _largest(right) >= TOTAL_MAX:
        raise _NotFoldedError


def _largest(numbers: npt.NDArray[Any]) -> int:
    return max(abs(int(numbers.max())), abs(int(numbers.min()))) if len(numbers) else 0


# -- making totals ------------------------------------------------------------------------------


@dataclass(eq=False)
class _Folding:
    context: Context
    tree: _Tree
    channels: tuple[Channel, ...]
    run: RunPipeline
    _codes: dict[tuple[str, str], Coded] = field(default_factory=dict)

    def rows(self, rows: RowTable) -> tuple[RowTable, FoldedHops]:
        """Fold the hops from the variables that the rows hold."""
        sources = [name for name in rows.entities if name in self.tree.hops]
        for name in sources:
            rows = rows.where(rows.row_ids(name) != NULL)
        paths = _Paths(None, np.ones(rows.count, np.int64))
        for name in sources:
            distinct, kinds = distinct_ids(rows.row_ids(name))
            for hop in self.tree.hops[name]:
                topology = self._topology(hop, len(distinct))
                starts = topology.ends(hop.direction)[0]
                nodes = None if len(distinct) == starts.count else starts.positions(distinct)
                found = self._over(hop, topology, nodes)
                paths = paths.times(_at(found, kinds))
        counts = np.ones(rows.count, np.int64) if paths.counts is None else paths.counts
        is_live = counts > 0
        totals = dict(paths.totals)
        if not is_live.all():
            rows, counts = rows.where(is_live), counts[is_live]
            totals = {channel: numbers[is_live] for channel, numbers in totals.items()}
        values = {key: codes.values for key, codes in self._codes.items()}
        return rows, FoldedHops(self.tree.variables, counts, totals, values)

    def _topology(self, hop: Expand, frontier: int) -> Topology:
        hops = self.context.adjacency.hops(hop, frontier)
        if not isinstance(hops, TopologyHops):
            raise _NotFoldedError
        return hops.topology

    def _over(self, hop: Expand, topology: Topology, nodes: Ints | None) -> _Paths:
        """Return the totals over one hop from some nodes, in their order."""
        adjacency = topology.adjacency(hop.direction)
        walk = walk_of(hop)
        guard = self.context.guard
        if not self._matters(hop):
            return _Paths(nodes, step_counts(adjacency, nodes, walk, guard=guard))
        steps = step_bound(adjacency, nodes, walk)
        domain = None
        is_near = nodes is not None and steps * _FAR_SHARE < adjacency.target_count
        if nodes is not None and is_near and not self._is_selective(hop, steps):
            domain = _reached(adjacency, nodes, walk, guard)
        far = self._at_end(hop, topology, domain).live()
        edges = self._edges(hop, topology, steps)
        _check_steps(far, edges, adjacency, walk)
        if far.nodes is not None:
            back = topology.adjacency(REVERSED[hop.direction])
            backwards = _turned(walk)
            if step_bound(back, far.nodes, backwards) * _ARRIVING_COST < steps:
                return _Arriving(back, far, edges, backwards, guard).totals(nodes)
        return _Leaving(adjacency, far, edges, walk, guard, steps).totals(nodes)

    def _is_selective(self, hop: Expand, steps: int) -> bool:
        """Whether filters leave so few ends that these are found sooner than the ends of steps."""
        if not hop.target_filters:
            return False
        passing = self.context.estimates.nodes(hop.target_type, hop.target_filters)
        return passing * _ARRIVING_COST < steps

    def _matters(self, hop: Expand) -> bool:
        """Whether more than the number of steps of a hop has to be known."""
        target, edge = hop.target, hop.edge_variable
        own = {channel.variable for channel in self.channels}
        return bool(
            hop.target_filters
            or target in self.tree.hops
            or {target, edge} & (self.tree.tests.keys() | own)
        )

    def _at_end(self, hop: Expand, topology: Topology, domain: Ints | None) -> _Paths:
        """Return the totals of the nodes that a hop may reach, without the hop."""
        ends = topology.ends(hop.direction)[1]
        table_key = TableKey.node(hop.target_type)
        nodes = domain
        if hop.target_filters:
            if domain is None:
                scan = NodeScan(hop.target, hop.target_type, hop.target_filters)
                found = scan_nodes(self.context, scan)
            else:
                asked = ends.row_ids(domain).astype(np.int64)
                found = passing(self.context, hop.target, table_key, hop.target_filters, asked)
            nodes = None if len(found) == ends.count else ends.positions(found)
        for test in self.tree.tests.get(hop.target, ()):
            row_ids = ends.row_ids(nodes).astype(np.int64)
            tested = RowTable(len(row_ids), {hop.target: Entities(table_key, row_ids)})
            nodes = ends.positions(self.run((test,), tested).row_ids(hop.target))
        paths = _Paths(nodes, None, self._own(hop.target, table_key, nodes, ends))
        for behind in self.tree.hops.get(hop.target, ()):
            frontier = ends.count if nodes is None else len(nodes)
            paths = paths.times(self._over(behind, self._topology(behind, frontier), nodes))
        return paths

    def _own(
        self, variable: str, table_key: str, nodes: Ints | None, numbering: Numbering
    ) -> dict[Channel, Totals]:
        """Return what nodes, or edges, contribute to the channels of their own properties."""
        row_ids = None if nodes is None else numbering.row_ids(nodes).astype(np.int64)
        return {
            channel: self._numbers(channel, table_key, nodes, row_ids)
            for channel in self.channels
            if channel.variable == variable
        }

    def _numbers(
        self, channel: Channel, table_key: str, nodes: Ints | None, row_ids: RowIds | None
    ) -> Totals:
        """Return the number of each row in a channel."""
        name, tables = channel.name, self.context.tables
        if channel.is_extreme:
            numbers = self._coded(channel, table_key).codes
            numbers = numbers if nodes is None else numbers[nodes]
            return np.where(numbers == NULL_CODE, channel.nothing, numbers)
        if row_ids is None:
            column = tables.whole(table_key, [name])[1][name]
        else:
            column = tables.fetch(table_key, row_ids, [name])[name]
        if channel.kind == "present":
            return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.int64)
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        if _largest(values) >= TOTAL_MAX:
            raise _NotFoldedError
        return np.asarray(values, np.int64)

    def _coded(self, channel: Channel, table_key: str) -> Coded:
        key = (channel.variable, channel.name)
        if key not in self._codes:
            row_ids, columns = self.context.tables.whole(table_key, [channel.name])
            kept = self.context.tables.codes(table_key, row_ids, channel.name)
            self._codes[key] = coded(columns[channel.name]) if kept is None else kept
        return self._codes[key]

    def _edges(self, hop: Expand, topology: Topology, steps: int) -> _Edges:
        """Return which edge records a hop may take, and their totals."""
        edge = hop.edge_variable
        own = [channel for channel in self.channels if channel.variable == edge]
        if edge is None or not (own or edge in self.tree.tests):
            return _Edges(None, {})
        if steps * _EDGES_READ_SHARE < topology.edges.count:
            raise _NotFoldedError
        table_key = TableKey.edge(hop.edge)
        totals = self._own(edge, table_key, None, topology.edges)
        if edge not in self.tree.tests:
            return _Edges(None, totals)
        row_ids = topology.edges.row_ids().astype(np.int64)
        tested = RowTable(len(row_ids), {edge: Entities(table_key, row_ids)})
        kept = self.run(self.tree.tests[edge], tested).row_ids(edge)
        is_kept = np.zeros(len(row_ids), np.bool_)
        is_kept[topology.edges.positions(kept)] = True
        return _Edges(is_kept, totals)


def _at(paths: _Paths, kinds: npt.NDArray[np.intp]) -> _Paths:
    """Return the totals of nodes for the rows that hold them."""
    counts = None if paths.counts is None else paths.counts[kinds]
    return _Paths(None, counts, {channel: n[kinds] for channel, n in paths.totals.items()})


def walk_of(hop: Expand) -> Walk:
    """Return what a hop takes from each node."""
    return Walk(
        by_record=hop.edge_variable is not None,
        min_hops=hop.min,
        max_hops=hop.max,
        loop_end="source" if hop.is_reversed else "target",
    )


def _turned(walk: Walk) -> Walk:
    loop_end: traverse.LoopEnd = "target" if walk.loop_end == "source" else "source"
    return Walk(walk.by_record, walk.min_hops, walk.max_hops, loop_end)


def _reached(adjacency: traverse.Adjacency, nodes: Ints, walk: Walk, guard: traverse.Guard) -> Ints:
    if walk.is_single:
        return traverse.neighbour_set(adjacency, nodes, guard=guard)
    return traverse.reach_set(
        adjacency,
        nodes,
        min_hops=walk.min_hops,
        max_hops=walk.max_hops,
        loop_end=walk.loop_end,
        guard=guard,
    )


# -- one hop ------------------------------------------------------------------------------------


_ByEnd: TypeAlias = Callable[[Ints], npt.NDArray[Any]]
"""The number of each end of a step."""


def _known(numbers: Ints | None) -> Ints:
    if numbers is None:
        raise LookupError("these are asked for only where they are read")
    return numbers


@dataclass(frozen=True, eq=False)
class _Edges:
    """Which edge records a hop may take, all when None, and what they contribute."""

    is_kept: Mask | None
    totals: Mapping[Channel, Totals]

    @property
    def are_read(self) -> bool:
        return self.is_kept is not None or bool(self.totals)


def _check_steps(far: _Paths, edges: _Edges, adjacency: traverse.Adjacency, walk: Walk) -> None:
    """Raise when a sum over the steps of a node might not fit."""
    counts = 1 if far.counts is None else _largest(far.counts)
    sums = [_largest(n) for c, n in far.totals.items() if not c.is_extreme]
    sums += [_largest(n) * counts for c, n in edges.totals.items() if not c.is_extreme]
    largest = max([counts, *sums])
    steps = adjacency.edge_count * len(adjacency.parts)
    if walk.is_single and largest * steps >= TOTAL_MAX:
        steps = int(traverse.degrees(adjacency).max(initial=0))
    if largest * (steps if walk.is_single else adjacency.target_count) >= TOTAL_MAX:
        raise _NotFoldedError


@dataclass(frozen=True, eq=False)
class _Leaving:
    """Adds up over the steps that leave each node."""

    adjacency: traverse.Adjacency
    far: _Paths
    edges: _Edges
    walk: Walk
    guard: traverse.Guard
    steps: int

    def totals(self, nodes: Ints | None) -> _Paths:
        counts = self._by_end(self.far.counts, 0)
        found = {
            channel: self._channel(nodes, channel, self._by_end(numbers, channel.nothing))
            for channel, numbers in self.far.totals.items()
        }
        found |= {
            channel: self._edge_channel(nodes, channel, counts) for channel in self.edges.totals
        }

        def worth(ends: Ints, records: Ints | None) -> npt.NDArray[Any] | None:
            return self._kept(None if counts is None else counts(ends), records, 0)

        return _Paths(nodes, self._summed(nodes, worth, np.add, 0), found)

    def _channel(self, nodes: Ints | None, channel: Channel, numbers: _ByEnd | None) -> Totals:
        def worth(ends: Ints, records: Ints | None) -> npt.NDArray[Any] | None:
            found = None if numbers is None else numbers(ends)
            return self._kept(found, records, channel.nothing)

        return self._summed(nodes, worth, channel.add, channel.nothing)

    def _edge_channel(self, nodes: Ints | None, channel: Channel, counts: _ByEnd | None) -> Totals:
        numbers = self.edges.totals[channel]

        def worth(ends: Ints, records: Ints | None) -> npt.NDArray[Any] | None:
            found = numbers[_known(records)]
            if counts is not None:
                found = _carried(channel, found, counts(ends))
            return self._kept(found, records, channel.nothing)

        return self._summed(nodes, worth, channel.add, channel.nothing)

    def _kept(
        self, found: npt.NDArray[Any] | None, records: Ints | None, nothing: int
    ) -> npt.NDArray[Any] | None:
        if self.edges.is_kept is None or records is None:
            return found
        is_kept = self.edges.is_kept[records]
        # A plain number would be cut to the width of the others.
        return is_kept if found is None else np.where(is_kept, found, np.int64(nothing))

    def _summed(self, nodes: Ints | None, worth: Any, add: np.ufunc, nothing: int) -> Totals:
        return step_totals(
            self.adjacency,
            nodes,
            self.walk,
            worth,
            add=add,
            nothing=nothing,
            with_edges=self.edges.are_read,
            guard=self.guard,
        )

    def _by_end(self, numbers: Totals | None, nothing: int) -> _ByEnd | None:
        """Return how the number of an end is found; None when each has one path."""
        nodes = self.far.nodes
        if nodes is None:
            return None if numbers is None else _array_look_up(narrowed(numbers))
        if self.steps * _FAR_SHARE < self.adjacency.target_count:
            return _sorted_look_up(nodes, numbers, nothing)
        if numbers is None:
            mask = np.zeros(self.adjacency.target_count, np.bool_)
            mask[nodes] = True
            return _array_look_up(mask)
        dense = np.full(self.adjacency.target_count, nothing, np.int64)
        dense[nodes] = numbers
        return _array_look_up(narrowed(dense))


def _array_look_up(numbers: npt.NDArray[Any]) -> _ByEnd:
    return lambda ends: np.take(numbers, ends)


def _sorted_look_up(nodes: Ints, numbers: Totals | None, nothing: int) -> _ByEnd:
    """Look few ends up in an ascending list, so that no array of all nodes is made."""

    def find(ends: Ints) -> npt.NDArray[Any]:
        if not len(nodes):
            return np.full(len(ends), nothing, np.int64)
        places = np.minimum(np.searchsorted(nodes, ends), len(nodes) - 1)
        is_there = nodes[places] == ends
        return is_there if numbers is None else np.where(is_there, numbers[places], nothing)

    return find


@dataclass(frozen=True, eq=False)
class _Arriving:
    """Adds up at the other end of the steps of the few nodes at the far end of a hop."""

    adjacency: traverse.Adjacency
    """Against the direction of the hop."""
    far: _Paths
    edges: _Edges
    walk: Walk
    guard: traverse.Guard

    def totals(self, nodes: Ints | None) -> _Paths:
        counts = self.far.counts
        ones = np.ones(len(_known(self.far.nodes)), np.int64) if counts is None else counts
        found = {
            channel: self._summed(numbers, None, channel)
            for channel, numbers in self.far.totals.items()
        }
        found |= {
            channel: self._summed(ones, numbers, channel)
            for channel, numbers in self.edges.totals.items()
        }
        everywhere = _Paths(None, self._summed(ones, None, None), found)
        return everywhere if nodes is None else _Paths(nodes, *_picked(everywhere, nodes))

    def _summed(self, numbers: Totals, records: Totals | None, channel: Channel | None) -> Totals:
        nothing = 0 if channel is None else channel.nothing

        def worth(starts: Ints, taken: Ints | None) -> npt.NDArray[Any]:
            found = numbers[starts]
            if taken is None:
                return found
            if records is not None and channel is not None:
                found = _carried(channel, records[taken], found)
            if self.edges.is_kept is not None:
                found = np.where(self.edges.is_kept[taken], found, nothing)
            return found

        return arrived_totals(
            self.adjacency,
            _known(self.far.nodes),
            self.walk,
            worth,
            add=np.add if channel is None else channel.add,
            nothing=nothing,
            with_edges=self.edges.are_read,
            guard=self.guard,
        )


def _picked(paths: _Paths, nodes: Ints) -> tuple[Totals | None, dict[Channel, Totals]]:
    counts = None if paths.counts is None else paths.counts[nodes]
    return counts, {channel: numbers[nodes] for channel, numbers in paths.totals.items()}


def narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return whole numbers in the narrowest signed type; those beyond 63 bits stay as they are."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for width in (np.int8, np.int16, np.int32, np.int64):
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            return values.astype(width, copy=False)
    return values


# -- sums of other variables --------------------------------------------------------------------


def _others_fit(context: Context, rows: RowTable, plan: ReadPlan, hops: FoldedHops) -> bool:
    """Whether sums over the variables of the rows fit, however often each row counts."""
    total = int(hops.counts.sum())
    for column in plan.columns:
        value = column.expression
        if not isinstance(value, AggregateValue) or value.function not in ("sum", "avg"):
            continue
        argument = value.argument
        if value.distinct:
            continue
        if not hops.variables.isdisjoint(value_variables(argument)):
            numbers = hops.totals[channels_of(value)[0]]
            if float(np.abs(numbers).sum(dtype=np.float64)) >= TOTAL_MAX:
                return False
        else:
            # A property of the rows, or a constant: that is added up as often as there are paths.
            found = values_of(context, rows, argument)
            largest = _largest(found.drop_null().to_numpy(zero_copy_only=False))
            if largest * max(total, 1) >= TOTAL_MAX:
                return False
    return True


def is_exact_as_double(values: npt.NDArray[Any], count: int) -> bool:
    """Whether sums of up to `count` of these whole numbers are exact as doubles."""
    return _largest(values) * max(count, 1) < _EXACT_MAX
