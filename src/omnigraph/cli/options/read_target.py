"""The state that a read is run on: the head of a branch, or a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.options.together import together

if TYPE_CHECKING:
    from omnigraph.graph import ReadTarget


target_options = together(
    click.option("--branch", help="Read the head of this branch (default: main)."),
    click.option("--snapshot", metavar="ID", help="Read the graph as this commit left it."),
)


def read_target(branch: str | None, snapshot: str | None) -> ReadTarget:
    """Return what the options name; both at once are an error."""
    from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

    if branch is not None and snapshot is not None:
        raise click.UsageError("--branch and --snapshot are mutually exclusive")
    return ReadTarget.snapshot(snapshot) if snapshot else ReadTarget.branch(branch or "main")
