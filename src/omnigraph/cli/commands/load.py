"""`omnigraph load`."""

from __future__ import annotations

from pathlib import Path

import click

from omnigraph.cli.address import acting, graph_address, open_graph, resolve_address
from omnigraph.cli.commands.load_output import load_text
from omnigraph.cli.consent import require_consent
from omnigraph.cli.flags import ScopedCommand
from omnigraph.cli.output import Output


@click.command("load", cls=ScopedCommand)
@graph_address(positional=True)
@click.option(
    "--data",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Graph records, one JSON object per line.",
)
@click.option(
    "--mode",
    required=True,
    type=click.Choice(["overwrite", "append", "merge"]),
    help="What happens to rows that are stored already.",
)
@click.option("--branch", default="main", show_default=True, help="The branch to load into.")
@click.option("--from", "base", metavar="BASE", help="Cut the branch from this one if missing.")
@click.option(
    "--embed",
    type=click.Choice(["missing", "all", "off"]),
    default="missing",
    show_default=True,
    help="Which vectors of @embed properties are made, if a provider is configured.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    uri: str | None,
    data: Path,
    mode: str,
    branch: str,
    base: str | None,
    embed: str,
    as_json: bool,
) -> None:
    """Load a file of nodes and edges as one commit, or not at all."""
    if mode == "overwrite":
        require_consent("load --mode overwrite", resolve_address(uri), as_json=as_json)
    graph = open_graph(uri, read_only=False)
    out = Output(as_json=as_json)
    out.write_target("load", graph.uri)
    result = graph.load(
        data, mode=mode, branch=branch, from_branch=base, embed=embed, actor_id=acting()
    )
    shape = {"uri": graph.uri, **result.to_json()}
    if base is None:
        del shape["base_branch"]
    shape.pop("actor_id", None)
    out.result(load_text(result), shape)
