from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.catalog import CheckRule, EdgeType, NodeType, Property, RangeRule
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.values.convert import ConversionMode, convert_values
from omnigraph.values import PropType, Scalar
from omnigraph.write.rules.values import check_enum, check_pattern, check_range, value_rules
from support.cases import Case, check_case, load_cases
from support.catalogs import DOMAIN
from support.reference_convert import parse_json


@pytest.mark.parametrize("case", load_cases("value_rules"), ids=str)
def test_case(case: Case, update_cases: bool) -> None:
    declared = f"node T {{ p: {case.sections['type']}  {case.sections.get('rule', '')} }}"
    node = compile_schema(declared, domain=DOMAIN).catalog.node_types["T"]
    lines = case.sections["values"].splitlines()
    values = [parse_json(line) for line in lines]
    done = convert_values(values, node.properties["p"].prop_type, "p", ConversionMode.STRICT)
    assert done.is_clean
    shown = ["passes"] * len(lines)
    for rule in value_rules(node):
        errors = rule.check(done.column)
        for row in np.flatnonzero(errors.messages.is_valid()).tolist():
            shown[row] = f"{errors.codes[row]} {errors.messages[row]}"
    actual = "\n".join(f"{line} -> {out}" for line, out in zip(lines, shown, strict=True))
    check_case(case, "outcome", actual, update_cases)


# --- exactness -------------------------------------------------------------------------------

INTEGER_TYPES = {
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
}
NEAR = [
    sign * (2**power) + offset
    for power in (0, 31, 32, 53, 54, 63, 64)
    for sign in (-1, 1)
    for offset in (-2, -1, 0, 1, 2)
]
BOUNDS = st.one_of(
    st.none(),
    st.sampled_from([n for n in NEAR if -(2**63) <= n < 2**63]),
    st.sampled_from([float(n) for n in NEAR]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-10, 10),
    st.integers(-10, 10).map(lambda n: n + 0.5),
)


@st.composite
def number_columns(draw: st.DrawFn) -> pa.Array:
    if draw(st.booleans()):
        arrow_type = draw(st.sampled_from(list(INTEGER_TYPES.values())))
        limits = np.iinfo(arrow_type.to_pandas_dtype())
        inside = [n for n in NEAR if limits.min <= n <= limits.max]
        values = st.sampled_from(inside) | st.integers(int(limits.min), int(limits.max))
    else:
        width = draw(st.sampled_from([32, 64]))
        arrow_type = pa.float32() if width == 32 else pa.float64()
        values = st.floats(width=width) | st.sampled_from([float(n) for n in NEAR])
    return pa.array(draw(st.lists(st.none() | values, max_size=8)), arrow_type)


@given(column=number_columns(), low=BOUNDS, high=BOUNDS)
def test_ranges_compare_exactly(column: pa.Array, low: float | None, high: float | None) -> None:
    errors = check_range(column, RangeRule("p", low, high), type_name="T")
    expected = [_violation(value, low, high) for value in column.to_pylist()]
    assert errors.codes.to_pylist() == expected


def _violation(value: float | None, low: float | None, high: float | None) -> str | None:
    if value is None:
        return None
    if math.isnan(value):
        return "V204"
    if low is not None and _exact(value) < _exact(low):
        return "V202"
    if high is not None and _exact(value) > _exact(high):
        return "V203"
    return None


def _exact(value: float) -> Fraction | float:
    return value if math.isinf(value) else Fraction(value)


@pytest.mark.parametrize("bound", [math.inf, -math.inf])
def test_a_bound_beyond_every_double_still_compares(bound: float) -> None:
    column = pa.array([1, -1])
    below = check_range(column, RangeRule("p", bound, None), type_name="T")
    above = check_range(column, RangeRule("p", None, bound), type_name="T")
    assert below.count == (2 if bound > 0 else 0)
    assert above.count == (2 if bound < 0 else 0)


# --- single claims ---------------------------------------------------------------------------


@given(st.lists(st.none() | st.sampled_from(["a", "b", "c", "A", ""])))
def test_only_listed_values_pass_an_enum(values: list[str | None]) -> None:
    errors = check_enum(pa.array(values, pa.utf8()), ("a", "b"), type_name="T", name="p")
    assert [m is None for m in errors.messages.to_pylist()] == [
        value in ("a", "b", None) for value in values
    ]


@given(st.lists(st.none() | st.text("ab1-", max_size=5)))
def test_a_pattern_is_searched_for_not_matched_whole(values: list[str | None]) -> None:
    errors = check_pattern(pa.array(values, pa.utf8()), CheckRule("p", "a+b"), type_name="T")
    assert [m is None for m in errors.messages.to_pylist()] == [
        value is None or re.search("a+b", value) is not None for value in values
    ]


def test_rules_come_as_enums_then_ranges_then_patterns() -> None:
    properties = {
        "a": Property("a", PropType(Scalar.STRING, enum_values=("x",))),
        "n": Property("n", PropType(Scalar.I32)),
    }
    owner = NodeType(
        "T",
        properties,
        range_constraints=(RangeRule("n", 0, None),),
        check_constraints=(CheckRule("a", "^x"),),
    )
    columns = {"a": pa.array(["x", "y", "x", "y"]), "n": pa.array([1, 1, -1, -1], pa.int32())}
    found = [rule.check(columns[rule.property]).codes.to_pylist() for rule in value_rules(owner)]
    assert found == [
        [None, "V201", None, "V201"],
        [None, None, "V202", "V202"],
        [None, "V205", None, "V205"],
    ]


def test_nan_violates_every_range() -> None:
    column = pa.array([math.nan, 1.0, None])
    errors = check_range(column, RangeRule("p", None, 5), type_name="T")
    assert errors.messages.to_pylist() == ["@range violation on T.p: value is NaN", None, None]


def test_enums_of_edges_are_checked() -> None:
    prop = Property("p", PropType(Scalar.STRING, nullable=True, enum_values=("a",)))
    edge = EdgeType("E", "A", "B", properties={"p": prop})
    (rule,) = value_rules(edge)
    assert rule.check(pa.array(["a", "b", None])).codes.to_pylist() == [None, "V201", None]


def test_a_type_without_rules_has_none() -> None:
    owner = NodeType("T", {"p": Property("p", PropType(Scalar.I32))})
    assert not list(value_rules(owner))
