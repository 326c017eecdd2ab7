"""`omnigraph cluster validate`."""

from __future__ import annotations

import click

from omnigraph.cli.options.cluster import config_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.cluster_report import end_with_report
from omnigraph.cli.output.output import json_option


@click.command("validate", cls=ScopedCommand)
@config_option
@json_option
def command(config_dir: str, as_json: bool) -> None:
    """Check everything that `cluster.yaml` and the files beside it declare; nothing is changed."""
    from omnigraph.cluster.load_desired import load_desired  # noqa: PLC0415 loads the languages

    desired = load_desired(config_dir)
    end_with_report(
        config_dir=desired.config_dir,
        diagnostics=desired.diagnostics,
        lines=[],
        members={},
        as_json=as_json,
    )
