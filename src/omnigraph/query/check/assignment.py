"""Types of assigned values: a property takes a literal, a parameter or `now()`."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.query.check.cast import are_compatible, stored_number
from omnigraph.query.check.enums import fits_enum
from omnigraph.query.check.expr import constant_of, required_parameter
from omnigraph.query.check.predicate import moment_hint
from omnigraph.query.check.scope import Context
from omnigraph.query.check.search import vector_constant
from omnigraph.query.language.tree import Assignment, Literal, Variable
from omnigraph.query.plan.plan import (
    AssignedValue,
    Constant,
    ConstantValue,
    CurrentTime,
    ParameterValue,
)
from omnigraph.schema.catalog import Property
from omnigraph.schema.values.temporal import parse_dates, parse_datetimes
from omnigraph.values import PropType, Scalar


def assigned_value(
    context: Context, declared: Property, assignment: Assignment
) -> AssignedValue | None:
    """Return the typed assignment (T3, T7, T14)."""
    value: Constant | ParameterValue | CurrentTime | None
    if isinstance(assignment.value, Literal):
        value = _literal(context, declared, assignment.value)
    elif isinstance(assignment.value, Variable):
        value = _parameter(context, declared, assignment.value)
    else:
        value = _now(context, declared, assignment)
    if value is None:
        return None
    return AssignedValue(declared.name, declared.prop_type, value)


def default_value(declared: Property) -> AssignedValue | None:
    """Return the assignment that `@default` stands for."""
    default = declared.default
    if default is None:
        return None
    prop_type = declared.prop_type.with_nullable(False)
    value: ConstantValue | None = default
    if isinstance(default, str) and prop_type.scalar in (Scalar.DATE, Scalar.DATETIME):
        text = pa.array([default], pa.utf8())
        is_date = prop_type.scalar is Scalar.DATE
        value = int((parse_dates(text) if is_date else parse_datetimes(text)).values[0])
    elif isinstance(default, int | float) and not isinstance(default, bool):
        value = stored_number(default, prop_type.scalar)
    if value is None:
        return None
    return AssignedValue(declared.name, declared.prop_type, Constant(value, prop_type))


# -- parameters and now() -----------------------------------------------------------------------


def _parameter(context: Context, declared: Property, variable: Variable) -> ParameterValue | None:
    parameter = required_parameter(context, variable)
    if parameter is None or _takes(declared.prop_type, parameter.prop_type):
        return parameter
    context.report.error(
        "T7",
        f"property '{declared.name}' is {declared.prop_type}, and `${variable.name}` is "
        f"{parameter.prop_type}",
        variable.span,
        f"declare the parameter as `{_declarable(declared.prop_type)}`",
    )
    return None


def _takes(declared: PropType, given: PropType) -> bool:
    """Whether a property takes a parameter; a Blob is written as text, as in a literal."""
    if declared.scalar is Scalar.BLOB and given.scalar is Scalar.STRING:
        return declared.is_list == given.is_list
    return are_compatible(declared, given)


def _declarable(prop_type: PropType) -> str:
    plain = PropType(prop_type.scalar, prop_type.nullable, prop_type.is_list, None)
    return str(prop_type if prop_type.is_vector else plain)


def _now(context: Context, declared: Property, assignment: Assignment) -> CurrentTime | None:
    prop_type = declared.prop_type
    if prop_type.scalar is Scalar.DATETIME and not prop_type.is_list:
        return CurrentTime()
    context.report.error(
        "T7",
        f"property '{declared.name}' is {prop_type}, and `now()` is DateTime",
        assignment.value.span,
    )
    return None


# -- literals -----------------------------------------------------------------------------------


def _literal(context: Context, declared: Property, literal: Literal) -> Constant | None:
    constant = constant_of(context, literal)
    if constant is None:
        return None
    prop_type = declared.prop_type
    stored = _stored(constant, prop_type)
    if stored is None:
        context.report.error(
            "T3",
            f"property '{declared.name}' is {prop_type}, and "
            f"`{context.report.text(literal.span)}` {_why(constant, prop_type)}",
            literal.span,
            moment_hint(literal, prop_type),
        )
        return None
    return stored if fits_enum(context, declared.name, prop_type, stored, literal) else None


def _why(constant: Constant, prop_type: PropType) -> str:
    if isinstance(constant.value, tuple):
        if len(constant.value) != prop_type.dimension and prop_type.is_vector:
            return f"has {len(constant.value)} elements"
        if prop_type.is_vector and constant.prop_type.scalar.is_numeric:
            return "has an element beyond F32"
        if prop_type.is_list and are_compatible(constant.prop_type, prop_type):
            return "has an element that it cannot hold without a change"
    elif are_compatible(constant.prop_type, prop_type):
        return "cannot be stored in it without a change"
    return f"is {constant.prop_type}"


def _stored(constant: Constant, prop_type: PropType) -> Constant | None:
    """Return the constant in the exact type of the property, or None when it does not fit."""
    if prop_type.dimension is not None:
        return vector_constant(constant, prop_type.dimension)
    if prop_type.is_list:
        return _stored_list(constant, prop_type)
    if isinstance(constant.value, tuple):
        return None
    value = _stored_item(constant.value, constant.prop_type.scalar, prop_type.scalar)
    return None if value is None else Constant(value, _plain(prop_type))


def _stored_list(constant: Constant, prop_type: PropType) -> Constant | None:
    if not isinstance(constant.value, tuple):
        return None
    items: list[ConstantValue] = []
    for item in constant.value:
        value = _stored_item(item, constant.prop_type.scalar, prop_type.scalar)
        if value is None:
            return None
        items.append(value)
    return Constant(tuple(items), _plain(prop_type))


def _stored_item(value: ConstantValue, found: Scalar, wanted: Scalar) -> ConstantValue | None:
    if isinstance(value, int | float) and found.is_numeric and wanted.is_numeric:
        return stored_number(value, wanted)
    if found is wanted:
        return value
    # A Blob is written as text: the URI of an object, or its bytes as `base64:…`.
    return value if found is Scalar.STRING and wanted is Scalar.BLOB else None


def _plain(prop_type: PropType) -> PropType:
    return PropType(prop_type.scalar, is_list=prop_type.is_list)
