"""`omnigraph diff`: two states of a graph side by side."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.address import graph_address, open_graph, refuse_served_spark
from omnigraph.cli.options.engine import engine_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.options.read_target import state_named
from omnigraph.cli.options.selection import selected, selection_options
from omnigraph.cli.output.change_lines import ChangeText, step_lines
from omnigraph.cli.output.json_writer import JsonWriter, json_text
from omnigraph.cli.output.streams import say
from omnigraph.texts import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_COLOURS = {"insert": "green", "update": "yellow", "delete": "red"}


@click.command("diff", cls=ScopedCommand)
@graph_address
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--stat", is_flag=True, help="Only counts, per type.")
@selection_options
@click.option(
    "--format", "form", type=click.Choice(["text", "jsonl", "json"]), help="The output form."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@engine_option("Where rows are compared.")
def command(
    uri: str | None,
    before: str,
    after: str,
    stat: bool,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    ops: tuple[str, ...],
    form: str | None,
    as_json: bool,
    engine: str,
) -> None:
    """Show what differs between A and B: branches, tags, commits or versions of main.

    Rows are shown as they are in A and in B, property by property. A row that was written again
    with the same values does not differ. Where the schemas differ, their steps come first, and
    rows are compared by what types and properties are, not by what they are called.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError("--json and --format are mutually exclusive")
    refuse_served_spark(uri, on_spark=engine == "spark")
    graph = open_graph(uri, read_only=True)
    found = graph.changes_between(
        state_named(graph, before),
        state_named(graph, after),
        selected(kinds, types, ops),
        engine=engine,
    )
    if form == "jsonl":
        for change in found:
            click.echo(json_text(change))
        return
    steps, found = _split(found)
    tally: Counter[tuple[str, str]] = Counter()
    counted = _counted(found, tally)
    if as_json or form == "json":
        _write(before, after, steps, counted, tally, stat=stat)
        return
    for line in step_lines(steps):
        say(line)
    text = ChangeText.of(graph)
    for change in counted:
        for line in () if stat else text.lines(change):
            click.secho(escaped(line), fg=_COLOURS[change["op"]])
    for line in _stat_lines(_counts(tally), if_none="no row differs" if steps else "no difference"):
        say(line)


def _split(
    items: Iterator[dict[str, Any]],
) -> tuple[list[dict[str, Any]], Iterator[dict[str, Any]]]:
    """Take the steps between the schemas off the changes."""
    first = next(items, None)
    if first is None:
        return [], iter(())
    if "schema_changes" in first:
        return first["schema_changes"], items
    return [], chain([first], items)


def _counted(
    changes: Iterator[dict[str, Any]], tally: Counter[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield changes one by one: there may be more than fit into memory."""
    for change in changes:
        tally[change["type"]["name"], change["op"]] += 1
        yield change


def _write(
    before: str,
    after: str,
    steps: list[dict[str, Any]],
    changes: Iterator[dict[str, Any]],
    tally: Counter[tuple[str, str]],
    *,
    stat: bool,
) -> None:
    out = JsonWriter()
    with out.in_object():
        out.value(before, "from")
        out.value(after, "to")
        if steps:
            out.value(steps, "schema_changes")
        with out.in_list("changes"):
            for change in changes:
                if not stat:
                    out.value(change)
        out.value(_counts(tally), "stats")


def _counts(tally: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    names = sorted({name for name, _ in tally})
    return {name: {op: tally[name, op] for op in _COLOURS} for name in names}


def _stat_lines(counts: Mapping[str, Mapping[str, int]], *, if_none: str) -> Iterator[str]:
    if not counts:
        yield if_none
    for name, of_type in counts.items():
        yield f"{name}: +{of_type['insert']} ~{of_type['update']} -{of_type['delete']}"
