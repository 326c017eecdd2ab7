"""The values of one request: its parameters and its time."""

from __future__ import annotations

from typing import TypeAlias

from omnigraph.dataclass import dataclass
from omnigraph.query.params import BoundValue, Params
from omnigraph.query.plan.plan import (
    DATETIME_TYPE,
    Constant,
    ConstantValue,
    CurrentTime,
    ParameterValue,
)

Bound: TypeAlias = Constant | ParameterValue | CurrentTime
"""A value that does not depend on the row."""


@dataclass(frozen=True)
class Bindings:
    """What parameters and `now()` stand for during one request.

    >>> Bindings({}, now_ms=5).value_of(CurrentTime()).value
    5
    """

    params: Params
    now_ms: int
    """`now()` in milliseconds since 1970-01-01 UTC: one moment, also across retries."""

    def value_of(self, value: Bound) -> BoundValue:
        """Return what a value of the plan stands for."""
        match value:
            case Constant(constant, prop_type):
                return BoundValue(constant, prop_type)
            case CurrentTime():
                return BoundValue(self.now_ms, DATETIME_TYPE)
            case ParameterValue(name):
                return self.params[name]

    def integer(self, value: Bound) -> int | None:
        """Return a whole number of the request; null is None."""
        found = self.value_of(value).value
        return None if found is None else int(_single(found))

    def text(self, value: Bound) -> str | None:
        """Return a text of the request; null is None."""
        found = self.value_of(value).value
        return None if found is None else str(found)


def no_bindings(now_ms: int) -> Bindings:
    """Return the values of a request without parameters."""
    return Bindings({}, now_ms)


def _single(value: ConstantValue) -> str | int | float | bool:
    if isinstance(value, tuple):
        raise TypeError("a list is not a single value")
    return value
