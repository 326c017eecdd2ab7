from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.schema.values.temporal import (
    civil_from_days,
    days_from_civil,
    format_dates,
    format_datetimes,
    parse_dates,
    parse_datetimes,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAYS = st.integers(-(2**31), 2**31 - 1)
MOMENTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**14), 10**15)
EDGES = [-(2**63), 2**63 - 1, -1, 0, 1, -86_400_000, 86_399_999, -62_167_219_200_001]


def date_column(days: list[int | None]) -> pa.Array:
    return pa.array(days, pa.int32()).view(pa.date32())


def moment_column(moments: list[int | None]) -> pa.Array:
    return pa.array(moments, pa.int64()).view(pa.date64())


@given(st.lists(DAYS))
def test_a_date_reads_back_from_its_text(days: list[int]) -> None:
    parsed = parse_dates(format_dates(date_column(days)))
    assert parsed.is_valid.all()
    assert parsed.values.tolist() == days


@given(st.lists(MOMENTS | st.sampled_from(EDGES)))
def test_a_moment_reads_back_from_its_text(moments: list[int]) -> None:
    parsed = parse_datetimes(format_datetimes(moment_column(moments)))
    assert parsed.is_valid.all()
    assert parsed.values.tolist() == moments


@given(st.lists(st.dates()))
def test_dates_are_spelled_and_read_as_python_does(dates: list[date]) -> None:
    column = pa.array(dates, pa.date32())
    texts = [day.isoformat() for day in dates]
    assert format_dates(column).to_pylist() == texts
    assert parse_dates(pa.array(texts, pa.utf8())).values.tolist() == [
        (day - date(1970, 1, 1)).days for day in dates
    ]


OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)


@given(st.lists(st.datetimes(timezones=OFFSETS), max_size=8), st.sampled_from("T "))
def test_moments_with_offsets_are_read_as_python_does(
    moments: list[datetime], separator: str
) -> None:
    texts = [moment.isoformat(separator) for moment in moments]
    parsed = parse_datetimes(pa.array(texts, pa.utf8()))
    assert parsed.is_valid.all()
    assert parsed.values.tolist() == [(m - EPOCH) // timedelta(milliseconds=1) for m in moments]


@given(st.lists(st.datetimes(), max_size=8), st.integers(1, 9))
def test_moments_with_any_number_of_decimals_are_read(moments: list[datetime], digits: int) -> None:
    shown = [f"{m.isoformat('T', 'seconds')}.{f'{m.microsecond:06}000'[:digits]}Z" for m in moments]
    kept = [int(f"{m.microsecond:06}"[: min(digits, 3)].ljust(3, "0")) for m in moments]
    whole = [
        (m.replace(microsecond=0, tzinfo=UTC) - EPOCH) // timedelta(seconds=1) for m in moments
    ]
    parsed = parse_datetimes(pa.array(shown, pa.utf8()))
    assert parsed.values.tolist() == [s * 1000 + ms for s, ms in zip(whole, kept, strict=True)]


@given(st.lists(st.integers(-(10**11), 10**11)))
def test_the_calendar_functions_are_inverse(days: list[int]) -> None:
    numbers = np.array(days, np.int64)
    year, month, day = civil_from_days(numbers)
    assert days_from_civil(year, month, day).tolist() == days
    assert ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all()


@given(
    st.lists(st.text("0123456789-+:.TtZz /x", max_size=32)),
)
def test_no_text_makes_the_parsers_fail(texts: list[str]) -> None:
    column = pa.array(texts, pa.utf8())
    for parse in (parse_dates, parse_datetimes):
        parsed = parse(column)
        assert not (parsed.is_valid & parsed.is_out_of_range).any()


@pytest.mark.parametrize("text", ["2026-03-06\n", "\n2026-03-06", "2026-03-06\x00", "2026-03-06é"])
def test_nothing_may_stand_around_a_date(text: str) -> None:
    assert parse_dates(pa.array([text])).is_valid.tolist() == [False]


@given(st.lists(st.none() | MOMENTS, min_size=1), st.data())
def test_slices_and_nulls_are_respected(moments: list[int | None], data: st.DataObject) -> None:
    texts = format_datetimes(moment_column(moments))
    assert texts.is_null().to_pylist() == [moment is None for moment in moments]
    start = data.draw(st.integers(0, len(moments)))
    parsed = parse_datetimes(texts[start:])
    rest = moments[start:]
    assert parsed.is_valid.tolist() == [moment is not None for moment in rest]
    assert not parsed.is_out_of_range.any()
    assert format_datetimes(moment_column(moments)[start:]).equals(texts[start:])


def test_layouts_of_equal_length_in_one_batch_are_told_apart() -> None:
    texts = [
        "2026-03-06T12:00:00.123456789",
        "2026-03-06T12:00:00.123+01:00",
        "2026-03-06T12:00:00.12345678Z",
        "2026-03-06T12:00:00.123 +0100",
    ]
    assert {len(text) for text in texts} == {29}
    parsed = parse_datetimes(pa.array(texts))
    noon = 1_772_798_400_123
    assert parsed.values.tolist() == [noon, noon - 3_600_000, noon, noon - 3_600_000]


def test_an_empty_column_is_read_and_spelled() -> None:
    assert len(parse_dates(pa.array([], pa.utf8())).values) == 0
    assert format_dates(date_column([])).to_pylist() == []
    assert parse_dates(pa.array([None, ""], pa.utf8())).is_valid.tolist() == [False, False]
