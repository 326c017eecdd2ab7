"""`omnigraph sql`."""

from __future__ import annotations

from base64 import b64encode
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.address import graph_address, open_graph, operator
from omnigraph.cli.options.engine import spark_options, wants_spark
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.formats import READ_FORMATS, TableStyle, read_lines
from omnigraph.cli.output.streams import terminal_width

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.cli.output.formats import ReadFormat


@click.command("sql", cls=ScopedCommand)
@graph_address
@click.option("-e", "statement", required=True, metavar="SQL", help="The statement.")
@click.option("--branch", default="main", show_default=True, help="The branch.")
@click.option("--prefix", default="og_", show_default=True, help="What names of views begin with.")
@spark_options
@click.option("--format", "form", type=click.Choice(READ_FORMATS), help="The output form.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def command(
    uri: str | None,
    statement: str,
    branch: str,
    prefix: str,
    spark_master: str | None,
    spark_remote: str | None,
    form: ReadFormat | None,
    as_json: bool,
) -> None:
    """Ask a graph in Spark SQL; every type is a view, such as og_Person.

    All views show one commit, the head of the branch. The whole answer is brought to this process:
    put a LIMIT into the statement where there may be many rows.
    """
    from omnigraph.spark import attach, get_spark  # noqa: PLC0415 loads Spark
    from omnigraph.spark.failures import translated  # noqa: PLC0415 as above

    if as_json and form is not None:
        raise click.UsageError("--json and --format are mutually exclusive")
    wants_spark("spark", spark_master=spark_master, spark_remote=spark_remote)
    address = open_graph(uri, read_only=True).uri
    spark = get_spark(master=spark_master, remote=spark_remote)
    attach(spark, address, prefix, branch=branch)
    with translated("sql"):
        answer = spark.sql(statement).toArrow()
    chosen: ReadFormat = "json" if as_json else form or operator().output or "table"
    style = TableStyle(operator().column_width_max, operator().cell_layout, terminal_width())
    for line in read_lines(_shape(answer, branch), chosen, style):
        click.echo(line, color=True)


def _shape(answer: pa.Table, branch: str) -> dict[str, Any]:
    rows = answer.to_pylist()
    return {
        "query_name": "sql",
        "target": {"branch": branch, "snapshot": None},
        "row_count": answer.num_rows,
        "columns": answer.column_names,
        "rows": [{name: _plain(value) for name, value in row.items()} for row in rows],
    }


def _plain(value: Any) -> Any:
    """Return a value of Spark as JSON has it.

    >>> _plain([Decimal("1.50"), date(2026, 3, 6), b"a"])
    ['1.50', '2026-03-06', 'YQ==']
    """
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | timedelta) else value
