"""Dates and moments of a query text or request, one at a time or a list of them.

A `Date` is a number of days and a `DateTime` a number of milliseconds since 1970-01-01 UTC, as in
the Arrow columns they are compared with. The spellings are those of
`omnigraph.schema.values.temporal`, except that a `Date` here is a plain calendar date:
a time of day in it is a mistake, not dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from omnigraph.schema.values.temporal import parse_dates, parse_datetimes
from omnigraph.values import Scalar

_CALENDAR_DATE: Final = re.compile(r"[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}")
_TEXT_MAX: Final = 64
"""No legal spelling is longer."""


def parse_date(text: str) -> int:
    """Return the days of `YYYY-MM-DD`, or raise `ValueError`.

    >>> parse_date("1970-01-02")
    1
    """
    return _only(parse_moments([text], Scalar.DATE), Scalar.DATE, text)


def parse_datetime(text: str) -> int:
    """Return the milliseconds of an ISO 8601 moment, or raise `ValueError`.

    >>> parse_datetime("1970-01-01T00:00:01.5Z"), parse_datetime("1970-01-02")
    (1500, 86400000)
    """
    return _only(parse_moments([text], Scalar.DATETIME), Scalar.DATETIME, text)


def parse_moments(texts: Sequence[str], scalar: Scalar) -> list[int | None]:
    """Read many texts of one type at once; one that cannot be read gives None."""
    readable = [text if _may_be(text, scalar) else None for text in texts]
    column = pa.array(readable, pa.utf8())
    parsed = parse_dates(column) if scalar is Scalar.DATE else parse_datetimes(column)
    pairs = zip(parsed.values.tolist(), parsed.is_valid.tolist(), strict=True)
    return [value if is_valid else None for value, is_valid in pairs]


def _may_be(text: str, scalar: Scalar) -> bool:
    if len(text) > _TEXT_MAX or not text.isascii():
        return False
    return scalar is not Scalar.DATE or _CALENDAR_DATE.fullmatch(text) is not None


def _only(values: list[int | None], scalar: Scalar, text: str) -> int:
    if values[0] is None:
        raise ValueError(f"invalid {scalar} literal '{text[:_TEXT_MAX]}'")
    return values[0]
