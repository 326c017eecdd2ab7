"""The rules that one value must keep: `enum`, `@range`, `@check`.

Null passes every rule. Values are checked batch by batch: a load does so while it reads, here or in
tasks elsewhere.

Bounds of a range are compared exactly, never through a rounded double: an integer column against a
bound with a fraction, unsigned numbers against a negative bound, integers beyond 2^53 against a
float. A bound with a fraction is the double that its text reads as, and an F32 is compared with it
as the number that it stores: 0.1 in F32 is 0.10000000149… and violates a `max` of 0.1. Messages
therefore print an F32 with all the digits of the stored number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.catalog import CheckRule, Number, RangeRule
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import ErrorLog, Mask, RowErrors, cut
from omnigraph.write.rules.check import RuleCheck
from omnigraph.write.rules.row_errors import add_row_errors, values_of
from omnigraph.write.stage.columns import flat, to_mask

NOT_IN_ENUM: Final = "V201"
BELOW_MIN: Final = "V202"
ABOVE_MAX: Final = "V203"
RANGE_OF_NAN: Final = "V204"
PATTERN_NOT_FOUND: Final = "V205"

RULE_CODES: Final[dict[str, str]] = {
    NOT_IN_ENUM: "the text is none of the enum's values",
    BELOW_MIN: "the number is below the lower bound of `@range`",
    ABOVE_MAX: "the number is above the upper bound of `@range`",
    RANGE_OF_NAN: "`@range` never holds for NaN",
    PATTERN_NOT_FOUND: "the pattern of `@check` does not occur in the text",
}
"""Code → one line of meaning, for `docs/reference/errors.md`."""


@dataclass(frozen=True)
class ValueRule:
    """One rule for the values of one property; `check` is a function from a column to errors.

    `name` is the kind of constraint that declares it, and `terms` are the arguments of that.
    """

    name: str
    property: str
    check: Callable[[pa.Array], RowErrors]
    terms: Mapping[str, object] = field(default_factory=dict)


def value_rules(entity_type: EntityType) -> Iterator[ValueRule]:
    """Yield the rules of a type for single values, in the order in which they are checked."""
    owner = entity_type.name
    for name, prop in entity_type.properties.items():
        values = prop.prop_type.enum_values
        if values is not None:
            yield ValueRule(
                "enum", name, partial(check_enum, values=values, type_name=owner, name=name)
            )
    if not isinstance(entity_type, NodeType):
        return
    for bounds in entity_type.range_constraints:
        check = partial(check_range, rule=bounds, type_name=owner)
        terms = {"min": bounds.min, "max": bounds.max}
        yield ValueRule("range", bounds.property, check, terms)
    for text in entity_type.check_constraints:
        check = partial(check_pattern, rule=text, type_name=owner)
        yield ValueRule("check", text.property, check, {"pattern": text.pattern})


def check_values(entity_type: EntityType, check: RuleCheck) -> None:
    """Check the value rules of a type over all rows that are written."""
    for batch, positions in check.unchecked_values(entity_type):
        for rule in value_rules(entity_type):
            column = flat(batch[rule.property])
            errors = rule.check(column)
            if not errors.is_clean:
                add_row_errors(
                    check.findings.log,
                    errors,
                    entity_type=entity_type,
                    name=rule.property,
                    rule=rule.name,
                    positions=positions,
                    value_at=values_of(column),
                )


# -- predicates ------------------------------------------------------------------------------------


def check_enum(column: pa.Array, values: Sequence[str], *, type_name: str, name: str) -> RowErrors:
    """Check that texts are among the values of an enum.

    >>> check_enum(pa.array(["a", "x"]), ["a", "b"], type_name="T", name="p").messages.to_pylist()
    [None, "invalid enum value 'x' for T.p (expected: a, b)"]
    """
    known = pc.is_in(column, value_set=pa.array(values, pa.utf8()))
    wrong = to_mask(pc.invert(known)) & valid_mask(column)
    log = ErrorLog(len(column))
    expected = ", ".join(values)
    log.add_mask(
        wrong,
        NOT_IN_ENUM,
        lambda row: (
            f"invalid enum value '{_text(column, row)}' for {type_name}.{name} "
            f"(expected: {expected})"
        ),
    )
    return log.finish()


def check_pattern(column: pa.Array, rule: CheckRule, *, type_name: str) -> RowErrors:
    """Check that the pattern of a rule occurs in the texts (RE2; a search, not a full match)."""
    found = pc.match_substring_regex(column, rule.pattern)
    missing = to_mask(pc.invert(found).fill_null(False))
    log = ErrorLog(len(column))
    log.add_mask(
        missing,
        PATTERN_NOT_FOUND,
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
        log.add_mask(np.isnan(numbers) & valid, RANGE_OF_NAN, f"{subject}: value is NaN")

    def message(comparison: str) -> Callable[[int], str]:
        return lambda row: f"{subject}: value {numbers[row].item()} {comparison}"

    if rule.min is not None:
        below = _is_below(numbers, rule.min) & valid
        log.add_mask(below, BELOW_MIN, message(f"< min {rule.min}"))
    if rule.max is not None:
        above = _is_above(numbers, rule.max) & valid
        log.add_mask(above, ABOVE_MAX, message(f"> max {rule.max}"))
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


def _text(column: pa.Array, row: int) -> str:
    return cut(str(column[row].as_py()))
