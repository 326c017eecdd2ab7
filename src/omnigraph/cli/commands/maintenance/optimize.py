"""`omnigraph optimize`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_target
from omnigraph.cli.options.engine import engine_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import json_option, type_label

if TYPE_CHECKING:
    from omnigraph.graph import TableReport


@click.command("optimize", cls=ScopedCommand)
@graph_address
@engine_option("Where fragments are rewritten and indexed.")
@click.option(
    "--rebuild-indexes",
    multiple=True,
    metavar="TABLE",
    help="Only build the indexes of this table (node:Person) anew. May be repeated.",
)
@click.option("--branch", help="With --rebuild-indexes: the branch whose table it is.")
@json_option
def command(
    uri: str | None,
    engine: str,
    rebuild_indexes: tuple[str, ...],
    branch: str | None,
    as_json: bool,
) -> None:
    """Compact and index every table of main, in one commit."""
    if branch is not None and not rebuild_indexes:
        raise click.UsageError("--branch needs --rebuild-indexes: tables of main are compacted")
    graph, out = open_target(uri, as_json=as_json)
    with graph:
        if rebuild_indexes:
            report = graph.rebuild_indexes(rebuild_indexes, branch=branch)
        else:
            report = graph.optimize(engine=engine)
        text = "\n".join(_line(table) for table in report.tables)
        out.result(text, {"uri": graph.uri, **report.to_json()})


def _line(table: TableReport) -> str:
    label = type_label(table.table_key)
    if table.skipped is not None:
        return (
            f"{label}: skipped, {table.skipped} (published {table.published_version},"
            f" head {table.head_version}); see `omnigraph repair`"
        )
    done = "nothing to do"
    if table.committed:
        done = f"{table.fragments_removed} fragments became {table.fragments_added}"
        if not table.fragments_removed:
            done = "indexes brought up to date"
    pending = "".join(f"; index on {p.property} pending: {p.reason}" for p in table.pending_indexes)
    return f"{label}: {done}{pending}"
