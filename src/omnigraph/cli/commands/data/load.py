"""`omnigraph load`."""

from __future__ import annotations

from pathlib import Path

import click

from omnigraph.cli.address import (
    acting,
    graph_address,
    has_scope,
    open_target,
    refuse_served_spark,
    resolve_address,
)
from omnigraph.cli.options.blobs import external_blob_option
from omnigraph.cli.options.commit_note import commit_options
from omnigraph.cli.options.consent import require_consent
from omnigraph.cli.options.engine import engine_options, spark_session, wants_spark
from omnigraph.cli.options.flags import ScopedCommand, flags
from omnigraph.cli.options.load_input import input_options, load_input
from omnigraph.cli.options.together import choice_option
from omnigraph.cli.output.load_result import load_text
from omnigraph.cli.output.output import json_option


@click.command("load", cls=ScopedCommand)
@graph_address
@input_options
@click.option(
    "--mode",
    required=True,
    type=click.Choice(["overwrite", "append", "merge"]),
    help="What happens to rows that are stored already.",
)
@click.option("--branch", default="main", show_default=True, help="The branch to load into.")
@click.option("--from", "base", metavar="BASE", help="Cut the branch from this one if missing.")
@choice_option(
    "--embed",
    known=["missing", "all", "off"],
    help="Which vectors of @embed properties are made, if a provider is configured.",
)
@choice_option(
    "--on-error",
    known=["fail", "quarantine"],
    help="Load nothing when rows are wrong, or leave those out.",
)
@click.option(
    "--quarantine",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="An empty or new folder for the rows that are left out.",
)
@click.option(
    "--max-errors", type=click.IntRange(min=0), help="Load nothing when more rows are wrong."
)
@choice_option(
    "--on-duplicate",
    known=["error", "last", "first", "combine"],
    help="In a merge: what several rows of one id do.",
)
@click.option(
    "--missing",
    type=click.Choice(["keep", "null"]),
    help="In a merge: keep properties that the input does not name (default), or empty them.",
)
@choice_option(
    "--null-cells",
    known=["null", "keep"],
    help="In tables: a null is a value, or names nothing.",
)
@click.option(
    "--edges",
    "edge_identity",
    type=click.Choice(["match", "add"]),
    help="In a merge: an edge without an id is the stored one it stands for (match, what happens"
    " without the option), or a new one.",
)
@click.option(
    "--cascade",
    is_flag=True,
    help="In an overwrite: remove stored edges whose nodes go, instead of refusing.",
)
@commit_options
@click.option("--job", metavar="NAME", help="What the lineage of the commit calls this load.")
@external_blob_option
@click.option("--dry-run", is_flag=True, help="Check and count everything, and write nothing.")
@engine_options(
    "Load in this process, or on Spark; auto takes Spark for what does not fit into memory."
)
@json_option
def command(
    uri: str | None,
    files: tuple[str, ...],
    data: tuple[str, ...],
    nodes: tuple[str, ...],
    edges: tuple[str, ...],
    form: str | None,
    mapping: tuple[str, ...],
    csv_options: tuple[str, ...],
    mode: str,
    branch: str,
    base: str | None,
    embed: str,
    on_error: str,
    quarantine: Path | None,
    max_errors: int | None,
    on_duplicate: str,
    missing: str | None,
    null_cells: str,
    edge_identity: str | None,
    cascade: bool,
    message: str | None,
    properties: dict[str, str],
    job: str | None,
    external_blob_bases: tuple[str, ...],
    dry_run: bool,
    engine: str,
    spark_master: str | None,
    spark_remote: str | None,
    as_json: bool,
) -> None:
    """Load files of nodes and edges as one commit, or not at all.

    Graph records name their types. Tables (CSV, TSV, Parquet, Arrow, ORC, JSON) are given by type:
    FILE with --node TYPE, or --node TYPE=FILE.
    """
    on_spark = wants_spark(engine, spark_master=spark_master, spark_remote=spark_remote)
    if uri is not None and has_scope():
        # The graph is addressed by a flag, so the first argument is a file.
        files = (uri, *files)
        uri = None
    source = load_input(
        files=(*files, *data),
        nodes=nodes,
        edges=edges,
        form=form,
        mapping=mapping,
        csv_options=csv_options,
    )
    refuse_served_spark(uri, on_spark=on_spark)
    if mode == "overwrite" and not dry_run:
        require_consent("load --mode overwrite", resolve_address(uri), as_json=as_json)
    graph, out = open_target(uri, as_json=as_json, read_only=dry_run)
    result = graph.load(
        source,
        mode=mode,
        format=form,
        branch=branch,
        from_branch=base,
        embed=embed,
        on_error=on_error,
        quarantine=quarantine,
        max_errors=max_errors,
        on_duplicate=on_duplicate,
        missing=missing,
        null_cells=null_cells,
        edges=edge_identity,
        cascade=cascade,
        message=message,
        properties=properties,
        job=job,
        external_blob_bases=external_blob_bases,
        dry_run=dry_run,
        engine=engine,
        spark=spark_session(spark_master=spark_master, spark_remote=spark_remote),
        progress=not flags().quiet,
        actor_id=acting(),
    )
    out.engine(result.engine, result.engine_reason)
    shape = {"uri": graph.uri, **result.to_json()}
    if base is None:
        del shape["base_branch"]
    shape.pop("actor_id", None)
    out.result(load_text(result), shape)
