"""`omnigraph commit …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.flags import ScopedGroup
from omnigraph.cli.output import Output

if TYPE_CHECKING:
    from omnigraph.graph import GraphCommit

_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group("commit", cls=ScopedGroup)
def command() -> None:
    """Look at the history of a graph."""


@command.command("list")
@graph_address(positional=True)
@click.option("--branch", default="main", show_default=True)
@click.option("--limit", type=click.IntRange(min=1), help="Show at most this many.")
@_json
def list_(uri: str | None, branch: str, limit: int | None, as_json: bool) -> None:
    """List the commits of a branch, newest first."""
    commits = open_graph(uri, read_only=True).list_commits(branch, limit=limit)
    text = "\n".join(_line(commit) for commit in commits)
    Output(as_json=as_json).result(text, {"commits": [c.to_json() for c in commits]})


@command.command("show")
@graph_address(positional=False)
@click.argument("commit_id")
@_json
def show(uri: str | None, commit_id: str, as_json: bool) -> None:
    """Show one commit."""
    shape = open_graph(uri, read_only=True).get_commit(commit_id).to_json()
    text = "\n".join(f"{key}: {value}" for key, value in shape.items() if value is not None)
    Output(as_json=as_json).result(text, shape)


def _line(commit: GraphCommit) -> str:
    actor = f" actor={commit.actor_id}" if commit.actor_id else ""
    return (
        f"{commit.graph_commit_id} graph_branch={commit.graph_branch or 'main'}"
        f" graph_manifest_version={commit.manifest_version}{actor}"
    )
