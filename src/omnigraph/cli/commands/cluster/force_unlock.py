"""`omnigraph cluster force-unlock`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import storage_options
from omnigraph.cli.options.cluster import config_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.cluster_report import end_with
from omnigraph.cli.output.output import json_option

if TYPE_CHECKING:
    from omnigraph.cluster.commands.frame import Report, Workplace
    from omnigraph.cluster.diagnostics import Diagnostic


@click.command("force-unlock", cls=ScopedCommand)
@click.argument("lock_id")
@config_option
@json_option
def command(lock_id: str, config_dir: str, as_json: bool) -> None:
    """Remove the lock of a command that no longer runs."""
    from omnigraph.cluster.commands.run import run_stored  # noqa: PLC0415 loads Lance
    from omnigraph.cluster.commands.status import force_unlock  # noqa: PLC0415 loads Lance

    def unlock(work: Workplace, found: tuple[Diagnostic, ...]) -> Report:
        return force_unlock(work, lock_id, found)

    end_with(
        config_dir,
        run_stored(config_dir, unlock, storage_options=storage_options()),
        as_json=as_json,
    )
