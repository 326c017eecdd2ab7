"""The first rows of an order, found without sorting all of them."""

from __future__ import annotations

import math

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.read.access.value_codes import coded
from omnigraph.read.operators.order import _best_texts

texts = st.lists(st.none() | st.sampled_from(["", "a", "b", "B", "é", "zz"]), min_size=1)


@given(column=texts, descending=st.booleans(), data=st.data())
def test_candidates_are_the_wanted_rows_and_the_ties_of_the_last(
    column: list[str | None], descending: bool, data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(1, len(column)))
    codes = coded(pa.array(column, pa.utf8())).codes
    directed = (-codes if descending else codes).tolist()
    bound = sorted(directed)[wanted - 1]
    expected = [place for place, code in enumerate(directed) if code <= bound]
    array = pa.array(column, pa.utf8())
    assert _best_texts(array, wanted, descending=descending).tolist() == expected


@given(st.lists(st.none() | st.floats() | st.integers(-2, 2).map(float)))
def test_codes_sort_as_the_values_do(values: list[float | None]) -> None:
    found = coded(pa.array(values, pa.float64()))

    def key(value: float | None) -> tuple[int, float]:
        if value is None:
            return (0, 0.0)
        return (2, 0.0) if math.isnan(value) else (1, value)

    for left, left_code in zip(values, found.codes, strict=True):
        for right, right_code in zip(values, found.codes, strict=True):
            assert (key(left) < key(right)) == (left_code < right_code)


@given(st.lists(st.none() | st.lists(st.none() | st.integers(0, 2), max_size=3)))
def test_lists_compare_element_by_element(values: list[list[int | None] | None]) -> None:
    found = coded(pa.array(values, pa.list_(pa.int32())))
    keys = [
        None if value is None else [(item is not None, item or 0) for item in value]
        for value in values
    ]
    for left, left_code in zip(keys, found.codes, strict=True):
        for right, right_code in zip(keys, found.codes, strict=True):
            smaller = right is not None and (left is None or left < right)
            assert smaller == (left_code < right_code)
