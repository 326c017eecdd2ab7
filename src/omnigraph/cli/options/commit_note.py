"""What the commit of a command says: `--message` and `--property`; and how often it is tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from omnigraph.cli.options.together import together


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, has_value, value = text.partition("=")
        if not has_value or not name:
            raise click.UsageError(f"--property {text}: expected KEY=VALUE")
        if name in found:
            raise click.UsageError(f"--property {name} is given twice")
        found[name] = value
    return found


commit_options: Final[Callable[[Callable[..., Any]], Callable[..., Any]]] = together(
    click.option("-m", "--message", metavar="TEXT", help="What the commit says about itself."),
    click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_pairs,
        help="A property that the commit keeps; repeatable.",
    ),
)
"""Adds `message` and `properties`."""

retries_option: Final[Callable[[Callable[..., Any]], Callable[..., Any]]] = click.option(
    "--retries",
    type=click.IntRange(min=0, max=1000),
    default=0,
    metavar="N",
    help="After a lost race, run it again on the new state, up to N times.",
)
