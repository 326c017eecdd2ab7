"""Conversion of single values, written to be obviously right and not to be fast."""

from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

import numpy as np
import orjson

from omnigraph.schema.values.converted import ConversionMode
from omnigraph.values import PropType, Scalar

INTEGER_RANGES = {
    Scalar.I32: (-(2**31), 2**31 - 1, "Int32"),
    Scalar.I64: (-(2**63), 2**63 - 1, "Int64"),
    Scalar.U32: (0, 2**32 - 1, "UInt32"),
    Scalar.U64: (0, 2**64 - 1, "UInt64"),
}
NAMES = {
    Scalar.STRING: "String",
    Scalar.BOOL: "Bool",
    Scalar.F32: "Float32",
    Scalar.F64: "Float64",
    Scalar.DATE: "Date",
    Scalar.DATETIME: "DateTime",
} | {scalar: name for scalar, (_, _, name) in INTEGER_RANGES.items()}
DAY_MS = 86_400_000


class RefusedError(Exception):
    """The value has an error."""


class WrongKindError(Exception):
    """The value is of another JSON kind."""


@dataclass(frozen=True)
class Outcome:
    value: object
    error: str | None


def reference(value: object, prop: PropType, name: str, mode: ConversionMode) -> Outcome:
    try:
        converted = None if value is None else _convert(value, prop, name, mode)
    except RefusedError as error:
        return Outcome(None, str(error))
    if converted is None and not prop.nullable:
        what = {Scalar.BLOB: "blob property", Scalar.VECTOR: "vector property"}
        noun = what.get(prop.scalar, "property")
        return Outcome(None, f"non-nullable {noun} '{name}' has null or invalid values")
    return Outcome(converted, None)


def _convert(value: object, prop: PropType, name: str, mode: ConversionMode) -> object:
    strict = mode is ConversionMode.STRICT
    try:
        if prop.dimension is not None:
            return _vector(value, prop.dimension, name)
        if prop.is_list:
            return _list(value, prop.scalar, name, strict)
        if prop.scalar is Scalar.BLOB:
            return _blob(value, name)
        return _scalar(value, prop.scalar, name, "value")
    except WrongKindError:
        if strict:
            expected = str(prop).rstrip("?") if prop.dimension else NAMES[prop.scalar]
            raise RefusedError(
                f"strict property '{name}' expects {expected}, got {json_text(value)}"
            ) from None
        return None


def json_text(value: object) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 120 else text[:120] + "…"


def _list(value: object, scalar: Scalar, name: str, strict: bool) -> object:
    if not isinstance(value, list):
        raise RefusedError(f"property '{name}' expects a JSON array, got {json_text(value)}")
    items = []
    for item in value:
        try:
            if item is None:
                raise WrongKindError
            items.append(_scalar(item, scalar, name, "list value"))
        except WrongKindError:
            if strict:
                raise RefusedError(f"property '{name}' contains a null or invalid item") from None
            items.append(None)
    return items


def _vector(value: object, dimension: int, name: str) -> object:
    if not isinstance(value, list):
        raise WrongKindError
    if len(value) != dimension:
        raise RefusedError(f"property '{name}' expects {dimension} dimensions, got {len(value)}")
    numbers = []
    for element in value:
        try:
            numbers.append(_scalar(element, Scalar.F32, name, "vector value"))
        except WrongKindError:
            raise RefusedError(f"property '{name}' vector elements must be numeric") from None
    return numbers


def _blob(value: object, name: str) -> object:
    if not isinstance(value, str):
        raise RefusedError(f"property '{name}' must be a URI string or base64: prefixed data")
    if not value.startswith("base64:"):
        return {"data": None, "uri": value}
    text = value.removeprefix("base64:")
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        data = None
    if data is None or base64.b64encode(data).decode() != text:
        raise RefusedError(f"property '{name}' has invalid base64 blob data")
    return {"data": data, "uri": None}


def _scalar(value: object, scalar: Scalar, name: str, noun: str) -> object:
    if isinstance(value, bool):
        if scalar is Scalar.BOOL:
            return value
    elif isinstance(value, str):
        if scalar is Scalar.STRING:
            return value
        if scalar in (Scalar.DATE, Scalar.DATETIME):
            ms = moment(value, NAMES[scalar], name)
            return _temporal(ms // DAY_MS if scalar is Scalar.DATE else ms, scalar, value, name)
    elif isinstance(value, int | float):
        return _number(value, scalar, name, noun)
    raise WrongKindError


def _number(value: float, scalar: Scalar, name: str, noun: str) -> object:
    if scalar is Scalar.F64:
        return float(value)
    if scalar is Scalar.F32:
        rounded = nearest_single(value)
        if math.isinf(rounded):
            raise RefusedError(f"property '{name}' {noun} {json_text(value)} exceeds Float32 range")
        return rounded
    if isinstance(value, int) and scalar in INTEGER_RANGES:
        low, high, type_name = INTEGER_RANGES[scalar]
        if not low <= value <= high:
            raise RefusedError(f"property '{name}' {noun} {value} exceeds {type_name} range")
        return value
    if isinstance(value, int) and scalar in (Scalar.DATE, Scalar.DATETIME):
        return _temporal(value, scalar, value, name)
    raise WrongKindError


def _temporal(number: int, scalar: Scalar, given: object, name: str) -> int:
    limit = 2**31 if scalar is Scalar.DATE else 2**63
    if not -limit <= number < limit:
        shown = json_text(given)
        raise RefusedError(f"property '{name}': {NAMES[scalar]} value out of range: {shown}")
    return number


def nearest_single(value: float) -> float:
    """Round to the nearest F32 by exact comparison with its neighbours."""
    with np.errstate(over="ignore"):
        guess = np.float32(float(value))
        if np.isinf(guess):
            return float(guess)
        around = [np.nextafter(guess, np.float32(side)) for side in (-np.inf, np.inf)]
    finite = [x for x in (guess, *around) if np.isfinite(x)]
    best = min(finite, key=lambda x: (abs(Fraction(float(x)) - Fraction(value)), _is_odd(x)))
    return float(best) if best != 0 else float(guess)


def _is_odd(x: np.float32) -> int:
    return int(x.view(np.uint32)) & 1


YEAR = r"([+-]\d{4,}|\d{4})"
DATE = re.compile(rf"{YEAR}-(\d\d?)-(\d\d?)", re.ASCII)
COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)", re.ASCII)
TIME = re.compile(
    rf"{YEAR}-(\d\d)-(\d\d)[Tt ](?:(\d\d):(\d\d):(\d\d)(?:\.(\d{{1,9}}))?|(\d\d)(\d\d)(\d\d))"
    r"(?:[Zz]| *([+-])(\d\d)(?::?(\d\d))?)?",
    re.ASCII,
)


def moment(text: str, kind: str, name: str) -> int:
    """Milliseconds since the epoch, of any size."""
    shown = text if len(text) <= 120 else text[:120] + "…"
    try:
        return _moment(text)
    except ValueError:
        raise RefusedError(f"property '{name}': invalid {kind} literal '{shown}'") from None


def _moment(text: str) -> int:
    if match := DATE.fullmatch(text) or COMPACT.fullmatch(text):
        return _days(*match.groups()) * DAY_MS
    match = TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    hour, minute, second = match.group(4, 5, 6) if match[4] else match.group(8, 9, 10)
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        raise ValueError(text)
    ms = ((int(hour) * 60 + int(minute)) * 60 + int(second)) * 1000
    ms += int((match[7] or "").ljust(3, "0")[:3])
    zone_hour, zone_minute = int(match[12] or 0), int(match[13] or 0)
    if zone_hour > 23 or zone_minute > 59:
        raise ValueError(text)
    offset = (zone_hour * 60 + zone_minute) * 60_000 * (-1 if match[11] == "-" else 1)
    return _days(match[1], match[2], match[3]) * DAY_MS + ms - offset


def _days(year: str, month: str, day: str) -> int:
    # The calendar repeats every 400 years = 146,097 days; `date` knows the years 1 to 9999.
    cycles, rest = divmod(int(year), 400)
    within = date(rest + 2000, int(month), int(day)).toordinal() - date(2000, 1, 1).toordinal()
    to_2000 = date(2000, 1, 1).toordinal() - date(1970, 1, 1).toordinal()
    return within + to_2000 + (cycles - 5) * 146_097


def parse_json(line: str) -> object:
    """Decode one line as the loader does."""
    return orjson.loads(line)


def show_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
