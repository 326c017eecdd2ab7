"""Arrow columns from parquet, pandas, polars or Spark become stored columns.

Encodings (dictionaries, run ends, views, large offsets) do not matter; the kind of the column does:

| property | accepted columns |
|---|---|
| String, enum | text |
| Bool | boolean |
| I32 I64 U32 U64 | integers; floats and decimals whose value is whole |
| F32 F64 | integers, floats, decimals, rounded to nearest |
| Date | integers (days), dates, timestamps (the day in UTC), text |
| DateTime | integers (milliseconds), dates, timestamps, text |
| Vector(n) | lists of numbers |
| [T] | lists of what T accepts |
| Blob | binary; text as in JSON; struct of `data` and `uri` |

Timestamps without a zone are in UTC; what is finer than a millisecond is dropped and counted. NaN
and infinities of float columns are values and stay. A number that does not fit is a row in error,
never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.values import codes
from omnigraph.schema.values.blobs import blob_column, blobs_of_texts
from omnigraph.schema.values.converted import ConversionMode, Converted, refuse_nulls
from omnigraph.schema.values.lists import (
    lift_item_errors,
    list_column,
    not_numeric,
    refuse_dimensions,
    vector_column,
)
from omnigraph.schema.values.numeric import (
    Integers,
    exact_integers,
    nullable,
    to_single,
    valid_mask,
)
from omnigraph.schema.values.row_errors import ErrorLog, Mask
from omnigraph.schema.values.scalars import TYPE_NAMES, Subject, moment_column, parse_moments
from omnigraph.schema.values.temporal import DAY_MS, Parsed, floor_to_days
from omnigraph.values import BLOB_STORAGE, PropType, Scalar


def convert_arrow(
    column: pa.Array | pa.ChunkedArray,
    prop: PropType,
    name: str,
    mode: ConversionMode = ConversionMode.STRICT,
) -> Converted:
    """Convert a typed column of the property `name`; rows in error are null.

    >>> convert_arrow(pa.array([1.0, 2.5]), PropType(Scalar.I32), "p").errors.to_pylist()
    [None, "property 'p' value 2.5 is not a whole number"]
    """
    plain = plain_encoding(column)
    log = ErrorLog(len(plain))
    work = _Work(Subject(name, mode), log)
    converted = _column(plain, prop, work)
    if not prop.nullable:
        refuse_nulls(converted, prop, name, log)
    return Converted.of(converted, log, work.truncated_count)


def plain_encoding(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Undo chunks, dictionaries, run ends, views, extension types and large offsets of text.

    Whole numbers of an extension type stay what they are: what they stand for is known to their
    type alone. The months of a pandas period, say, are no days.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        is_code = pa.types.is_integer(column.storage.type)
        return column if is_code else plain_encoding(column.storage)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain_encoding(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain_encoding(pc.run_end_decode(column))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.utf8())
    if pa.types.is_binary_view(kind) or _is_binary(kind):
        return column.cast(pa.large_binary())
    return column.cast(pa.float32()) if pa.types.is_float16(kind) else column


class _Work:
    """What travels through the conversion of one column."""

    def __init__(self, subject: Subject, log: ErrorLog) -> None:
        self.subject = subject
        self.log = log
        self.truncated_count = 0

    def refuse_column(self, column: pa.Array, expected: str) -> None:
        """Record that the whole column is of another kind, if this mode refuses that."""
        if not self.subject.is_strict:
            return
        if self.subject.is_item:
            code, message = codes.INVALID_ITEM, "contains a null or invalid item"
            message = f"property '{self.subject.name}' {message}"
        else:
            code = codes.WRONG_KIND
            message = f"strict property '{self.subject.name}' expects {expected}, got a column of "
            message += str(column.type)
        self.log.add_mask(valid_mask(column), code, message)


def _column(column: pa.Array, prop: PropType, work: _Work) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), prop.arrow_type)
    if prop.dimension is not None:
        return _vectors(column, prop, work)
    if prop.is_list:
        return _lists(column, prop, work)
    if prop.scalar is Scalar.BLOB:
        return _blobs(column, work)
    return _scalars(column, prop.scalar, work)


def _scalars(column: pa.Array, scalar: Scalar, work: _Work) -> pa.Array:
    kind = column.type
    if scalar is Scalar.STRING and pa.types.is_string(kind):
        return column
    if scalar is Scalar.BOOL and pa.types.is_boolean(kind):
        return column
    if scalar.is_integer and _is_number(kind):
        return _to_integers(column, scalar, work)
    if scalar.is_float and _is_number(kind):
        return _to_floats(column, scalar, work)
    if scalar in (Scalar.DATE, Scalar.DATETIME) and _is_moment_source(kind):
        return _to_moments(column, scalar, work)
    work.refuse_column(column, TYPE_NAMES[scalar])
    return pa.nulls(len(column), PropType(scalar).arrow_type)


# --- numbers ---------------------------------------------------------------------------------


def _to_integers(column: pa.Array, scalar: Scalar, work: _Work) -> pa.Array:
    valid = valid_mask(column)
    numbers, broken = _whole_numbers(column)
    # A number with a fraction may also be too large; the message names the fraction first.
    work.log.add_mask(
        broken & valid,
        codes.LOSSY,
        lambda row: f"{work.subject.value} {column[row].as_py()} is not a whole number",
    )
    outside = numbers.outside(scalar) & valid & ~broken
    _refuse_range(outside, column, TYPE_NAMES[scalar], work)
    return nullable(numbers.cast(scalar), valid & ~outside & ~broken)


def _refuse_range(outside: Mask, column: pa.Array, expected: str, work: _Work) -> None:
    work.log.add_mask(
        outside,
        codes.OUT_OF_RANGE,
        lambda row: f"{work.subject.value} {column[row].as_py()} exceeds {expected} range",
    )


def _whole_numbers(column: pa.Array) -> tuple[Integers, Mask]:
    """Read numbers of any type exactly; the mask marks those with a fraction, NaN included."""
    nothing_broken = np.zeros(len(column), np.bool_)
    if pa.types.is_uint64(column.type):
        numbers = column.fill_null(0).to_numpy()
        bits = numbers.view(np.int64)
        return Integers(bits, is_above=bits < 0), nothing_broken
    if pa.types.is_integer(column.type):
        return Integers(column.fill_null(0).to_numpy().astype(np.int64)), nothing_broken
    if pa.types.is_decimal(column.type):
        return _whole_decimals(column)
    return _whole_doubles(column.fill_null(0).to_numpy().astype(np.float64))


_TWO_63: Final = 2.0**63
_TWO_64: Final = 2.0**64


def _whole_doubles(doubles: npt.NDArray[np.float64]) -> tuple[Integers, Mask]:
    with np.errstate(invalid="ignore"):
        broken: Mask = doubles != np.trunc(doubles)
    broken |= np.isnan(doubles)
    beyond = (doubles < -_TWO_63) | (doubles >= _TWO_64)
    above = (doubles >= _TWO_63) & ~beyond
    low = np.where(broken | beyond | above, 0.0, doubles).astype(np.int64)
    high = np.where(above, doubles, 0.0).astype(np.uint64).view(np.int64)
    return Integers(np.where(above, high, low), is_above=above, is_beyond=beyond), broken


def _whole_decimals(column: pa.Array) -> tuple[Integers, Mask]:
    for arrow_type in (pa.int64(), pa.uint64()):
        try:
            return _whole_numbers(column.cast(arrow_type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # Some value has a fraction or is too large, or the scale is negative.
            continue
    return _whole_python_decimals(column.to_pylist())


def _whole_python_decimals(values: Sequence[Decimal | None]) -> tuple[Integers, Mask]:
    whole = [None if value is None else value.to_integral_value() for value in values]
    broken = np.fromiter(
        (value != near for value, near in zip(values, whole, strict=True)), np.bool_, len(values)
    )
    integers, _ = exact_integers([None if value is None else int(value) for value in whole])
    return integers, broken


def _to_floats(column: pa.Array, scalar: Scalar, work: _Work) -> pa.Array:
    valid = valid_mask(column)
    if pa.types.is_integer(column.type):
        integers, _ = _whole_numbers(column)
        width: type[Any] = np.float64 if scalar is Scalar.F64 else np.float32
        return nullable(integers.rounded(width), valid)
    if pa.types.is_decimal(column.type):
        column = _decimals_to_doubles(column)
    doubles = column.fill_null(0).to_numpy().astype(np.float64)
    if scalar is Scalar.F64:
        return nullable(doubles, valid)
    singles = to_single(doubles)
    outside = np.isinf(singles) & np.isfinite(doubles)
    _refuse_range(outside, column, TYPE_NAMES[scalar], work)
    return nullable(singles, valid & ~outside)


def _decimals_to_doubles(column: pa.Array) -> pa.Array:
    # Arrow's own cast multiplies by a rounded power of ten; the text route rounds once.
    return pc.cast(pc.cast(column, pa.utf8()), pa.float64())


# --- dates and moments -----------------------------------------------------------------------

_UNITS_PER_MS: Final[dict[str, int]] = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def _to_moments(column: pa.Array, scalar: Scalar, work: _Work) -> pa.Array:
    parsed = _read_moments(column, scalar, work)
    present, values = valid_mask(column), _Lazy(column)
    return moment_column(
        parsed, scalar, work.log, present=present, values=values, name=work.subject.name
    )


class _Lazy(Sequence[object]):
    """The rows of a column as Python values, made when a message asks for them."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        kind = self._column.type
        if pa.types.is_temporal(kind):
            # Such moments may be out of range for Python too, so their number is shown.
            numbers = self._column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
            return numbers[index].as_py()
        return self._column[index].as_py()


def _read_moments(column: pa.Array, scalar: Scalar, work: _Work) -> Parsed:
    kind = column.type
    is_date = scalar is Scalar.DATE
    if pa.types.is_string(kind):
        return parse_moments(column, scalar)
    if pa.types.is_integer(kind):
        integers, _ = _whole_numbers(column)
        outside = integers.outside(Scalar.I32 if is_date else Scalar.I64)
        return Parsed(np.where(outside, 0, integers.bits), ~outside, outside)
    if pa.types.is_date32(kind):
        days = column.view(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
        return _all_valid(days if is_date else days * DAY_MS)
    moments, fits = _milliseconds(column, work)
    if is_date:
        days = floor_to_days(moments)
        fits &= (days >= -(2**31)) & (days < 2**31)
        return Parsed(np.where(fits, days, 0), fits, ~fits)
    return Parsed(moments, fits, ~fits)


def _all_valid(values: npt.NDArray[np.int64]) -> Parsed:
    return Parsed(values, np.ones(len(values), np.bool_), np.zeros(len(values), np.bool_))


def _milliseconds(column: pa.Array, work: _Work) -> tuple[npt.NDArray[np.int64], Mask]:
    """Read date64 and timestamps; false where seconds are too many for milliseconds."""
    raw = column.view(pa.int64()).fill_null(0).to_numpy()
    unit = "ms" if pa.types.is_date64(column.type) else column.type.unit
    if unit == "s":
        limit = (2**63 - 1) // 1_000
        fits = (raw >= -limit) & (raw <= limit)
        return np.where(fits, raw, 0) * 1_000, fits
    moments = raw // _UNITS_PER_MS[unit]
    work.truncated_count += int(np.count_nonzero(moments * _UNITS_PER_MS[unit] != raw))
    return moments, np.ones(len(raw), np.bool_)


# --- arrays ----------------------------------------------------------------------------------


def _lists(column: pa.Array, prop: PropType, work: _Work) -> pa.Array:
    if not _is_list(column.type):
        message = f"property '{work.subject.name}' expects a JSON array, got a column of "
        work.log.add_mask(valid_mask(column), codes.NOT_AN_ARRAY, message + str(column.type))
        return pa.nulls(len(column), prop.arrow_type)
    rows, offsets, items = _flatten(column)
    item_work = _Work(work.subject.items("list value"), ErrorLog(len(items)))
    converted = _column(items, PropType(prop.scalar, nullable=True), item_work)
    if work.subject.is_strict:
        message = f"property '{work.subject.name}' contains a null or invalid item"
        item_work.log.add_mask(~valid_mask(items), codes.INVALID_ITEM, message)
    work.truncated_count += item_work.truncated_count
    lift_item_errors(item_work.log, offsets, rows, work.log)
    return list_column(converted, offsets, rows, prop, work.log)


def _vectors(column: pa.Array, prop: PropType, work: _Work) -> pa.Array:
    dimension = cast("int", prop.dimension)
    if not _is_list(column.type):
        work.refuse_column(column, f"Vector({dimension})")
        return pa.nulls(len(column), prop.arrow_type)
    rows, offsets, items = _flatten(column)
    lengths = np.diff(offsets)
    fitting = lengths == dimension
    refuse_dimensions(rows[~fitting], lengths[~fitting], dimension, work.subject.name, work.log)
    if not fitting.all():
        items = items.filter(pa.array(np.repeat(fitting, lengths)))
    item_work = _Work(work.subject.items("vector value"), ErrorLog(len(items)))
    message = not_numeric(work.subject.name)
    item_work.log.add_mask(~valid_mask(items), codes.NOT_NUMERIC, message)
    if _is_number(items.type):
        elements = _to_floats(items, Scalar.F32, item_work)
    else:
        item_work.log.add_mask(np.ones(len(items), np.bool_), codes.NOT_NUMERIC, message)
        elements = pa.nulls(len(items), pa.float32())
    return vector_column(elements, rows[fitting], prop, item_work.log, work.log)


def _flatten(
    column: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], pa.Array]:
    """Return the rows that have an array, the offsets of these arrays, and all their items."""
    rows = np.flatnonzero(valid_mask(column))
    present = column.drop_null()
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(pc.list_value_length(present).to_numpy(zero_copy_only=False), out=offsets[1:])
    return rows, offsets, plain_encoding(present.flatten())


# --- blobs -----------------------------------------------------------------------------------


def _blobs(column: pa.Array, work: _Work) -> pa.Array:
    kind = column.type
    name = work.subject.name
    if pa.types.is_string(kind):
        return blobs_of_texts(column, name, work.log)
    if pa.types.is_large_binary(kind):
        uris = pa.nulls(len(column), pa.utf8())
        return blob_column(column, uris, valid_mask(column))
    if kind == BLOB_STORAGE:
        data, uris = column.flatten()
        both_or_none = pc.equal(data.is_null(), uris.is_null()).to_numpy(zero_copy_only=False)
        message = f"property '{name}' needs either data or uri, found both or neither"
        work.log.add_mask(both_or_none & valid_mask(column), codes.NOT_A_BLOB, message)
        return blob_column(data, uris, valid_mask(column) & ~work.log.bad)
    message = f"property '{name}' must be a URI string or base64: prefixed data"
    work.log.add_mask(valid_mask(column), codes.NOT_A_BLOB, message)
    return pa.nulls(len(column), BLOB_STORAGE)


# --- kinds of columns ------------------------------------------------------------------------

_IS_NUMBER: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
)


def _is_number(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _IS_NUMBER)


def _is_moment_source(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)
    return any(test(kind) for test in tests)


def _is_list(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(test(kind) for test in tests)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))
