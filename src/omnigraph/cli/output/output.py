"""The one object through which commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.options.flags import flags, words_of
from omnigraph.cli.output.json_writer import json_text
from omnigraph.cli.output.streams import say
from omnigraph.texts import on_one_line
from omnigraph.wire import error_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.errors import OmnigraphError


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
"""The option by which most commands choose the form of their output."""


def type_label(type_key: str) -> str:
    """Name a dataset for people.

    >>> type_label("node:Person")
    "node type 'Person'"
    """
    kind, colon, name = type_key.partition(":")
    return f"{kind} type '{name}'" if colon else type_key


def pair_lines(values: Mapping[str, object]) -> str:
    r"""Return a line for each value that is known.

    >>> pair_lines({"kind": "inline", "size": 3, "uri": None})
    'kind: inline\nsize: 3'
    """
    known = {name: value for name, value in values.items() if value is not None}
    return "\n".join(f"{name}: {on_one_line(str(value))}" for name, value in known.items())


class Output:
    """Text for people, or JSON for programs."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def result(self, text: str, shape: Mapping[str, object] | Sequence[object]) -> None:
        """Print a result in the form that was asked for."""
        if self._as_json:
            click.echo(json_text(shape, indent=2))
        else:
            say(text)

    def event(self, text: str, shape: Mapping[str, object]) -> None:
        """Print one of several results as it comes: as JSON, each is a line."""
        if self._as_json:
            click.echo(json_text(shape))
        else:
            say(text)

    def details(self, text: str) -> None:
        """Print an explanation for people on stderr; programs have the JSON."""
        if text and not self._as_json:
            say(text + "\n", err=True)

    def write_target(self, uri: str) -> None:
        """Print on stderr what is about to be written to, unless `--quiet` is given."""
        if flags().quiet:
            return
        command = " ".join(words_of(click.get_current_context()))
        access = "direct, local"
        if uri.startswith(("http://", "https://")):
            access = "served"
        elif "://" in uri and not uri.startswith("file:"):
            access = "direct, remote"
        say(f"omnigraph {command} → {uri} ({access})", err=True)

    def engine(self, name: str, reason: str = "") -> None:
        """Print on stderr that another engine than this process has done the work, and why."""
        if name != "local" and not flags().quiet:
            say(f"engine: {name} ({reason})" if reason else f"engine: {name}", err=True)

    def error(self, error: OmnigraphError) -> None:
        """Print an error: its positions and hint for people, one JSON object for programs."""
        if self._as_json:
            click.echo(json_text(error_json(error), indent=2), err=True)
            return
        render = getattr(error, "render", None)
        text = render() if render else f"error: {error}"
        say(text, err=True)
        if error.hint and error.hint not in text:
            say(f"hint: {error.hint}", err=True)
