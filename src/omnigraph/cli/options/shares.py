"""Shares as they are written on the command line."""

from __future__ import annotations

import re
from typing import Any, Final

import click

_PERCENTAGE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")


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


class Share(click.ParamType[float]):
    """A share option; a wrong one is a usage error."""

    name = "percentage"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share."""
        if isinstance(value, float):
            return value
        try:
            return parse_share(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
