"""`omnigraph mutate`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import click

from omnigraph.cli.address import acting, graph_address_in_flags, open_graph
from omnigraph.cli.options.blobs import external_blob_option
from omnigraph.cli.options.commit_note import commit_options, retries_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.options.query_input import QueryInput, query_input
from omnigraph.cli.output.output import Output, json_option
from omnigraph.errors import PreconditionError
from omnigraph.texts import on_one_line
from omnigraph.wire import outcome_of, precondition_json

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import MutationResult


@click.command("mutate", cls=ScopedCommand)
@graph_address_in_flags
@query_input
@click.option("--branch", default="main", show_default=True, help="The branch.")
@click.option(
    "--if-commit", "expected_head", metavar="ID", help="Only if this is the branch's head."
)
@commit_options
@retries_option
@external_blob_option
@json_option
def command(
    given: QueryInput,
    branch: str,
    expected_head: str | None,
    message: str | None,
    properties: dict[str, str],
    retries: int,
    external_blob_bases: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a mutation query as one commit.

    NAME picks one of several queries. With --if-commit a lost race ends with exit code 4.
    """
    text, params = given.source(), given.params()
    out = Output(as_json=as_json)
    # Only a server has stored queries, which have no text here.
    graph = cast("RemoteGraph", open_graph(read_only=False))
    try:
        result = graph.mutate(
            text,
            given.name,
            params,
            branch=branch,
            expected_head=expected_head,
            message=message,
            properties=properties,
            retries=retries,
            actor_id=acting(),
            external_blob_bases=external_blob_bases,
        )
    except PreconditionError as error:
        if not as_json:
            raise
        out.result("", precondition_json(error))
        sys.exit(outcome_of(error).exit_code)
    out.result(_text(result), result.to_json())


def _text(result: MutationResult) -> str:
    line = (
        f"changed {result.branch} via {result.query_name}:"
        f" {result.affected_nodes} nodes, {result.affected_edges} edges"
    )
    return f"{line}\nactor_id: {on_one_line(result.actor_id)}" if result.actor_id else line
