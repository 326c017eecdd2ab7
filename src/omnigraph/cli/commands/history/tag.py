"""`omnigraph tag …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import acting, graph_address, open_graph, open_target
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.output.output import Output, json_option

if TYPE_CHECKING:
    from omnigraph.graph import Tag


@click.group("tag", cls=ScopedGroup)
def command() -> None:
    """Name commits, so that reads find them and cleanup keeps them."""


@command.command("create")
@graph_address
@click.argument("name")
@click.argument("commit_id", required=False, metavar="[COMMIT]")
@json_option
def create(uri: str | None, name: str, commit_id: str | None, as_json: bool) -> None:
    """Name a commit, by default the head of main."""
    from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

    graph, out = open_target(uri, as_json=as_json)
    target = None if commit_id is None else ReadTarget.commit(commit_id)
    tag = graph.tag_create(name, target, actor_id=acting())
    out.result(f"tagged {tag.commit_id} as {tag.name}", {"uri": graph.uri, **_shape(tag)})


@command.command("list")
@graph_address
@json_option
def list_(uri: str | None, as_json: bool) -> None:
    """List the tags by name."""
    tags = open_graph(uri, read_only=True).tag_list()
    text = "\n".join(f"{tag.name} {tag.commit_id}" for tag in tags)
    Output(as_json=as_json).result(text or "(no tags)", {"tags": [_shape(tag) for tag in tags]})


@command.command("delete")
@graph_address
@click.argument("name")
@json_option
def delete(uri: str | None, name: str, as_json: bool) -> None:
    """Forget a tag; the commit stays."""
    graph, out = open_target(uri, as_json=as_json)
    graph.tag_delete(name, actor_id=acting())
    out.result(f"deleted tag {name}", {"uri": graph.uri, "name": name})


def _shape(tag: Tag) -> dict[str, object]:
    return {
        "name": tag.name,
        "graph_commit_id": tag.commit_id,
        "actor_id": tag.actor_id,
        "created_at": tag.created_at,
    }
