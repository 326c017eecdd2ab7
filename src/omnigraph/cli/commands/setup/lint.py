"""`omnigraph lint`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import Output

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("lint", cls=ScopedCommand)
@graph_address
@click.option("--query", "query_path", required=True, type=_FILE, help="A file of queries (`.gq`).")
@click.option("--schema", "schema_path", type=_FILE, help="Check against this schema, offline.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(uri: str | None, query_path: Path, schema_path: Path | None, as_json: bool) -> None:
    """Check a file of queries against a schema file, or against the schema of a graph."""
    from omnigraph.graph import lint_files  # noqa: PLC0415 loads the languages

    if schema_path is not None:
        report = lint_files(query_path=query_path, schema_path=schema_path)
    else:
        graph = open_graph(uri, read_only=True)
        report = graph.lint(query_path.read_bytes(), query_path=str(query_path))
    out = Output(as_json=as_json)
    out.details("\n\n".join(problem.render() for problem in report.diagnostics))
    out.result("\n".join(report.lines()), report.as_json())
    sys.exit(1 if report.status == "error" else 0)
