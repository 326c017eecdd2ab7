"""Types of text conditions and rankings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omnigraph.query.check.cast import round_to_f32
from omnigraph.query.check.expr import constant_of, parameter_of, property_of, report_unbound
from omnigraph.query.check.scope import Bound, Context, Scope, suggestion, with_dollar
from omnigraph.query.language.tree import (
    Bm25,
    Expr,
    Literal,
    Nearest,
    PropertyRef,
    Rrf,
    TextCall,
    Variable,
)
from omnigraph.query.plan.plan import (
    Bm25Ranking,
    Constant,
    Metric,
    NearestRanking,
    ParameterValue,
    PropertyValue,
    Ranking,
    RrfRanking,
    TextMatch,
)
from omnigraph.schema.catalog import NodeType
from omnigraph.values import PropType, Scalar

_INTEGER: Final = PropType(Scalar.I64)
FUZZY_EDITS: Final = Constant(2, _INTEGER)
RRF_K: Final = Constant(60, _INTEGER)

_METRICS: Final[dict[str | None, Metric]] = {"cosine": "cosine", "l2": "l2", "dot": "dot"}
_TEXT_CODES: Final = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}


# -- text ---------------------------------------------------------------------------------------


def check_text_match(context: Context, scope: Scope, call: TextCall) -> TextMatch | None:
    """Return a text condition (T19, T20, T23)."""
    field = _text_field(context, scope, call.function, call.field)
    query = _text_query(context, scope, call.function, call.query)
    edits: Constant | ParameterValue | None = None
    if call.function == "fuzzy":
        edits = FUZZY_EDITS if call.edits is None else _edits(context, scope, call.edits)
        if edits is None:
            return None
    if field is None or query is None:
        return None
    return TextMatch(call.function, field, query, edits)


def check_bm25(context: Context, scope: Scope, call: Bm25) -> Bm25Ranking | None:
    """Return a relevance ranking (T20, T23)."""
    field = _text_field(context, scope, "bm25", call.field)
    query = _text_query(context, scope, "bm25", call.query)
    if field is None or query is None:
        return None
    return Bm25Ranking(field.variable, field.property, query)


def _text_field(
    context: Context, scope: Scope, function: str, expression: Expr
) -> PropertyValue | None:
    code = _TEXT_CODES[function]
    if not isinstance(expression, PropertyRef):
        context.report.error(
            code,
            f"`{function}` searches a String property, not "
            f"`{context.report.text(expression.span)}`",
            expression.span,
            "write `$variable.property`",
        )
        return None
    if _is_edge_variable(context, scope, expression, function):
        return None
    field = property_of(context, scope, expression)
    if field is None:
        return None
    if field.prop_type.scalar is not Scalar.STRING or field.prop_type.is_list:
        context.report.error(
            code,
            f"`{function}` searches a String property, and "
            f"`{context.report.text(expression.span)}` is {field.prop_type}",
            expression.span,
        )
        return None
    return field


def _text_query(
    context: Context, scope: Scope, function: str, expression: Expr
) -> Constant | ParameterValue | None:
    return _argument(
        context,
        scope,
        expression,
        accepts=_is_text,
        code=_TEXT_CODES[function],
        wanted=f"`{function}` needs a String literal or parameter as its query",
    )


def _edits(context: Context, scope: Scope, expression: Expr) -> Constant | ParameterValue | None:
    return _argument(
        context,
        scope,
        expression,
        accepts=lambda value: _is_integer_above(value, -1),
        code="T19",
        wanted="`fuzzy` needs a whole number of edits",
    )


# -- rankings -----------------------------------------------------------------------------------


def check_ranking(context: Context, scope: Scope, call: Nearest | Bm25 | Rrf) -> Ranking | None:
    """Return the ranking that a function of an order key or column asks for."""
    if isinstance(call, Nearest):
        return check_nearest(context, scope, call)
    if isinstance(call, Bm25):
        return check_bm25(context, scope, call)
    return check_rrf(context, scope, call)


def check_nearest(context: Context, scope: Scope, call: Nearest) -> NearestRanking | None:
    """Return a vector ranking (T15, T23)."""
    target = call.target
    if _is_edge_variable(context, scope, target, "nearest"):
        return None
    bound = scope.variables.get(target.variable)
    if bound is None:
        context.report.error(
            "T15",
            f"`nearest` needs a bound variable, and `${target.variable}` is none",
            target.span,
            suggestion(target.variable, scope.variables, what="bound variables", spell=with_dollar),
        )
        return None
    if not isinstance(bound.entity, NodeType):
        return None
    declared = bound.entity.properties.get(target.property)
    dimension = declared.prop_type.dimension if declared else None
    if declared is None or dimension is None:
        _report_no_vector(context, bound, target)
        return None
    query = _vector_query(context, scope, call.query, dimension)
    if query is None:
        return None
    annotations = {annotation.name: annotation.value for annotation in declared.annotations}
    embed = bound.entity.embed_sources.get(target.property)
    return NearestRanking(
        variable=bound.name,
        property=target.property,
        dimension=dimension,
        metric=_METRICS.get(annotations.get("metric"), "cosine"),
        query=query,
        model=embed.model if embed else None,
    )


def _report_no_vector(context: Context, bound: Bound, target: PropertyRef) -> None:
    declared = bound.properties.get(target.property)
    what = f"is {declared.prop_type}" if declared else "does not exist"
    vectors = [name for name, p in bound.properties.items() if p.prop_type.is_vector]
    shown = ", ".join(f"`${target.variable}.{name}`" for name in vectors)
    context.report.error(
        "T15",
        f"`nearest` needs a Vector property, and '{target.property}' of '{bound.type_name}' {what}",
        target.span,
        f"vectors of {bound.type_name}: {shown}" if vectors else None,
    )


def _vector_query(
    context: Context, scope: Scope, expression: Expr, dimension: int
) -> Constant | ParameterValue | None:
    value = _argument(
        context,
        scope,
        expression,
        accepts=lambda value: _is_text(value) or _fits_vector(value, dimension),
        code="T15",
        wanted=f"`nearest` needs a Vector({dimension}), a list of {dimension} numbers or a String",
    )
    if isinstance(value, Constant) and value.prop_type.is_list:
        return vector_constant(value, dimension)
    return value


def _fits_vector(value: Constant | ParameterValue, dimension: int) -> bool:
    if isinstance(value, ParameterValue):
        return value.prop_type.dimension == dimension
    return vector_constant(value, dimension) is not None


def vector_constant(items: Constant, dimension: int) -> Constant | None:
    """Turn a list of `dimension` numbers into a vector, or return None."""
    if not items.prop_type.is_list or not isinstance(items.value, tuple):
        return None
    if len(items.value) != dimension or not items.prop_type.scalar.is_numeric:
        return None
    rounded = [round_to_f32(float(n)) for n in items.value if isinstance(n, int | float)]
    numbers = tuple(n for n in rounded if n is not None)
    if len(numbers) != dimension:
        return None
    return Constant(numbers, PropType(Scalar.VECTOR, dimension=dimension))


def check_rrf(context: Context, scope: Scope, call: Rrf) -> RrfRanking | None:
    """Return a fused ranking (T21, and the codes of its arms)."""
    first = _arm(context, scope, call.first)
    second = _arm(context, scope, call.second)
    k = RRF_K if call.k is None else _positive_integer(context, scope, call.k)
    weights = _weights(context, scope, call)
    if first is None or second is None or k is None or weights is None:
        return None
    if first.variable != second.variable:
        context.report.error(
            "T21",
            "both arms of `rrf` must rank the same variable",
            call.second.span,
            f"rank a property of `${_written_variable(call.first)}` in both",
        )
        return None
    return RrfRanking(first, second, k, weights)


def _arm(context: Context, scope: Scope, expression: Expr) -> NearestRanking | Bm25Ranking | None:
    if isinstance(expression, Nearest):
        return check_nearest(context, scope, expression)
    if isinstance(expression, Bm25):
        return check_bm25(context, scope, expression)
    context.report.error(
        "T21",
        f"`rrf` fuses `nearest(…)` and `bm25(…)`, not `{context.report.text(expression.span)}`",
        expression.span,
    )
    return None


def _written_variable(expression: Expr) -> str:
    if isinstance(expression, Nearest):
        return expression.target.variable
    if isinstance(expression, Bm25) and isinstance(expression.field, PropertyRef):
        return expression.field.variable
    return "variable"


def _positive_integer(
    context: Context, scope: Scope, expression: Expr
) -> Constant | ParameterValue | None:
    return _argument(
        context,
        scope,
        expression,
        accepts=lambda value: _is_integer_above(value, 0),
        code="T21",
        wanted="the k of `rrf` must be a whole number above zero",
    )


def _weights(
    context: Context, scope: Scope, call: Rrf
) -> tuple[()] | tuple[Constant | ParameterValue, Constant | ParameterValue] | None:
    """Return the weights of the arms, none when none are given; None after a mistake."""
    if call.weights is None:
        return ()
    first, second = (
        _argument(
            context,
            scope,
            weight,
            accepts=_is_weight,
            code="T21",
            wanted="a weight of `rrf` must be a number, zero or above",
        )
        for weight in call.weights
    )
    return None if first is None or second is None else (first, second)


def _is_weight(value: Constant | ParameterValue) -> bool:
    if value.prop_type.is_list or not value.prop_type.scalar.is_numeric:
        return False
    if isinstance(value, ParameterValue):
        return True
    return isinstance(value.value, int | float) and value.value >= 0


# -- shared -------------------------------------------------------------------------------------


def _argument(
    context: Context,
    scope: Scope,
    expression: Expr,
    *,
    accepts: Callable[[Constant | ParameterValue], bool],
    code: str,
    wanted: str,
) -> Constant | ParameterValue | None:
    """Return a literal or parameter that `accepts` agrees to, else report what was wanted."""
    value: Constant | ParameterValue | None = None
    if isinstance(expression, Literal):
        value = constant_of(context, expression)
        if value is None:
            return None
    elif isinstance(expression, Variable):
        value = parameter_of(context, expression)
        if value is None and expression.name not in scope.variables:
            report_unbound(context, scope, expression)
            return None
    if value is not None and accepts(value):
        return value
    written = context.report.text(expression.span)
    context.report.error(code, f"{wanted}, not `{written}`{_found(value)}", expression.span)
    return None


def _found(value: Constant | ParameterValue | None) -> str:
    if value is None:
        return ""
    if isinstance(value, Constant) and isinstance(value.value, tuple):
        return f" ({len(value.value)} elements of {value.prop_type.scalar})"
    return f" ({value.prop_type})"


def _is_edge_variable(
    context: Context, scope: Scope, reference: PropertyRef, function: str
) -> bool:
    bound = scope.variables.get(reference.variable)
    if bound is None or bound.kind == "node":
        return False
    context.report.error(
        "T23",
        f"`{function}` searches nodes, and `${reference.variable}` is an edge variable",
        reference.span,
    )
    return True


def _is_text(value: Constant | ParameterValue) -> bool:
    return value.prop_type.scalar is Scalar.STRING and not value.prop_type.is_list


def _is_integer_above(value: Constant | ParameterValue, low: int) -> bool:
    if not value.prop_type.scalar.is_integer or value.prop_type.is_list:
        return False
    return not isinstance(value, Constant) or (isinstance(value.value, int) and value.value > low)
