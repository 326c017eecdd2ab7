"""Texts as values, as CSV and names of partitions have them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.schema.values.from_text import convert_texts, text_value
from omnigraph.values import PropType, Scalar

GOOD: list[tuple[Scalar, list[str | None], list[Any]]] = [
    (Scalar.STRING, ["", " a", None], ["", " a", None]),
    (Scalar.BOOL, ["true", " FALSE", "1", "0", None], [True, False, True, False, None]),
    (Scalar.I32, ["-7", "+8", "9.0", " 1 ", "1e2", None], [-7, 8, 9, 1, 100, None]),
    (Scalar.U64, ["18446744073709551615"], [2**64 - 1]),
    (Scalar.I64, ["-9223372036854775808", "1.0"], [-(2**63), 1]),
    (
        Scalar.F64,
        ["1", "-1.5e3", ".5", "inf", "+1", "-Infinity"],
        [1, -1500, 0.5, math.inf, 1, -math.inf],
    ),
]
BAD: list[tuple[Scalar, str, str]] = [
    (Scalar.BOOL, "yes", 'expects Bool, got "yes"'),
    (Scalar.I32, "x", 'expects Int32, got "x"'),
    (Scalar.I32, "1.5", 'expects Int32, got "1.5"'),
    (Scalar.I32, "4294967296", "value 4294967296 exceeds Int32 range"),
    (Scalar.U32, "-1", "value -1 exceeds UInt32 range"),
    (Scalar.I64, "9223372036854775808", "value 9223372036854775808 exceeds Int64 range"),
    (Scalar.F32, "1e39", "exceeds Float32 range"),
    (Scalar.F64, "1,5", 'expects Float64, got "1,5"'),
    (Scalar.DATE, "01/02/2020", "invalid Date literal '01/02/2020'"),
]


@pytest.mark.parametrize(("scalar", "texts", "values"), GOOD)
def test_texts_become_values(scalar: Scalar, texts: list[str | None], values: list[object]) -> None:
    found = convert_texts(pa.array(texts, pa.utf8()), PropType(scalar, nullable=True), "p")
    assert found.is_clean
    assert found.column.to_pylist() == values


@pytest.mark.parametrize(("scalar", "text", "words"), BAD)
def test_a_text_that_is_no_value_is_named_and_spares_the_others(
    scalar: Scalar, text: str, words: str
) -> None:
    good = {Scalar.BOOL: "1", Scalar.DATE: "2020-01-01"}.get(scalar, "7")
    found = convert_texts(pa.array([good, text, None], pa.utf8()), PropType(scalar), "p")
    assert found.column.is_valid().to_pylist() == [True, False, False]
    first, wrong, missing = found.errors.to_pylist()
    assert first is None
    assert words in wrong
    assert missing == "non-nullable property 'p' has null or invalid values"


def test_lists_are_json() -> None:
    prop = PropType(Scalar.I64, is_list=True, nullable=True)
    texts = ["[1, 2]", "[]", None, "[1],[2]", "{}", "1"]
    found = convert_texts(pa.array(texts, pa.utf8()), prop, "p")
    assert found.column.to_pylist() == [[1, 2], [], None, None, None, None]
    assert found.errors.is_valid().to_pylist() == [False, False, False, True, True, True]


def test_a_text_is_shown_as_the_value_that_it_stands_for() -> None:
    assert text_value("7.0", PropType(Scalar.I32)) == 7
    assert text_value("seven", PropType(Scalar.I32)) == "seven"
    assert text_value("[1]", PropType(Scalar.I32, is_list=True)) == [1]
    assert text_value("7", PropType(Scalar.STRING)) == "7"
    assert text_value(None, PropType(Scalar.BOOL)) is None
