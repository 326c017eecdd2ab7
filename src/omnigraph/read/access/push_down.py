"""Predicates as filters of the store, exactly or not at all.

The store compares floats by their bit patterns (NaN above everything, -0 below 0) and knows no
exact comparison across types, so each comparison is spelled such that both agree:

| predicate | filter |
|---|---|
| float `<` v | `< v` and `>= -inf`: a NaN with a sign sorts below everything |
| float `>` v | `> v` and `<= inf` |
| float `=` 0 | one of 0 and -0; `<` 0 is `< -0`, `>=` 0 is `>= -0` |
| integer `<` 2.7 | `<= 2` |
| integer beyond the column's range | all rows with a value, or none |
| not p | the filter of *p is false*, which is not the same as *p is not true* |
| `!=`, not in | and `IS NOT NULL`: the store's optimizer loses nulls when it joins several |
"""

from __future__ import annotations

import math
from typing import Final, TypeGuard

import pyarrow as pa

from omnigraph.query.bindings import Bindings, Bound
from omnigraph.query.check.cast import INTEGER_RANGES, choices_cast_to, constant_cast_to
from omnigraph.query.language.tree import Comparator
from omnigraph.query.plan.plan import (
    MIRRORED,
    AllOf,
    AnyOf,
    Compare,
    Constant,
    CurrentTime,
    EndpointValue,
    EntityId,
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
from omnigraph.read.column_names import StoredValue, stored_column
from omnigraph.store import filters
from omnigraph.values import PropType, Scalar

_NOTHING: Final = filters.AnyOf(())


def push_down(predicate: Predicate, bindings: Bindings) -> filters.Filter | None:
    """Return the filter that matches exactly the rows for which the predicate is true.

    All values must belong to one variable. None means that the store cannot express it: read the
    rows and `evaluate`. Split a conjunction first (`conjuncts`), to push what can be pushed.
    """
    return _PushDown(bindings).when_true(predicate)


def conjuncts(predicates: tuple[Predicate, ...]) -> tuple[Predicate, ...]:
    """Return predicates that all must hold, without conjunctions at the top."""
    flat: list[Predicate] = []
    for predicate in predicates:
        if isinstance(predicate, AllOf):
            flat.extend(conjuncts(predicate.operands))
        else:
            flat.append(predicate)
    return tuple(flat)


class _PushDown:
    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings

    def when_true(self, predicate: Predicate) -> filters.Filter | None:
        match predicate:
            case AllOf(operands):
                return _all_of([self.when_true(operand) for operand in operands])
            case AnyOf(operands):
                return _any_of([self.when_true(operand) for operand in operands])
            case Not(operand):
                return self.when_false(operand)
            case Compare(_, "!=", _) | InList(_, _, True):
                return _with_value(self._leaf(predicate))
            case _:
                return self._leaf(predicate)

    def when_false(  # noqa: PLR0911 - one line per kind
        self, predicate: Predicate
    ) -> filters.Filter | None:
        match predicate:
            case AllOf(operands):
                return _any_of([self.when_false(operand) for operand in operands])
            case AnyOf(operands):
                return _all_of([self.when_false(operand) for operand in operands])
            case Not(operand):
                return self.when_true(operand)
            case InList(operand, choices, negated):
                return self.when_true(InList(operand, choices, not negated))
            case ListContains(Constant() | ParameterValue() as items, item) if _is_stored(item):
                return _with_value(self._one_of(item, items, negated=True))
            case IsNull(operand, negated):
                return self._leaf(IsNull(operand, not negated))
            case _:
                return _with_value(_negated(self._leaf(predicate)))

    def _leaf(self, predicate: Predicate) -> filters.Filter | None:  # noqa: PLR0911 - one per kind
        match predicate:
            case Compare(left, operator, right) if _is_stored(left):
                return self._comparison(left, operator, right)
            case Compare(left, operator, right) if _is_stored(right):
                return self._comparison(right, MIRRORED[operator], left)
            case InList(operand, choices, negated) if _is_stored(operand):
                return self._one_of(operand, choices, negated=negated)
            case ListContains(Constant() | ParameterValue() as items, item) if _is_stored(item):
                return self._one_of(item, items, negated=False)
            case IsNull(operand, negated) if _is_stored(operand):
                test = filters.IsNull(stored_column(operand))
                return filters.Negation(test) if negated else test
            case Substring(text, part) if _is_stored(text) and _is_bound(part):
                wanted = self._bindings.text(part)
                return _NOTHING if wanted is None else filters.Contains(stored_column(text), wanted)
            case Prefix(text, prefix) if _is_stored(text) and _is_bound(prefix):
                wanted = self._bindings.text(prefix)
                return (
                    _NOTHING if wanted is None else filters.StartsWith(stored_column(text), wanted)
                )
            case _:
                return None

    def _comparison(
        self, stored: StoredValue, operator: Comparator, other: Value
    ) -> filters.Filter | None:
        if not _is_bound(other):
            return None
        constant = self._bindings.value_of(other).constant
        if constant is None:
            return _NOTHING
        column, prop_type = stored_column(stored), stored.prop_type
        fitted = constant_cast_to(constant, prop_type)
        if fitted.prop_type.scalar is not prop_type.scalar:
            return _beside_integers(column, prop_type.scalar, operator, fitted.value)
        if prop_type.scalar.is_float:
            return _beside_floats(column, prop_type, operator, fitted.value)
        return filters.Comparison(column, operator, _literal(fitted.value, prop_type))

    def _one_of(
        self, stored: StoredValue, choices: Constant | ParameterValue, *, negated: bool
    ) -> filters.Filter | None:
        constant = self._bindings.value_of(choices).constant
        if constant is None:
            return _NOTHING
        fitted = choices_cast_to(constant, stored.prop_type).value
        items = fitted if isinstance(fitted, tuple) else (fitted,)
        column = stored_column(stored)
        if any(isinstance(item, float) and (math.isnan(item) or item == 0) for item in items):
            return None
        if not items:
            # `x IN ()` is false in SQL, also for a null `x`.
            return filters.Negation(filters.IsNull(column)) if negated else _NOTHING
        test = filters.OneOf(column, tuple(_literal(item, stored.prop_type) for item in items))
        return filters.Negation(test) if negated else test


def _is_stored(value: Value) -> TypeGuard[StoredValue]:
    return isinstance(value, PropertyValue | EntityId | EndpointValue)


def _is_bound(value: Value) -> TypeGuard[Bound]:
    return isinstance(value, Constant | ParameterValue | CurrentTime)


def _literal(value: object, prop_type: PropType) -> filters.Value:
    if isinstance(value, str) and prop_type.scalar is Scalar.STRING:
        return value
    return pa.scalar(value, PropType(prop_type.scalar).arrow_type)


def _all_of(parts: list[filters.Filter | None]) -> filters.Filter | None:
    known = [part for part in parts if part is not None]
    return filters.AllOf(tuple(known)) if len(known) == len(parts) else None


def _any_of(parts: list[filters.Filter | None]) -> filters.Filter | None:
    known = [part for part in parts if part is not None]
    return filters.AnyOf(tuple(known)) if len(known) == len(parts) else None


def _negated(part: filters.Filter | None) -> filters.Filter | None:
    """Return the filter for *false*.

    Every leaf filter is unknown where its column is null. The filter that matches nothing stands
    for a null operand, and a comparison with null is not false either.
    """
    return part if part is None or part == _NOTHING else filters.Negation(part)


def _with_value(part: filters.Filter | None) -> filters.Filter | None:
    """Add `IS NOT NULL`, although *unknown* alone should exclude nulls.

    The store's optimizer turns `x NOT IN (1) OR x NOT IN (2)` into *true*, also for null.
    """
    if part is None or part == _NOTHING:
        return part
    present = (filters.Negation(filters.IsNull(name)) for name in filters.filter_columns(part))
    return filters.AllOf((part, *present))


def _beside_integers(
    column: str, scalar: Scalar, operator: Comparator, value: object
) -> filters.Filter | None:
    """Compare a whole-number column with a number that its type cannot hold."""
    if scalar not in INTEGER_RANGES or not isinstance(value, int | float) or math.isnan(value):
        return None
    low, high = INTEGER_RANGES[scalar]
    # True for every value and unknown for null; `IS NOT NULL` would be false for null.
    always = filters.Comparison(column, ">=", _literal(low, PropType(scalar)))
    if operator in ("=", "!="):
        return always if operator == "!=" else filters.Negation(always)
    is_upper = operator in ("<", "<=")
    if value < low if is_upper else value > high:
        return filters.Negation(always)
    # Infinities have no whole part: first into the range, then to the next whole number inside.
    inside = min(max(value, low), high)
    bound = math.floor(inside) if is_upper else math.ceil(inside)
    return filters.Comparison(column, "<=" if is_upper else ">=", _literal(bound, PropType(scalar)))


def _beside_floats(
    column: str, prop_type: PropType, operator: Comparator, value: object
) -> filters.Filter | None:
    if not isinstance(value, int | float) or math.isnan(value):
        return None

    def test(spelled: filters.Operator, number: float) -> filters.Comparison:
        return filters.Comparison(column, spelled, _literal(number, prop_type))

    number = float(value)
    if operator in ("=", "!="):
        zeros = filters.OneOf(column, (_literal(0.0, prop_type), _literal(-0.0, prop_type)))
        same: filters.Filter = zeros if number == 0 else test("=", number)
        return same if operator == "=" else filters.Negation(same)
    if number == 0:
        number = -0.0 if operator in ("<", ">=") else 0.0
    guard = test(">=", -math.inf) if operator in ("<", "<=") else test("<=", math.inf)
    return filters.AllOf((test(operator, number), guard))
