"""What `omnigraph load` reads: graph records, an exported folder, or tables of one type each."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final, TypeAlias

import click

from omnigraph.cli.options.together import together

FORMATS: Final = ("jsonl", "json", "csv", "tsv", "parquet", "arrow", "orc")
"""As `omnigraph.write.load.formats.kinds` has them; importing that takes a while."""
_RECORDS: Final = ("jsonl", "json")
_ENDS: Final = frozenset({"src", "dst", "from", "to"})
_NEXT_PAIR: Final = re.compile(r",(?=[A-Za-z_]\w*=)")
"""A comma between two pairs; others belong to an expression."""

LoadInput: TypeAlias = "BinaryIO | str | list[str] | dict[str, Any]"


input_options = together(
    click.argument("files", nargs=-1, metavar="[FILE]..."),
    click.option(
        "--data",
        multiple=True,
        metavar="FILE",
        help="What to load, like FILE: graph records, a folder that export wrote, globs, URIs, or -"
        " for standard input; with --node or --edge the table of that type.",
    ),
    click.option("--node", "nodes", multiple=True, metavar="TYPE[=FILE]", help="A table of nodes."),
    click.option("--edge", "edges", multiple=True, metavar="TYPE[=FILE]", help="A table of edges."),
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        help="What the files are; by default their names and their content tell it.",
    ),
    click.option(
        "--map",
        "mapping",
        multiple=True,
        metavar="[TYPE:]PROPERTY=COLUMN,…",
        help="Fill a property from a column of another name, or from a Spark SQL expression.",
    ),
    click.option(
        "--option",
        "csv_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="How CSV is written: delimiter, quote, escape, header, columns, null, encoding, skip.",
    ),
)
"""The ways to name the input of a load."""


def load_input(
    *,
    files: Sequence[str],
    nodes: Sequence[str],
    edges: Sequence[str],
    form: str | None,
    mapping: Sequence[str],
    csv_options: Sequence[str] = (),
) -> LoadInput:
    """Return the input that the options name; `files` are those without a type."""
    kinds = [("node", text) for text in nodes] + [("edge", text) for text in edges]
    if not kinds:
        return _records(files, form, has_options=bool(mapping or csv_options))
    if files and sum("=" not in text for _, text in kinds) != 1:
        raise click.UsageError("several tables need a file each: --node TYPE=FILE")
    tables = {f"{kind}:{text.partition('=')[0]}": _path(text, files) for kind, text in kinds}
    columns = _columns(mapping, list(tables))
    options = dict(_pair(text, "--option") for text in csv_options)
    return {key: _source(path, columns.get(key, {}), options) for key, path in tables.items()}


def _records(files: Sequence[str], form: str | None, *, has_options: bool) -> LoadInput:
    if not files:
        raise click.UsageError("Missing option '--data'.")
    if has_options or form not in (None, *_RECORDS):
        raise click.UsageError("--map, --option and table formats need --node TYPE or --edge TYPE")
    if tuple(files) == ("-",):
        return sys.stdin.buffer
    return files[0] if len(files) == 1 else list(files)


def _path(text: str, files: Sequence[str]) -> str | list[str]:
    """Return the file of a table."""
    name, has_file, path = text.partition("=")
    if has_file and path:
        return path
    if not files:
        raise click.UsageError(f"give the table of {name} as {name}=FILE, or with one --data")
    if "-" in files:
        raise click.UsageError("standard input holds graph records: give a table as a file")
    return files[0] if len(files) == 1 else list(files)


def _columns(mapping: Sequence[str], tables: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the columns of each table that are mapped."""
    found: dict[str, dict[str, str]] = {}
    for text in mapping:
        named, pairs = _named(text)
        columns = dict(_pair(pair, "--map") for pair in _NEXT_PAIR.split(pairs))
        key = _mapped_table(named, columns, tables)
        found.setdefault(key, {}).update(columns)
    return found


def _named(text: str) -> tuple[str | None, str]:
    """Split the type off, which is before a colon that comes before the first `=`."""
    name, colon, rest = text.partition("=")[0].rpartition(":")
    return (name, text[len(name) + 1 :]) if colon and name and rest else (None, text)


def _mapped_table(named: str | None, columns: Mapping[str, str], tables: Sequence[str]) -> str:
    """Return the table that a mapping is for; ends of edges are of the only table of edges."""
    edges = [key for key in tables if key.startswith("edge:")]
    if named is not None:
        fitting = [key for key in tables if named in (key, key.partition(":")[2])]
    elif len(tables) > 1 and _ENDS & columns.keys():
        fitting = edges
    else:
        fitting = list(tables)
    if len(fitting) != 1:
        raise click.UsageError("--map is for one table: name it, --map TYPE:PROPERTY=COLUMN")
    return fitting[0]


def _source(
    path: str | list[str], columns: Mapping[str, str], options: Mapping[str, str]
) -> object:
    """Describe a source; one of which nothing is said is just its path."""
    said = {"map": dict(columns), "options": dict(options)}
    given = {name: value for name, value in said.items() if value}
    return {"path": path, **given} if given else path


def _pair(text: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name or not (value or option == "--option"):
        what = "PROPERTY=COLUMN" if option == "--map" else "NAME=VALUE"
        raise click.UsageError(f"{option} {text}: expected {what}")
    return name, value
