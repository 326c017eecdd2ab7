"""`omnigraph query`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import open_graph, operator
from omnigraph.cli.flags import ScopedCommand
from omnigraph.cli.formats import READ_FORMATS, TableStyle, read_lines
from omnigraph.cli.output import Output
from omnigraph.cli.query_input import query_input, read_params, read_query
from omnigraph.cli.streams import terminal_width

if TYPE_CHECKING:
    from pathlib import Path

    from omnigraph.cli.formats import CellLayout, ReadFormat
    from omnigraph.graph import QueryResult

_BYTES_PER_MIB = 1024**2


@click.command("query", cls=ScopedCommand)
@query_input
@click.option("--branch", help="Read the head of this branch (default: main).")
@click.option("--snapshot", metavar="ID", help="Read the graph as this commit left it.")
@click.option("--format", "form", type=click.Choice(READ_FORMATS), help="The output form.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--explain", is_flag=True, help="Show how it would be answered, and stop.")
@click.option("--profile", is_flag=True, help="Show on stderr how it was answered.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS")
@click.option("--max-rows", "rows_max", type=click.IntRange(min=0), metavar="N")
@click.option("--memory", "memory_mib", type=click.IntRange(min=1), metavar="MIB")
def command(
    name: str | None,
    query_path: Path | None,
    query_text: str | None,
    params_text: str | None,
    params_path: Path | None,
    branch: str | None,
    snapshot: str | None,
    form: ReadFormat | None,
    as_json: bool,
    explain: bool,
    profile: bool,
    timeout_s: float | None,
    rows_max: int | None,
    memory_mib: int | None,
) -> None:
    """Run a read query.

    NAME picks one of several queries. A query that exceeds a limit is an error, never a part of
    the answer.
    """
    from omnigraph.graph import MEMORY_MAX_DEFAULT, ReadTarget  # noqa: PLC0415 loads Lance

    if as_json and form is not None:
        raise click.UsageError("--json and --format are mutually exclusive")
    if branch is not None and snapshot is not None:
        raise click.UsageError("--branch and --snapshot are mutually exclusive")
    text = read_query(name=name, query_path=query_path, query_text=query_text)
    params = read_params(params_text=params_text, params_path=params_path)
    target = ReadTarget.snapshot(snapshot) if snapshot else ReadTarget.branch(branch or "main")
    result = open_graph(read_only=True).query(
        text,
        name,
        params,
        target=target,
        explain=explain,
        profile=profile,
        timeout_s=timeout_s,
        rows_max=rows_max,
        memory_max=MEMORY_MAX_DEFAULT if memory_mib is None else memory_mib * _BYTES_PER_MIB,
    )
    chosen = "json" if as_json else form or _default_form()
    _print(result, chosen, explain=explain, profile=profile)


def _default_form() -> ReadFormat:
    return next((form for form in READ_FORMATS if form == operator().output), "table")


def _style() -> TableStyle:
    settings = operator()
    layout: CellLayout = "wrap" if settings.cell_layout == "wrap" else "truncate"
    return TableStyle(settings.column_width_max, layout, terminal_width())


def _print(result: QueryResult, form: ReadFormat, *, explain: bool, profile: bool) -> None:
    if explain and not profile:
        out = Output(as_json=form in ("json", "jsonl"))
        out.result(result.explanation_text(), result.explanation())
        return
    shape = result.envelope()
    if profile and form == "json":
        shape |= result.explanation()
    elif profile:
        click.echo(result.explanation_text(), err=True)
    for line in read_lines(shape, form, _style()):
        click.echo(line)
