"""`omnigraph cluster status`."""

from __future__ import annotations

import click

from omnigraph.cli.address import storage_options
from omnigraph.cli.options.cluster import config_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.cluster_report import end_with
from omnigraph.cli.output.output import json_option


@click.command("status", cls=ScopedCommand)
@config_option
@json_option
def command(config_dir: str, as_json: bool) -> None:
    """Show what is applied, who holds the lock, and what was not finished."""
    from omnigraph.cluster.commands.run import run_stored  # noqa: PLC0415 loads Lance
    from omnigraph.cluster.commands.status import status  # noqa: PLC0415 loads Lance

    end_with(
        config_dir,
        run_stored(config_dir, status, storage_options=storage_options()),
        as_json=as_json,
    )
