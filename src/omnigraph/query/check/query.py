"""The type check of one query against a catalog.

All problems of a query are found in one run. A variable or property that is wrong gets no type, and
what uses it is not reported again.
"""

from __future__ import annotations

from itertools import groupby

from omnigraph.query.check.checked import CheckedRead
from omnigraph.query.check.columns import CheckedColumn, check_columns
from omnigraph.query.check.expr import number_parameter
from omnigraph.query.check.match import check_block
from omnigraph.query.check.mutation import check_statement
from omnigraph.query.check.order import OrderChecker
from omnigraph.query.check.scope import UNNAMED, Context, Reporter, Scope
from omnigraph.query.language.tree import QueryDecl, ReadBody, Statement, Variable
from omnigraph.query.plan.plan import (
    SCORE_TYPE,
    BoundVariable,
    MutationPlan,
    ObjectColumn,
    OutputColumn,
    PlanParameter,
    Ranking,
    ReadPlan,
    Score,
)
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax import Diagnostic, SourceText

CheckedQuery = CheckedRead | MutationPlan
"""A mutation needs no lowering: its checked form is its plan."""


def check_query(
    query: QueryDecl, catalog: Catalog, source: SourceText
) -> tuple[CheckedQuery | None, tuple[Diagnostic, ...]]:
    """Return the typed query, or None and what is wrong with it. Never raises.

    `source` is the text that the query was parsed from.
    """
    context = Context(
        catalog,
        {parameter.name: parameter for parameter in query.parameters},
        Reporter(source, f"query '{query.name}'" if query.name else UNNAMED),
    )
    checked: CheckedQuery | None
    if isinstance(query.body, ReadBody):
        checked = _check_read(context, query.name, query.body)
    else:
        checked = _check_mutation(context, query.name, query.body)
    found = tuple(context.report.found)
    return (None if found else checked), found


def _parameters(context: Context) -> tuple[PlanParameter, ...]:
    """Return the declared parameters, with what the checks have found out about them."""
    return tuple(
        PlanParameter(
            name, declared.prop_type, tuple(dict.fromkeys(context.enum_uses.get(name, ())))
        )
        for name, declared in context.parameters.items()
    )


def _check_mutation(context: Context, name: str, statements: tuple[Statement, ...]) -> MutationPlan:
    checked = [check_statement(context, statement) for statement in statements]
    planned = tuple(statement for statement in checked if statement is not None)
    return MutationPlan(name, _parameters(context), planned)


def _check_read(context: Context, name: str, body: ReadBody) -> CheckedRead:
    scope = Scope()
    block = check_block(context, scope, body.clauses)
    columns = check_columns(context, scope, body.columns, has_limit=body.limit is not None)
    order = OrderChecker(context, scope, body, columns).check()
    limit, limit_parameter = _number(context, body.limit, "a limit")
    offset, offset_parameter = _number(context, body.offset, "an offset")
    plan = ReadPlan(
        name=name,
        parameters=_parameters(context),
        pipeline=(),
        variables=_variables(scope),
        columns=_output_columns(columns, order.ranking),
        ranking=order.ranking,
        candidates=order.candidates,
        distinct=body.distinct,
        order=order.keys,
        limit=limit,
        offset=offset,
        limit_parameter=limit_parameter,
        offset_parameter=offset_parameter,
        objects=_objects(columns),
    )
    return CheckedRead(plan, block)


def _number(
    context: Context, written: int | Variable | None, what: str
) -> tuple[int | None, str | None]:
    """Return a number, or the parameter that gives it."""
    if isinstance(written, Variable):
        return None, number_parameter(context, written, what)
    return written, None


def _objects(columns: tuple[CheckedColumn, ...]) -> tuple[ObjectColumn, ...]:
    """Return the objects whose fields neighbouring columns are."""
    found: list[ObjectColumn] = []
    for place, run in groupby(range(len(columns)), key=lambda index: _place_of(columns[index])):
        if place is None:
            continue
        fields = list(run)
        presence = next((index for index in fields if columns[index].tells_presence), None)
        found.append(ObjectColumn(place[0], fields[0], fields[-1] + 1, presence))
    return tuple(found)


def _place_of(column: CheckedColumn) -> tuple[str, int] | None:
    """Return the header of the object around a column and where it was written."""
    return None if column.object is None else (column.object, column.written.span.start)


def _variables(scope: Scope) -> tuple[BoundVariable, ...]:
    return tuple(
        BoundVariable(bound.name, bound.kind, bound.entity.name, bound.nullable)
        for _, bound in sorted(scope.variables.items())
        if bound.entity is not None
    )


def _output_columns(
    columns: tuple[CheckedColumn, ...], ranking: Ranking | None
) -> tuple[OutputColumn, ...]:
    found: list[OutputColumn] = []
    for column in columns:
        value = column.value
        if isinstance(value, Score) and value.ranking == ranking:
            # Only ranked rows stay, so each of them has this score.
            value = Score(value.ranking, SCORE_TYPE)
        if value is not None:
            found.append(OutputColumn(column.header, value))
    return tuple(found)
