"""Reads evaluated the slow and obvious way: dictionaries and loops over the tree of a query.

It shares nothing with the engine but the parser and the conversion of parameters.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any

import pyarrow as pa

from omnigraph.manifest import Snapshot
from omnigraph.query.language import tree
from omnigraph.query.params import Params
from omnigraph.schema import Catalog
from omnigraph.values import PropType, Scalar


@dataclass(frozen=True)
class Entity:
    """A node or an edge."""

    type_name: str
    id: str
    properties: Mapping[str, Any]
    source: str = ""
    target: str = ""


Env = dict[str, Entity | None]
Truth = bool | None


@dataclass(frozen=True, repr=False)
class World:
    """Everything in one snapshot."""

    catalog: Catalog
    nodes: Mapping[str, Mapping[str, Entity]]
    edges: Mapping[str, Sequence[Entity]]


def read_world(snapshot: Snapshot, catalog: Catalog) -> World:
    """Read all rows of a snapshot."""
    nodes = {
        name: {entity.id: entity for entity in _entities(snapshot, node.table_key, name)}
        for name, node in catalog.node_types.items()
    }
    edges = {
        name: _entities(snapshot, edge.table_key, name) for name, edge in catalog.edge_types.items()
    }
    return World(catalog, nodes, edges)


def _entities(snapshot: Snapshot, key: str, name: str) -> list[Entity]:
    table = snapshot.open(key).scan().read_all()
    columns = {column: _plain(table[column]) for column in table.column_names}
    found = []
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        ends = (row.pop("src", ""), row.pop("dst", ""))
        found.append(Entity(name, row.pop("id"), row, *ends))
    return found


def _plain(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_date64(kind):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


# -- values -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Typed:
    """A value and the type of the column or parameter it is from."""

    value: Any
    prop_type: PropType | None
    is_column: bool


def _f32(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", float(value)))[0]
    except OverflowError:
        return value
    return rounded


def _beside(typed: Typed, other: Typed) -> Any:
    """A constant beside an F32 column is rounded first."""
    is_f32 = other.prop_type is not None and other.prop_type.scalar is Scalar.F32
    is_number = isinstance(typed.value, int | float) and not isinstance(typed.value, bool)
    if other.is_column and not typed.is_column and is_f32 and is_number:
        return _f32(typed.value)
    return typed.value


def _compare(left: Typed, operator: str, right: Typed) -> Truth:
    a, b = _beside(left, right), _beside(right, left)
    if a is None or b is None:
        return None
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    return {
        "=": lambda: a == b,
        "!=": lambda: a != b,
        "<": lambda: a < b,
        "<=": lambda: a <= b,
        ">": lambda: a > b,
        ">=": lambda: a >= b,
    }[operator]()


# -- evaluation ---------------------------------------------------------------------------------


@dataclass
class Reference:
    """Evaluates one query on one world."""

    world: World
    params: Params
    now_ms: int
    types: dict[str, str] = field(default_factory=dict)

    def rows(self, query: tree.QueryDecl) -> tuple[list[tuple[Any, ...]], bool]:
        """Return the rows, and whether their order is defined."""
        body = query.body
        assert isinstance(body, tree.ReadBody)
        envs = self._block(body.clauses, {}, {})
        if any(isinstance(c.expression, tree.AggregateCall) for c in body.columns):
            table = self._aggregated(body, envs)
        else:
            table = [
                (env, tuple(self._value(c.expression, env) for c in body.columns)) for env in envs
            ]
            if body.distinct:
                table = list({_key(row): (env, row) for env, row in reversed(table)}.values())
        is_ordered = bool(body.order) or body.limit is not None or body.offset is not None
        if is_ordered:
            table = self._ordered(body, table)
            skipped = body.offset or 0
            end = None if body.limit is None else skipped + body.limit
            table = table[skipped:end]
        return [row for _, row in table], is_ordered

    # -- match ----------------------------------------------------------------------------------

    def _block(
        self, clauses: tuple[tree.Clause, ...], outer: Env, outer_types: dict[str, str]
    ) -> list[Env]:
        types = self._types(clauses, outer_types)
        envs = [dict(outer)]
        for clause in clauses:
            if isinstance(clause, tree.Binding):
                envs = [new for env in envs for new in self._bind(clause, env)]
        hops = [clause for clause in clauses if isinstance(clause, tree.Hop)]
        while hops:
            known = envs[0].keys() if envs else set(types)
            hop = next(
                (h for h in hops if h.source.name in known or h.target.name in known), hops[0]
            )
            hops.remove(hop)
            envs = [new for env in envs for new in self._hop(hop, env, types)]
        for clause in clauses:
            if isinstance(clause, tree.OptionalBlock):
                inner = self._introduced(clause.clauses, types)
                envs = [new for env in envs for new in self._optional(clause, env, types, inner)]
                types = {**types, **inner}
        for clause in clauses:
            if isinstance(clause, tree.Filter):
                envs = [env for env in envs if self._truth(clause.predicate, env)]
        for clause in clauses:
            if isinstance(clause, tree.NotBlock):
                envs = [env for env in envs if not self._block(clause.clauses, env, types)]
        self.types |= types
        return envs

    def _types(self, clauses: tuple[tree.Clause, ...], outer: dict[str, str]) -> dict[str, str]:
        types = dict(outer)
        bound = {c.variable: c.type_name for c in clauses if isinstance(c, tree.Binding)}
        types |= bound
        for clause in clauses:
            if isinstance(clause, tree.Hop):
                self._hop_types(clause, types)
        return types

    def _hop_types(self, hop: tree.Hop, types: dict[str, str]) -> bool:
        """Note the types of a hop's ends; say whether it runs along the edge."""
        edge = self.world.catalog.lookup_edge(hop.edge)
        assert edge is not None
        source, target = types.get(hop.source.name), types.get(hop.target.name)
        if source is not None:
            forward = source == edge.from_type
        elif target is not None:
            forward = target == edge.to_type
        else:
            forward = True
        ends = (edge.from_type, edge.to_type) if forward else (edge.to_type, edge.from_type)
        for name, type_name in zip((hop.source.name, hop.target.name), ends, strict=True):
            if name != "_":
                types.setdefault(name, type_name)
        return forward

    def _introduced(
        self, clauses: tuple[tree.Clause, ...], outer: dict[str, str]
    ) -> dict[str, str]:
        found = self._types(clauses, outer)
        for clause in clauses:
            if isinstance(clause, tree.Hop) and clause.edge_variable is not None:
                found[clause.edge_variable.name] = clause.edge
            if isinstance(clause, tree.OptionalBlock):
                found |= self._introduced(clause.clauses, found)
        return {name: kind for name, kind in found.items() if name not in outer and name != "_"}

    def _bind(self, binding: tree.Binding, env: Env) -> Iterator[Env]:
        name = binding.variable
        nodes = self.world.nodes[binding.type_name].values()
        candidates = [env[name]] if name in env else list(nodes)
        for node in candidates:
            if node is not None and all(self._inline(node, p) for p in binding.properties):
                yield {**env, name: node}

    def _inline(self, node: Entity, written: tree.InlineProperty) -> bool:
        prop_type = self._property_type(node.type_name, written.name)
        column = Typed(node.properties[written.name], prop_type, is_column=True)
        wanted = self._typed(written.value, {})
        if prop_type.is_list:
            return self._contains(column, wanted) is True
        return _compare(column, "=", wanted) is True

    def _hop(self, hop: tree.Hop, env: Env, types: dict[str, str]) -> Iterator[Env]:
        edge = self.world.catalog.lookup_edge(hop.edge)
        assert edge is not None
        own = {name: types[name] for name in (hop.source.name, hop.target.name) if name in types}
        forward = self._hop_types(hop, own)
        start_type = edge.from_type if forward else edge.to_type
        end_type = edge.to_type if forward else edge.from_type
        for source in self._candidates(hop.source.name, start_type, env):
            targets = self._candidates(hop.target.name, end_type, env)
            ends = {} if source is None else self._ends(hop, edge.name, source, forward)
            for target in targets:
                if target is None:
                    continue
                for record in ends.get(target.id, ()):
                    new = dict(env)
                    if hop.source.name != "_":
                        new[hop.source.name] = source
                    if hop.target.name != "_":
                        new[hop.target.name] = target
                    if hop.edge_variable is not None and hop.edge_variable.name != "_":
                        new[hop.edge_variable.name] = record
                    same = hop.source.name == hop.target.name != "_"
                    if not same or (source is not None and source.id == target.id):
                        yield new

    def _candidates(self, name: str, type_name: str, env: Env) -> list[Entity | None]:
        if name != "_" and name in env:
            return [env[name]]
        return list(self.world.nodes[type_name].values())

    def _ends(
        self, hop: tree.Hop, edge_name: str, source: Entity, forward: bool
    ) -> dict[str, list[Entity | None]]:
        """Return what one source reaches: per end the edge records, or one None when unbound."""
        low, _ = hop.bounds or (1, 1)
        edge = self.world.catalog.edge_types[edge_name]
        if hop.edge_variable is not None and hop.edge_variable.name != "_":
            found: dict[str, list[Entity | None]] = {}
            for record, end in self._records(edge_name, source.id, forward, hop.undirected):
                found.setdefault(end, []).append(record)
            return found
        chains = edge.from_type == edge.to_type
        if not chains:
            ends = self._records(edge_name, source.id, forward, hop.undirected)
            return {end: [None] for _, end in ends} if low == 1 else {}
        return {end: [None] for end in self._search(edge_name, source.id, forward, hop)}

    def _search(self, edge_name: str, start: str, forward: bool, hop: tree.Hop) -> set[str]:
        low, high = hop.bounds or (1, 1)
        assert high is not None
        visited, emitted, frontier = {start}, set[str](), [start]
        for distance in range(1, high + 1):
            queued: list[str] = []
            for node in frontier:
                for _, end in self._records(edge_name, node, forward, hop.undirected):
                    if end == node:
                        if distance >= low:
                            emitted.add(end)
                    elif end not in visited:
                        visited.add(end)
                        queued.append(end)
                        if distance >= low:
                            emitted.add(end)
            frontier = queued
        return emitted

    def _records(
        self, edge_name: str, node: str, forward: bool, undirected: bool
    ) -> list[tuple[Entity, str]]:
        found = []
        for record in self.world.edges[edge_name]:
            along, against = record.source == node, record.target == node
            if undirected and along and against:
                found.append((record, node))
                continue
            if along and (forward or undirected):
                found.append((record, record.target))
            if against and (not forward or undirected):
                found.append((record, record.source))
        return found

    def _optional(
        self,
        block: tree.OptionalBlock,
        env: Env,
        types: dict[str, str],
        introduced: dict[str, str],
    ) -> list[Env]:
        found = self._block(block.clauses, env, types)
        kept = [{**env, **{n: e[n] for n in introduced if n in e}} for e in found]
        return kept or [{**env, **dict.fromkeys(introduced)}]

    # -- predicates -----------------------------------------------------------------------------

    def _truth(self, predicate: tree.Predicate, env: Env) -> Truth:  # noqa: PLR0911 - one per kind
        match predicate:
            case tree.Both(operands):
                values = [self._truth(operand, env) for operand in operands]
                return False if False in values else None if None in values else True
            case tree.Either(operands):
                values = [self._truth(operand, env) for operand in operands]
                return True if True in values else None if None in values else False
            case tree.Negated(operand):
                value = self._truth(operand, env)
                return None if value is None else not value
            case tree.NullTest(operand, negated):
                return (self._typed(operand, env).value is None) != negated
            case tree.Membership(operand, choices, negated):
                found = self._contains(self._typed(choices, env), self._typed(operand, env))
                return found if found is None else found != negated
            case tree.Comparison(left, "contains", right):
                return self._contains(self._typed(left, env), self._typed(right, env))
            case tree.Comparison(left, "starts_with", right):
                a, b = self._typed(left, env).value, self._typed(right, env).value
                return None if a is None or b is None else a.startswith(b)
            case tree.Comparison(left, operator, right):
                return _compare(self._typed(left, env), operator, self._typed(right, env))

    def _contains(self, items: Typed, item: Typed) -> Truth:
        if items.value is None or item.value is None:
            return None
        if isinstance(items.value, str):
            return item.value in items.value
        return any(
            _compare(Typed(each, items.prop_type, items.is_column), "=", item) is True
            for each in items.value
        )

    # -- expressions ----------------------------------------------------------------------------

    def _typed(self, expression: tree.Expr, env: Env) -> Typed:  # noqa: PLR0911 - one line per kind
        match expression:
            case tree.Literal():
                return Typed(_literal(expression), None, is_column=False)
            case tree.AllRows():
                return Typed(1, None, is_column=False)
            case tree.Now():
                return Typed(self.now_ms, None, is_column=False)
            case tree.Variable(name) if name in self.params:
                given = self.params[name]
                return Typed(given.value, given.prop_type, is_column=False)
            case tree.PropertyRef(variable, name):
                entity = env[variable]
                if entity is None:
                    return Typed(None, None, is_column=True)
                prop_type = self._property_type(entity.type_name, name)
                return Typed(entity.properties[name], prop_type, is_column=True)
            case tree.Variable(name):
                entity = env[name]
                return Typed(None if entity is None else entity.id, None, is_column=True)
            case _:
                raise AssertionError(expression)

    def _property_type(self, type_name: str, name: str) -> PropType:
        catalog = self.world.catalog
        owner = catalog.node_types.get(type_name) or catalog.lookup_edge(type_name)
        assert owner is not None
        return owner.properties[name].prop_type

    def _value(self, expression: tree.Expr, env: Env) -> Any:
        return self._typed(expression, env).value

    # -- results --------------------------------------------------------------------------------

    def _aggregated(
        self, body: tree.ReadBody, envs: list[Env]
    ) -> list[tuple[Env, tuple[Any, ...]]]:
        keys = [c for c in body.columns if not isinstance(c.expression, tree.AggregateCall)]
        groups: dict[Any, list[Env]] = {}
        for env in envs:
            key = _key(tuple(self._value(c.expression, env) for c in keys))
            groups.setdefault(key, []).append(env)
        if not keys and not groups:
            groups[()] = []
        return [
            ({}, tuple(self._grouped(c.expression, members) for c in body.columns))
            for members in groups.values()
        ]

    def _grouped(self, expression: tree.Expr, members: list[Env]) -> Any:
        if not isinstance(expression, tree.AggregateCall):
            return self._value(expression, members[0])
        values = [self._value(expression.argument, env) for env in members]
        values = [value for value in values if value is not None]
        if expression.distinct:
            values = list({_key((value,)): value for value in values}.values())
        if expression.function == "count":
            return len(values)
        if not values:
            return None
        if expression.function in ("min", "max"):
            chosen = sorted(values, key=cmp_to_key(_order))
            return chosen[0] if expression.function == "min" else chosen[-1]
        total = _total(values)
        return total if expression.function == "sum" else total / len(values)

    def _ordered(
        self, body: tree.ReadBody, table: list[tuple[Env, tuple[Any, ...]]]
    ) -> list[tuple[Env, tuple[Any, ...]]]:
        is_result = body.distinct or any(
            isinstance(c.expression, tree.AggregateCall) for c in body.columns
        )
        headers = [c.alias or _header(c.expression) for c in body.columns]

        def keys(item: tuple[Env, tuple[Any, ...]]) -> list[tuple[Any, bool]]:
            env, row = item
            found = []
            for key in body.order:
                if isinstance(key.expression, tree.NameRef):
                    position = len(headers) - 1 - headers[::-1].index(key.expression.name)
                    value = row[position]
                elif is_result:
                    value = row[headers.index(_header(key.expression))]
                else:
                    value = self._value(key.expression, env)
                found.append((value, key.descending is True))
            if is_result:
                found += [
                    (value, False)
                    for c, value in zip(body.columns, row, strict=True)
                    if not isinstance(c.expression, tree.AggregateCall)
                ]
            else:
                found += [(e.id if e else None, False) for _, e in sorted(env.items())]
            return found

        def compare(left: Any, right: Any) -> int:
            for (a, descending), (b, _) in zip(left[0], right[0], strict=True):
                sign = _order(a, b)
                if sign:
                    return -sign if descending else sign
            return 0

        decorated = sorted(((keys(item), item) for item in table), key=cmp_to_key(compare))
        return [item for _, item in decorated]


def _total(values: list[Any]) -> float:
    """Add whole numbers exactly, and floats one after the other from the smallest."""
    if all(isinstance(value, int) for value in values):
        return float(sum(values))
    total = 0.0
    for value in sorted(values):
        total += value
    return total


def _header(expression: tree.Expr) -> str:
    match expression:
        case tree.PropertyRef(variable, name):
            return f"{variable}.{name}"
        case tree.Variable(name):
            return name
        case tree.AggregateCall(_, argument):
            return _header(argument)
        case _:
            return "literal"


def _literal(literal: tree.Literal) -> Any:
    if isinstance(literal.value, tuple):
        return [_literal(item) for item in literal.value]
    return literal.value


def _order(left: Any, right: Any) -> int:
    """Compare two values; null is the smallest, texts compare by bytes."""
    if left is None or right is None:
        return (left is not None) - (right is not None)
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    if isinstance(left, list | tuple):
        for a, b in zip(left, right, strict=False):
            sign = _order(a, b)
            if sign:
                return sign
        left, right = len(left), len(right)
    return (left > right) - (left < right)


def _key(values: tuple[Any, ...]) -> Any:
    return tuple(tuple(v) if isinstance(v, list) else v for v in values)
