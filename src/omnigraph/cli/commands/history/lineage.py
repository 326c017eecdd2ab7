"""`omnigraph lineage …`."""

from __future__ import annotations

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.output.lineage_report import trace_text
from omnigraph.cli.output.output import Output, json_option


@click.group("lineage", cls=ScopedGroup)
def command() -> None:
    """See which jobs and inputs rows came from, and send commits as OpenLineage events."""


@command.command("show")
@graph_address
@click.argument("subject", metavar="COMMIT|Type[.property]|Type:id")
@click.option("--up", "direction", flag_value="up", default=True, help="What it came from.")
@click.option("--down", "direction", flag_value="down", help="What read it.")
@click.option("--branch", default="main", show_default=True, help="The branch of the type or row.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Show at most these."
)
@json_option
def show(
    uri: str | None, subject: str, direction: str, branch: str, limit: int, as_json: bool
) -> None:
    """Show the commits that a commit, a type, a property or a row came from, or that read it."""
    graph = open_graph(uri, read_only=True)
    trace = graph.lineage.show(subject, direction=direction, branch=branch, limit=limit)
    Output(as_json=as_json).result(trace_text(trace), trace.to_json())


@command.command("emit")
@graph_address
@click.option(
    "--to", "target", metavar="file:DIR|URL", help="Where to; by default $OMNIGRAPH_LINEAGE."
)
@click.option("--since", metavar="COMMIT", help="Only commits after this one.")
@click.option("--branch", default="main", show_default=True, help="The branch.")
@json_option
def emit(
    uri: str | None, target: str | None, since: str | None, branch: str, as_json: bool
) -> None:
    """Send the OpenLineage events of a branch; they may be sent again at any time."""
    graph = open_graph(uri, read_only=True)
    emitted = graph.lineage.emit(target, since=since, branch=branch)
    text = f"sent {emitted.sent} events to {emitted.target}"
    if emitted.failed:
        text += f"; {emitted.failed} could not be sent"
    Output(as_json=as_json).result(text, emitted.to_json())
