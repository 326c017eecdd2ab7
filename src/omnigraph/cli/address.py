"""Which graph a command means."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from omnigraph.errors import InvalidInputError

if TYPE_CHECKING:
    from omnigraph.graph import Graph


class NoGraphAddressedError(InvalidInputError):
    """A command needs a graph and was given none."""

    code = "OG-NO-GRAPH"
    hint = "give a URI, or `--store URI`"

    def __init__(self) -> None:
        super().__init__("no graph addressed: give a URI, or `--store URI`")


class ConflictingAddressError(InvalidInputError):
    """A command was given two graphs."""

    code = "OG-ADDRESS"

    def __init__(self, problem: str) -> None:
        super().__init__(problem)


def graph_address(*, positional: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the ways to address one graph to a command: a URI (positional or `--uri`), `--store`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option("--store", metavar="URI", help="Address one graph by its root.")(
            command
        )
        if positional:
            return click.argument("uri", required=False)(command)
        return click.option("--uri", metavar="URI", help="Address one graph by its root.")(command)

    return decorate


def resolve_address(uri: str | None, store: str | None) -> str:
    """Return the root that was addressed."""
    if uri and store:
        raise ConflictingAddressError(f"URI {uri} and --store {store} are mutually exclusive")
    address = uri or store
    if not address:
        raise NoGraphAddressedError
    if address.startswith(("http://", "https://")):
        raise ConflictingAddressError(
            f"{address} is a server; this command opens storage directly: give the root of a graph"
        )
    return address


def open_graph(uri: str | None, store: str | None, *, read_only: bool) -> Graph:
    """Open the addressed graph; it is closed when the command ends, which tidies up after it."""
    from omnigraph.graph import Graph, OpenMode  # noqa: PLC0415 loads Lance

    mode = OpenMode.READ_ONLY if read_only else OpenMode.READ_WRITE
    graph = Graph.open(resolve_address(uri, store), mode=mode)
    click.get_current_context().call_on_close(graph.close)
    return graph
