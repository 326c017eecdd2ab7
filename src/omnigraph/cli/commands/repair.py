"""`omnigraph repair`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.flags import ScopedCommand
from omnigraph.cli.output import Output, json_option, type_label
from omnigraph.names import MAIN
from omnigraph.wire.outcomes import EXIT_FAILURE

if TYPE_CHECKING:
    from omnigraph.graph import TableRepair


@click.command("repair", cls=ScopedCommand)
@graph_address(positional=True)
@click.option("--confirm", is_flag=True, help="Publish drift that is verified upkeep.")
@click.option("--force", is_flag=True, help="With --confirm: publish all other drift as well.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    uri: str | None,
    confirm: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Look for versions that came from outside, and publish what an operator accepts."""
    if force and not confirm:
        raise click.UsageError("--force needs --confirm")
    with open_graph(uri, read_only=not confirm) as graph:
        out = Output(as_json=as_json)
        out.write_target("repair", graph.uri)
        report = graph.repair(confirm=confirm, force=force)
        text = "\n".join(_line(table) for table in report.tables)
        out.result(text, {"uri": graph.uri, **report.to_json()})
    if report.has_refusals:
        context.exit(EXIT_FAILURE)


def _line(table: TableRepair) -> str:
    label = type_label(table.table_key)
    if table.branch != MAIN:
        label = f"{label} on branch '{table.branch}'"
    problem = f"; {table.error}" if table.error else ""
    if table.action == "no_op":
        return f"{label}: no drift{problem}"
    found = ", ".join(table.operations) or "unreadable"
    return (
        f"{label}: {table.classification} ({found}) between published"
        f" {table.published_version} and head {table.head_version}: {table.action}{problem}"
    )
