"""Parameters: what is accepted, what it becomes, and what is said about the rest."""

from __future__ import annotations

import datetime
import json
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.query.language.parse import parse_queries
from omnigraph.query.language.tree import Parameter
from omnigraph.query.params import ParamsError, coerce_params, require_enum_values
from omnigraph.query.plan.plan import EnumUse, PlanParameter
from omnigraph.values import PropType, Scalar
from support.cases import Case, check_case, load_cases

EAST = datetime.timezone(datetime.timedelta(hours=2))


def declared(text: str) -> tuple[Parameter, ...]:
    (query,) = parse_queries(f"query q({text}) {{ match {{ $c: C }} return {{ $c }} }}").queries
    return query.parameters


def outcome(
    parameters: tuple[Parameter, ...], given: object, enums: tuple[EnumUse, ...] = ()
) -> str:
    try:
        values = coerce_params(parameters, given)
        planned = [PlanParameter(p.name, p.prop_type, enums) for p in parameters]
        require_enum_values(planned, values)
    except ParamsError as error:
        lines = []
        for problem in error.problems:
            lines.append(f"{problem.code} {problem.message}")
            if problem.hint:
                lines.append(f"  help: {problem.hint}")
        return "\n".join(lines)
    return "\n".join(f"{name} = {values[name].value!r}" for name in values)


@pytest.mark.parametrize("case", load_cases("params"), ids=str)
def test_each_line_of_json_gives_its_values_or_problems(case: Case, update_cases: bool) -> None:
    parameters = declared(case.sections["params"])
    enums = tuple(
        EnumUse(line.split()[0], tuple(line.split()[1:]))
        for line in case.sections.get("enums", "").splitlines()
    )
    blocks = [
        f"{line}\n{outcome(parameters, json.loads(line), enums)}"
        for line in case.sections["given"].splitlines()
    ]
    check_case(case, "outcome", "\n\n".join(blocks), update_cases)


def test_no_object_means_no_parameters() -> None:
    assert len(coerce_params((), None)) == 0
    assert coerce_params(declared("$a: I32?"), None)["a"].value is None


def test_values_keep_the_order_of_their_declaration() -> None:
    values = coerce_params(declared("$b: I32, $a: I32"), {"a": 1, "b": 2})
    assert list(values) == ["b", "a"]
    assert "c" not in values
    with pytest.raises(KeyError):
        values["c"]


@pytest.mark.parametrize(
    ("declaration", "given", "arrow_type", "expected"),
    [
        ("String", "x", pa.utf8(), pa.scalar("x")),
        ("Bool", True, pa.bool_(), pa.scalar(True)),
        ("I32", 5, pa.int32(), pa.scalar(5, pa.int32())),
        ("U64", 5, pa.uint64(), pa.scalar(5, pa.uint64())),
        ("F32", 0.1, pa.float32(), pa.scalar(0.1, pa.float32())),
        ("Date", "1970-01-03", pa.date32(), pa.scalar(2, pa.date32())),
        ("DateTime", "1970-01-01T00:00:00.005Z", pa.date64(), pa.scalar(5, pa.date64())),
        ("Blob", "s3://x", pa.utf8(), pa.scalar("s3://x")),
        ("[Blob]", ["s3://x"], pa.list_(pa.utf8()), pa.scalar(["s3://x"])),
        ("String?", None, pa.utf8(), pa.scalar(None, pa.utf8())),
    ],
)
def test_a_value_becomes_an_arrow_scalar_of_its_declared_type(
    declaration: str, given: object, arrow_type: pa.DataType, expected: pa.Scalar
) -> None:
    value = coerce_params(declared(f"$p: {declaration}"), {"p": given})["p"].arrow
    assert value.type == arrow_type
    assert value.equals(expected)


def test_lists_and_vectors_become_arrow_lists_of_their_item_type() -> None:
    values = coerce_params(declared("$l: [I64], $v: Vector(2)"), {"l": [1, 2], "v": [0.5, 1]})
    assert values["l"].arrow.type.value_type == pa.int64()
    assert values["l"].arrow.as_py() == [1, 2]
    assert values["v"].arrow.type == PropType(Scalar.VECTOR, dimension=2).arrow_type
    assert values["v"].arrow.as_py() == [0.5, 1.0]


def test_a_lone_surrogate_is_refused() -> None:
    assert "half of a surrogate pair" in outcome(declared("$a: String"), {"a": "x\ud800"})


@pytest.mark.parametrize(
    "given",
    [10**5000, -(10**5000), "9" * 5000, "-" + "9" * 5000],
    ids=["number", "negative number", "text", "negative text"],
)
@pytest.mark.parametrize("declaration", ["I32", "I64", "U64", "F64", "F32", "[I64]"])
def test_absurdly_long_numbers_are_problems_and_not_crashes(
    declaration: str, given: object
) -> None:
    value = [given] if declaration.startswith("[") else given
    with pytest.raises(ParamsError) as caught:
        coerce_params(declared(f"$a: {declaration}"), {"a": value})
    assert len(str(caught.value)) < 300


def test_problems_are_bounded() -> None:
    given: dict[str, object] = {f"x{number}": {} for number in range(10_000)}
    with pytest.raises(ParamsError) as caught:
        coerce_params((), given)
    assert len(caught.value.problems) == 100


def test_the_error_survives_pickling() -> None:
    with pytest.raises(ParamsError) as caught:
        coerce_params(declared("$a: I32, $b: Date"), {"b": "x"})
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.problems == caught.value.problems
    assert str(again) == str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
ALL_TYPES = declared(
    "$a: String, $b: Bool, $c: I32, $d: I64?, $e: U32, $f: U64, $g: F32, $h: F64?, $i: Date, "
    "$j: DateTime, $k: Blob, $l: [String], $m: [Date]?, $n: Vector(2), $o: [F32], $p: [U64]"
)


@given(st.dictionaries(st.sampled_from("abcdefghijklmnopq"), json_values) | json_values)
def test_any_json_gives_values_or_a_params_error(given: object) -> None:
    try:
        values = coerce_params(ALL_TYPES, given)
    except ParamsError as error:
        messages = [problem.message for problem in error.problems]
    else:
        messages = [str(value.arrow.type) for value in values.values()]
    assert messages
    assert all(messages)


@given(st.integers(-(2**40), 2**70))
@pytest.mark.parametrize("scalar", [Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64])
def test_a_number_and_its_decimal_text_are_the_same(scalar: Scalar, number: int) -> None:
    parameters = declared(f"$a: {scalar}")
    as_number, as_text = outcome(parameters, {"a": number}), outcome(parameters, {"a": str(number)})
    assert as_number == as_text


@pytest.mark.parametrize(
    ("kind", "given", "same"),
    [
        ("Date", datetime.date(2026, 3, 6), "2026-03-06"),
        ("DateTime", datetime.date(2026, 3, 6), "2026-03-06"),
        ("DateTime", datetime.datetime(2026, 3, 6, 12), "2026-03-06T12:00:00Z"),
        (
            "DateTime",
            datetime.datetime(
                2026, 3, 6, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2))
            ),
            "2026-03-06T10:00:00Z",
        ),
        ("[Date]", [datetime.date(2026, 3, 6)], ["2026-03-06"]),
        ("I32", np.int64(7), 7),
        ("F64", np.float32(0.5), 0.5),
        ("Bool", np.bool_(True), True),
        ("[I64]", np.array([1, 2]), [1, 2]),
        ("Vector(2)", np.array([1, 0.5], np.float32), [1, 0.5]),
        ("Blob", b"ab", "base64:YWI="),
    ],
)
def test_values_of_python_and_numpy_are_read_as_the_json_that_spells_them(
    kind: str, given: object, same: object
) -> None:
    parameters = declared(f"$a: {kind}")
    assert coerce_params(parameters, {"a": given}) == coerce_params(parameters, {"a": same})


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        ("Date", datetime.datetime(2026, 3, 6), "invalid Date literal"),
        ("F64", Decimal("0.5"), "found Decimal object"),
        ("String", b"ab", "found bytes object"),
        ("I32", np.float64(1), "found number 1.0"),
        ("I32", np.bool_(True), "found boolean true"),
    ],
)
def test_values_that_json_would_refuse_are_refused(kind: str, given: object, found: str) -> None:
    with pytest.raises(ParamsError, match=found):
        coerce_params(declared(f"$a: {kind}"), {"a": given})
