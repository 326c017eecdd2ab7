"""Options that commands share: several that go together, and one of a few words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import click

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Return one decorator that adds options, in the order in which help lists them."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        return reduce(lambda made, option: option(made), reversed(options), command)

    return decorate


def choice_option(*names: str, known: Sequence[str], help: str) -> Decorator:  # noqa: A002
    """Return an option that takes one of some words, by default the first."""
    return click.option(
        *names,
        type=click.Choice(known),
        default=known[0],
        show_default=True,
        help=help,
    )
