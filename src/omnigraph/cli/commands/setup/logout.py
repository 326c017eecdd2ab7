"""`omnigraph logout`."""

from __future__ import annotations

import click

from omnigraph.cli.config.credentials import credentials_path, forget_token
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import Output, json_option


@click.command("logout", cls=ScopedCommand)
@click.argument("name")
@json_option
def command(name: str, as_json: bool) -> None:
    """Forget the token of a server; without one nothing happens."""
    forget_token(name)
    shape = {"server": name, "credentials_path": str(credentials_path())}
    Output(as_json=as_json).result(f"{credentials_path()} has no token of {name}", shape)
