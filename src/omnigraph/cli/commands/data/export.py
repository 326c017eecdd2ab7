"""`omnigraph export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_graph, refuse_served_spark
from omnigraph.cli.options.engine import engine_options, spark_session, wants_spark
from omnigraph.cli.options.flags import ScopedCommand, flags
from omnigraph.cli.options.together import choice_option
from omnigraph.cli.output.output import Output

if TYPE_CHECKING:
    from omnigraph.graph import ExportResult


@click.command("export", cls=ScopedCommand)
@graph_address
@click.option("--branch", default="main", show_default=True, help="The branch.")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Only this type; repeatable.")
@choice_option(
    "--format", "export_format", known=["jsonl", "parquet", "csv"], help="What the files are."
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="An empty or new folder; without it JSONL goes to standard output.",
)
@engine_options("Where the files are written from.")
@click.option("--jsonl", "old_jsonl", is_flag=True, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print what was exported as JSON.")
def command(
    uri: str | None,
    branch: str,
    types: tuple[str, ...],
    export_format: str,
    out: Path | None,
    engine: str,
    spark_master: str | None,
    spark_remote: str | None,
    old_jsonl: bool,
    as_json: bool,
) -> None:
    """Write all nodes and edges of a branch; load takes them back."""
    from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

    if old_jsonl:
        click.echo("warning: --jsonl has no effect; use --format jsonl", err=True)
    on_spark = wants_spark(engine, spark_master=spark_master, spark_remote=spark_remote)
    if out is None and (export_format != "jsonl" or on_spark or as_json):
        raise click.UsageError("--format parquet and csv, --engine spark and --json need --out DIR")
    refuse_served_spark(uri, on_spark=on_spark)
    graph = open_graph(uri, read_only=True)
    target = ReadTarget.branch(branch)
    if out is None:
        for line in graph.export_lines(types=types, target=target):
            click.echo(line, nl=False)
        return
    session = spark_session(spark_master=spark_master, spark_remote=spark_remote)
    result = graph.export(
        out,
        format=export_format,
        types=types,
        target=target,
        engine=engine,
        spark=session,
        progress=not flags().quiet,
    )
    Output(as_json=as_json).result(_text(result), {"uri": graph.uri, **result.to_json()})


def _text(result: ExportResult) -> str:
    files = len(result.files)
    return (
        f"exported {result.rows} entities of commit {result.commit_id} to {result.out}"
        f" ({files} {'file' if files == 1 else 'files'}, {result.engine})"
    )
