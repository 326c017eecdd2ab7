"""`omnigraph init`."""

from __future__ import annotations

from pathlib import Path

import click

from omnigraph.cli.address import storage_options
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.streams import say


@click.command("init", cls=ScopedCommand)
@click.argument("uri")
@click.option(
    "--schema",
    "schema_path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The schema (`.pg`) of the new graph.",
)
@click.option("--force", is_flag=True, help="Replace leftover schema files, never a graph.")
def command(uri: str, schema_path: Path, force: bool) -> None:
    """Make a new graph at URI."""
    from omnigraph.graph import init_from_file  # noqa: PLC0415 loads Lance

    init_from_file(uri, schema_path, force=force, storage_options=storage_options())
    say(f"initialized {uri}")
