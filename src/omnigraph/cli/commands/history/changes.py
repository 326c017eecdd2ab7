"""`omnigraph changes …`: the change feed."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.config.safe_file import write_whole
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.options.selection import page_size, selected, selection_options
from omnigraph.cli.output.change_lines import ChangeText, step_lines
from omnigraph.cli.output.json_writer import JsonWriter
from omnigraph.cli.output.output import Output, json_option
from omnigraph.cli.output.streams import say
from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Block, FeedPage, FeedRequest, Graph

_NOTHING = "(no new commits)"


@click.group("changes", cls=ScopedGroup)
def command() -> None:
    """Follow what happens on a branch."""


@command.command("poll")
@graph_address
@click.option("--branch", default="main", show_default=True, help="The branch.")
@click.option("--cursor", help="Go on where an earlier poll ended.")
@click.option("--start", metavar="PLACE", help="now, beginning or after:COMMIT.")
@click.option("--page-token", help="Fetch one page of a poll, as it is.")
@page_size
@selection_options
@click.option(
    "--schema-changes",
    type=click.Choice(["refuse", "deliver"]),
    default="refuse",
    show_default=True,
    help="Whether commits that changed the schema are an error or come with its steps.",
)
@json_option
def poll(
    uri: str | None,
    branch: str,
    cursor: str | None,
    start: str | None,
    page_token: str | None,
    limit: int,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    ops: tuple[str, ...],
    schema_changes: str,
    as_json: bool,
) -> None:
    """Tell what has happened since a cursor, and give the next one."""
    from omnigraph.graph import FeedRequest  # noqa: PLC0415 loads Lance

    if sum(each is not None for each in (cursor, start, page_token)) > 1:
        raise click.UsageError("--cursor, --start and --page-token are mutually exclusive")
    graph = open_graph(uri, read_only=True)
    request = FeedRequest(
        selected(kinds, types, ops),
        cursor=cursor,
        start=start,
        page_token=page_token,
        limit=limit,
        schema_changes=schema_changes,
    )
    if page_token is not None:
        page = graph.poll_changes(request, branch=branch)
        Output(as_json=as_json).result(
            "\n".join(_page_lines(page, ChangeText.of(graph))), page.to_json()
        )
    elif as_json:
        _write_pages(_pages(graph, request, branch))
    else:
        _print_pages(_pages(graph, request, branch), ChangeText.of(graph))


@command.command("baseline")
@graph_address
@click.option("--branch", default="main", show_default=True, help="The branch.")
@click.option(
    "--out",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the records go; replaced as a whole, or not at all.",
)
@selection_options
@json_option
def baseline(
    uri: str | None,
    branch: str,
    path: Path,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    ops: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the whole state of a branch to a file, and say from where to poll on."""
    graph = open_graph(uri, read_only=True)
    lines, handshake = graph.baseline(branch=branch, selection=selected(kinds, types, ops))
    write_whole(path, lines)
    text = "\n".join(f"{name}: {value}" for name, value in handshake.items())
    Output(as_json=as_json).result(text, handshake)


def _pages(graph: Graph | RemoteGraph, request: FeedRequest, branch: str) -> Iterator[FeedPage]:
    """Follow page tokens until a page ends with a cursor."""
    while True:
        page = graph.poll_changes(request, branch=branch)
        yield page
        if page.next_page_token is None:
            return
        request = replace(request, cursor=None, start=None, page_token=page.next_page_token)


def _blocks(pages: Iterator[FeedPage], last: list[FeedPage]) -> Iterator[Block]:
    """Yield the blocks of all pages; `last` receives the page that ends them."""
    for page in pages:
        yield from page.blocks
        last[:] = [page]


def _write_pages(pages: Iterator[FeedPage]) -> None:
    """Write one document, each page before the next is fetched; a block that was cut is one."""
    out = JsonWriter()
    last: list[FeedPage] = []
    with out.in_object():
        with out.in_list("blocks"):
            for _, parts in groupby(_blocks(pages, last), key=_commit_of):
                _write_block(out, parts)
        # A cursor after changes that were not printed would lose them.
        out.value(last[0].cursor, "cursor")
        out.value(last[0].caught_up, "caught_up")


def _write_block(out: JsonWriter, parts: Iterator[Block]) -> None:
    first = next(parts)
    with out.in_object():
        for name, value in first.header().items():
            out.value(value, name)
        with out.in_list("changes"):
            for part in chain([first], parts):
                for change in part.changes:
                    out.value(change)


def _print_pages(pages: Iterator[FeedPage], text: ChangeText) -> None:
    last: list[FeedPage] = []
    is_empty = True
    for _, parts in groupby(_blocks(pages, last), key=_commit_of):
        is_empty = False
        for number, part in enumerate(parts):
            for line in _block_lines(part, text, with_cause=number == 0):
                say(line)
    if is_empty:
        click.echo(_NOTHING)
    click.echo(f"cursor: {last[0].cursor}")


def _commit_of(block: Block) -> object:
    return block.cause["graph_commit_id"]


def _page_lines(page: FeedPage, text: ChangeText) -> Iterator[str]:
    if not page.blocks:
        yield _NOTHING
    for block in page.blocks:
        yield from _block_lines(block, text)
    if page.cursor is not None:
        yield f"cursor: {page.cursor}"


def _block_lines(block: Block, text: ChangeText, *, with_cause: bool = True) -> Iterator[str]:
    cause = block.cause
    if with_cause:
        actor = f" by {on_one_line(str(cause['actor_id']))}" if cause.get("actor_id") else ""
        yield f"commit {cause['graph_commit_id']} on {cause['authored_branch']}{actor}"
        yield from step_lines(block.schema_changes)
    for change in block.changes:
        yield from text.lines(change)
