"""`omnigraph cluster refresh`."""

from __future__ import annotations

import click

from omnigraph.cli.address import storage_options
from omnigraph.cli.options.cluster import config_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.cluster_report import end_with
from omnigraph.cli.output.output import json_option


@click.command("refresh", cls=ScopedCommand)
@config_option
@json_option
def command(config_dir: str, as_json: bool) -> None:
    """Record what is really there; the next plan shows the difference."""
    from omnigraph.cluster.commands.refresh import refresh  # noqa: PLC0415 loads Lance
    from omnigraph.cluster.commands.run import run_declared  # noqa: PLC0415 loads Lance

    end_with(
        config_dir,
        run_declared(config_dir, refresh, storage_options=storage_options()),
        as_json=as_json,
    )
