"""Predicates on columns, and the same predicates as filters of the store."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.query.bindings import Bindings, no_bindings
from omnigraph.query.params import BoundValue
from omnigraph.query.plan.plan import (
    AllOf,
    AnyOf,
    Compare,
    Constant,
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
from omnigraph.read.access.push_down import push_down
from omnigraph.read.operators.predicates import evaluate, predicate_columns
from omnigraph.store import connect
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import IndexKind, IndexSpec, ScanRequest
from omnigraph.values import PropType, Scalar

TYPES = {
    "i": PropType(Scalar.I32, nullable=True),
    "j": PropType(Scalar.I64, nullable=True),
    "v": PropType(Scalar.U32, nullable=True),
    "u": PropType(Scalar.U64, nullable=True),
    "f": PropType(Scalar.F32, nullable=True),
    "g": PropType(Scalar.F64, nullable=True),
    "b": PropType(Scalar.BOOL, nullable=True),
    "s": PropType(Scalar.STRING, nullable=True),
    "d": PropType(Scalar.DATE, nullable=True),
    "t": PropType(Scalar.DATETIME, nullable=True),
}
NUMBERS = ("i", "j", "v", "u", "f", "g")
VALUES: dict[str, list[Any]] = {
    "i": [None, -(2**31), -1, 0, 1, 2, 7, 2**31 - 1],
    "j": [None, -(2**63), -(2**53) - 1, -1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1],
    "v": [None, 0, 1, 2, 7, 2**32 - 1],
    "u": [None, 0, 1, 2, 2**53 + 1, 2**63, 2**64 - 1],
    "f": [None, -math.inf, -1.5, -0.0, 0.0, float(np.float32(0.1)), 1.0, 2.5, math.inf, math.nan],
    "g": [None, -math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, 2.0**53, 2.0**63, 1e300, math.inf, math.nan],
    "b": [None, True, False],
    "s": [None, "", "a", "ab", "b", "B", "é", "a%b", "it's", "😀"],
    "d": [None, -1, 0, 18262],
    "t": [None, -1, 0, 1, 1_577_836_800_123],
}
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
NOTHING_BOUND = no_bindings(0)


def column(name: str) -> PropertyValue:
    return PropertyValue("", name, TYPES[name])


def rows_table() -> pa.Table:
    count = max(len(values) for values in VALUES.values())
    columns = {
        name: pa.array((values * count)[:count], TYPES[name].arrow_type)
        for name, values in VALUES.items()
    }
    # A NaN with its sign set, which only arithmetic makes.
    negative = np.array([-np.float64(math.nan)] * 1)
    table = pa.table(columns)
    extra = {name: pa.nulls(1, TYPES[name].arrow_type) for name in VALUES}
    extra["g"] = pa.array(np.copysign(negative, -1.0))
    return pa.concat_tables([table, pa.table(extra)]).append_column(
        "n", pa.array(range(count + 1), pa.int64())
    )


TABLE = rows_table()


def python_column(name: str) -> list[Any]:
    array = TABLE[name]
    if name == "d":
        array = array.cast(pa.int32())
    if name == "t":
        array = array.cast(pa.int64())
    values: list[Any] = array.to_pylist()
    return values


def holds(left: Any, operator: str, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    tests = {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return tests[operator]


numbers = st.one_of(
    st.sampled_from([v for name in NUMBERS for v in VALUES[name] if v is not None]),
    st.integers(-(2**64), 2**65),
    st.floats(),
    st.sampled_from([2.7, -0.5, 2.0**31, 2.0**63, 2.0**64, -(2.0**63), 3_000_000_000]),
)


@given(
    left=st.sampled_from(NUMBERS),
    right=st.sampled_from(NUMBERS),
    operator=st.sampled_from(OPERATORS),
)
def test_two_columns_of_numbers_compare_as_python_does(
    left: str, right: str, operator: Any
) -> None:
    found = evaluate(Compare(column(left), operator, column(right)), TABLE, NOTHING_BOUND)
    pairs = zip(python_column(left), python_column(right), strict=True)
    assert found.to_pylist() == [holds(a, operator, b) for a, b in pairs]


@given(name=st.sampled_from(NUMBERS), operator=st.sampled_from(OPERATORS), data=st.data())
def test_a_number_that_arrives_with_the_request_compares_by_value(
    name: str, operator: Any, data: st.DataObject
) -> None:
    is_whole = data.draw(st.booleans())
    value = data.draw(st.integers(-(2**63), 2**63 - 1) if is_whole else st.floats())
    kind = PropType(Scalar.I64 if is_whole else Scalar.F64)
    bindings = Bindings({"p": BoundValue(value, kind)}, 0)
    predicate = Compare(column(name), operator, ParameterValue("p", kind))
    converted: Any = value
    if name == "f" and not (isinstance(value, float) and math.isnan(value)):
        with np.errstate(over="ignore"):
            rounded = float(np.float32(value))
        converted = value if math.isinf(rounded) and not math.isinf(value) else rounded
    expected = [holds(each, operator, converted) for each in python_column(name)]
    assert evaluate(predicate, TABLE, bindings).to_pylist() == expected


@pytest.mark.parametrize("name", ["b", "s", "d", "t"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_other_types_compare_by_their_order(name: str, operator: Any) -> None:
    for value in VALUES[name]:
        if value is None:
            continue
        constant = Constant(value, PropType(TYPES[name].scalar))
        found = evaluate(Compare(column(name), operator, constant), TABLE, NOTHING_BOUND)
        expected = [holds(each, operator, value) for each in python_column(name)]
        assert found.to_pylist() == expected


def test_a_null_parameter_is_unknown_for_every_row() -> None:
    kind = PropType(Scalar.I32, nullable=True)
    bindings = Bindings({"p": BoundValue(None, kind)}, 0)
    predicate = Not(Compare(column("i"), "=", ParameterValue("p", kind)))
    assert set(evaluate(predicate, TABLE, bindings).to_pylist()) == {None}
    assert TABLE.filter(evaluate(predicate, TABLE, bindings)).num_rows == 0


def test_unknown_follows_three_valued_logic() -> None:
    unknown = Compare(column("i"), "=", Constant(1, TYPES["i"]))
    table = pa.table({"i": pa.array([None], pa.int32())})
    yes: Predicate = IsNull(column("i"), negated=False)
    no: Predicate = IsNull(column("i"), negated=True)
    expected = [
        (AllOf((unknown, yes)), None),
        (AllOf((unknown, no)), False),
        (AnyOf((unknown, yes)), True),
        (AnyOf((unknown, no)), None),
        (AllOf(()), True),
        (AnyOf(()), False),
        (Not(unknown), None),
    ]
    for predicate, truth in expected:
        assert evaluate(predicate, table, NOTHING_BOUND).to_pylist() == [truth], predicate


def test_lists_contain_elements_of_columns_and_constants() -> None:
    texts = PropType(Scalar.STRING, is_list=True, nullable=True)
    table = pa.table(
        {
            "l": pa.array([["a", "b"], [], None, ["a", None], ["b"]]),
            "s": pa.array(["b", "a", "a", "a", None]),
        }
    )
    items = PropertyValue("", "l", texts)
    by_column = evaluate(ListContains(items, column("s")), table, NOTHING_BOUND)
    assert by_column.to_pylist() == [True, False, None, True, None]
    a = Constant("a", PropType(Scalar.STRING))
    by_constant = evaluate(ListContains(items, a), table, NOTHING_BOUND)
    assert by_constant.to_pylist() == [True, False, None, True, False]
    fixed = Constant(("a", "x"), PropType(Scalar.STRING, is_list=True))
    assert evaluate(ListContains(fixed, column("s")), table, NOTHING_BOUND).to_pylist() == [
        False,
        True,
        True,
        True,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "part", "inside", "front"),
    [("abc", "bc", True, False), ("a\0", "\0", True, False), ("a", "a\0", False, False)],
)
def test_parts_of_texts_are_found_between_two_columns(
    text: str, part: str, inside: bool, front: bool
) -> None:
    table = pa.table({"s": [text, None, "x"], "p": [part, "a", None]})
    whole = PropertyValue("", "s", TYPES["s"])
    other = PropertyValue("", "p", TYPES["s"])
    found = evaluate(Substring(whole, other), table, NOTHING_BOUND)
    assert found.to_pylist() == [inside, None, None]
    assert evaluate(Prefix(whole, other), table, NOTHING_BOUND).to_pylist() == [front, None, None]


def test_columns_of_a_mutation_have_plain_names() -> None:
    predicate = AllOf(
        (
            Compare(EndpointValue("from"), "=", Constant("a", PropType(Scalar.STRING))),
            Compare(EndpointValue("to"), "!=", EntityId("")),
            IsNull(column("i"), negated=False),
        )
    )
    assert predicate_columns([predicate]) == {"src", "dst", "id", "i"}
    table = pa.table(
        {"src": ["a", "b"], "dst": ["x", "x"], "id": ["1", "2"], "i": pa.nulls(2, pa.int32())}
    )
    assert evaluate(predicate, table, NOTHING_BOUND).to_pylist() == [True, False]


# -- the store -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["plain", "indexed"])
def handle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> DatasetHandle:
    root: Path = tmp_path_factory.mktemp(request.param)
    datasets = connect(str(root), durability="process").datasets
    staged = datasets.stage_create("nodes/T", TABLE.schema, rows=TABLE)
    landed = datasets.commit_staged(staged)
    if request.param == "indexed":
        specs = [IndexSpec(name, IndexKind.BTREE) for name in (*NUMBERS, "s", "d", "t")]
        landed = datasets.commit_staged(datasets.stage_create_index(landed.at, specs))
    return datasets.open("nodes/T", version=landed.version)


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(sorted(TYPES)))
    stored = column(name)
    form = draw(st.integers(0, 5))
    if form == 0:
        return IsNull(stored, negated=draw(st.booleans()))
    if form == 1 and name != "b":
        scalar = TYPES[name].scalar
        choices = draw(st.lists(st.sampled_from([v for v in VALUES[name] if v is not None])))
        listed = Constant(tuple(choices), PropType(scalar, is_list=True))
        if draw(st.booleans()):
            return ListContains(listed, stored)
        return InList(stored, listed, negated=draw(st.booleans()))
    if form == 2 and name == "s":
        part = Constant(
            draw(st.sampled_from(["", "a", "%", "'", "é", "zz"])), PropType(Scalar.STRING)
        )
        return draw(st.sampled_from([Substring(stored, part), Prefix(stored, part)]))
    other: Value
    if name in NUMBERS:
        number = draw(numbers)
        kind = Scalar.F64 if isinstance(number, float) else Scalar.I64
        if kind is Scalar.I64 and not -(2**63) <= number < 2**63:
            kind = Scalar.U64
            number = abs(number) % 2**64
        other = Constant(number, PropType(kind))
    else:
        values = [v for v in VALUES[name] if v is not None]
        other = Constant(draw(st.sampled_from(values)), PropType(TYPES[name].scalar))
    operator: Any = draw(st.sampled_from(OPERATORS))
    if draw(st.booleans()):
        return Compare(stored, operator, other)
    return Compare(other, operator, stored)


predicates = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: AllOf(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=4,
)


@settings(max_examples=300)
@given(predicate=predicates)
def test_what_is_pushed_down_matches_exactly_the_true_rows(
    handle: DatasetHandle, predicate: Predicate
) -> None:
    row_filter = push_down(predicate, NOTHING_BOUND)
    if row_filter is None:
        return
    found = handle.scan(ScanRequest(columns=("n",), row_filter=row_filter)).read_all()
    expected = TABLE.filter(evaluate(predicate, TABLE, NOTHING_BOUND))
    assert sorted(found["n"].to_pylist()) == expected["n"].to_pylist()


def test_ordinary_filters_are_pushed_down() -> None:
    number = Constant(2.7, PropType(Scalar.F64))
    for predicate in (
        Compare(column("s"), "=", Constant("a", PropType(Scalar.STRING))),
        Compare(column("i"), "<", number),
        Not(Compare(column("g"), ">=", number)),
        InList(column("s"), Constant((), PropType(Scalar.STRING, is_list=True)), negated=True),
        Prefix(column("s"), Constant("a", PropType(Scalar.STRING))),
    ):
        assert push_down(predicate, NOTHING_BOUND) is not None, predicate
    assert push_down(Compare(column("i"), "<", column("j")), NOTHING_BOUND) is None


def test_what_is_in_neither_of_two_lists_is_not_null(handle: DatasetHandle) -> None:
    def listed(value: float) -> Predicate:
        choices = Constant((value,), PropType(Scalar.F32, is_list=True))
        return InList(column("f"), choices, negated=False)

    row_filter = push_down(Not(AllOf((listed(1.0), listed(2.5)))), NOTHING_BOUND)
    assert row_filter is not None
    assert handle.count(row_filter) == len([v for v in python_column("f") if v is not None])
