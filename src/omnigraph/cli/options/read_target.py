"""The state that a read is run on: the head of a branch, or a commit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from omnigraph.cli.options.together import together

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph, ReadTarget

_COMMIT: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")

target_options = together(
    click.option("--branch", help="Read the head of this branch (default: main)."),
    click.option("--snapshot", metavar="ID", help="Read the graph as this commit left it."),
)


def read_target(branch: str | None, snapshot: str | None) -> ReadTarget:
    """Return what the options name; both at once are an error."""
    from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

    if branch is not None and snapshot is not None:
        raise click.UsageError("--branch and --snapshot are mutually exclusive")
    return ReadTarget.snapshot(snapshot) if snapshot else ReadTarget.branch(branch or "main")


def state_named(graph: Graph | RemoteGraph, name: str) -> ReadTarget:
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
