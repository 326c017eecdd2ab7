"""`@default(<literal>)`: what fills a property that a record leaves out.

The literal arrives as text, because all values of annotations do; the property's type decides how
it is read. A negative number is written as a string, `@default("-1")`, since literals take no sign.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from omnigraph.schema.catalog import Annotation
from omnigraph.values import PropType, Scalar

DefaultValue = str | int | float | bool

DEFAULT_ANNOTATION: Final = "default"

_INTEGER: Final = re.compile(r"-?[0-9]+")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_FLOAT32_MAX: Final = 3.4028234663852886e38
# Half a unit in the last place above the largest F32: from here on, rounding gives infinity.
_FLOAT32_OVERFLOW: Final = _FLOAT32_MAX + 2.0**103
_DIGITS_MAX: Final = 400

_INTEGER_RANGE: Final[dict[Scalar, tuple[int, int]]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}


def default_text(annotations: Iterable[Annotation]) -> str | None:
    """Return the literal of the `@default` annotation, if there is one with a value."""
    return next(
        (annotation.value for annotation in annotations if annotation.name == DEFAULT_ANNOTATION),
        None,
    )


def read_default(prop_type: PropType, text: str) -> DefaultValue:
    """Read a default as a JSON value that the type accepts; `ValueError` says why it cannot.

    Dates and times stay text: they are written as in a load file, as strings.

    >>> read_default(PropType(Scalar.I32), "-7")
    -7
    >>> read_default(PropType(Scalar.BOOL), "yes")
    Traceback (most recent call last):
    ValueError: expected true or false, got 'yes'
    """
    if prop_type.is_list or prop_type.is_vector:
        raise ValueError(f"a {prop_type} property takes no @default, a literal is one value")
    if prop_type.enum_values is not None:
        return _one_of(prop_type.enum_values, text)
    if prop_type.scalar is Scalar.BOOL:
        return _boolean(text)
    if prop_type.scalar.is_integer:
        return _integer(prop_type.scalar, text)
    if prop_type.scalar.is_float:
        return _float(prop_type.scalar, text)
    return text


def _one_of(values: tuple[str, ...], text: str) -> str:
    if text not in values:
        raise ValueError(f"expected one of {', '.join(values)}, got '{text}'")
    return text


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"expected true or false, got '{text}'")
    return text == "true"


def _integer(scalar: Scalar, text: str) -> int:
    low, high = _INTEGER_RANGE[scalar]
    if len(text) <= _DIGITS_MAX and _INTEGER.fullmatch(text):
        value = int(text)
        if low <= value <= high:
            return value
    raise ValueError(f"expected an integer from {low} to {high}, got '{text}'")


def _float(scalar: Scalar, text: str) -> float:
    if len(text) <= _DIGITS_MAX and _NUMBER.fullmatch(text):
        value = float(text)
        limit = _FLOAT32_OVERFLOW if scalar is Scalar.F32 else math.inf
        if abs(value) < limit:
            return value
    raise ValueError(f"expected a number that {scalar} can hold, got '{text}'")
