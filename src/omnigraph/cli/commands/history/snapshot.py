"""`omnigraph snapshot`."""

from __future__ import annotations

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import Output, json_option
from omnigraph.names import INTERNAL_SCHEMA_VERSION, TableKey


@click.command("snapshot", cls=ScopedCommand)
@graph_address(positional=True)
@click.option("--branch", default="main", show_default=True, help="The branch.")
@json_option
def command(uri: str | None, branch: str, as_json: bool) -> None:
    """Show which version of which dataset a branch publishes."""
    from omnigraph.graph import ReadTarget  # noqa: PLC0415 loads Lance

    snapshot = open_graph(uri, read_only=True).snapshot_of(ReadTarget.branch(branch))
    datasets = []
    for key, entry in snapshot.entries.items():
        kind, name = TableKey(key).parts
        datasets.append(
            {
                "entity_kind": kind,
                "type_name": name,
                "dataset_path": entry.location,
                "published_dataset_version": entry.table_version,
                "native_dataset_branch": entry.table_branch,
                "entity_count": entry.row_count,
            }
        )
    shape = {
        "graph_branch": branch,
        "graph_manifest_version": snapshot.manifest_version,
        "internal_schema_version": INTERNAL_SCHEMA_VERSION,
        "datasets": datasets,
    }
    lines = [f"branch {branch} at manifest version {snapshot.manifest_version}"]
    lines += [
        f"{d['entity_kind']} type '{d['type_name']}': {d['entity_count']} entities,"
        f" version {d['published_dataset_version']}"
        for d in datasets
    ]
    Output(as_json=as_json).result("\n".join(lines), shape)
