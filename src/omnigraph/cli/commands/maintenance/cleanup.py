"""`omnigraph cleanup`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import graph_address, open_target, resolve_address
from omnigraph.cli.options.consent import require_consent
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.options.spelled import DURATION
from omnigraph.cli.output.output import json_option, type_label
from omnigraph.cli.output.streams import say
from omnigraph.wire import EXIT_FAILURE

if TYPE_CHECKING:
    from omnigraph.graph import DatasetCleanup


@click.command("cleanup", cls=ScopedCommand)
@graph_address
@click.option("--keep", type=click.IntRange(min=1), help="Keep this many versions; 10 is good.")
@click.option("--older-than", type=DURATION, help="Remove only what is older, such as 30d.")
@click.option(
    "--orphan-age",
    type=DURATION,
    default="24h",
    show_default=True,
    help="Leave files, forks and datasets alone that are younger.",
)
@click.option("--confirm", is_flag=True, help="Remove; without it nothing is removed.")
@json_option
def command(
    uri: str | None,
    keep: int | None,
    older_than: int | None,
    orphan_age: int,
    confirm: bool,
    as_json: bool,
) -> None:
    """Remove old versions and leftovers that nothing needs."""
    if keep is None and older_than is None:
        raise click.UsageError("give --keep N, --older-than D, or both")
    address = resolve_address(uri)
    if confirm:
        require_consent("cleanup", address, as_json=as_json)
    graph, out = open_target(uri, as_json=as_json, read_only=not confirm)
    with graph:
        result = graph.cleanup(
            keep_versions=keep, older_than_s=older_than, orphan_age_s=orphan_age, confirm=confirm
        )
        if result.warning:
            say(f"warning: {result.warning}", err=True)
        lines = [_line(each, confirm=confirm) for each in result.datasets]
        if not confirm:
            what = result.policy.describe()
            click.echo(f"would remove {what}; --confirm removes them", err=True)
            say("\n".join(lines), err=True)
            return
        out.result("\n".join(lines), {"uri": graph.uri, **result.to_json()})
    if result.failed:
        click.get_current_context().exit(EXIT_FAILURE)


def _line(dataset: DatasetCleanup, *, confirm: bool) -> str:
    label = type_label(dataset.type_key)
    if dataset.error is not None:
        return f"{label}: failed: {dataset.error} [{dataset.error_code}]"
    verb = "removed" if confirm else "would remove"
    parts = [f"{dataset.old_versions_removed} versions", f"{dataset.bytes_removed} bytes"]
    if dataset.files_removed and not dataset.old_versions_removed:
        parts.append(f"{dataset.files_removed} files")
    if dataset.forks_removed:
        parts.append(f"{dataset.forks_removed} forks")
    if dataset.dataset_removed:
        parts.append("the whole dataset")
    return f"{label}: {verb} {', '.join(parts)}"
