"""`omnigraph cluster apply`."""

from __future__ import annotations

from functools import partial

import click

from omnigraph.cli.address import acting, storage_options
from omnigraph.cli.options.cluster import config_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.cluster_report import end_with
from omnigraph.cli.output.output import json_option


@click.command("apply", cls=ScopedCommand)
@config_option
@json_option
def command(config_dir: str, as_json: bool) -> None:
    """Make graphs and catalog what the files declare, and record it."""
    from omnigraph.cluster.commands.apply import apply  # noqa: PLC0415 loads Lance
    from omnigraph.cluster.commands.run import run_declared  # noqa: PLC0415 loads Lance

    end_with(
        config_dir,
        run_declared(config_dir, partial(apply, actor=acting()), storage_options=storage_options()),
        as_json=as_json,
    )
