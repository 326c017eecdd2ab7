"""`omnigraph cluster validate`."""

from __future__ import annotations

from collections import Counter
from typing import Final

import click

from omnigraph.cli.options.cluster import config_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.cluster_report import (
    dependencies_json,
    digests_json,
    end_with_report,
    resources_json,
)
from omnigraph.cli.output.output import json_option
from omnigraph.cluster.addresses import Kind
from omnigraph.cluster.desired import Desired

_COUNTED: Final = {
    Kind.GRAPH: ("graph", "graphs"),
    Kind.QUERY: ("query", "queries"),
    Kind.POLICY: ("policy", "policies"),
    Kind.EMBEDDING_PROVIDER: ("embedding provider", "embedding providers"),
    Kind.PIPELINE: ("pipeline", "pipelines"),
}


@click.command("validate", cls=ScopedCommand)
@config_option
@json_option
def command(config_dir: str, as_json: bool) -> None:
    """Check what `cluster.yaml` and the files that it names declare; nothing is changed."""
    from omnigraph.cluster.load_desired import (  # noqa: PLC0415 loads the languages
        default_deny_warnings,
        load_desired,
    )

    desired = load_desired(config_dir)
    end_with_report(
        config_dir=desired.config_dir,
        diagnostics=[*desired.diagnostics, *default_deny_warnings(desired)],
        lines=[_summary(desired)],
        members={
            "config_file": desired.config_file,
            "resource_digests": digests_json(desired),
            "resources": resources_json(desired),
            "dependencies": dependencies_json(desired),
        },
        as_json=as_json,
    )


def _summary(desired: Desired) -> str:
    errors = sum(found.severity == "error" for found in desired.diagnostics)
    if errors:
        return _counted(errors, "error", "errors")
    counts = Counter(address.kind for address in desired.resources)
    parts = [
        _counted(counts[kind], one, many)
        for kind, (one, many) in _COUNTED.items()
        if counts[kind] or kind is Kind.GRAPH
    ]
    return f"{desired.config_file} is valid: {', '.join(parts)}"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
