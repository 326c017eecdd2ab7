"""Single values: text, truth, numbers, dates and moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.schema.values import codes
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.schema.values.json_batch import JsonBatch, Kind
from omnigraph.schema.values.numeric import (
    BOUNDS,
    exact_integers,
    nullable,
    to_single,
    valid_mask,
)
from omnigraph.schema.values.row_errors import ErrorLog, Mask, cut, json_text, quoting
from omnigraph.schema.values.temporal import Parsed, parse_dates, parse_datetimes
from omnigraph.values import Scalar

TYPE_NAMES: Final[dict[Scalar, str]] = {
    Scalar.STRING: "String",
    Scalar.BOOL: "Bool",
    Scalar.I32: "Int32",
    Scalar.I64: "Int64",
    Scalar.U32: "UInt32",
    Scalar.U64: "UInt64",
    Scalar.F32: "Float32",
    Scalar.F64: "Float64",
    Scalar.DATE: "Date",
    Scalar.DATETIME: "DateTime",
    Scalar.BLOB: "Blob",
}
"""How messages spell the types: the words of Arrow where widths matter."""


@dataclass(frozen=True)
class Subject:
    """What is being converted: the property, how strictly, and whether as items of its lists."""

    name: str
    mode: ConversionMode
    noun: str = "value"

    def items(self, noun: str) -> Subject:
        """Return the subject for the items of an array property."""
        return replace(self, noun=noun)

    @property
    def is_item(self) -> bool:
        """Whether the values are items of arrays."""
        return self.noun != "value"

    @property
    def is_strict(self) -> bool:
        """Whether values of another kind are refused."""
        return self.mode is ConversionMode.STRICT

    @property
    def value(self) -> str:
        """The words before a number in a message about its size."""
        return f"property '{self.name}' {self.noun}"

    def refuse_kinds(
        self, batch: JsonBatch, accepted: tuple[Kind, ...], expected: str, log: ErrorLog
    ) -> None:
        """Record the values of other kinds, if this mode refuses them."""
        if not self.is_strict:
            return
        if self.is_item:
            message = f"property '{self.name}' contains a null or invalid item"
            log.add(batch.nulls(), codes.INVALID_ITEM, message)
            log.add(batch.others(*accepted), codes.INVALID_ITEM, message)
            return
        log.add(
            batch.others(*accepted),
            codes.WRONG_KIND,
            quoting(f"strict property '{self.name}' expects {expected}, got {{}}", batch.values),
        )

    def refuse_range(
        self, outside: Mask, expected: str, values: Sequence[object], log: ErrorLog
    ) -> None:
        """Record numbers that the type cannot hold."""
        log.add_mask(
            outside,
            codes.OUT_OF_RANGE,
            quoting(f"{self.value} {{}} exceeds {expected} range", values),
        )


def convert_scalars(batch: JsonBatch, scalar: Scalar, subject: Subject, log: ErrorLog) -> pa.Array:
    """Convert values of one scalar type other than Blob."""
    direct = batch.as_only(_DIRECT[scalar]) if scalar in _DIRECT else None
    subject.refuse_kinds(batch, _ACCEPTED[scalar], TYPE_NAMES[scalar], log)
    if scalar is Scalar.STRING:
        return _strings(batch, subject, log) if direct is None else direct
    if scalar is Scalar.BOOL:
        return pa.array(batch.keep(Kind.BOOL), pa.bool_()) if direct is None else direct
    if scalar.is_integer:
        return _integers(batch, scalar, subject, log)
    if scalar.is_float:
        return _floats(batch, scalar, subject, log)
    parsed = _mixed_moments(batch, scalar) if direct is None else parse_moments(direct, scalar)
    present = batch.mask(Kind.INTEGER, Kind.STRING) if direct is None else valid_mask(direct)
    return moment_column(
        parsed, scalar, log, present=present, values=batch.values, name=subject.name
    )


_DIRECT: Final = {
    Scalar.STRING: Kind.STRING,
    Scalar.BOOL: Kind.BOOL,
    Scalar.DATE: Kind.STRING,
    Scalar.DATETIME: Kind.STRING,
}
_NUMBERS: Final = (Kind.INTEGER, Kind.DOUBLE)
_ACCEPTED: Final[dict[Scalar, tuple[Kind, ...]]] = {
    Scalar.STRING: (Kind.STRING,),
    Scalar.BOOL: (Kind.BOOL,),
    **dict.fromkeys(BOUNDS, (Kind.INTEGER,)),
    Scalar.F32: _NUMBERS,
    Scalar.F64: _NUMBERS,
    Scalar.DATE: (Kind.INTEGER, Kind.STRING),
    Scalar.DATETIME: (Kind.INTEGER, Kind.STRING),
}


def _strings(batch: JsonBatch, subject: Subject, log: ErrorLog) -> pa.Array:
    values = batch.keep(Kind.STRING)
    texts, broken = text_column(values)
    if broken is not None:
        log.add_mask(
            broken, codes.INVALID_TEXT, f"property '{subject.name}' is not valid Unicode text"
        )
    return texts


def text_column(values: Sequence[object]) -> tuple[pa.Array, Mask | None]:
    """Build a utf8 column; the mask marks texts without a UTF-8 form, which become null.

    JSON never gives such texts, but Python callers can.
    """
    try:
        return pa.array(values, pa.utf8()), None
    except UnicodeEncodeError:
        broken = np.fromiter(map(_is_broken, values), np.bool_, len(values))
        kept = np.fromiter(values, object, len(values))
        kept[broken] = None
        return pa.array(kept.tolist(), pa.utf8()), broken


def _is_broken(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _integers(batch: JsonBatch, scalar: Scalar, subject: Subject, log: ErrorLog) -> pa.Array:
    values = batch.keep(Kind.INTEGER)
    numbers, valid = exact_integers(values)
    outside = numbers.outside(scalar) & valid
    subject.refuse_range(outside, TYPE_NAMES[scalar], values, log)
    return nullable(numbers.cast(scalar), valid & ~outside)


def _floats(batch: JsonBatch, scalar: Scalar, subject: Subject, log: ErrorLog) -> pa.Array:
    column = _exact_doubles(batch)
    if column is not None:
        doubles, valid = column.fill_null(0.0).to_numpy(), valid_mask(column)
        numbers = doubles if scalar is Scalar.F64 else to_single(doubles)
        beyond = np.zeros(len(batch), np.bool_)
    else:
        doubles, numbers, valid, beyond = _mixed_floats(batch, scalar)
    finite = np.isfinite(doubles)
    _refuse_infinite(~finite, batch.values, subject, log)
    outside = (~np.isfinite(numbers) & finite) | beyond
    subject.refuse_range(outside, TYPE_NAMES[scalar], batch.values, log)
    return nullable(numbers, valid & finite & ~outside)


def _exact_doubles(batch: JsonBatch) -> pa.Array | None:
    """Return the values as doubles, unless there are other kinds or integers that need rounding."""
    if not batch.has_only(*_NUMBERS):
        return None
    try:
        return pa.array(batch.values, pa.float64())
    except (ValueError, OverflowError):
        return None


def _refuse_infinite(
    infinite: Mask, values: Sequence[object], subject: Subject, log: ErrorLog
) -> None:
    def message(row: int) -> str:
        return f"{subject.value} {values[row]} must be finite"

    log.add_mask(infinite, codes.NOT_FINITE, message)


def _mixed_floats(
    batch: JsonBatch, scalar: Scalar
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.floating], Mask, Mask]:
    """Return doubles, numbers of the wanted width, where there is one, where it is too large."""
    doubles = np.zeros(len(batch), np.float64)
    beyond = np.zeros(len(batch), np.bool_)
    double_rows, double_values = batch.subset(Kind.DOUBLE)
    doubles[double_rows] = np.array(double_values, np.float64)
    numbers: npt.NDArray[np.floating] = doubles if scalar is Scalar.F64 else to_single(doubles)
    # Integers are rounded once, straight to the wanted width: through F64 to F32 would be twice.
    integer_rows, integer_values = batch.subset(Kind.INTEGER)
    integers, _ = exact_integers(integer_values)
    numbers[integer_rows] = integers.rounded(np.float64 if scalar is Scalar.F64 else np.float32)
    if integers.is_beyond is not None:
        beyond[integer_rows] = integers.is_beyond
    return doubles, numbers, batch.mask(*_NUMBERS), beyond


def parse_moments(texts: pa.Array, scalar: Scalar) -> Parsed:
    """Read texts as dates or moments."""
    return parse_dates(texts) if scalar is Scalar.DATE else parse_datetimes(texts)


def _mixed_moments(batch: JsonBatch, scalar: Scalar) -> Parsed:
    count = len(batch)
    result = Parsed(np.zeros(count, np.int64), *(np.zeros(count, np.bool_) for _ in range(2)))
    rows, values = batch.subset(Kind.INTEGER)
    if len(rows):
        integers, _ = exact_integers(values)
        outside = integers.outside(Scalar.I32 if scalar is Scalar.DATE else Scalar.I64)
        result.values[rows] = integers.bits
        result.is_valid[rows] = ~outside
        result.is_out_of_range[rows] = outside
    rows, values = batch.subset(Kind.STRING)
    if len(rows):
        texts, _ = text_column(values)
        parsed = parse_moments(texts, scalar)
        result.values[rows] = parsed.values
        result.is_valid[rows] = parsed.is_valid
        result.is_out_of_range[rows] = parsed.is_out_of_range
    return result


def moment_column(
    parsed: Parsed,
    scalar: Scalar,
    log: ErrorLog,
    *,
    present: Mask,
    values: Sequence[object],
    name: str,
) -> pa.Array:
    """Build a date32 or date64 column, and record texts that are out of range or not a date."""
    kind = TYPE_NAMES[scalar]
    log.add_mask(
        parsed.is_out_of_range & present,
        codes.TEMPORAL_OUT_OF_RANGE,
        lambda row: f"property '{name}': {kind} value out of range: {json_text(values[row])}",
    )
    log.add_mask(
        ~parsed.is_valid & ~parsed.is_out_of_range & present,
        codes.INVALID_LITERAL,
        lambda row: f"property '{name}': invalid {kind} literal '{cut(str(values[row]))}'",
    )
    valid = parsed.is_valid & present
    if scalar is Scalar.DATE:
        return nullable(parsed.values.astype(np.int32), valid).view(pa.date32())
    return nullable(parsed.values, valid).view(pa.date64())
