"""Types of inline properties: `$c: Crew { rank: 5, tag: $t }`."""

from __future__ import annotations

from omnigraph.query.check.cast import are_compatible, constant_cast_to, item_type
from omnigraph.query.check.enums import fits_enum
from omnigraph.query.check.expr import constant_of, required_parameter
from omnigraph.query.check.predicate import moment_hint
from omnigraph.query.check.scope import Bound, Context, suggestion
from omnigraph.query.language.tree import InlineProperty, Literal, Variable
from omnigraph.query.plan.plan import (
    Compare,
    Constant,
    CurrentTime,
    ListContains,
    ParameterValue,
    Predicate,
    PropertyValue,
)
from omnigraph.schema.catalog import NodeType
from omnigraph.syntax import Span
from omnigraph.values import PropType, Scalar


def check_inline_property(
    context: Context, bound: Bound, entity: NodeType, item: InlineProperty
) -> Predicate | None:
    """Return what an inline property asks for: equality, or membership for a list property."""
    declared = entity.properties.get(item.name)
    if declared is None:
        context.report.error(
            "T2",
            f"node type '{entity.name}' has no property '{item.name}'",
            Span(item.span.start, item.span.start + len(item.name)),
            suggestion(item.name, entity.properties, what=f"properties of {entity.name}"),
        )
        return None
    prop_type = declared.prop_type
    if not _is_matchable(context, item, prop_type):
        return None
    element = item_type(prop_type) if prop_type.is_list else prop_type.with_nullable(False)
    value = _inline_value(context, item, element)
    if value is None or not fits_enum(context, item.name, prop_type, value, item.value):
        return None
    if isinstance(value, Constant):
        value = constant_cast_to(value, element)
    if bound.nullable and not prop_type.nullable:
        prop_type = prop_type.with_nullable(True)
    column = PropertyValue(bound.name, item.name, prop_type)
    return ListContains(column, value) if prop_type.is_list else Compare(column, "=", value)


def _is_matchable(context: Context, item: InlineProperty, prop_type: PropType) -> bool:
    if prop_type.scalar is Scalar.BLOB:
        context.report.error(
            "T3", f"Blob property '{item.name}' cannot be matched", item.value.span
        )
        return False
    if prop_type.is_vector:
        context.report.error(
            "T7",
            f"vector property '{item.name}' cannot be compared",
            item.value.span,
            "order by `nearest` to compare vectors",
        )
        return False
    return True


def _inline_value(
    context: Context, item: InlineProperty, element: PropType
) -> Constant | ParameterValue | CurrentTime | None:
    if isinstance(item.value, Literal):
        return _inline_literal(context, item.name, item.value, element)
    if isinstance(item.value, Variable):
        return _inline_parameter(context, item.name, item.value, element)
    if element.scalar is not Scalar.DATETIME:
        context.report.error(
            "T7",
            f"property '{item.name}' is matched with {element}, and `now()` is DateTime",
            item.value.span,
        )
        return None
    return CurrentTime()


def _inline_literal(
    context: Context, name: str, literal: Literal, element: PropType
) -> Constant | None:
    constant = constant_of(context, literal)
    if constant is None:
        return None
    if constant.prop_type.is_list:
        context.report.error(
            "T3",
            f"property '{name}' cannot be matched with a list",
            literal.span,
            "give one value; for a list property it means membership",
        )
        return None
    if not are_compatible(element, constant.prop_type):
        context.report.error(
            "T3",
            f"property '{name}' is matched with {element}, and "
            f"`{context.report.text(literal.span)}` is {constant.prop_type}",
            literal.span,
            moment_hint(literal, element),
        )
        return None
    return constant


def _inline_parameter(
    context: Context, name: str, variable: Variable, element: PropType
) -> ParameterValue | None:
    parameter = required_parameter(context, variable)
    if parameter is None:
        return None
    if not are_compatible(element, parameter.prop_type):
        context.report.error(
            "T7",
            f"property '{name}' is matched with {element}, and `${variable.name}` is "
            f"{parameter.prop_type}",
            variable.span,
        )
        return None
    return parameter
