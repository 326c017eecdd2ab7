"""A plan as text: one operator per line, inner pipelines indented, the same for equal plans.

`c.rank` is a column of the row table, `$t` a parameter, `I32(5)` a constant with the type
that it was given. Property lists in brackets are the columns that an operator has to fetch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from omnigraph.query.plan.plan import (
    AggregateValue,
    AllOf,
    AntiJoin,
    AnyOf,
    AssignedValue,
    Bm25Ranking,
    Compare,
    Constant,
    ConstantValue,
    CurrentTime,
    DeleteRows,
    EndpointValue,
    EntityId,
    Expand,
    Filter,
    InList,
    InsertEdge,
    InsertNode,
    IsNull,
    ListContains,
    MutationPlan,
    NearestRanking,
    NodeScan,
    Not,
    Operator,
    OptionalMatch,
    ParameterValue,
    Plan,
    PlannedStatement,
    Predicate,
    Prefix,
    PropertyValue,
    Ranking,
    ReadPlan,
    ResultColumn,
    RrfRanking,
    SameId,
    Score,
    SortKey,
    Substring,
    TextMatch,
    UpdateRows,
    UpsertEdge,
    UpsertNode,
    Value,
)
from omnigraph.schema.values.temporal import format_dates, format_datetimes
from omnigraph.values import Scalar


def print_plan(plan: Plan) -> str:
    """Return the plan as lines of text."""
    parameters = ", ".join(f"${p.name}: {p.prop_type}" for p in plan.parameters)
    kind = "read" if isinstance(plan, ReadPlan) else "mutation"
    lines = [f"{kind} {plan.name}({parameters})"]
    if isinstance(plan, MutationPlan):
        lines += (_statement_line(statement) for statement in plan.statements)
    else:
        lines += _ranking_lines(plan)
        lines += _pipeline_lines(plan.pipeline, "")
        lines += _result_lines(plan)
    return "\n".join(lines)


# -- pipelines ----------------------------------------------------------------------------------


def _pipeline_lines(pipeline: tuple[Operator, ...], indent: str) -> Iterator[str]:
    for operator in pipeline:
        yield indent + operator_line(operator)
        if isinstance(operator, AntiJoin | OptionalMatch):
            yield from _pipeline_lines(operator.pipeline, indent + "  ")


def operator_line(operator: Operator) -> str:
    """Return one operator without its inner pipeline."""
    match operator:
        case NodeScan():
            columns = _columns(operator.properties)
            what = f"NodeScan {operator.variable}: {operator.type_name}{columns}"
            return what + _where(operator.filters)
        case Expand():
            return _expand_line(operator)
        case Filter(predicate):
            return f"Filter {predicate_text(predicate)}"
        case AntiJoin():
            flag = " existence" if operator.is_existence_test else ""
            return f"AntiJoin on {_names(operator.outer)}{flag}"
        case OptionalMatch():
            return f"OptionalMatch on {_names(operator.outer)} gives {_names(operator.introduces)}"


def _expand_line(expand: Expand) -> str:
    edge = expand.edge
    if expand.edge_variable is not None:
        edge = f"{expand.edge_variable}: {edge}{_columns(expand.edge_properties)}"
    left, right = {"out": ("-", "->"), "in": ("<-", "-"), "both": ("<-", "->")}[expand.direction]
    highest = str(expand.max) if expand.max_parameter is None else f"${expand.max_parameter}"
    hops = "" if (expand.min, highest) == (1, "1") else f" {{{expand.min},{highest}}}"
    hops += " reversed" if expand.is_reversed else ""
    target = f"{expand.target}: {expand.target_type}{_columns(expand.properties)}"
    what = f"Expand {expand.source} {left}[{edge}]{right} {target}{hops}"
    return what + _where(expand.target_filters)


def _columns(properties: tuple[str, ...]) -> str:
    return f" [{', '.join(properties)}]" if properties else ""


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


def _where(filters: tuple[Predicate, ...]) -> str:
    return f" where {' and '.join(_operand(f) for f in filters)}" if filters else ""


# -- results ------------------------------------------------------------------------------------


def _ranking_lines(plan: ReadPlan) -> Iterator[str]:
    if plan.ranking is not None:
        depth = "all" if plan.candidates is None else str(plan.candidates)
        yield f"Rank {plan.ranking.variable} by {ranking_text(plan.ranking)} keeping {depth}"


def _result_lines(plan: ReadPlan) -> Iterator[str]:
    if plan.is_aggregate:
        keys = [value_text(plan.columns[index].expression) for index in plan.group_keys]
        yield f"Group by {', '.join(keys) or 'nothing'}"
    yield "Return distinct" if plan.distinct else "Return"
    for index, column in enumerate(plan.columns):
        header = json.dumps(column.header, ensure_ascii=False)
        header = _object_header(plan, index) + header
        yield f"  {header} = {value_text(column.expression)}: {column.prop_type}"
    if plan.order:
        yield f"Order {', '.join(_sort_key_text(key) for key in plan.order)}"
    for word, number, name in (
        ("Limit", plan.limit, plan.limit_parameter),
        ("Offset", plan.offset, plan.offset_parameter),
    ):
        if number is not None:
            yield f"{word} {number}"
        elif name is not None:
            yield f"{word} ${name}"


def _object_header(plan: ReadPlan, index: int) -> str:
    """Return the object that a column belongs to, in front of its own header."""
    around = (each for each in plan.objects if each.start <= index < each.stop)
    return "".join(f"{json.dumps(each.header, ensure_ascii=False)} . " for each in around)


def _sort_key_text(key: SortKey) -> str:
    text = value_text(key.expression) + (" desc" if key.descending else "")
    return f"({text})" if key.implicit else text


# -- mutations ----------------------------------------------------------------------------------


def _statement_line(statement: PlannedStatement) -> str:
    match statement:
        case InsertNode():
            key = f" key ({', '.join(statement.key)})" if statement.key else ""
            act = "CreateNode" if statement.must_be_new else "InsertNode"
            return f"{act} {statement.type_name}{key}{_given(statement)}"
        case UpsertNode():
            required = f" required ({', '.join(statement.required)})" if statement.required else ""
            key = ", ".join(statement.key)
            return f"UpsertNode {statement.type_name} key ({key}){_given(statement)}{required}"
        case InsertEdge():
            key = f" key ({', '.join(statement.key)})" if statement.key else ""
            act = "CreateEdge" if statement.must_be_new else "InsertEdge"
            return f"{act} {_edge_line(statement)}{key}{_given(statement)}"
        case UpsertEdge():
            required = f" required ({', '.join(statement.required)})" if statement.required else ""
            key = ", ".join(statement.key)
            return f"UpsertEdge {_edge_line(statement)} key ({key}){_given(statement)}{required}"
        case UpdateRows():
            values = _assignments(statement.assignments)
            where = predicate_text(statement.where)
            what = f"UpdateRows {statement.kind} {statement.type_name}"
            return f"{what} set {values} where {where}"
        case DeleteRows():
            where = predicate_text(statement.where)
            edges = [f"{c.type_name} by {' and '.join(c.ends)}" for c in statement.cascades]
            cascade = f" cascading to {', '.join(edges)}" if edges else ""
            return f"DeleteRows {statement.kind} {statement.type_name} where {where}{cascade}"


def _edge_line(statement: InsertEdge | UpsertEdge) -> str:
    ends = f"{value_text(statement.from_id)} -> {value_text(statement.to_id)}"
    return f"{statement.type_name} ({statement.from_type} -> {statement.to_type}) {ends}"


def _given(statement: InsertNode | UpsertNode | InsertEdge | UpsertEdge) -> str:
    text = f" set {_assignments(statement.assignments)}" if statement.assignments else ""
    if statement.defaults:
        text += f" default {_assignments(statement.defaults)}"
    if isinstance(statement, InsertNode | UpsertNode) and statement.embeds:
        text += f" embed {', '.join(statement.embeds)}"
    return text


def _assignments(assignments: tuple[AssignedValue, ...]) -> str:
    return ", ".join(f"{a.property}: {a.prop_type} = {value_text(a.value)}" for a in assignments)


# -- predicates and values ----------------------------------------------------------------------


def predicate_text(predicate: Predicate) -> str:  # noqa: PLR0911 - one case per kind
    """Return a predicate on one line."""
    match predicate:
        case AllOf(operands):
            return " and ".join(_operand(operand) for operand in operands)
        case AnyOf(operands):
            return " or ".join(_operand(operand) for operand in operands)
        case Not(operand):
            return f"not ({predicate_text(operand)})"
        case SameId(left_name, right_name):
            return f"{left_name}.id = {right_name}.id"
        case TextMatch(function, field, query, edits):
            arguments = [field, query] if edits is None else [field, query, edits]
            return f"{function}({', '.join(map(value_text, arguments))})"
        case IsNull(tested, negated):
            return f"{value_text(tested)} is {'not ' if negated else ''}null"
        case InList(tested, choices, negated):
            word = "not in" if negated else "in"
            return f"{value_text(tested)} {word} {value_text(choices)}"
        case Compare(left, operator, right):
            return f"{value_text(left)} {operator} {value_text(right)}"
        case ListContains(items, item):
            return f"{value_text(items)} has {value_text(item)}"
        case Substring(text, part):
            return f"{value_text(text)} contains {value_text(part)}"
        case Prefix(text, prefix):
            return f"{value_text(text)} starts_with {value_text(prefix)}"


def _operand(predicate: Predicate) -> str:
    text = predicate_text(predicate)
    return f"({text})" if isinstance(predicate, AllOf | AnyOf) else text


def value_text(value: Value) -> str:  # noqa: PLR0911 - one case per kind
    """Return a value on one line."""
    match value:
        case Constant():
            return _constant_text(value)
        case ParameterValue(name):
            return f"${name}"
        case CurrentTime():
            return "now()"
        case PropertyValue(variable, name):
            return f"{variable}.{name}" if variable else name
        case EndpointValue(end):
            return f"{end} id"
        case EntityId(variable):
            return f"{variable}.id"
        case Score(ranking):
            return ranking_text(ranking)
        case AggregateValue(function, argument, distinct):
            return f"{function}({'distinct ' if distinct else ''}{value_text(argument)})"
        case ResultColumn(_, header):
            return f"column {json.dumps(header, ensure_ascii=False)}"


def _constant_text(constant: Constant) -> str:
    value, prop_type = constant.value, constant.prop_type
    if isinstance(value, tuple):
        items = ", ".join(_scalar_text(item, prop_type.scalar) for item in value)
        return f"{prop_type}({items})"
    text = _scalar_text(value, prop_type.scalar)
    return f"{prop_type.scalar}({text})" if prop_type.scalar.is_numeric else text


def ranking_text(ranking: Ranking) -> str:
    """Return a ranking on one line."""
    match ranking:
        case NearestRanking():
            model = f", model {json.dumps(ranking.model)}" if ranking.model else ""
            target = f"{ranking.variable}.{ranking.property}"
            return f"nearest({target}, {value_text(ranking.query)}, {ranking.metric}{model})"
        case Bm25Ranking():
            return f"bm25({ranking.variable}.{ranking.property}, {value_text(ranking.query)})"
        case RrfRanking():
            arms = f"{ranking_text(ranking.first)}, {ranking_text(ranking.second)}"
            numbers = ", ".join(value_text(value) for value in (ranking.k, *ranking.weights))
            return f"rrf({arms}, {numbers})"


def _scalar_text(value: ConstantValue, scalar: Scalar) -> str:
    if scalar is Scalar.DATE:
        return f'date("{format_dates(pa.array([value], pa.date32()))[0]}")'
    if scalar is Scalar.DATETIME:
        return f'datetime("{format_datetimes(pa.array([value], pa.date64()))[0]}")'
    return json.dumps(value, ensure_ascii=False)
