"""`omnigraph diff`: two states of a graph side by side."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.address import graph_address, open_graph, refuse_served_spark
from omnigraph.cli.options.engine import engine_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.options.selection import selected, selection_options
from omnigraph.cli.output.change_lines import ChangeText
from omnigraph.cli.output.json_writer import JsonWriter, json_text
from omnigraph.cli.output.streams import say
from omnigraph.texts import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph, ReadTarget

_COLOURS = {"insert": "green", "update": "yellow", "delete": "red"}
_COMMIT = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


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
    with the same values does not differ.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError("--json and --format are mutually exclusive")
    refuse_served_spark(uri, on_spark=engine == "spark")
    graph = open_graph(uri, read_only=True)
    found = graph.changes_between(
        _target(graph, before), _target(graph, after), selected(kinds, types, ops), engine=engine
    )
    if form == "jsonl":
        for change in found:
            click.echo(json_text(change))
        return
    tally: Counter[tuple[str, str]] = Counter()
    counted = _counted(found, tally)
    if as_json or form == "json":
        _write(before, after, counted, tally, stat=stat)
        return
    text = ChangeText.of(graph)
    for change in counted:
        for line in () if stat else text.lines(change):
            click.secho(escaped(line), fg=_COLOURS[change["op"]])
    for line in _stat_lines(_counts(tally)):
        say(line)


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
    changes: Iterator[dict[str, Any]],
    tally: Counter[tuple[str, str]],
    *,
    stat: bool,
) -> None:
    out = JsonWriter()
    with out.in_object():
        out.value(before, "from")
        out.value(after, "to")
        with out.in_list("changes"):
            for change in changes:
                if not stat:
                    out.value(change)
        out.value(_counts(tally), "stats")


def _target(graph: Graph | RemoteGraph, name: str) -> ReadTarget:
    """Find what a name means: a branch, else a tag, a version of main, a commit."""
    from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

    if name in graph.branch_list():
        return ReadTarget.branch(name)
    if any(tag.name == name for tag in graph.tag_list()):
        return ReadTarget.tag(name)
    if name.isdigit():
        return ReadTarget.commit(_at_version(graph, int(name)))
    return ReadTarget.commit(name) if _COMMIT.fullmatch(name) else ReadTarget.branch(name)


def _at_version(graph: Graph | RemoteGraph, version: int) -> str:
    from omnigraph.graph import CommitNotFoundError, Graph  # noqa: PLC0415 loads Lance

    if isinstance(graph, Graph):
        return graph.snapshot_at_version(version).commit_id
    # A server knows commits, and the newest one up to a version is what the version shows.
    for commit in graph.list_commits("main"):
        if commit.manifest_version <= version:
            return commit.graph_commit_id
    raise CommitNotFoundError(str(version))


def _counts(tally: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    names = sorted({name for name, _ in tally})
    return {name: {op: tally[name, op] for op in _COLOURS} for name in names}


def _stat_lines(counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    if not counts:
        yield "no difference"
    for name, of_type in counts.items():
        yield f"{name}: +{of_type['insert']} ~{of_type['update']} -{of_type['delete']}"
