"""What a plan mentions: the values, variables and operators inside of it."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.query.plan.plan import (
    AggregateValue,
    AllOf,
    AntiJoin,
    AnyOf,
    Compare,
    EntityId,
    Expand,
    Filter,
    InList,
    IsNull,
    ListContains,
    NodeScan,
    Not,
    Operator,
    OptionalMatch,
    Predicate,
    Prefix,
    PropertyValue,
    SameId,
    Score,
    Substring,
    TextMatch,
    Value,
)


def predicate_values(predicate: Predicate) -> Iterator[Value]:
    """Yield every value that a predicate mentions, `SameId` as two ids."""
    match predicate:
        case Compare(left, _, right):
            yield left
            yield right
        case ListContains(items, item):
            yield items
            yield item
        case Substring(text, part) | Prefix(text, part):
            yield text
            yield part
        case IsNull(operand):
            yield operand
        case InList(operand, choices):
            yield operand
            yield choices
        case TextMatch(_, field, query, edits):
            yield field
            yield query
            if edits is not None:
                yield edits
        case SameId(left_name, right_name):
            yield EntityId(left_name)
            yield EntityId(right_name)
        case AllOf(operands) | AnyOf(operands):
            for operand in operands:
                yield from predicate_values(operand)
        case Not(operand):
            yield from predicate_values(operand)


def value_variables(value: Value) -> Iterator[str]:
    """Yield the variables of the row table that a value depends on."""
    if isinstance(value, PropertyValue | EntityId):
        yield value.variable
    elif isinstance(value, Score):
        yield value.ranking.variable
    elif isinstance(value, AggregateValue):
        yield from value_variables(value.argument)


def predicate_variables(predicate: Predicate) -> frozenset[str]:
    """Return the variables that a predicate depends on."""
    return frozenset(
        name for value in predicate_values(predicate) for name in value_variables(value)
    )


def needed_variables(operator: Operator) -> Iterator[str]:
    """Yield the variables of the rows before an operator that it looks at.

    The filters of a scan or hop mention only the variable that it introduces.
    """
    match operator:
        case Expand():
            yield operator.source
        case Filter(predicate):
            yield from predicate_variables(predicate)
        case AntiJoin() | OptionalMatch():
            yield from operator.outer
        case NodeScan():
            pass


def walk_operators(pipeline: tuple[Operator, ...]) -> Iterator[Operator]:
    """Yield all operators, those of inner pipelines after the one that holds them."""
    for operator in pipeline:
        yield operator
        if isinstance(operator, AntiJoin | OptionalMatch):
            yield from walk_operators(operator.pipeline)
