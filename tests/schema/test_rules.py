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
from omnigraph.schema.values.constraints import check_enum, check_pattern, check_range, check_rules
from omnigraph.schema.values.convert import ConversionMode, convert_values
from omnigraph.values import PropType, Scalar
from support.cases import Case, check_case, load_cases
from support.prop_types import prop_type
from support.reference_convert import parse_json


@pytest.mark.parametrize("case", load_cases("rules"), ids=str)
def test_case(case: Case, update_cases: bool) -> None:
    prop = prop_type(case.sections["type"])
    lines = case.sections["values"].splitlines()
    values = [parse_json(line) for line in lines]
    done = convert_values(values, prop, "p", ConversionMode.STRICT)
    assert done.is_clean
    owner = node(prop, case.sections.get("rule", ""))
    errors = check_rules(owner, {"p": done.column})
    shown = [
        f"{code} {message}" if message else "passes"
        for code, message in zip(errors.codes.to_pylist(), errors.messages.to_pylist(), strict=True)
    ]
    actual = "\n".join(f"{line} -> {out}" for line, out in zip(lines, shown, strict=True))
    check_case(case, "outcome", actual, update_cases)


def node(prop: PropType, rule: str) -> NodeType:
    """Build a node type `T` with one property and at most one rule."""
    ranges: tuple[RangeRule, ...] = ()
    checks: tuple[CheckRule, ...] = ()
    if match := re.fullmatch(r"@range\(p, (\S*)\.\.(\S*)\)", rule):
        ranges = (RangeRule("p", number(match[1]), number(match[2])),)
    elif match := re.fullmatch(r'@check\(p, "(.*)"\)', rule):
        checks = (CheckRule("p", match[1].replace("\\\\", "\\")),)
    else:
        assert not rule
    return NodeType(
        "T", {"p": Property("p", prop)}, range_constraints=ranges, check_constraints=checks
    )


def number(text: str) -> int | float | None:
    if not text:
        return None
    value = float(text) if "." in text else int(text)
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


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


def test_a_row_keeps_its_first_violation() -> None:
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
    errors = check_rules(owner, columns)
    assert errors.codes.to_pylist() == [None, "V201", "V202", "V201"]
    assert errors.messages[2].as_py() == "@range violation on T.n: value -1 < min 0"
    assert errors.count == 3


def test_nan_violates_every_range() -> None:
    column = pa.array([math.nan, 1.0, None])
    errors = check_range(column, RangeRule("p", None, 5), type_name="T")
    assert errors.messages.to_pylist() == ["@range violation on T.p: value is NaN", None, None]


def test_enums_of_edges_are_checked() -> None:
    prop = Property("p", PropType(Scalar.STRING, nullable=True, enum_values=("a",)))
    edge = EdgeType("E", "A", "B", properties={"p": prop})
    errors = check_rules(edge, {"p": pa.array(["a", "b", None])})
    assert errors.codes.to_pylist() == [None, "V201", None]


def test_a_type_without_rules_passes_everything() -> None:
    owner = NodeType("T", {"p": Property("p", PropType(Scalar.I32))})
    errors = check_rules(owner, {"p": pa.array([1, 2, 3])})
    assert errors.is_clean
    assert len(errors.messages) == 3
