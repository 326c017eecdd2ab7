"""The rules that one value must keep: `enum`, `@range`, `@check`.

Bounds of a range are compared exactly, never through a rounded double: an integer column against a
bound with a fraction, unsigned numbers against a negative bound, integers beyond 2^53 against a
float. A bound with a fraction is the double that its text reads as, and an F32 is compared with it
as the number that it stores: 0.1 in F32 is 0.10000000149… and violates a `max` of 0.1. Messages
therefore print an F32 with all the digits of the stored number.

Null passes every rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.catalog import CheckRule, EntityType, NodeType, Number, RangeRule
from omnigraph.schema.values import codes
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import ErrorLog, Mask, RowErrors, cut, first_errors


def check_rules(entity_type: EntityType, columns: Mapping[str, pa.Array]) -> RowErrors:
    """Check all value rules of a type over typed columns; a row keeps its first violation.

    Properties without a column are not checked. The order is: enums by property name, then
    ranges, then patterns, as the type lists them.
    """
    parts: list[RowErrors] = []
    for name, prop in entity_type.properties.items():
        if prop.prop_type.enum_values is not None and name in columns:
            values = prop.prop_type.enum_values
            parts.append(check_enum(columns[name], values, type_name=entity_type.name, name=name))
    if isinstance(entity_type, NodeType):
        for range_rule in entity_type.range_constraints:
            if range_rule.property in columns:
                column = columns[range_rule.property]
                parts.append(check_range(column, range_rule, type_name=entity_type.name))
        for check_rule in entity_type.check_constraints:
            if check_rule.property in columns:
                column = columns[check_rule.property]
                parts.append(check_pattern(column, check_rule, type_name=entity_type.name))
    row_count = len(next(iter(columns.values()))) if columns else 0
    return first_errors(parts, row_count=row_count)


def check_enum(column: pa.Array, values: Sequence[str], *, type_name: str, name: str) -> RowErrors:
    """Check that texts are among the values of an enum.

    >>> check_enum(pa.array(["a", "x"]), ["a", "b"], type_name="T", name="p").messages.to_pylist()
    [None, "invalid enum value 'x' for T.p (expected: a, b)"]
    """
    known = pc.is_in(column, value_set=pa.array(values, pa.utf8()))
    wrong = _to_mask(pc.invert(known)) & valid_mask(column)
    log = ErrorLog(len(column))
    expected = ", ".join(values)
    log.add_mask(
        wrong,
        codes.NOT_IN_ENUM,
        lambda row: (
            f"invalid enum value '{_text(column, row)}' for {type_name}.{name} "
            f"(expected: {expected})"
        ),
    )
    return log.finish()


def check_pattern(column: pa.Array, rule: CheckRule, *, type_name: str) -> RowErrors:
    """Check that the pattern of a rule occurs in the texts (RE2; a search, not a full match)."""
    found = pc.match_substring_regex(column, rule.pattern)
    missing = _to_mask(pc.invert(found).fill_null(False))
    log = ErrorLog(len(column))
    log.add_mask(
        missing,
        codes.PATTERN_NOT_FOUND,
        lambda row: (
            f"@check violation on {type_name}.{rule.property}: value '{_text(column, row)}' "
            f"does not match pattern '{rule.pattern}'"
        ),
    )
    return log.finish()


def check_range(column: pa.Array, rule: RangeRule, *, type_name: str) -> RowErrors:
    """Check that numbers are inside the inclusive bounds of a rule; NaN never is."""
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    valid = valid_mask(column)
    log = ErrorLog(len(column))
    subject = f"@range violation on {type_name}.{rule.property}"
    if pa.types.is_floating(column.type):
        numbers = numbers.astype(np.float64)
        log.add_mask(np.isnan(numbers) & valid, codes.RANGE_OF_NAN, f"{subject}: value is NaN")

    def message(comparison: str) -> Callable[[int], str]:
        return lambda row: f"{subject}: value {numbers[row].item()} {comparison}"

    if rule.min is not None:
        below = _is_below(numbers, rule.min) & valid
        log.add_mask(below, codes.BELOW_MIN, message(f"< min {rule.min}"))
    if rule.max is not None:
        above = _is_above(numbers, rule.max) & valid
        log.add_mask(above, codes.ABOVE_MAX, message(f"> max {rule.max}"))
    return log.finish()


def _is_below(numbers: npt.NDArray[Any], bound: Number) -> Mask:
    """Return where a number is less than the bound, exactly."""
    if np.issubdtype(numbers.dtype, np.floating):
        nearest, order = _nearest_double(bound)
        # No double lies between the bound and its nearest one, so only equality needs care.
        return _mask_of(numbers <= nearest if order < 0 else numbers < nearest)
    if _is_infinite(bound):
        return np.full(len(numbers), bound > 0)
    return _is_less_than_integer(numbers, math.ceil(bound))


def _is_above(numbers: npt.NDArray[Any], bound: Number) -> Mask:
    """Return where a number is greater than the bound, exactly."""
    if np.issubdtype(numbers.dtype, np.floating):
        nearest, order = _nearest_double(bound)
        return _mask_of(numbers >= nearest if order > 0 else numbers > nearest)
    if _is_infinite(bound):
        return np.full(len(numbers), bound < 0)
    return _is_more_than_integer(numbers, math.floor(bound))


def _is_infinite(bound: Number) -> bool:
    return isinstance(bound, float) and math.isinf(bound)


def _nearest_double(bound: Number) -> tuple[float, int]:
    """Return the nearest double, and whether it lies below (-1), at (0) or above (1) the bound."""
    if isinstance(bound, float):
        return bound, 0
    nearest = float(bound)
    exact = Fraction(nearest)
    return nearest, (exact > bound) - (exact < bound)


def _is_less_than_integer(numbers: npt.NDArray[Any], bound: int) -> Mask:
    limits = np.iinfo(numbers.dtype)
    if bound <= limits.min:
        return np.zeros(len(numbers), np.bool_)
    if bound > limits.max:
        return np.ones(len(numbers), np.bool_)
    return _mask_of(numbers < numbers.dtype.type(bound))


def _is_more_than_integer(numbers: npt.NDArray[Any], bound: int) -> Mask:
    limits = np.iinfo(numbers.dtype)
    if bound >= limits.max:
        return np.zeros(len(numbers), np.bool_)
    if bound < limits.min:
        return np.ones(len(numbers), np.bool_)
    return _mask_of(numbers > numbers.dtype.type(bound))


def _mask_of(comparison: object) -> Mask:
    return np.asarray(comparison, np.bool_)


def _to_mask(column: pa.Array) -> Mask:
    mask: Mask = column.to_numpy(zero_copy_only=False)
    return mask


def _text(column: pa.Array, row: int) -> str:
    return cut(str(column[row].as_py()))
