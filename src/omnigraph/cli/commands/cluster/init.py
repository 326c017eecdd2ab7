"""`omnigraph cluster init`."""

from __future__ import annotations

from pathlib import Path

import click

from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.cluster_report import end_with_report
from omnigraph.cli.output.output import json_option


@click.command("init", cls=ScopedCommand)
@click.argument("directory", metavar="[DIR]", default=".")
@json_option
def command(directory: str, as_json: bool) -> None:
    """Write a small cluster to begin with into DIR (default: the current folder).

    A graph with a schema, stored queries and policies, and a JSON Schema for editors. No file is
    replaced.
    """
    from omnigraph.cluster.write_example import write_example  # noqa: PLC0415 loads the languages

    names = write_example(Path(directory))
    end_with_report(
        config_dir=directory,
        diagnostics=(),
        lines=[
            *(f"wrote {Path(directory) / name}" for name in names),
            f"next: `omnigraph cluster validate --config {directory}`",
        ],
        members={"files": list(names)},
        as_json=as_json,
    )
