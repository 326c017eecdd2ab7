"""Durations as they are written on the command line."""

from __future__ import annotations

import re
from typing import Any, Final

import click

_DURATION: Final = re.compile(r"([0-9]+)([smhdw]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


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


class Duration(click.ParamType[int]):
    """A duration option; a wrong one is a usage error."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds."""
        if isinstance(value, int):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
