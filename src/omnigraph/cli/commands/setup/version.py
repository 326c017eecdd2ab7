"""`omnigraph version`."""

from __future__ import annotations

from importlib.metadata import version

import click

from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.names import INTERNAL_SCHEMA_VERSION


@click.command("version", cls=ScopedCommand)
def command() -> None:
    """Show the version."""
    click.echo(f"omnigraph {version('omnigraph')}")
    click.echo(f"internal-schema {INTERNAL_SCHEMA_VERSION}")
