"""`omnigraph commit …`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import acting, graph_address, open_graph, open_target
from omnigraph.cli.options.blobs import external_blob_option
from omnigraph.cli.options.commit_filter import commit_filter
from omnigraph.cli.options.commit_note import commit_options, retries_option
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.options.selection import page_size, selected, selection_options
from omnigraph.cli.output.change_lines import ChangeText, step_lines
from omnigraph.cli.output.json_writer import JsonWriter
from omnigraph.cli.output.output import Output, json_option, pair_lines
from omnigraph.cli.output.streams import say
from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from omnigraph.graph import CommitPage, GraphCommit


@click.group("commit", cls=ScopedGroup)
def command() -> None:
    """Look at the history of a graph."""


@command.command("list")
@graph_address
@click.option("--branch", default="main", show_default=True, help="The branch.")
@click.option("--limit", type=click.IntRange(min=1), help="Show at most this many.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only commits with this actor, operation, branch, message or properties.NAME; repeatable.",
)
@json_option
def list_(
    uri: str | None, branch: str, limit: int | None, filters: tuple[str, ...], as_json: bool
) -> None:
    """List the commits of a branch, newest first."""
    passes = commit_filter(filters)
    graph = open_graph(uri, read_only=True)
    commits = graph.list_commits(branch, limit=None if filters else limit)
    if filters:
        commits = [commit for commit in commits if passes(commit)][:limit]
    text = "\n".join(_line(commit) for commit in commits)
    shape = {"commits": [commit.to_json() for commit in commits]}
    Output(as_json=as_json).result(text or "(no commits)", shape)


@command.command("show")
@graph_address
@click.argument("commit_id")
@json_option
def show(uri: str | None, commit_id: str, as_json: bool) -> None:
    """Show one commit."""
    shape = open_graph(uri, read_only=True).get_commit(commit_id).to_json()
    Output(as_json=as_json).result(pair_lines(shape), shape)


@command.command("changes")
@graph_address
@click.argument("commit_id")
@page_size
@click.option("--page-token", help="Fetch one page, as it is.")
@selection_options
@json_option
def changes(
    uri: str | None,
    commit_id: str,
    limit: int,
    page_token: str | None,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    ops: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show what one commit changed, against its first parent."""
    graph = open_graph(uri, read_only=True)
    selection = selected(kinds, types, ops)

    def fetch(token: str | None) -> CommitPage:
        return graph.commit_changes(commit_id, selection, limit=limit, page_token=token)

    if page_token is not None:
        page = fetch(page_token)
        out = Output(as_json=as_json)
        out.result(_change_text(page, ChangeText.of(graph)), page.to_json())
    elif as_json:
        _write_pages(fetch)
    else:
        _print_pages(fetch, ChangeText.of(graph))


def _pages(fetch: Callable[[str | None], CommitPage]) -> Iterator[CommitPage]:
    """Yield page after page; the next one is fetched when the last one has been written."""
    page = fetch(None)
    yield page
    while page.next_page_token is not None:
        page = fetch(page.next_page_token)
        yield page


def _write_pages(fetch: Callable[[str | None], CommitPage]) -> None:
    pages = _pages(fetch)
    first = next(pages)
    out = JsonWriter()
    with out.in_object():
        for name, value in first.header().items():
            out.value(value, name)
        with out.in_list("changes"):
            for page in chain([first], pages):
                for change in page.changes:
                    out.value(change)


def _print_pages(fetch: Callable[[str | None], CommitPage], text: ChangeText) -> None:
    for number, page in enumerate(_pages(fetch)):
        if page.changes or number == 0:
            say(_change_text(page, text, with_steps=number == 0))


def _change_text(page: CommitPage, text: ChangeText, *, with_steps: bool = True) -> str:
    lines = [*step_lines(page.schema_changes)] if with_steps else []
    lines += [line for change in page.changes for line in text.lines(change)]
    return "\n".join(lines) or "(no changes)"


@command.command("revert")
@graph_address
@click.argument("commit_id")
@click.option("--branch", default="main", show_default=True, help="The branch to change.")
@click.option(
    "--prefer",
    type=click.Choice(["source", "target"]),
    help="Undo (source) or leave alone (target) what was changed again since.",
)
@commit_options
@retries_option
@external_blob_option
@json_option
def revert(
    uri: str | None,
    commit_id: str,
    branch: str,
    prefer: str | None,
    message: str | None,
    properties: dict[str, str],
    retries: int,
    external_blob_bases: tuple[str, ...],
    as_json: bool,
) -> None:
    """Undo what one commit changed, as a new commit."""
    graph, out = open_target(uri, as_json=as_json)
    result = graph.commit_revert(
        commit_id,
        branch=branch,
        prefer=prefer,
        message=message,
        properties=properties,
        retries=retries,
        external_blob_bases=external_blob_bases,
        actor_id=acting(),
    )
    commit = None if result.commit is None else result.commit.to_json()
    shape = {"reverted": commit_id, "branch": branch, "commit": commit}
    out.result(
        f"nothing of {commit_id} is left on {branch}"
        if commit is None
        else f"reverted {commit_id} on {branch}",
        shape,
    )


def _line(commit: GraphCommit) -> str:
    actor = f" actor={on_one_line(commit.actor_id)}" if commit.actor_id else ""
    return (
        f"{commit.graph_commit_id} graph_branch={commit.graph_branch or 'main'}"
        f" graph_manifest_version={commit.manifest_version}{actor}"
    )
