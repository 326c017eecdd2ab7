"""Predicates of a plan over Arrow columns, in three-valued logic.

1. The result has one boolean per row: true, false, or null for *unknown*. Only true keeps a row.
2. A variable `c` owns the columns `c.id` and `c.<property>`. In a mutation the row itself is the
   variable: plain column names, with `src` and `dst` for the two ends of an edge.
3. Numbers of different types compare by value, without rounding: see `compare.py`.
4. A parameter next to a column first gets the column's type (`omnigraph.query.check.cast`), as
   constants did when the plan was made.
5. An unknown operand makes the result unknown; `IsNull` is the exception. An element of a list
   that is null equals nothing.
6. Full-text predicates are evaluated by the caller's `TextRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.bindings import Bindings
from omnigraph.query.check.cast import choices_cast_to, constant_cast_to
from omnigraph.query.params import BoundValue
from omnigraph.query.plan.plan import (
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
    SameId,
    Substring,
    TextMatch,
    Value,
)
from omnigraph.query.plan.walk import predicate_values
from omnigraph.read.column_names import column_name
from omnigraph.read.operators.compare import compare, equal_values
from omnigraph.read.operators.substrings import has_part, has_prefix
from omnigraph.values import PropType

Datum: TypeAlias = pa.Array | pa.ChunkedArray | pa.Scalar
TextRows: TypeAlias = Callable[[TextMatch, pa.Table], pa.Array]
"""Answers a full-text predicate for the rows of a table: one boolean or null per row."""


def predicate_columns(predicates: Iterable[Predicate]) -> frozenset[str]:
    """Return the columns that evaluating these predicates needs.

    A full-text predicate needs the column of its text: a row without text is unknown.
    """
    return frozenset(
        column_name(value)
        for predicate in predicates
        for value in predicate_values(predicate)
        if isinstance(value, PropertyValue | EntityId | EndpointValue)
    )


def evaluate(
    predicate: Predicate, table: pa.Table, bindings: Bindings, text_rows: TextRows | None = None
) -> pa.Array:
    """Return for each row of `table` whether the predicate holds; null is *unknown*."""
    result = _Evaluation(table, bindings, text_rows).of(predicate)
    return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


class _Evaluation:
    """One walk over a predicate."""

    def __init__(self, table: pa.Table, bindings: Bindings, text_rows: TextRows | None) -> None:
        self._table = table
        self._bindings = bindings
        self._text_rows = text_rows

    def of(self, predicate: Predicate) -> pa.Array | pa.ChunkedArray:  # noqa: PLR0911, C901 - one line per kind
        match predicate:
            case Compare(left, operator, right):
                first, second = self._pair(left, right)
                return self._rows(compare(first, operator, second))
            case ListContains(items, item):
                return self._rows(self._list_contains(items, item))
            case Substring(text, part):
                return self._rows(has_part(self._datum(text), self._datum(part)))
            case Prefix(text, prefix):
                return self._rows(has_prefix(self._datum(text), self._datum(prefix)))
            case IsNull(operand, negated):
                datum = self._datum(operand)
                return self._rows(pc.is_valid(datum) if negated else pc.is_null(datum))
            case InList(operand, choices, negated):
                found = self._rows(self._in_list(operand, choices))
                return pc.invert(found) if negated else found
            case TextMatch():
                if self._text_rows is None:
                    raise TypeError("full-text predicates need `TextRows`")
                return self._text_rows(predicate, self._table)
            case SameId(left_name, right_name):
                left_ids = self._datum(EntityId(left_name))
                return self._rows(pc.equal(left_ids, self._datum(EntityId(right_name))))
            case AllOf(operands):
                return reduce(pc.and_kleene, map(self.of, operands), self._constant(True))
            case AnyOf(operands):
                return reduce(pc.or_kleene, map(self.of, operands), self._constant(False))
            case Not(operand):
                return pc.invert(self.of(operand))

    def _datum(self, value: Value) -> Datum:
        match value:
            case PropertyValue() | EntityId() | EndpointValue():
                return self._table.column(column_name(value))
            case Constant() | ParameterValue() | CurrentTime():
                return self._bindings.value_of(value).arrow
            case _:
                raise TypeError(f"a predicate cannot hold {value!r}")

    def _pair(self, left: Value, right: Value) -> tuple[Datum, Datum]:
        return self._beside(left, right), self._beside(right, left)

    def _beside(self, value: Value, other: Value) -> Datum:
        if not isinstance(value, Constant | ParameterValue):
            return self._datum(value)
        return _fitted(self._bindings.value_of(value), other.prop_type)

    def _list_contains(self, items: Value, item: Value) -> Datum:
        if isinstance(items, Constant | ParameterValue):
            choices = self._choices(items, item.prop_type)
            return _is_in(self._datum(item), choices)
        lists = self._datum(items)
        wanted = self._beside(item, items)
        return _lists_contain(lists, wanted)

    def _in_list(self, operand: Value, choices: Constant | ParameterValue) -> Datum:
        return _is_in(self._datum(operand), self._choices(choices, operand.prop_type))

    def _choices(self, choices: Constant | ParameterValue, operand: PropType) -> pa.Array | None:
        bound = self._bindings.value_of(choices).constant
        if bound is None:
            return None
        fitted = choices_cast_to(bound, operand)
        items = fitted.value if isinstance(fitted.value, tuple) else (fitted.value,)
        return pa.array(items, PropType(operand.scalar).arrow_type)

    def _constant(self, value: bool) -> pa.Array:
        return pa.repeat(pa.scalar(value), self._table.num_rows)

    def _rows(self, datum: Datum) -> pa.Array | pa.ChunkedArray:
        # Two constants, or a null parameter, have one result for all rows.
        if isinstance(datum, pa.Scalar):
            return pa.repeat(datum.cast(pa.bool_()), self._table.num_rows)
        return datum


def _fitted(bound: BoundValue, other: PropType) -> pa.Scalar:
    constant = bound.constant
    if constant is None:
        return bound.arrow
    fitted = constant_cast_to(constant, other)
    return pa.scalar(fitted.value, fitted.prop_type.arrow_type)


def _is_in(operand: Datum, choices: pa.Array | None) -> Datum:
    if choices is None:
        return pa.scalar(None, pa.bool_())
    if isinstance(operand, pa.Scalar):
        if not operand.is_valid:
            return pa.scalar(None, pa.bool_())
        return pc.any(compare(choices, "=", operand), min_count=0)
    found = pc.is_in(operand, value_set=_equal_spellings(choices))
    return pc.if_else(pc.is_valid(operand), found, pa.scalar(None, pa.bool_()))


def _equal_spellings(choices: pa.Array) -> pa.Array:
    """Replace each float by all the bit patterns that equal it: two for zero, none for NaN."""
    if not pa.types.is_floating(choices.type):
        return choices
    numbers = choices.to_numpy(zero_copy_only=False)
    numbers = numbers[~np.isnan(numbers)]
    if (numbers == 0).any():
        numbers = np.append(numbers, np.array([0.0, -0.0], numbers.dtype))
    return pa.array(numbers, choices.type)


def _lists_contain(lists: Datum, wanted: Datum) -> Datum:
    """Return for each list whether it has the element, which is one for all or one per list."""
    if isinstance(lists, pa.Scalar):
        lists = pa.array([lists.as_py()], lists.type)
    column = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    owners = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    items = column.flatten()
    if isinstance(wanted, pa.Scalar):
        known = pc.if_else(wanted.is_valid, pc.is_valid(column), pa.scalar(False))
        expected: Datum = wanted
    else:
        known = pc.and_(pc.is_valid(column), pc.is_valid(wanted))
        expected = pc.take(wanted, pa.array(owners))
    hits = equal_values(items, expected).to_numpy(zero_copy_only=False)
    found = np.zeros(len(column), np.bool_)
    found[owners[hits]] = True
    return pc.if_else(known, pa.array(found), pa.scalar(None, pa.bool_()))
