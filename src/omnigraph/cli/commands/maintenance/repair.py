"""`omnigraph repair`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_graph, resolve_address, storage_options
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import Output, json_option, type_label
from omnigraph.names import MAIN
from omnigraph.wire.outcomes import EXIT_FAILURE

if TYPE_CHECKING:
    from omnigraph.graph import BrokenManifest, TableRepair


@click.command("repair", cls=ScopedCommand)
@graph_address
@click.option("--confirm", is_flag=True, help="Publish drift that is verified upkeep.")
@click.option("--force", is_flag=True, help="With --confirm: publish all other drift as well.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    uri: str | None,
    confirm: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Look for versions that came from outside, and publish what an operator accepts.

    A branch whose newest manifest version cannot be used comes first: --confirm puts the version
    below back.
    """
    from omnigraph.graph import Graph  # noqa: PLC0415 loads Lance

    if force and not confirm:
        raise click.UsageError("--force needs --confirm")
    out = Output(as_json=as_json)
    broken = Graph.repair_manifests(
        resolve_address(uri), storage_options=storage_options(), confirm=confirm
    )
    if any(manifest.restored_version is None for manifest in broken):
        shape = {
            "uri": resolve_address(uri),
            "confirm": confirm,
            "force": force,
            "graph_manifest_version": None,
            "datasets": [],
            **_manifests_shape(broken),
        }
        out.result("\n".join(map(_manifest_line, broken)), shape)
        context.exit(EXIT_FAILURE)
    with open_graph(uri, read_only=not confirm) as graph:
        out.write_target(graph.uri)
        report = graph.repair(confirm=confirm, force=force)
        text = "\n".join([*map(_manifest_line, broken), *map(_line, report.tables)])
        more = _manifests_shape(broken) if broken else {}
        out.result(text, {"uri": graph.uri, **report.to_json(), **more})
    if report.has_refusals:
        context.exit(EXIT_FAILURE)


def _manifests_shape(broken: Sequence[BrokenManifest]) -> dict[str, object]:
    return {"manifests": [manifest.to_json() for manifest in broken]}


def _manifest_line(manifest: BrokenManifest) -> str:
    found = (
        f"branch '{manifest.branch}': manifest version {manifest.version} cannot be used:"
        f" {manifest.problem}"
    )
    if manifest.restored_version is not None:
        return f"{found}; version {manifest.usable_version} was put back"
    if manifest.usable_version is not None:
        return f"{found}; `--confirm` puts version {manifest.usable_version} back"
    return f"{found}; the version below is gone: restore `__manifest` from a backup"


def _line(table: TableRepair) -> str:
    label = type_label(table.table_key)
    if table.branch != MAIN:
        label = f"{label} on branch '{table.branch}'"
    problem = f"; {table.error}" if table.error else ""
    if table.action == "no_op":
        return f"{label}: no drift{problem}"
    found = ", ".join(table.operations) or "unreadable"
    return (
        f"{label}: {table.classification} ({found}) between published"
        f" {table.published_version} and head {table.head_version}: {table.action}{problem}"
    )
