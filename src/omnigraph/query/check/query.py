"""The type check of one query against a catalog.

All problems of a query are found in one run. A variable or property that is wrong gets no type, and
what uses it is not reported again.
"""

from __future__ import annotations

from omnigraph.query.check.checked import CheckedRead
from omnigraph.query.check.columns import CheckedColumn, check_columns
from omnigraph.query.check.match import check_block
from omnigraph.query.check.mutation import check_statement
from omnigraph.query.check.order import OrderChecker
from omnigraph.query.check.scope import Context, Reporter, Scope
from omnigraph.query.language.tree import QueryDecl, ReadBody, Statement
from omnigraph.query.plan.plan import (
    SCORE_TYPE,
    BoundVariable,
    MutationPlan,
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
        Reporter(source, f"query '{query.name}'"),
    )
    parameters = tuple(PlanParameter(p.name, p.prop_type) for p in query.parameters)
    checked: CheckedQuery | None
    if isinstance(query.body, ReadBody):
        checked = _check_read(context, query.name, parameters, query.body)
    else:
        checked = _check_mutation(context, query.name, parameters, query.body)
    found = tuple(context.report.found)
    return (None if found else checked), found


def _check_mutation(
    context: Context,
    name: str,
    parameters: tuple[PlanParameter, ...],
    statements: tuple[Statement, ...],
) -> MutationPlan:
    checked = [check_statement(context, statement) for statement in statements]
    return MutationPlan(name, parameters, tuple(s for s in checked if s is not None))


def _check_read(
    context: Context, name: str, parameters: tuple[PlanParameter, ...], body: ReadBody
) -> CheckedRead:
    scope = Scope()
    block = check_block(context, scope, body.clauses)
    columns = check_columns(context, scope, body.columns, has_limit=body.limit is not None)
    order = OrderChecker(context, scope, body, columns).check()
    plan = ReadPlan(
        name=name,
        parameters=parameters,
        pipeline=(),
        variables=_variables(scope),
        columns=_output_columns(columns, order.ranking),
        ranking=order.ranking,
        candidates=order.candidates,
        distinct=body.distinct,
        order=order.keys,
        limit=body.limit,
        offset=body.offset,
    )
    return CheckedRead(plan, block)


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
