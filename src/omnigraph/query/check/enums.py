"""Values that meet an enum property: a literal is checked here, a parameter with the request."""

from __future__ import annotations

from omnigraph.query.check.scope import Context, suggestion
from omnigraph.query.language.tree import Expr, Literal
from omnigraph.query.plan.plan import (
    Constant,
    CurrentTime,
    EnumUse,
    ParameterValue,
    PropertyValue,
    Value,
)
from omnigraph.values import PropType


def fits_enum(
    context: Context,
    name: str,
    prop_type: PropType,
    value: Constant | ParameterValue | CurrentTime,
    written: Expr,
) -> bool:
    """Check what is compared with a property against the values of its enum (T3).

    The value of a parameter is not known yet: the plan says that it has to be one of them.
    """
    if prop_type.enum_values is None:
        return True
    if isinstance(value, ParameterValue):
        use = EnumUse(name, prop_type.enum_values)
        context.enum_uses.setdefault(value.name, []).append(use)
        return True
    if not isinstance(written, Literal):
        return True
    items = written.value if isinstance(written.value, tuple) else (written,)
    wrong = [item for item in items if item.value not in prop_type.enum_values]
    for item in wrong:
        _report(context, name, item, prop_type.enum_values)
    return not wrong


def operands_fit_enum(
    context: Context, left: tuple[Value, Expr], right: tuple[Value, Expr]
) -> bool:
    """Check the two sides of a comparison, if one of them is an enum property (T3)."""
    for (column, _), (value, written) in ((left, right), (right, left)):
        if isinstance(column, PropertyValue) and isinstance(value, Constant | ParameterValue):
            return fits_enum(context, column.property, column.prop_type, value, written)
    return True


def _report(context: Context, name: str, literal: Literal, values: tuple[str, ...]) -> None:
    context.report.error(
        "T3",
        f"'{literal.value}' is not a value of the enum property '{name}'",
        literal.span,
        suggestion(str(literal.value), values, what="values"),
    )
