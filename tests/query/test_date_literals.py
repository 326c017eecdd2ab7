"""Dates and moments of requests."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.query.date_literals import parse_date, parse_datetime, parse_moments
from omnigraph.values import Scalar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.dates())
def test_a_date_is_its_number_of_days(day: date) -> None:
    assert parse_date(day.isoformat()) == (day - EPOCH.date()).days


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_is_its_number_of_milliseconds(moment: datetime) -> None:
    expected = (moment - EPOCH) // timedelta(milliseconds=1)
    assert parse_datetime(moment.isoformat()) == expected
    assert parse_datetime(moment.isoformat(" ").replace("+00:00", "Z")) == expected


def test_many_are_read_at_once_and_bad_ones_give_none() -> None:
    assert parse_moments(["1970-01-02", "x", "1970-02-30"], Scalar.DATE) == [1, None, None]
    assert parse_moments([], Scalar.DATETIME) == []


@pytest.mark.parametrize("text", ["", "x", "2026-3-6", "2026-03-06T00:00:00Z", "\uff12026-03-06"])
def test_what_is_no_date_is_a_value_error_that_names_it(text: str) -> None:
    with pytest.raises(ValueError, match="invalid Date literal"):
        parse_date(text)


@pytest.mark.parametrize("text", ["", "x", "2026-03-06T", "9" * 100_000, "2026-03-06\0"])
def test_what_is_no_moment_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="invalid DateTime literal"):
        parse_datetime(text)
