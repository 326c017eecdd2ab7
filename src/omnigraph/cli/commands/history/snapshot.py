"""`omnigraph snapshot`."""

from __future__ import annotations

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import Output, json_option


@click.command("snapshot", cls=ScopedCommand)
@graph_address
@click.option("--branch", default="main", show_default=True, help="The branch.")
@json_option
def command(uri: str | None, branch: str, as_json: bool) -> None:
    """Show which version of which dataset a branch publishes."""
    from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

    snapshot = open_graph(uri, read_only=True).snapshot_of(ReadTarget.branch(branch))
    shape = snapshot.to_json()
    lines = [f"branch {branch} at manifest version {snapshot.manifest_version}"]
    lines += [
        f"{d['entity_kind']} type '{d['type_name']}': {d['entity_count']} entities,"
        f" version {d['published_dataset_version']}"
        for d in shape["datasets"]
    ]
    Output(as_json=as_json).result("\n".join(lines), shape)
