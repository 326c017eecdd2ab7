"""Types of values: literals, parameters, properties, and the operands of filters.

Every function returns None after it reported a problem; callers then report nothing more about that
value, so that one mistake gives one message.
"""

from __future__ import annotations

from omnigraph.query.check.cast import exact_number
from omnigraph.query.check.scope import WILDCARD, Bound, Context, Scope, suggestion, with_dollar
from omnigraph.query.date_literals import parse_date, parse_datetime
from omnigraph.query.language.tree import (
    AggregateCall,
    Expr,
    Literal,
    NameRef,
    Now,
    PropertyRef,
    TextCall,
    Variable,
)
from omnigraph.query.plan.plan import (
    NULLABLE_ID_TYPE,
    Constant,
    ConstantValue,
    CurrentTime,
    EntityId,
    ParameterValue,
    PropertyValue,
    Value,
)
from omnigraph.schema.catalog import NodeType
from omnigraph.syntax import Span
from omnigraph.values import PropType, Scalar

_STRING = PropType(Scalar.STRING)
_STRINGS = PropType(Scalar.STRING, is_list=True)
_LITERAL_TYPES = {
    "string": _STRING,
    "int": PropType(Scalar.I64),
    "float": PropType(Scalar.F64),
    "bool": PropType(Scalar.BOOL),
    "date": PropType(Scalar.DATE),
    "datetime": PropType(Scalar.DATETIME),
}


# -- literals -----------------------------------------------------------------------------------


def constant_of(context: Context, literal: Literal) -> Constant | None:
    """Return a literal as a typed constant."""
    if isinstance(literal.value, tuple):
        return _list_constant(context, literal.value)
    if literal.kind in ("date", "datetime"):
        return _moment_constant(context, literal)
    return Constant(literal.value, _LITERAL_TYPES[literal.kind])


def _moment_constant(context: Context, literal: Literal) -> Constant | None:
    text = str(literal.value)
    try:
        value = parse_date(text) if literal.kind == "date" else parse_datetime(text)
    except ValueError:
        kind, form = _MOMENT_FORMS[literal.kind]
        context.report.error(
            "T105", f"invalid {kind} literal '{text}'", literal.span, f"write {form}"
        )
        return None
    return Constant(value, _LITERAL_TYPES[literal.kind])


_MOMENT_FORMS = {
    "date": ("Date", '`date("2026-03-06")`'),
    "datetime": ("DateTime", '`datetime("2026-03-06T12:00:00Z")`'),
}


def _list_constant(context: Context, elements: tuple[Literal, ...]) -> Constant | None:
    items: list[Constant] = []
    for element in elements:
        if element.kind == "list":
            context.report.error("T104", "a list cannot hold lists", element.span)
            return None
        item = constant_of(context, element)
        if item is None:
            return None
        items.append(item)
    if not items:
        return Constant((), _STRINGS)
    scalar = items[0].prop_type.scalar
    for element, item in zip(elements, items, strict=True):
        other = item.prop_type.scalar
        if other is not scalar and not (other.is_numeric and scalar.is_numeric):
            context.report.error(
                "T104",
                f"the list starts with {items[0].prop_type}, but "
                f"`{context.report.text(element.span)}` is {item.prop_type}",
                element.span,
                "all elements of a list have one type",
            )
            return None
        if other is Scalar.F64:
            scalar = Scalar.F64
    return Constant(_widened(items, scalar), PropType(scalar, is_list=True))


def _widened(items: list[Constant], scalar: Scalar) -> tuple[ConstantValue, ...]:
    """Spell whole numbers as floats where a list has both and none of them would change."""
    if scalar is not Scalar.F64:
        return tuple(item.value for item in items)
    numbers = [item.value for item in items if isinstance(item.value, int | float)]
    exact = [exact_number(number, Scalar.F64) for number in numbers]
    return tuple(n if e is None else e for n, e in zip(numbers, exact, strict=True))


# -- names --------------------------------------------------------------------------------------


def parameter_of(context: Context, variable: Variable) -> ParameterValue | None:
    """Return the parameter that a variable names, if it names one; reports nothing."""
    parameter = context.parameters.get(variable.name)
    return ParameterValue(parameter.name, parameter.prop_type) if parameter else None


def required_parameter(context: Context, variable: Variable) -> ParameterValue | None:
    """Return the parameter where nothing else can stand (T14)."""
    value = parameter_of(context, variable)
    if value is None:
        context.report.error(
            "T14",
            f"`${variable.name}` is not a declared parameter",
            variable.span,
            suggestion(variable.name, context.parameters, what="parameters", spell=with_dollar)
            or _declaration(context, variable),
        )
    return value


def _declaration(context: Context, variable: Variable) -> str:
    """Return how a parameter is declared; a query of one line has no place for it."""
    declared = f"(${variable.name}: <Type>)"
    if context.report.has_head:
        return f"declare it: `{declared}`"
    return f"give the query a name that declares it: `query name{declared} {{ … }}`"


def number_parameter(context: Context, variable: Variable, what: str) -> str | None:
    """Return the name of a parameter that gives a whole number (T14, T117)."""
    value = required_parameter(context, variable)
    if value is None:
        return None
    prop_type = value.prop_type
    if prop_type.is_plain_scalar and prop_type.scalar.is_integer:
        return value.name
    context.report.error(
        "T117",
        f"{what} is a whole number, and `${variable.name}` is {prop_type}",
        variable.span,
        f"declare it as `${variable.name}: I64`",
    )
    return None


def property_of(context: Context, scope: Scope, reference: PropertyRef) -> PropertyValue | None:
    """Return a property of a variable (T6)."""
    bound = scope.variables.get(reference.variable)
    if bound is None:
        report_unknown_variable(context, scope, reference)
        return None
    if bound.entity is None:
        return None
    declared = bound.entity.properties.get(reference.property)
    if declared is None:
        _report_unknown_property(context, bound, reference)
        return None
    prop_type = declared.prop_type
    if bound.nullable and not prop_type.nullable:
        prop_type = prop_type.with_nullable(True)
    return PropertyValue(bound.name, reference.property, prop_type)


def report_unknown_variable(context: Context, scope: Scope, reference: PropertyRef) -> None:
    """Report a property of a variable that is not bound (T6)."""
    name = reference.variable
    if name == WILDCARD:
        hint: str | None = "name the variable to read its properties"
    elif name in context.parameters:
        hint = f"`${name}` is a parameter and has no properties"
    else:
        hint = suggestion(name, scope.variables, what="bound variables", spell=with_dollar)
    context.report.error("T6", f"variable `${name}` is not bound", reference.span, hint)


def _report_unknown_property(context: Context, bound: Bound, reference: PropertyRef) -> None:
    hint = suggestion(
        reference.property,
        bound.properties,
        what=f"properties of {bound.type_name}",
        spell=lambda name: f"${reference.variable}.{name}",
    )
    if reference.property == "id" and isinstance(bound.entity, NodeType):
        hint = f"return `${reference.variable}` alone to get the id"
        if len(bound.entity.key) == 1:
            hint += f", or use the key `${reference.variable}.{bound.entity.key[0]}`"
    context.report.error(
        "T6",
        f"{bound.kind} type '{bound.type_name}' has no property '{reference.property}'",
        reference.span,
        hint,
    )


def entity_id(bound: Bound) -> EntityId:
    """Return the id of a variable as a value."""
    return EntityId(bound.name, NULLABLE_ID_TYPE) if bound.nullable else EntityId(bound.name)


def report_unbound(context: Context, scope: Scope, variable: Variable) -> None:
    """Report a bare variable that is neither a parameter nor bound (T101)."""
    if variable.name == WILDCARD:
        context.report.error(
            "T109", "the wildcard `$_` has no value", variable.span, "name the variable to read it"
        )
        return
    known = {*context.parameters, *scope.variables}
    context.report.error(
        "T101",
        f"variable `${variable.name}` is not bound",
        variable.span,
        suggestion(variable.name, known, what="bound names", spell=with_dollar),
    )


def report_bare_edge(context: Context, variable: Variable) -> None:
    """Report an edge variable that is used without a property (T23)."""
    context.report.error(
        "T23",
        f"edge variable `${variable.name}` cannot be used alone",
        variable.span,
        f"read one of its properties: `${variable.name}.<property>`",
    )


# -- operands of filters ------------------------------------------------------------------------


def filter_operand(context: Context, scope: Scope, expression: Expr) -> Value | None:
    """Return an operand of a filter: a property, parameter, literal or `now()` (T7)."""
    if isinstance(expression, PropertyRef):
        return property_of(context, scope, expression)
    if isinstance(expression, Literal):
        return constant_of(context, expression)
    if isinstance(expression, Variable):
        return _variable_operand(context, scope, expression)
    if isinstance(expression, Now):
        return CurrentTime()
    context.report.error("T7", *_misplaced_operand(context, expression))
    return None


def bare_node(context: Context, scope: Scope, variable: Variable) -> Bound | None:
    """Return the node that a variable stands for, used alone; report anything else."""
    bound = scope.variables.get(variable.name)
    if bound is None:
        report_unbound(context, scope, variable)
    elif bound.kind == "edge":
        report_bare_edge(context, variable)
    elif bound.entity is not None:
        return bound
    return None


def _variable_operand(context: Context, scope: Scope, variable: Variable) -> Value | None:
    parameter = parameter_of(context, variable)
    if parameter is not None:
        return parameter
    if bare_node(context, scope, variable) is not None:
        context.report.error(
            "T7",
            f"`${variable.name}` is a node, and a filter compares single values",
            variable.span,
            f"compare one of its properties: `${variable.name}.<property>`",
        )
    return None


def _misplaced_operand(context: Context, expression: Expr) -> tuple[str, Span, str]:
    written = context.report.text(expression.span)
    if isinstance(expression, NameRef):
        problem = f"`{written}` is a bare name, and a filter cannot read returned columns"
        hint = f"write a property `$variable.{written}` or a parameter `${written}`"
    elif isinstance(expression, AggregateCall):
        problem = f"`{written}` is an aggregate, and filters run before grouping"
        hint = "return the aggregate instead"
    elif isinstance(expression, TextCall):
        problem = f"`{written}` cannot be compared: it is a condition by itself"
        hint = f"write `{written}` as a clause of its own, or inside `not {{ … }}`"
    else:
        problem = f"`{written}` cannot be an operand of a filter"
        hint = "return the score as a column and order by it"
    return problem, expression.span, hint
