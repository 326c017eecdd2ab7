"""`omnigraph diff`: two states of a graph side by side."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.change_lines import change_lines
from omnigraph.cli.flags import ScopedCommand
from omnigraph.cli.output import Output
from omnigraph.cli.selection_options import selected, selection_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnigraph.graph import Graph, ReadTarget

_COLOURS = {"insert": "green", "update": "yellow", "delete": "red"}
_COMMIT = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


@click.command("diff", cls=ScopedCommand)
@graph_address(positional=False)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--stat", is_flag=True, help="Only counts, per type.")
@selection_options
@click.option(
    "--format", "form", type=click.Choice(["text", "jsonl", "json"]), help="The output form."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="Where rows are compared.",
)
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
    """Show what differs between A and B: branches, tags or commits.

    Rows are shown as they are in A and in B, property by property. A row that was written again
    with the same values does not differ.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError("--json and --format are mutually exclusive")
    graph = open_graph(uri, read_only=True)
    found = graph.changes_between(
        _target(graph, before), _target(graph, after), selected(kinds, types, ops), engine=engine
    )
    if form == "jsonl":
        for change in found:
            click.echo(json.dumps(change, ensure_ascii=False))
        return
    changes = list(found)
    counts = _counts(changes)
    shape = {"from": before, "to": after, "stats": counts, "changes": [] if stat else changes}
    lines = _stat_lines(counts) if stat else _lines(changes, counts)
    Output(as_json=as_json or form == "json").result("\n".join(lines), shape)


def _target(graph: Graph, name: str) -> ReadTarget:
    """Find what a name means: a branch, else a tag, else a commit."""
    from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

    if name in graph.branch_list():
        return ReadTarget.branch(name)
    if any(tag.name == name for tag in graph.tag_list()):
        return ReadTarget.tag(name)
    return ReadTarget.commit(name) if _COMMIT.fullmatch(name) else ReadTarget.branch(name)


def _counts(changes: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    found = Counter((change["type"]["name"], change["op"]) for change in changes)
    names = sorted({name for name, _ in found})
    return {name: {op: found[name, op] for op in _COLOURS} for name in names}


def _lines(changes: list[dict[str, Any]], counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for change in changes:
        for line in change_lines(change):
            yield click.style(line, fg=_COLOURS[change["op"]])
    yield from _stat_lines(counts)


def _stat_lines(counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    if not counts:
        yield "no difference"
    for name, of_type in counts.items():
        yield f"{name}: +{of_type['insert']} ~{of_type['update']} -{of_type['delete']}"
