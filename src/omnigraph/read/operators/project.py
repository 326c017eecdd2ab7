"""Values of a plan for the rows of a query."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.query.plan.plan import (
    AggregateValue,
    Constant,
    CurrentTime,
    EntityId,
    OutputColumn,
    ParameterValue,
    PropertyValue,
    Score,
    Value,
)
from omnigraph.read.column_names import stored_column
from omnigraph.read.context import Context
from omnigraph.read.operators.rank import score_column
from omnigraph.read.row_table import RowTable


def values_of(context: Context, rows: RowTable, value: Value) -> pa.Array:
    """Return one value per row."""
    match value:
        case PropertyValue(variable) | EntityId(variable):
            entities = rows.entities[variable]
            stored = stored_column(value)
            return context.tables.fetch(entities.table_key, entities.row_ids, [stored])[stored]
        case Constant() | ParameterValue() | CurrentTime():
            return _repeated(context.bindings.value_of(value).arrow, rows.count)
        case Score(ranking):
            return score_column(context, rows, ranking)
        case _:
            raise TypeError(f"{value!r} has no value per row")


def _repeated(scalar: pa.Scalar, count: int) -> pa.Array:
    if pa.types.is_nested(scalar.type):
        return pa.array([scalar.as_py()] * count, scalar.type)
    if pa.types.is_date64(scalar.type):
        return pa.repeat(scalar.cast(pa.int64()), count).view(pa.date64())
    return pa.repeat(scalar, count)


def fetch_together(context: Context, rows: RowTable, columns: tuple[OutputColumn, ...]) -> None:
    """Read all needed properties of a variable at once, before each is fetched."""
    wanted: dict[str, list[str]] = {}
    for column in columns:
        value: Value = column.expression
        if isinstance(value, AggregateValue):
            value = value.argument
        if isinstance(value, PropertyValue | EntityId):
            wanted.setdefault(value.variable, []).append(stored_column(value))
    for variable, names in wanted.items():
        entities = rows.entities[variable]
        context.tables.prefetch(entities.table_key, entities.row_ids, names)


def project(context: Context, rows: RowTable, columns: tuple[OutputColumn, ...]) -> list[pa.Array]:
    """Return the result columns of rows."""
    context.guard.claim("the result", rows=rows.count, cells=len(columns))
    wanted: dict[str, list[str]] = {}
    for column in columns:
        if isinstance(value := column.expression, PropertyValue | EntityId):
            wanted.setdefault(value.variable, []).append(stored_column(value))
    fetched: dict[str, dict[str, pa.Array]] = {}
    for variable, names in wanted.items():
        entities = rows.entities[variable]
        fetched[variable] = context.tables.fetch(entities.table_key, entities.row_ids, names)
    return [
        fetched[value.variable][stored_column(value)]
        if isinstance(value := column.expression, PropertyValue | EntityId)
        else values_of(context, rows, value)
        for column in columns
    ]
