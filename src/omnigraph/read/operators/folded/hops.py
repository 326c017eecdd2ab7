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
from typing import Final, TypeAlias

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.names import TableKey
from omnigraph.query.plan.plan import REVERSED, AggregateValue, Expand, NodeScan, Operator, ReadPlan
from omnigraph.query.plan.walk import needed_variables, value_variables
from omnigraph.read.access.adjacency import TopologyHops
from omnigraph.read.access.value_codes import NULL_CODE, Coded, coded
from omnigraph.read.context import Context
from omnigraph.read.operators.folded.channels import (
    TOTAL_MAX,
    Channel,
    FoldedHops,
    Totals,
    channels_of,
)
from omnigraph.read.operators.folded.paths import NotFoldedError, Paths, largest
from omnigraph.read.operators.folded.steps import (
    FAR_SHARE,
    Arriving,
    Edges,
    Leaving,
    check_steps,
)
from omnigraph.read.operators.project import values_of
from omnigraph.read.operators.scan import passing, scan_nodes
from omnigraph.read.row_table import NULL, Entities, RowIds, RowTable, distinct_ids
from omnigraph.search.topology import traverse
from omnigraph.search.topology.csr import Ints
from omnigraph.search.topology.path_sums import Walk, step_bound, step_counts
from omnigraph.search.topology.row_numbers import Numbering
from omnigraph.search.topology.topology import Topology

RunPipeline: TypeAlias = Callable[[tuple[Operator, ...], RowTable], RowTable]

_ARRIVING_COST: Final = 4
"""Adding up at the far end of steps takes so many times longer than at the near end."""
_EDGES_READ_SHARE: Final = 8
"""Edge properties are read as a whole when at least one in this many edges is walked."""


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
    except NotFoldedError:
        return None
    if float(hops.counts.sum(dtype=np.float64)) >= TOTAL_MAX:
        return None
    return (found, hops) if _others_fit(context, found, plan, hops) else None


def _wanted_channels(plan: ReadPlan, variables: frozenset[str]) -> tuple[Channel, ...]:
    found: dict[Channel, None] = {}
    for column in plan.columns:
        value = column.expression
        if isinstance(value, AggregateValue) and variables & set(value_variables(value)):
            found |= dict.fromkeys(channels_of(value))
    return tuple(found)


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
        paths = Paths(None, np.ones(rows.count, np.int64))
        for name in sources:
            distinct, kinds = distinct_ids(rows.row_ids(name))
            for hop in self.tree.hops[name]:
                topology = self._topology(hop, len(distinct))
                starts = topology.ends(hop.direction)[0]
                nodes = None if len(distinct) == starts.count else starts.positions(distinct)
                found = self._over(hop, topology, nodes)
                paths = paths.times(found.at(kinds, None))
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
            raise NotFoldedError
        return hops.topology

    def _over(self, hop: Expand, topology: Topology, nodes: Ints | None) -> Paths:
        """Return the totals over one hop from some nodes, in their order."""
        adjacency = topology.adjacency(hop.direction)
        walk = _walk_of(hop)
        guard = self.context.guard
        if not self._matters(hop):
            return Paths(nodes, step_counts(adjacency, nodes, walk, guard=guard))
        steps = step_bound(adjacency, nodes, walk)
        domain = None
        is_near = nodes is not None and steps * FAR_SHARE < adjacency.target_count
        if nodes is not None and is_near and not self._is_selective(hop, steps):
            domain = _reached(adjacency, nodes, walk, guard)
        far = self._at_end(hop, topology, domain).live()
        edges = self._edges(hop, topology, steps)
        check_steps(far, edges, adjacency, walk)
        if far.nodes is not None:
            back = topology.adjacency(REVERSED[hop.direction])
            backwards = _turned(walk)
            if step_bound(back, far.nodes, backwards) * _ARRIVING_COST < steps:
                return Arriving(back, far, edges, backwards, guard).totals(nodes)
        return Leaving(adjacency, far, edges, walk, guard, steps).totals(nodes)

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

    def _at_end(self, hop: Expand, topology: Topology, domain: Ints | None) -> Paths:
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
        paths = Paths(nodes, None, self._own(hop.target, table_key, nodes, ends))
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
        if largest(values) >= TOTAL_MAX:
            raise NotFoldedError
        return np.asarray(values, np.int64)

    def _coded(self, channel: Channel, table_key: str) -> Coded:
        key = (channel.variable, channel.name)
        if key not in self._codes:
            row_ids, columns = self.context.tables.whole(table_key, [channel.name])
            kept = self.context.tables.codes(table_key, row_ids, channel.name)
            self._codes[key] = coded(columns[channel.name]) if kept is None else kept
        return self._codes[key]

    def _edges(self, hop: Expand, topology: Topology, steps: int) -> Edges:
        """Return which edge records a hop may take, and their totals."""
        edge = hop.edge_variable
        own = [channel for channel in self.channels if channel.variable == edge]
        if edge is None or not (own or edge in self.tree.tests):
            return Edges(None, {})
        if steps * _EDGES_READ_SHARE < topology.edges.count:
            raise NotFoldedError
        table_key = TableKey.edge(hop.edge)
        totals = self._own(edge, table_key, None, topology.edges)
        if edge not in self.tree.tests:
            return Edges(None, totals)
        row_ids = topology.edges.row_ids().astype(np.int64)
        tested = RowTable(len(row_ids), {edge: Entities(table_key, row_ids)})
        kept = self.run(self.tree.tests[edge], tested).row_ids(edge)
        is_kept = np.zeros(len(row_ids), np.bool_)
        is_kept[topology.edges.positions(kept)] = True
        return Edges(is_kept, totals)


def _walk_of(hop: Expand) -> Walk:
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
            most = largest(found.drop_null().to_numpy(zero_copy_only=False))
            if most * max(total, 1) >= TOTAL_MAX:
                return False
    return True
