"""Columns as sets and tuples, against plain Python."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.write.stage.columns import (
    concatenated,
    distinct,
    is_in,
    last_rows,
    places_in,
    repeated,
    slabs,
    tuple_codes,
    without,
)

VALUES = st.lists(st.none() | st.sampled_from("abc"), max_size=24)
"""Around the number up to which columns are treated in Python."""


@given(st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from("ab"))))
def test_repeated_tuples_are_those_seen_before_without_a_null(
    rows: list[tuple[object, object]],
) -> None:
    expected: list[tuple[int, int]] = []
    first: dict[object, int] = {}
    for number, row in enumerate(rows):
        if None in row:
            continue
        if row in first:
            expected.append((number, first[row]))
        first.setdefault(row, number)
    columns = [
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], pa.utf8()),
    ]
    again, holders = repeated(columns)
    assert list(zip(again.tolist(), holders.tolist(), strict=True)) == expected


@given(VALUES)
def test_one_column_repeats_like_a_tuple_of_one(values: list[str | None]) -> None:
    column = pa.chunked_array([values[:3], values[3:]], pa.utf8())
    again, _ = repeated([column])
    seen: set[str] = set()
    expected = []
    for number, value in enumerate(values):
        if value in seen:
            expected.append(number)
        if value is not None:
            seen.add(value)
    assert again.tolist() == expected


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_the_last_of_equal_values_stays(values: list[str]) -> None:
    last = {value: number for number, value in enumerate(values)}
    found = last_rows(pa.array(values, pa.utf8()))
    expected = sorted(last.values())
    assert (list(range(len(values))) if found is None else found.tolist()) == expected


@given(VALUES, VALUES)
def test_membership_is_that_of_a_set_and_null_is_no_member(
    values: list[str | None], known: list[str | None]
) -> None:
    column, value_set = pa.array(values, pa.utf8()), pa.chunked_array([known], pa.utf8())
    members = {value for value in known if value is not None}
    assert is_in(column, value_set).tolist() == [value in members for value in values]
    assert without(column, value_set).to_pylist() == [v for v in values if v not in members]
    places = places_in(column, value_set).to_pylist()
    assert places == [known.index(v) if v in members else None for v in values]


@given(VALUES)
def test_each_value_is_distinct_once_in_order(values: list[str | None]) -> None:
    column = pa.chunked_array([values[:2], values[2:]], pa.utf8())
    found = distinct(column)
    assert found.type == pa.utf8()
    assert found.to_pylist() == list(dict.fromkeys(values))


def test_text_with_large_offsets_is_compared_with_text_without() -> None:
    small, large = pa.array(["a", "b"]), pa.array(["b"], pa.large_utf8())
    assert is_in(small, large).tolist() == [False, True]
    assert places_in(large, small).to_pylist() == [1]
    assert concatenated(small, large).to_pylist() == ["a", "b", "b"]


def test_codes_of_many_members_do_not_run_over() -> None:
    column = pa.array(range(2_000))
    codes, valid, _ = tuple_codes([column] * 8)
    assert len(set(codes.tolist())) == 2_000
    assert valid.all()
    assert codes.min() >= 0


def test_slabs_keep_every_row_in_order() -> None:
    batches = pa.table({"n": range(10)}).to_batches(max_chunksize=3)
    found = pa.concat_tables(slabs(iter(batches), batches[0].schema))
    assert found["n"].to_pylist() == list(range(10))
