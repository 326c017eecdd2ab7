"""What `omnigraph load` reads: graph records, or tables of one type each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final, TypeAlias

import click

from omnigraph.cli.options.together import together

TABLE_FORMATS: Final = ("parquet", "csv", "json", "orc")

LoadInput: TypeAlias = "BinaryIO | list[str] | dict[str, Any]"


input_options = together(
    click.option(
        "--data",
        multiple=True,
        metavar="FILE",
        help="Graph records, one JSON object per line: files, folders, globs, or - for"
        " standard input; with --node or --edge the table of that type.",
    ),
    click.option("--node", "nodes", multiple=True, metavar="TYPE[=FILE]", help="A table of nodes."),
    click.option("--edge", "edges", multiple=True, metavar="TYPE[=FILE]", help="A table of edges."),
    click.option(
        "--format",
        "form",
        type=click.Choice(["jsonl", *TABLE_FORMATS]),
        help="What the files are; by default jsonl, and parquet for tables.",
    ),
    click.option(
        "--map",
        "mapping",
        multiple=True,
        metavar="PROPERTY=COLUMN",
        help="Fill a property from a column or a Spark SQL expression; for one table.",
    ),
)
"""The ways to name the input of a load."""


def load_input(
    *,
    data: Sequence[str],
    nodes: Sequence[str],
    edges: Sequence[str],
    form: str | None,
    mapping: Sequence[str],
) -> LoadInput:
    """Return the input that the options name."""
    tables = [_table(text, data) for text in (*nodes, *edges)]
    if not tables:
        return _records(data, form, mapping)
    if form == "jsonl":
        raise click.UsageError("--format jsonl is for graph records: leave --node and --edge out")
    if mapping and len(tables) > 1:
        raise click.UsageError("--map is for one table: load the others without it")
    if data and len(tables) > 1:
        raise click.UsageError("several tables need a file each: --node TYPE=FILE")
    columns = dict(_pair(text) for text in mapping)
    return {name: _source(path, form or "parquet", columns) for name, path in tables}


def _records(data: Sequence[str], form: str | None, mapping: Sequence[str]) -> BinaryIO | list[str]:
    if not data:
        raise click.UsageError("Missing option '--data'.")
    if mapping or form not in (None, "jsonl"):
        raise click.UsageError("--map and table formats need --node TYPE or --edge TYPE")
    return sys.stdin.buffer if tuple(data) == ("-",) else list(data)


def _table(text: str, data: Sequence[str]) -> tuple[str, str]:
    """Return type and file of a table."""
    name, has_file, path = text.partition("=")
    if has_file and path:
        return name, path
    if len(data) != 1:
        raise click.UsageError(f"give the table of {name} as {name}=FILE, or with one --data")
    return name, data[0]


def _source(path: str, form: str, columns: Mapping[str, str]) -> object:
    """Describe a source; plain parquet is just its path, which every engine reads."""
    if form == "parquet" and not columns:
        return path
    source: dict[str, object] = {"format": form, "path": path}
    if form == "csv":
        source["options"] = {"header": "true"}
    if columns:
        source["map"] = dict(columns)
    return source


def _pair(text: str) -> tuple[str, str]:
    name, found, expression = text.partition("=")
    if not found or not name or not expression:
        raise click.UsageError(f"--map {text}: expected PROPERTY=COLUMN")
    return name, expression
