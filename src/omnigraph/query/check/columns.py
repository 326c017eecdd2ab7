"""Types of returned columns."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.query.check.expr import (
    bare_node,
    constant_of,
    entity_id,
    parameter_of,
    property_of,
    report_unknown_variable,
)
from omnigraph.query.check.scope import Context, Scope
from omnigraph.query.check.search import check_ranking
from omnigraph.query.language.tree import (
    AggregateCall,
    AllProperties,
    AllRows,
    Bm25,
    Column,
    Expr,
    Literal,
    NameRef,
    Nearest,
    Now,
    PropertyRef,
    Rrf,
    TextCall,
    Variable,
)
from omnigraph.query.plan.plan import (
    NULLABLE_SCORE_TYPE,
    AggregateValue,
    Constant,
    CurrentTime,
    EntityId,
    ParameterValue,
    PropertyValue,
    Score,
    Value,
)
from omnigraph.values import PropType, Scalar

_COUNT = PropType(Scalar.I64, nullable=True)
_FLOAT = PropType(Scalar.F64, nullable=True)
_ORDERED = frozenset({Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME})


@dataclass(frozen=True, slots=True)
class CheckedColumn:
    """A column with its header; `value` is None after a reported problem.

    `object` is the header of the object that the column is a field of, as in `$c.* as crew`. Such
    a column `tells_presence` if it is null only where its variable is.
    """

    written: Column
    header: str
    value: Value | None
    object: str | None = None
    tells_presence: bool = False


def check_columns(
    context: Context, scope: Scope, columns: tuple[Column, ...], *, has_limit: bool
) -> tuple[CheckedColumn, ...]:
    """Check all columns, and that an aggregate query groups by properties and variables (T9)."""
    checked: list[CheckedColumn] = []
    for column in columns:
        if isinstance(column.expression, AllProperties):
            checked += _every_property(context, scope, column, column.expression)
        else:
            value = _column_value(context, scope, column.expression, has_limit)
            checked.append(CheckedColumn(column, header_of(column), value))
    if any(isinstance(column.expression, AggregateCall) for column in columns):
        for found in checked:
            _check_group_key(context, found)
    return tuple(checked)


def _every_property(
    context: Context, scope: Scope, column: Column, written: AllProperties
) -> list[CheckedColumn]:
    """Return a column for each property of a variable, in the order of the schema (T6, T118)."""
    bound = scope.variables.get(written.variable)
    if bound is None:
        report_unknown_variable(context, scope, PropertyRef(written.variable, "*", written.span))
    if bound is None or bound.entity is None:
        return []
    found: list[CheckedColumn] = []
    for name in bound.declared_order:
        declared = bound.properties[name]
        if declared.prop_type.is_vector or declared.prop_type.scalar is Scalar.BLOB:
            continue
        reference = PropertyRef(written.variable, name, written.span)
        single = Column(reference, None, column.span)
        header = name if column.alias is not None else _plain_header(reference)
        value = property_of(context, scope, reference)
        tells_presence = bound.nullable and not declared.prop_type.nullable
        found.append(CheckedColumn(single, header, value, column.alias, tells_presence))
    if not found:
        context.report.error(
            "T118",
            f"`${written.variable}.*` returns nothing: {bound.type_name} has no property but"
            " vectors and Blobs",
            written.span,
            f"return `${written.variable}` alone to get the id" if bound.kind == "node" else None,
        )
    return found


def header_of(column: Column) -> str:
    """Return the alias, or else the header that the expression gives."""
    return column.alias if column.alias is not None else _plain_header(column.expression)


def _plain_header(expression: Expr | AllRows | AllProperties) -> str:
    if isinstance(expression, PropertyRef):
        return f"{expression.variable}.{expression.property}"
    if isinstance(expression, Variable | NameRef):
        return expression.name
    if isinstance(expression, AggregateCall):
        return _plain_header(expression.argument)
    if isinstance(expression, TextCall):
        return expression.function
    return _FIXED_HEADERS[type(expression)]


_FIXED_HEADERS: dict[type[Expr | AllRows | AllProperties], str] = {
    AllRows: "count",
    Literal: "literal",
    Now: "now",
    Nearest: "nearest",
    Bm25: "bm25",
    Rrf: "rrf",
}


def _check_group_key(context: Context, column: CheckedColumn) -> None:
    value = column.value
    if value is None or isinstance(
        value, AggregateValue | PropertyValue | EntityId | ParameterValue
    ):
        return
    context.report.error(
        "T9",
        f"column '{column.header}' cannot be a grouping key: beside an aggregate, columns are "
        "properties or variables",
        column.written.expression.span,
        "leave the column out, or aggregate it",
    )


# -- values -------------------------------------------------------------------------------------


def _column_value(
    context: Context, scope: Scope, expression: Expr, has_limit: bool
) -> Value | None:
    if isinstance(expression, AggregateCall):
        return _aggregate(context, scope, expression, has_limit)
    value = _plain_value(context, scope, expression, has_limit)
    return value if _is_readable(context, expression, value) else None


def _is_readable(context: Context, expression: Expr, value: Value | None) -> bool:
    if value is None or value.prop_type.scalar is not Scalar.BLOB:
        return value is not None
    context.report.error(
        "T24",
        f"`{context.report.text(expression.span)}` is a Blob and cannot be read by a query",
        expression.span,
        "read it with `omnigraph blob`",
    )
    return False


def _plain_value(context: Context, scope: Scope, expression: Expr, has_limit: bool) -> Value | None:
    if isinstance(expression, PropertyRef):
        return property_of(context, scope, expression)
    if isinstance(expression, Variable):
        return _variable_value(context, scope, expression)
    if isinstance(expression, Literal):
        return constant_of(context, expression)
    if isinstance(expression, Now):
        return CurrentTime()
    if isinstance(expression, Nearest | Bm25 | Rrf):
        return _score(context, scope, expression, has_limit)
    _report_no_value(context, expression)
    return None


def _variable_value(context: Context, scope: Scope, variable: Variable) -> Value | None:
    parameter = parameter_of(context, variable)
    if parameter is not None:
        return parameter
    node = bare_node(context, scope, variable)
    return None if node is None else entity_id(node)


def _score(
    context: Context, scope: Scope, call: Nearest | Bm25 | Rrf, has_limit: bool
) -> Score | None:
    ranking = check_ranking(context, scope, call)
    if isinstance(call, Rrf) and not has_limit:
        report_rrf_without_limit(context, call)
        return None
    return None if ranking is None else Score(ranking, NULLABLE_SCORE_TYPE)


def report_rrf_without_limit(context: Context, call: Rrf) -> None:
    """Report that the depth of a fused ranking is open (T21)."""
    context.report.error("T21", "`rrf` needs a limit", call.span, "add `limit 10`")


def _report_no_value(context: Context, expression: Expr) -> None:
    written = context.report.text(expression.span)
    if isinstance(expression, NameRef):
        context.report.error(
            "T106",
            f"`{written}` is a bare name and has no value here",
            expression.span,
            "write `return distinct { … }`"
            if written == "distinct"
            else f"write a property `$variable.{written}` or a parameter `${written}`",
        )
    elif isinstance(expression, TextCall):
        context.report.error(
            "T114",
            f"`{expression.function}` is a condition and cannot be returned or ordered by",
            expression.span,
            "write it as a clause of the match; `bm25` gives a score",
        )
    else:
        context.report.error(
            "T115", "aggregates cannot be nested", expression.span, "aggregate a property"
        )


# -- aggregates ---------------------------------------------------------------------------------


def _aggregate(
    context: Context, scope: Scope, call: AggregateCall, has_limit: bool
) -> AggregateValue | None:
    if isinstance(call.argument, AllRows):
        return AggregateValue("count", _any_row(scope), distinct=False, prop_type=_COUNT)
    argument = _plain_value(context, scope, call.argument, has_limit)
    if argument is None or not _is_readable(context, call.argument, argument):
        return None
    if not _accepts(call.function, argument):
        context.report.error(
            "T8",
            f"`{call.function}` cannot aggregate `{context.report.text(call.argument.span)}` "
            f"({_described(argument)})",
            call.argument.span,
            _AGGREGATE_HINTS.get(call.function),
        )
        return None
    return AggregateValue(call.function, argument, call.distinct, _result_type(call, argument))


def _any_row(scope: Scope) -> Value:
    """Return a value that no row lacks: a node that every row has can be counted without it."""
    for bound in scope.variables.values():
        if bound.kind == "node" and bound.entity is not None and not bound.nullable:
            return entity_id(bound)
    return Constant(True, PropType(Scalar.BOOL))


_AGGREGATE_HINTS = {
    "sum": "it takes numbers",
    "avg": "it takes numbers",
    "min": "it takes numbers, strings, booleans, dates and moments",
    "max": "it takes numbers, strings, booleans, dates and moments",
}


def _described(value: Value) -> str:
    return "a node" if isinstance(value, EntityId) else str(value.prop_type)


def _accepts(function: str, argument: Value) -> bool:
    if function == "count":
        return True
    prop_type = argument.prop_type
    if isinstance(argument, EntityId) or not prop_type.is_plain_scalar:
        return False
    if prop_type.scalar.is_numeric:
        return True
    return function in ("min", "max") and prop_type.scalar in _ORDERED


def _result_type(call: AggregateCall, argument: Value) -> PropType:
    if call.function == "count":
        return _COUNT
    if call.function in ("sum", "avg"):
        return _FLOAT
    prop_type = argument.prop_type
    return prop_type if prop_type.nullable else prop_type.with_nullable(True)
