"""`omnigraph ingest`: the old name of `load`, with the compatible reader."""

from __future__ import annotations

from pathlib import Path

import click

from omnigraph.cli.address import acting, graph_address, open_target
from omnigraph.cli.options.blobs import external_blob_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.load_result import load_text


@click.command("ingest", hidden=True, cls=ScopedCommand)
@graph_address
@click.option("--data", required=True, metavar="FILE", type=click.Path(path_type=Path))
@click.option("--mode", default="merge", type=click.Choice(["overwrite", "append", "merge"]))
@click.option("--branch", default="main", show_default=True, help="The branch.")
@click.option("--from", "base", default="main", show_default=True)
@external_blob_option
@click.option("--json", "as_json", is_flag=True)
def command(
    uri: str | None,
    data: Path,
    mode: str,
    branch: str,
    base: str,
    external_blob_bases: tuple[str, ...],
    as_json: bool,
) -> None:
    """Load a stream of JSON values; unknown fields are ignored, wrong values become null."""
    click.echo("warning: `omnigraph ingest` is deprecated; use `omnigraph load`", err=True)
    graph, out = open_target(uri, as_json=as_json)
    result = graph.load(
        data,
        mode=mode,
        branch=branch,
        from_branch=base,
        external_blob_bases=external_blob_bases,
        actor_id=acting(),
        reader="compatible",
    )
    out.result(
        load_text(result), {"uri": graph.uri, **result.to_json(), "actor_id": result.actor_id}
    )
