"""`omnigraph changes …`: the change feed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.change_lines import change_lines
from omnigraph.cli.flags import ScopedGroup
from omnigraph.cli.output import Output
from omnigraph.cli.safe_file import write_whole
from omnigraph.cli.selection_options import selected, selection_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.graph import FeedPage, FeedRequest, Graph

_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group("changes", cls=ScopedGroup)
def command() -> None:
    """Follow what happens on a branch."""


@command.command("poll")
@graph_address(positional=False)
@click.option("--branch", default="main", show_default=True)
@click.option("--cursor", help="Go on where an earlier poll ended.")
@click.option("--start", metavar="PLACE", help="now, beginning or after:COMMIT.")
@click.option("--page-token", help="Fetch one page of a poll, as it is.")
@click.option("--limit", type=click.IntRange(1, 8192), default=1000, show_default=True)
@selection_options
@_json
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
    as_json: bool,
) -> None:
    """Tell what has happened since a cursor, and give the next one."""
    from omnigraph.graph import FeedRequest  # noqa: PLC0415 loads Lance

    if sum(each is not None for each in (cursor, start, page_token)) > 1:
        raise click.UsageError("--cursor, --start and --page-token are mutually exclusive")
    graph = open_graph(uri, read_only=True)
    request = FeedRequest(
        selected(kinds, types, ops), cursor=cursor, start=start, page_token=page_token, limit=limit
    )
    if page_token is not None:
        pages = [graph.poll_changes(request, branch=branch)]
    else:
        pages = list(_pages(graph, request, branch))
    shape = _joined(pages)
    Output(as_json=as_json).result("\n".join(_lines(shape)), shape)


@command.command("baseline")
@graph_address(positional=False)
@click.option("--branch", default="main", show_default=True)
@click.option(
    "--out",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the records go; replaced as a whole, or not at all.",
)
@selection_options
@_json
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


def _pages(graph: Graph, request: FeedRequest, branch: str) -> Iterator[FeedPage]:
    """Follow page tokens until a page ends with a cursor."""
    from omnigraph.graph import FeedRequest  # noqa: PLC0415 loads Lance

    while True:
        page = graph.poll_changes(request, branch=branch)
        yield page
        if page.next_page_token is None:
            return
        request = FeedRequest(
            request.selection, page_token=page.next_page_token, limit=request.limit
        )


def _joined(pages: list[FeedPage]) -> dict[str, Any]:
    """Put pages together; a block that was cut is one again."""
    blocks: list[dict[str, Any]] = []
    for block in (block for page in pages for block in page.blocks):
        if blocks and blocks[-1]["cause"] == block.cause:
            blocks[-1]["changes"] += block.changes
        else:
            blocks.append({"cause": block.cause, "changes": list(block.changes)})
    last = pages[-1].to_json()
    return {**last, "blocks": blocks}


def _lines(shape: dict[str, Any]) -> Iterator[str]:
    if not shape["blocks"]:
        yield "(no new commits)"
    for block in shape["blocks"]:
        cause = block["cause"]
        actor = f" by {cause['actor_id']}" if "actor_id" in cause else ""
        yield f"commit {cause['graph_commit_id']} on {cause['authored_branch']}{actor}"
        for change in block["changes"]:
            yield from change_lines(change)
    if "cursor" in shape:
        yield f"cursor: {shape['cursor']}"
