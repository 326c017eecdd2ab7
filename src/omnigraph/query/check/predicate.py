"""Types of conditions: comparisons, string operators, membership, null tests and their combination.

The same rules hold for a filter of a read and for the predicate of a mutation; the two differ only
in what an operand can be, which is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.query.check.cast import are_compatible, choices_cast_to, constant_cast_to, item_type
from omnigraph.query.check.enums import operands_fit_enum
from omnigraph.query.check.scope import Context
from omnigraph.query.date_literals import parse_moments
from omnigraph.query.language.tree import (
    Both,
    Comparator,
    Comparison,
    Either,
    Expr,
    Literal,
    Membership,
    Negated,
    NullTest,
)
from omnigraph.query.language.tree import (
    Predicate as WrittenPredicate,
)
from omnigraph.query.plan.plan import (
    AllOf,
    AnyOf,
    Compare,
    Constant,
    EndpointValue,
    InList,
    IsNull,
    ListContains,
    Not,
    ParameterValue,
    Predicate,
    Prefix,
    PropertyValue,
    Substring,
    Value,
)
from omnigraph.syntax import Span
from omnigraph.values import PropType, Scalar

ResolveOperand = Callable[[Expr], Value | None]


@dataclass(frozen=True)
class ConditionChecker:
    """Checks conditions whose operands `operand` resolves; `null_operand` those of null tests."""

    context: Context
    operand: ResolveOperand
    null_operand: ResolveOperand

    def check(self, written: WrittenPredicate) -> Predicate | None:
        """Return the typed condition, or None after all of its problems were reported."""
        if isinstance(written, Comparison):
            return self._comparison(written)
        if isinstance(written, NullTest):
            return self._null_test(written)
        if isinstance(written, Membership):
            return self._membership(written)
        if isinstance(written, Negated):
            inner = self.check(written.operand)
            return None if inner is None else Not(inner)
        return self._combination(written)

    def _combination(self, written: Both | Either) -> Predicate | None:
        checked = [self.check(operand) for operand in written.operands]
        operands = tuple(operand for operand in checked if operand is not None)
        if len(operands) < len(checked):
            return None
        return AllOf(operands) if isinstance(written, Both) else AnyOf(operands)

    def _null_test(self, written: NullTest) -> Predicate | None:
        operand = self.null_operand(written.operand)
        if operand is None:
            return None
        if operand.prop_type.scalar is Scalar.BLOB:
            self._error(written.operand.span, "a Blob cannot be tested in a condition")
            return None
        return IsNull(operand, written.negated)

    # -- comparisons ----------------------------------------------------------------------------

    def _comparison(self, written: Comparison) -> Predicate | None:
        left, right = self.operand(written.left), self.operand(written.right)
        if left is None or right is None:
            return None
        if written.operator == "contains":
            return self._contains(written, left, right)
        if written.operator == "starts_with":
            return self._starts_with(written, left, right)
        return self._compare(written, written.operator, left, right)

    def _compare(
        self, written: Comparison, operator: Comparator, left: Value, right: Value
    ) -> Predicate | None:
        if not self._is_single(left, written.left) or not self._is_single(right, written.right):
            return None
        if not are_compatible(left.prop_type, right.prop_type):
            self._mismatch("compare {} with {}", (written.left, left), (written.right, right))
            return None
        if not operands_fit_enum(self.context, (left, written.left), (right, written.right)):
            return None
        if isinstance(left, Constant) and _is_column(right):
            left = constant_cast_to(left, right.prop_type)
        elif isinstance(right, Constant) and _is_column(left):
            right = constant_cast_to(right, left.prop_type)
        return Compare(left, operator, right)

    def _contains(self, written: Comparison, left: Value, right: Value) -> Predicate | None:
        if left.prop_type.is_list:
            return self._list_contains(written.left, left, written.right, right)
        if not _is_text(left.prop_type):
            self._error(
                written.left.span,
                f"`contains` needs a list or a String on its left, and "
                f"{self._shown(written.left, left)} is neither",
            )
            return None
        if not _is_text(right.prop_type):
            self._mismatch("search {} for {}", (written.left, left), (written.right, right))
            return None
        return Substring(left, right)

    def _list_contains(
        self, items_written: Expr, items: Value, item_written: Expr, item: Value
    ) -> Predicate | None:
        if not self._is_single(item, item_written):
            return None
        element = item_type(items.prop_type)
        if not are_compatible(element, item.prop_type):
            self._mismatch("look into {} for {}", (items_written, items), (item_written, item))
            return None
        if not operands_fit_enum(self.context, (items, items_written), (item, item_written)):
            return None
        if isinstance(item, Constant) and _is_column(items):
            item = constant_cast_to(item, element)
        elif isinstance(items, Constant) and _is_column(item):
            items = choices_cast_to(items, item.prop_type)
        return ListContains(items, item)

    def _starts_with(self, written: Comparison, left: Value, right: Value) -> Predicate | None:
        for operand, expression in ((left, written.left), (right, written.right)):
            if not _is_text(operand.prop_type):
                self._error(
                    expression.span,
                    f"`starts_with` needs Strings, and {self._shown(expression, operand)} is none",
                )
                return None
        return Prefix(left, right)

    # -- membership -----------------------------------------------------------------------------

    def _membership(self, written: Membership) -> Predicate | None:
        operand, choices = self.operand(written.operand), self.operand(written.choices)
        if operand is None or choices is None:
            return None
        if not choices.prop_type.is_list:
            self._error(
                written.choices.span,
                f"`in` needs a list, and {self._shown(written.choices, choices)} is none",
                "use `=` to compare with one value",
            )
            return None
        if isinstance(choices, Constant | ParameterValue):
            return self._in_list(written, operand, choices)
        found = self._list_contains(written.choices, choices, written.operand, operand)
        return Not(found) if found is not None and written.negated else found

    def _in_list(
        self, written: Membership, operand: Value, choices: Constant | ParameterValue
    ) -> Predicate | None:
        if not self._is_single(operand, written.operand):
            return None
        is_empty = isinstance(choices, Constant) and choices.value == ()
        if not is_empty and not are_compatible(item_type(choices.prop_type), operand.prop_type):
            self._mismatch(
                "look into {} for {}", (written.choices, choices), (written.operand, operand)
            )
            return None
        if not operands_fit_enum(
            self.context, (operand, written.operand), (choices, written.choices)
        ):
            return None
        if isinstance(choices, Constant) and _is_column(operand):
            choices = choices_cast_to(choices, operand.prop_type)
        return InList(operand, choices, written.negated)

    # -- messages -------------------------------------------------------------------------------

    def _is_single(self, value: Value, expression: Expr) -> bool:
        prop_type = value.prop_type
        if prop_type.is_plain_scalar:
            return True
        hint = None
        if prop_type.is_list:
            hint = "use `contains` or `in` to look for one element"
        elif prop_type.is_vector:
            hint = "order by `nearest` to compare vectors"
        self._error(
            expression.span,
            f"{self._shown(expression, value)} is not a single value and cannot be compared",
            hint,
        )
        return False

    def _mismatch(self, what: str, left: tuple[Expr, Value], right: tuple[Expr, Value]) -> None:
        spans = sorted((left[0].span, right[0].span), key=lambda span: span.start)
        self._error(
            spans[0].to(spans[1]),
            f"cannot {what.format(self._shown(*left), self._shown(*right))}",
            moment_hint(left[0], right[1].prop_type) or moment_hint(right[0], left[1].prop_type),
        )

    def _shown(self, expression: Expr, value: Value) -> str:
        return f"`{self.context.report.text(expression.span)}` ({value.prop_type})"

    def _error(self, span: Span, message: str, hint: str | None = None) -> None:
        self.context.report.error("T7", message, span, hint)


def moment_hint(expression: Expr, wanted: PropType) -> str | None:
    """Return how to write a String literal where a date or a moment is wanted."""
    if not isinstance(expression, Literal) or expression.kind != "string":
        return None
    if wanted.scalar not in _MOMENTS:
        return None
    function, example = _MOMENTS[wanted.scalar]
    text = str(expression.value)
    [moment] = parse_moments([text], wanted.scalar)
    return f'write `{function}("{example if moment is None else text}")`'


_MOMENTS: Final = {
    Scalar.DATE: ("date", "2026-03-06"),
    Scalar.DATETIME: ("datetime", "2026-03-06T12:00:00Z"),
}


def _is_text(prop_type: PropType) -> bool:
    return prop_type.scalar is Scalar.STRING and not prop_type.is_list


def _is_column(value: Value) -> bool:
    return isinstance(value, PropertyValue | EndpointValue)
