"""`omnigraph graphs …`: what a server serves."""

from __future__ import annotations

import click

from omnigraph.cli.address import (
    ConflictingAddressError,
    NoGraphAddressedError,
    resolve_scope,
    server_token,
)
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.output.output import Output, json_option
from omnigraph.texts import redacted


@click.group("graphs", cls=ScopedGroup)
def command() -> None:
    """See the graphs of a server."""


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the graphs that a server serves, with the roots that they have there."""
    from omnigraph.client import served_graphs  # noqa: PLC0415 loads Lance

    try:
        scope = resolve_scope()
    except NoGraphAddressedError as error:
        raise ConflictingAddressError(
            "`graphs list` needs a server scope: give `--server <name|url>` or `--profile <name>`"
        ) from error
    if scope.kind == "cluster":
        raise ConflictingAddressError(
            f"`graphs list` requires a server and {redacted(scope.target)} is a cluster:"
            " `omnigraph cluster status` shows what is applied there"
        )
    if scope.kind != "server":
        raise ConflictingAddressError(
            f"`graphs list` requires a server and {scope.target} is none:"
            " give `--server <name|url>` or `--profile <name>`"
        )
    found = served_graphs(scope.target, token=server_token(scope.target))
    text = "\n".join(f"{one['graph_id']}\t{one['uri']}" for one in found)
    Output(as_json=as_json).result(text or "(no graphs)", {"graphs": found})
