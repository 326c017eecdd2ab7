"""What an operation returns, reads and writes, as clients see it.

Headers and kinds are those of the rows that come out: a node column is a string, its id, and all
properties under one alias are an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from omnigraph.query.json_kinds import described
from omnigraph.query.plan.plan import (
    DeleteRows,
    EntityKind,
    Expand,
    InsertEdge,
    MutationPlan,
    NodeScan,
    Plan,
    PlannedStatement,
    ReadPlan,
    UpdateRows,
    UpsertEdge,
)
from omnigraph.query.plan.walk import walk_operators
from omnigraph.records import Json, JsonObject
from omnigraph.values import PropType


@dataclass(frozen=True)
class ResultField:
    """One column of the result."""

    name: str
    prop_type: PropType

    def as_json(self) -> JsonObject:
        """Return `{name, kind, item_kind?, vector_dim?, nullable}`."""
        return described(self.name, self.prop_type)


@dataclass(frozen=True)
class ResultObject:
    """One column of the result whose values are objects."""

    name: str
    fields: tuple[ResultField, ...]
    nullable: bool

    def as_json(self) -> JsonObject:
        """Return `{name, kind, fields, nullable}`."""
        fields: list[Json] = [field.as_json() for field in self.fields]
        return {"name": self.name, "kind": "object", "fields": fields, "nullable": self.nullable}


@dataclass(frozen=True)
class TouchedType:
    """A node or edge type that an operation reads or writes."""

    kind: EntityKind
    type_name: str

    def as_json(self) -> JsonObject:
        """Return `{kind, type_name}`."""
        return {"kind": self.kind, "type_name": self.type_name}


@dataclass(frozen=True)
class OperationDescriptor:
    """The signature of an operation; `result` is empty for a mutation.

    `reads` and `writes` list nodes before edges, then by name.
    """

    result: tuple[ResultField | ResultObject, ...]
    reads: tuple[TouchedType, ...]
    writes: tuple[TouchedType, ...]

    def as_json(self) -> JsonObject:
        """Return `{result, reads, writes}`."""
        return {
            "result": [column.as_json() for column in self.result],
            "reads": [touched.as_json() for touched in self.reads],
            "writes": [touched.as_json() for touched in self.writes],
        }


def describe_plan(plan: Plan) -> OperationDescriptor:
    """Describe a compiled query."""
    if isinstance(plan, ReadPlan):
        return OperationDescriptor(tuple(_fields(plan)), _sorted(_read_types(plan)), ())
    return OperationDescriptor(
        (), _sorted(_types(plan, _mutation_reads)), _sorted(_types(plan, _mutation_writes))
    )


def _fields(plan: ReadPlan) -> Iterator[ResultField | ResultObject]:
    fields = [ResultField(column.header, column.prop_type) for column in plan.columns]
    position = 0
    for each in plan.objects:
        yield from fields[position : each.start]
        parts = tuple(fields[each.start : each.stop])
        yield ResultObject(each.header, parts, each.presence is not None)
        position = each.stop
    yield from fields[position:]


def _sorted(touched: Iterator[TouchedType]) -> tuple[TouchedType, ...]:
    return tuple(sorted(set(touched), key=lambda t: (t.kind != "node", t.type_name)))


def _read_types(plan: ReadPlan) -> Iterator[TouchedType]:
    for operator in walk_operators(plan.pipeline):
        if isinstance(operator, NodeScan):
            yield TouchedType("node", operator.type_name)
        elif isinstance(operator, Expand):
            yield TouchedType("node", operator.source_type)
            yield TouchedType("node", operator.target_type)
            yield TouchedType("edge", operator.edge)


def _types(
    plan: MutationPlan, of: Callable[[PlannedStatement], Iterator[TouchedType]]
) -> Iterator[TouchedType]:
    for statement in plan.statements:
        yield from of(statement)


def _mutation_reads(statement: PlannedStatement) -> Iterator[TouchedType]:
    yield from _mutation_writes(statement)
    if isinstance(statement, InsertEdge | UpsertEdge):
        yield TouchedType("node", statement.from_type)
        yield TouchedType("node", statement.to_type)


def _mutation_writes(statement: PlannedStatement) -> Iterator[TouchedType]:
    if isinstance(statement, UpdateRows | DeleteRows):
        yield TouchedType(statement.kind, statement.type_name)
    else:
        is_edge = isinstance(statement, InsertEdge | UpsertEdge)
        yield TouchedType("edge" if is_edge else "node", statement.type_name)
    if isinstance(statement, DeleteRows):
        for cascade in statement.cascades:
            yield TouchedType("edge", cascade.type_name)
