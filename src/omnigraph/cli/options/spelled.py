"""Durations and shares as they are written on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

_T = TypeVar("_T")

_DURATION: Final = re.compile(r"([0-9]+)([smhdw]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PERCENTAGE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")


def parse_duration(text: str) -> int:
    """Return the seconds of `90`, `90s`, `15m`, `12h`, `30d` or `2w`.

    >>> parse_duration(" 2w "), parse_duration("90")
    (1209600, 90)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"'{text}' is not a duration: give a whole number and s, m, h, d or w, such as 30d"
        )
    return int(found[1]) * _SECONDS[found[2]]


def parse_share(text: str) -> float:
    """Return the share that a percentage means.

    >>> parse_share("5%"), parse_share(" 0.5 % ")
    (0.05, 0.005)
    """
    found = _PERCENTAGE.fullmatch(text.strip())
    share = float(found[1]) / 100 if found is not None else 0.0
    if not 0 < share <= 1:
        raise ValueError(f"'{text}' is not a share: give a percentage above 0 and up to 100, as 5%")
    return share


class _Spelled(click.ParamType[_T]):
    """The type of an option whose text a function reads; a wrong one is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], _T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _T:
        """Return what the text means; a default is a value already."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = _Spelled("duration", parse_duration)
SHARE: Final = _Spelled("percentage", parse_share)
