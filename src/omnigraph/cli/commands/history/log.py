"""`omnigraph log`: the history for people."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.options.flags import GlobalFlags, ScopedCommand, scope_flags_in
from omnigraph.cli.output.dag import Commit, draw
from omnigraph.cli.output.output import Output, json_option
from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph, GraphCommit

_LIMIT_DEFAULT = 50


class LogCommand(ScopedCommand):
    """`--graph` alone draws, and `--graph ID` picks a graph of a server, as everywhere else."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the id of a graph out of the words first."""
        scope = ctx.find_root().ensure_object(GlobalFlags).scope
        names_server = bool({*scope, *scope_flags_in(args)} & {"server", "profile"})
        rest, found = without_graph_id(args, takes_next=names_server)
        if found is not None:
            scope["graph"] = found
        return super().parse_args(ctx, rest)


def without_graph_id(args: list[str], *, takes_next: bool) -> tuple[list[str], str | None]:
    """Return the words without the id of a graph, and the id.

    `--graph=ID` always has one. The word after `--graph` is one where a server is named: there it
    cannot be the address of a graph.

    >>> without_graph_id(["--graph", "people", "--graph"], takes_next=True)
    (['--graph'], 'people')
    >>> without_graph_id(["--graph", "people.omni"], takes_next=False)
    (['--graph', 'people.omni'], None)
    """
    rest: list[str] = []
    found: str | None = None
    words = iter(args)
    for word in words:
        if word.startswith("--graph="):
            found = word.removeprefix("--graph=")
            continue
        rest.append(word)
        if word == "--graph" and takes_next:
            following = next(words, None)
            if following is None or following.startswith("-"):
                rest += [] if following is None else [following]
            else:
                rest.pop()
                found = following
    return rest, found


@click.command("log", cls=LogCommand)
@graph_address
@click.option("--branch", help="The history of this branch (default: main; all with --graph).")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_LIMIT_DEFAULT,
    show_default=True,
    help="Show at most this many commits.",
)
@click.option(
    "--graph",
    "as_graph",
    is_flag=True,
    help="Draw how branches part and meet. With --server, `--graph ID` picks the graph.",
)
@json_option
def command(uri: str | None, branch: str | None, limit: int, as_graph: bool, as_json: bool) -> None:
    """Show what happened, newest first, with the names that point at each commit."""
    graph = open_graph(uri, read_only=True)
    branches = [branch] if branch else graph.branch_list() if as_graph else ["main"]
    commits = _newest(graph, branches, limit)
    names = _names(graph)
    out = Output(as_json=as_json)
    shape = {"commits": [_shape(commit, names) for commit in commits]}
    out.result("\n".join(_lines(commits, names, as_graph=as_graph)), shape)


def _newest(graph: Graph | RemoteGraph, branches: list[str], limit: int) -> list[GraphCommit]:
    found = {
        commit.graph_commit_id: commit
        for branch in branches
        for commit in graph.list_commits(branch, limit=limit)
    }
    # Ids grow with time, so a commit always comes before its parents.
    return [found[commit_id] for commit_id in sorted(found, reverse=True)][:limit]


def _names(graph: Graph | RemoteGraph) -> Mapping[str, list[str]]:
    """Return the branches and tags that point at each commit."""
    names: dict[str, list[str]] = defaultdict(list)
    for branch in graph.branch_list():
        names[graph.head_commit_id_for_branch(branch)].append(branch)
    for tag in graph.tag_list():
        names[tag.commit_id].append(f"tag: {tag.name}")
    return names


def _lines(
    commits: list[GraphCommit], names: Mapping[str, list[str]], *, as_graph: bool
) -> list[str]:
    drawn = [Commit(c.graph_commit_id, _parents(c), _line(c, names)) for c in commits]
    return list(draw(drawn)) if as_graph else [commit.label for commit in drawn]


def _parents(commit: GraphCommit) -> tuple[str, ...]:
    both = (commit.parent_commit_id, commit.merged_parent_commit_id)
    return tuple(parent for parent in both if parent is not None)


def _line(commit: GraphCommit, names: Mapping[str, list[str]]) -> str:
    at = datetime.fromtimestamp(commit.created_at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    parts = [commit.graph_commit_id, at, commit.operation]
    if commit.actor_id:
        parts.append(f"by {on_one_line(commit.actor_id)}")
    if commit.message:
        parts.append(on_one_line(commit.message))
    if commit.graph_commit_id in names:
        parts.append(f"({', '.join(names[commit.graph_commit_id])})")
    return "  ".join(parts)


def _shape(commit: GraphCommit, names: Mapping[str, list[str]]) -> dict[str, object]:
    return {
        **commit.to_json(),
        "operation": commit.operation,
        "message": commit.message,
        "names": names.get(commit.graph_commit_id, []),
    }
