"""`omnigraph query`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from omnigraph.cli.address import graph_address_in_flags, open_graph, operator
from omnigraph.cli.options.flags import ScopedCommand, flags
from omnigraph.cli.options.query_input import QueryInput, query_input
from omnigraph.cli.options.read_target import read_target, target_options
from omnigraph.cli.output.formats import FILE_FORMATS, READ_FORMATS, TableStyle, read_lines
from omnigraph.cli.output.output import Output
from omnigraph.cli.output.streams import say, terminal_width
from omnigraph.clock import SystemClock

if TYPE_CHECKING:
    from omnigraph.cli.output.formats import FileFormat, ReadFormat
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph, QueryResult

_BYTES_PER_MIB: Final = 1024**2
_LOOKS_S: Final = 0.5
"""How often a watched branch is polled: one small read each time."""


@click.command("query", cls=ScopedCommand)
@graph_address_in_flags
@query_input
@target_options
@click.option(
    "--format",
    "form",
    type=click.Choice([*READ_FORMATS, *FILE_FORMATS]),
    help="The output form; arrow and parquet need --out.",
)
@click.option(
    "--out",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file that --format arrow or parquet writes.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--explain", is_flag=True, help="Show how it would be answered, and stop.")
@click.option("--analyze", is_flag=True, help="Show on stderr how it was answered.")
@click.option("--watch", is_flag=True, help="Answer again after each commit, until interrupted.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Give up after so long.",
)
@click.option(
    "--max-rows",
    "rows_max",
    type=click.IntRange(min=0),
    metavar="N",
    help="Refuse an answer of more rows.",
)
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Refuse to hold more than so much.",
)
def command(
    given: QueryInput,
    branch: str | None,
    snapshot: str | None,
    form: ReadFormat | FileFormat | None,
    path: Path | None,
    as_json: bool,
    explain: bool,
    analyze: bool,
    watch: bool,
    timeout_s: float | None,
    rows_max: int | None,
    memory_mib: int | None,
) -> None:
    """Run a read query.

    NAME picks one of several queries. A query that exceeds a limit is an error, never a part of
    the answer.
    """
    from omnigraph.graph import MEMORY_MAX_DEFAULT  # noqa: PLC0415 loads Lance

    if as_json and form is not None:
        raise click.UsageError("--json and --format are mutually exclusive")
    if (path is not None) != (form in FILE_FORMATS):
        raise click.UsageError("--format arrow and parquet go with --out FILE, and only they do")
    if watch and (snapshot is not None or path is not None or explain):
        raise click.UsageError("--watch is for the newest state of a branch, on standard output")
    target = read_target(branch, snapshot)
    text, params = given.source(), given.params()
    # Only a server has stored queries, which have no text here.
    graph = cast("RemoteGraph", open_graph(read_only=True))

    def answer() -> QueryResult:
        return graph.query(
            text,
            given.name,
            params,
            target=target,
            explain=explain,
            profile=analyze,
            timeout_s=timeout_s,
            rows_max=rows_max,
            memory_max=MEMORY_MAX_DEFAULT if memory_mib is None else memory_mib * _BYTES_PER_MIB,
        )

    if path is not None:
        _write(answer(), form, path, analyze=analyze)
        return
    chosen: ReadFormat = "json" if as_json else _text_form(form)

    def show() -> str:
        result = answer()
        print_result(result, chosen, explain=explain, analyze=analyze)
        return result.graph_commit_id

    if watch:
        _watch(graph, branch or "main", show)
    else:
        show()


def _watch(graph: Graph | RemoteGraph, branch: str, show: Callable[[], str]) -> None:
    """Show the result now, and again after each commit; `show` returns the commit it has read."""
    clock = SystemClock()
    try:
        while True:
            seen = show()
            sys.stdout.flush()
            while graph.head_commit_id_for_branch(branch) == seen:
                clock.sleep(_LOOKS_S)
            click.echo()
    except KeyboardInterrupt:
        # The usual way to end watching; nothing is left unfinished.
        return


def _text_form(form: ReadFormat | FileFormat | None) -> ReadFormat:
    return next((known for known in READ_FORMATS if known == form), operator().output or "table")


def _write(
    result: QueryResult, form: ReadFormat | FileFormat | None, path: Path, *, analyze: bool
) -> None:
    result.write(path, "arrow" if form == "arrow" else "parquet")
    if analyze:
        say(result.explanation_text(), err=True)
    if not flags().quiet:
        say(f"wrote {result.row_count} rows to {path}", err=True)


def print_result(result: QueryResult, form: ReadFormat, *, explain: bool, analyze: bool) -> None:
    """Print the answer to a read, or how it would be found."""
    if explain and not analyze:
        out = Output(as_json=form in ("json", "jsonl"))
        out.result(result.explanation_text(), result.explanation())
        return
    shape = result.envelope()
    if analyze and form == "json":
        shape |= result.explanation()
    elif analyze:
        say(result.explanation_text(), err=True)
    settings = operator()
    style = TableStyle(settings.column_width_max, settings.cell_layout, terminal_width())
    for line in read_lines(shape, form, style):
        if form == "csv" and sys.stdout.isatty():
            say(line)
        else:
            # Without the flag, click removes from the values what looks like a colour.
            click.echo(line, color=True)
