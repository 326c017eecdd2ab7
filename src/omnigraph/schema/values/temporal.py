"""Dates and moments as text, a whole column at a time.

A date is a number of days since 1970-01-01, a moment a number of milliseconds, both in the
proleptic Gregorian calendar with a year 0. Accepted texts:

| text | example |
|---|---|
| date, month and day with one or two digits | `2026-03-06`, `2026-3-6` |
| compact date | `20260306` |
| date with a signed year of four or more digits | `-0044-03-15`, `+12026-01-01` |
| date, `T`, `t` or a blank, `HH:MM:SS` with up to nine decimals, zone | `2026-03-06T12:00:00.5Z` |
| date, `T`, `t` or a blank, `HHMMSS`, zone | `2026-03-06 120000+01` |

A zone is nothing (UTC), `Z`, `z`, or `±HH:MM`, `±HHMM`, `±HH` after optional blanks. A second of 60
is the first second of the next minute, as in POSIX time. Decimals below a millisecond are dropped.
Both types read all of these: a date takes the day in UTC, a moment starts its day at midnight.

Arrow's own cast reads only some of these texts, and fails a whole column for one bad row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.schema.values.row_errors import Mask, Rows

Ints = npt.NDArray[np.int64]
_Whole = npt.NDArray[Any]
"""Whole numbers of any width; few bits are faster."""
Bytes = npt.NDArray[np.uint8]

DAY_MS: Final = 86_400_000
_I32: Final = np.iinfo(np.int32)
_I64: Final = np.iinfo(np.int64)
_WHOLE_DAYS_MAX: Final = int(_I64.max) // DAY_MS
_YEAR_DIGITS_MAX: Final = 9
"""No moment of 64 bits has a year of ten digits."""


@dataclass(frozen=True)
class Parsed:
    """Values by row. A row is valid, or out of range, or (neither) not a date or moment at all.

    A value means something only where the row is valid.
    """

    values: Ints
    is_valid: Mask
    is_out_of_range: Mask


def parse_dates(texts: pa.Array) -> Parsed:
    """Read a utf8 column as days since 1970-01-01; a null row is not valid.

    >>> parse_dates(pa.array(["1970-01-02", "2024-01-01T23:30:00-01:00"])).values.tolist()
    [1, 19724]
    """
    moments = _parse(texts)
    fits = (moments.days >= _I32.min) & (moments.days <= _I32.max)
    return Parsed(
        np.where(fits, moments.days, 0),
        moments.is_valid & fits,
        moments.is_huge | (moments.is_valid & ~fits),
    )


def parse_datetimes(texts: pa.Array) -> Parsed:
    """Read a utf8 column as milliseconds since the epoch; a null row is not valid.

    >>> parse_datetimes(pa.array(["1970-01-01T00:00:01.5009Z", "1970-01-02"])).values.tolist()
    [1500, 86400000]
    """
    moments = _parse(texts)
    values, fits = _join_days(moments.days, moments.ms)
    return Parsed(values, moments.is_valid & fits, moments.is_huge | (moments.is_valid & ~fits))


def days_from_civil(year: _Whole, month: _Whole, day: _Whole) -> _Whole:
    """Count the days from 1970-01-01 to a date of the proleptic Gregorian calendar."""
    # Years start in March here, so that the leap day is the last day of a year.
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    days: _Whole = era * 146_097 + day_of_era - 719_468
    return days


def civil_from_days(days: Ints) -> tuple[Ints, Ints, Ints]:
    """Return year, month and day of numbers of days since 1970-01-01."""
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_index + 2) // 5 + 1
    month = np.where(month_index < 10, month_index + 3, month_index - 9)
    return year_of_era + era * 400 + (month <= 2), month, day


def format_dates(column: pa.Array) -> pa.Array:
    """Spell a date32 column; years outside 0…9999 carry a sign.

    >>> format_dates(pa.array([19723, None, -719529], pa.int32()).view(pa.date32())).to_pylist()
    ['2024-01-01', None, '-0001-12-31']
    """
    days = column.view(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    return _mask_nulls(_spell(days, None), column)


def format_datetimes(column: pa.Array) -> pa.Array:
    """Spell a date64 column in UTC with three decimals.

    >>> format_datetimes(pa.array([1500, -1], pa.int64()).view(pa.date64())).to_pylist()
    ['1970-01-01T00:00:01.500Z', '1969-12-31T23:59:59.999Z']
    """
    moments = column.view(pa.int64()).fill_null(0).to_numpy()
    days = moments // DAY_MS
    return _mask_nulls(_spell(days, moments - days * DAY_MS), column)


def floor_to_days(moments_ms: Ints) -> Ints:
    """Return the UTC day of each moment."""
    days: Ints = moments_ms // DAY_MS
    return days


# --- reading ---------------------------------------------------------------------------------


@dataclass
class _Moments:
    """Results by row while they are filled in; `is_huge` = well-formed, year beyond any type."""

    days: Ints
    ms: Ints
    is_valid: Mask
    is_huge: Mask

    @classmethod
    def empty(cls, count: int) -> _Moments:
        return cls(
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.bool_),
            np.zeros(count, np.bool_),
        )

    def put(self, rows: Rows | slice, part: _Moments) -> None:
        self.days[rows] = part.days
        self.ms[rows] = part.ms
        self.is_valid[rows] = part.is_valid
        self.is_huge[rows] = part.is_huge


@dataclass(frozen=True)
class _Layout:
    """A spelling with characters at fixed positions; the usual ones are read as bytes."""

    fraction_digits: int | None
    zone: str
    """`""`, `"Z"` or `"+00:00"`."""

    @property
    def length(self) -> int:
        if self.fraction_digits is None:
            return 10
        return self.zone_start + len(self.zone)

    @property
    def zone_start(self) -> int:
        return 19 + (self.fraction_digits + 1 if self.fraction_digits else 0)


_LAYOUTS: Final = (
    _Layout(None, ""),
    *(_Layout(digits, zone) for digits in range(10) for zone in ("", "Z", "+00:00")),
)
_LAYOUT_LENGTH_MAX: Final = max(layout.length for layout in _LAYOUTS)


def _parse(texts: pa.Array) -> _Moments:
    result = _Moments.empty(len(texts))
    data, offsets = _text_parts(texts)
    lengths = np.diff(offsets)
    histogram = np.bincount(np.minimum(lengths, _LAYOUT_LENGTH_MAX + 1))
    for layout in _LAYOUTS:
        if layout.length < len(histogram) and histogram[layout.length]:
            _parse_layout(layout, data, offsets, lengths, result)
    rest = np.flatnonzero(~result.is_valid)
    if len(rest):
        result.put(rest, _parse_by_pattern(texts.take(pa.array(rest))))
    if texts.null_count:
        # A null row may still have bytes.
        present = texts.is_valid().to_numpy(zero_copy_only=False)
        result.is_valid &= present
        result.is_huge &= present
    return result


def _text_parts(texts: pa.Array) -> tuple[Bytes, npt.NDArray[np.int32]]:
    _, offsets_buffer, data_buffer = texts.buffers()
    count = len(texts)
    if not count or data_buffer is None:
        return np.zeros(0, np.uint8), np.zeros(count + 1, np.int32)
    offsets = np.frombuffer(offsets_buffer, np.int32, count + 1, texts.offset * 4)
    return np.frombuffer(data_buffer, np.uint8), offsets


def _parse_layout(
    layout: _Layout,
    data: Bytes,
    offsets: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
    result: _Moments,
) -> None:
    chosen = (lengths == layout.length) & ~result.is_valid
    if chosen.all():
        start = int(offsets[0])
        matrix = data[start : start + len(lengths) * layout.length].reshape(-1, layout.length)
        result.put(slice(None), _read_layout(layout, matrix))
    elif chosen.any():
        rows = np.flatnonzero(chosen)
        matrix = data[offsets[rows, None].astype(np.int64) + np.arange(layout.length)]
        result.put(rows, _read_layout(layout, matrix))


class _Columns:
    """The bytes at each position of equally long texts."""

    def __init__(self, matrix: Bytes) -> None:
        self.places = np.ascontiguousarray(matrix.T)
        self.matches: Mask = np.ones(len(matrix), np.bool_)

    def number(self, start: int, end: int) -> npt.NDArray[np.int32]:
        """Read digits; a row with anything else does not match."""
        value = np.zeros(self.places.shape[1], np.int32)
        for place in range(start, end):
            digit = self.places[place] - np.uint8(ord("0"))
            self.matches &= digit <= 9
            value *= 10
            value += digit
        return value

    def expect(self, place: int, characters: str) -> None:
        byte = self.places[place]
        found = byte == ord(characters[0])
        for other in characters[1:]:
            found |= byte == ord(other)
        self.matches &= found


def _read_layout(layout: _Layout, matrix: Bytes) -> _Moments:
    # Other bytes than digits give nonsense numbers; they fit, and `matches` drops the rows.
    columns = _Columns(matrix)
    year, month, day = columns.number(0, 4), columns.number(5, 7), columns.number(8, 10)
    columns.expect(4, "-")
    columns.expect(7, "-")
    valid = _is_civil(year, month, day)
    days = days_from_civil(year, month, day)
    if layout.fraction_digits is None:
        ms = np.zeros(len(matrix), np.int64)
    else:
        ms, in_day = _read_time(layout, columns)
        valid &= in_day
        if layout.zone == "+00:00":
            offset, in_zone = _read_offset(layout, columns)
            days, ms = _shift(days.astype(np.int64), ms, offset)
            valid &= in_zone
    return _Moments(
        days.astype(np.int64), ms, valid & columns.matches, np.zeros(len(matrix), np.bool_)
    )


def _read_time(layout: _Layout, columns: _Columns) -> tuple[Ints, Mask]:
    columns.expect(10, "Tt ")
    columns.expect(13, ":")
    columns.expect(16, ":")
    hour, minute = columns.number(11, 13), columns.number(14, 16)
    second = columns.number(17, 19)
    ms = hour * 3_600_000 + minute * 60_000 + second * 1_000
    if layout.fraction_digits:
        columns.expect(19, ".")
        kept = min(layout.fraction_digits, 3)
        ms += columns.number(20, 20 + kept) * np.int32(10 ** (3 - kept))
        columns.number(20 + kept, 20 + layout.fraction_digits)
    if layout.zone == "Z":
        columns.expect(layout.zone_start, "Zz")
    return ms.astype(np.int64), (hour < 24) & (minute < 60) & (second <= 60)


def _read_offset(layout: _Layout, columns: _Columns) -> tuple[Ints, Mask]:
    start = layout.zone_start
    columns.expect(start, "+-")
    columns.expect(start + 3, ":")
    hour, minute = columns.number(start + 1, start + 3), columns.number(start + 4, start + 6)
    offset = (hour * 60 + minute).astype(np.int64) * 60_000
    signed = np.where(columns.places[start] == ord("-"), -offset, offset)
    return signed, (hour < 24) & (minute < 60)


def _is_civil(year: _Whole, month: _Whole, day: _Whole) -> Mask:
    in_year = (month >= 1) & (month <= 12)
    valid: Mask = in_year & (day >= 1) & (day <= 28)
    # Only the last days of a month need to know which month and year it is.
    late = np.flatnonzero(in_year & (day > 28))
    if len(late):
        years, months = year[late], month[late]
        leap = (years % 4 == 0) & ((years % 100 != 0) | (years % 400 == 0))
        last = _MONTH_DAYS[months] + (leap & (months == 2))
        valid[late] = day[late] <= last
    return valid


_MONTH_DAYS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

_YEAR: Final = r"(?P<year_sign>[+-]?)(?P<year>\d{4}|\d{5,})"
_MOMENT: Final = (
    rf"^{_YEAR}-(?P<month>\d{{2}})-(?P<day>\d{{2}})[Tt ]"
    r"(?:(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?"
    r"|(?P<hour2>\d{2})(?P<minute2>\d{2})(?P<second2>\d{2}))"
    r"(?:[Zz]| *(?P<zone_sign>[+-])(?P<zone_hour>\d{2})(?::?(?P<zone_minute>\d{2}))?)?$"
)
_DATE: Final = rf"^{_YEAR}-(?P<month>\d{{1,2}})-(?P<day>\d{{1,2}})$"
_COMPACT_DATE: Final = r"^(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})$"


def _parse_by_pattern(texts: pa.Array) -> _Moments:
    result = _Moments.empty(len(texts))
    for pattern in (_MOMENT, _DATE, _COMPACT_DATE):
        groups = pc.extract_regex(texts, pattern)
        rows = np.flatnonzero(groups.is_valid().to_numpy(zero_copy_only=False))
        if len(rows):
            result.put(rows, _read_groups(_Groups(groups.take(pa.array(rows)))))
    return result


class _Groups:
    """Named parts of matching texts; a part that a pattern lacks is empty everywhere."""

    def __init__(self, matches: pa.StructArray) -> None:
        self._parts = dict(
            zip([field.name for field in matches.type], matches.flatten(), strict=True)
        )
        self.count = len(matches)

    def text(self, name: str) -> pa.Array:
        part = self._parts.get(name)
        return pa.repeat("", self.count) if part is None else part.fill_null("")

    def number(self, *names: str) -> Ints:
        """Read the first of `names` that is not empty; 0 if all are."""
        text = self.text(names[0])
        for name in names[1:]:
            text = pc.if_else(pc.equal(text, ""), self.text(name), text)
        return _to_numbers(text)

    def is_text(self, name: str, wanted: str) -> Mask:
        found: Mask = pc.equal(self.text(name), wanted).to_numpy(zero_copy_only=False)
        return found


def _to_numbers(text: pa.Array) -> Ints:
    filled = pc.if_else(pc.equal(text, ""), "0", text)
    numbers: Ints = pc.cast(filled, pa.int64()).to_numpy()
    return numbers


def _read_groups(groups: _Groups) -> _Moments:
    digits = pc.utf8_ltrim(groups.text("year"), "0")
    huge: Mask = pc.greater(pc.binary_length(digits), _YEAR_DIGITS_MAX).to_numpy(
        zero_copy_only=False
    )
    # Every year of ten or more digits is out of range; 2000 stands in, so that 29 February passes.
    year = _to_numbers(pc.if_else(pa.array(huge), "2000", digits))
    year = np.where(groups.is_text("year_sign", "-"), -year, year)
    unsigned_long = pc.greater(pc.binary_length(groups.text("year")), 4).to_numpy(
        zero_copy_only=False
    ) & groups.is_text("year_sign", "")
    month, day = groups.number("month"), groups.number("day")
    hour, minute = groups.number("hour", "hour2"), groups.number("minute", "minute2")
    second = groups.number("second", "second2")
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(groups.text("fraction"), 3, "0"), 0, 3)
    ms = ((hour * 60 + minute) * 60 + second) * 1_000 + _to_numbers(fraction)
    zone_hour, zone_minute = groups.number("zone_hour"), groups.number("zone_minute")
    offset = (zone_hour * 60 + zone_minute) * 60_000
    offset = np.where(groups.is_text("zone_sign", "-"), -offset, offset)
    valid = (
        _is_civil(year, month, day)
        & ~unsigned_long
        & ((hour < 24) & (minute < 60) & (second <= 60))
        & ((zone_hour < 24) & (zone_minute < 60))
    )
    days, ms = _shift(days_from_civil(year, month, day), ms, offset)
    return _Moments(days, ms, valid & ~huge, valid & huge)


def _shift(days: Ints, ms: Ints, offset: Ints) -> tuple[Ints, Ints]:
    """Move a local time to UTC; the milliseconds stay inside of a day."""
    ms = ms - offset
    carry = ms // DAY_MS
    return days + carry, ms - carry * DAY_MS


def _join_days(days: Ints, ms: Ints) -> tuple[Ints, Mask]:
    """Combine days and milliseconds (up to a day and a second); false where 64 bits overflow."""
    if len(days) and days.min() > -_WHOLE_DAYS_MAX and days.max() < _WHOLE_DAYS_MAX:
        return days * DAY_MS + ms, np.ones(len(days), np.bool_)
    # Towards zero, so that the product alone never leaves the range that the sum may still fit.
    before = days < 0
    whole = days + before
    rest = np.where(before, ms - DAY_MS, ms)
    fits = np.abs(whole) <= _WHOLE_DAYS_MAX
    base = np.where(fits, whole, 0) * DAY_MS
    low = np.where(base < 0, _I64.min - np.minimum(base, 0), _I64.min)
    high = np.where(base > 0, _I64.max - np.maximum(base, 0), _I64.max)
    fits &= (rest >= low) & (rest <= high)
    return np.where(fits, base + np.where(fits, rest, 0), 0), fits


# --- writing ---------------------------------------------------------------------------------


def _mask_nulls(texts: pa.Array, column: pa.Array) -> pa.Array:
    if not column.null_count:
        return texts
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.utf8()))


def _spell(days: Ints, ms: Ints | None) -> pa.Array:
    year, month, day = civil_from_days(days)
    size = np.abs(year)
    year_digits = 4 + sum((size >= 10**power).astype(np.int64) for power in range(4, 10))
    is_signed = (year < 0) | (year > 9999)
    groups = year_digits * 2 + is_signed
    parts: list[pa.Array] = []
    order: list[Rows] = []
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        text = _Characters(len(rows))
        if group % 2:
            text.character(np.where(year[rows] < 0, ord("-"), ord("+")))
        text.number(size[rows], int(group // 2))
        text.literal("-").number(month[rows], 2).literal("-").number(day[rows], 2)
        if ms is not None:
            _spell_time(text, ms[rows])
        parts.append(text.finish())
        order.append(rows)
    return _in_order(parts, order)


def _spell_time(text: _Characters, ms: Ints) -> None:
    seconds = ms // 1_000
    text.literal("T").number(seconds // 3_600, 2)
    text.literal(":").number(seconds // 60 % 60, 2)
    text.literal(":").number(seconds % 60, 2)
    text.literal(".").number(ms % 1_000, 3).literal("Z")


def _in_order(parts: list[pa.Array], order: list[Rows]) -> pa.Array:
    if not parts:
        return pa.array([], pa.utf8())
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate(order)
    back = np.empty(len(rows), np.int64)
    back[rows] = np.arange(len(rows))
    return pa.concat_arrays(parts).take(pa.array(back))


class _Characters:
    """Builds texts of equal length, one character of all of them at a time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._places: list[Bytes] = []

    def character(self, codes: npt.NDArray[np.integer]) -> _Characters:
        self._places.append(codes.astype(np.uint8))
        return self

    def literal(self, text: str) -> _Characters:
        self._places += [np.full(self._count, ord(char), np.uint8) for char in text]
        return self

    def number(self, values: Ints, digits: int) -> _Characters:
        # Division is much faster in few bits.
        small: npt.NDArray[Any] = values.astype(
            np.uint8 if digits <= 2 else np.uint16 if digits <= 4 else np.uint32
        )
        for power in range(digits - 1, -1, -1):
            self.character(small // 10**power % 10 + ord("0"))
        return self

    def finish(self) -> pa.Array:
        width = len(self._places)
        offsets = np.arange(self._count + 1, dtype=np.int32) * np.int32(width)
        data = np.ascontiguousarray(np.stack(self._places, axis=1))
        return pa.StringArray.from_buffers(self._count, pa.py_buffer(offsets), pa.py_buffer(data))
