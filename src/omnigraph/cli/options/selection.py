"""The options by which commands select changes and page through them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.options.together import together

if TYPE_CHECKING:
    from omnigraph.graph import Selection


page_size = click.option(
    "--limit",
    type=click.IntRange(1, 8192),
    default=1000,
    show_default=True,
    help="How many changes a page has.",
)


selection_options = together(
    click.option(
        "--kind",
        "kinds",
        multiple=True,
        type=click.Choice(["node", "edge"]),
        help="Only nodes, or only edges.",
    ),
    click.option("--type", "types", multiple=True, metavar="T", help="Only this type; repeatable."),
    click.option(
        "--op",
        "ops",
        multiple=True,
        type=click.Choice(["insert", "update", "delete"]),
        help="Only changes of this kind; repeatable.",
    ),
)


def selected(kinds: tuple[str, ...], types: tuple[str, ...], ops: tuple[str, ...]) -> Selection:
    """Return the selection that the options name; an option that was not given selects all."""
    from omnigraph.graph import Selection  # noqa: PLC0415 loads Lance

    return Selection.of(kinds or None, types or None, ops or None)
