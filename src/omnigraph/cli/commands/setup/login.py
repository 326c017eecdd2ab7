"""`omnigraph login`."""

from __future__ import annotations

import sys

import click

from omnigraph.cli.address import operator
from omnigraph.cli.config.credentials import credentials_path, store_token
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import Output, json_option


@click.command("login", cls=ScopedCommand)
@click.argument("name")
@click.option("--token", help="The token; by default it is read as one line from stdin.")
@json_option
def command(name: str, token: str | None, as_json: bool) -> None:
    """Keep the token of a server, in a file that only you may read."""
    if token is None:
        token = sys.stdin.readline()
    store_token(name, token)
    declared = name in operator().servers
    if not declared:
        click.echo(f"note: {operator().path} has no servers.{name}.url yet", err=True)
    shape = {"server": name, "credentials_path": str(credentials_path()), "declared": declared}
    Output(as_json=as_json).result(f"kept the token of {name} in {credentials_path()}", shape)
