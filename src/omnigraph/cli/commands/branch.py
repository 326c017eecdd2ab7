"""`omnigraph branch …`."""

from __future__ import annotations

import click

from omnigraph.cli.address import acting, graph_address, open_graph, resolve_address
from omnigraph.cli.consent import require_consent
from omnigraph.cli.flags import ScopedGroup
from omnigraph.cli.output import Output

_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group("branch", cls=ScopedGroup)
def command() -> None:
    """Create, list and delete branches."""


@command.command("create")
@graph_address(positional=False)
@click.argument("name")
@click.option("--from", "source", default="main", show_default=True, help="The branch to cut from.")
@_json
def create(uri: str | None, name: str, source: str, as_json: bool) -> None:
    """Cut a branch from the head of another one."""
    graph = open_graph(uri, read_only=False)
    out = Output(as_json=as_json)
    out.write_target("branch create", graph.uri)
    graph.branch_create_from(source, name, actor_id=acting())
    shape = {"uri": graph.uri, "from": source, "name": name, "actor_id": acting()}
    out.result(f"created branch {name} from {source}", shape)


@command.command("list")
@graph_address(positional=False)
@_json
def list_(uri: str | None, as_json: bool) -> None:
    """List the branches, `main` first."""
    names = open_graph(uri, read_only=True).branch_list()
    Output(as_json=as_json).result("\n".join(names), {"branches": names})


@command.command("delete")
@graph_address(positional=False)
@click.argument("name")
@_json
def delete(uri: str | None, name: str, as_json: bool) -> None:
    """Delete a branch that no other one was cut from."""
    require_consent("branch delete", resolve_address(uri), as_json=as_json)
    graph = open_graph(uri, read_only=False)
    out = Output(as_json=as_json)
    out.write_target("branch delete", graph.uri)
    graph.branch_delete(name, actor_id=acting())
    out.result(f"deleted branch {name}", {"uri": graph.uri, "name": name, "actor_id": acting()})
