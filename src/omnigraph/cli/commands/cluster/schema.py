"""`omnigraph cluster schema`."""

from __future__ import annotations

import click

from omnigraph.cli.options.flags import ScopedCommand


@click.command("schema", cls=ScopedCommand)
def command() -> None:
    """Print the JSON Schema of `cluster.yaml`, for editors that complete and check YAML."""
    from omnigraph.cluster.write_example import schema_text  # noqa: PLC0415 loads the languages

    click.echo(schema_text(), nl=False)
