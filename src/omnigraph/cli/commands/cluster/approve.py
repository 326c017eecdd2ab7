"""`omnigraph cluster approve`."""

from __future__ import annotations

from functools import partial

import click

from omnigraph.cli.address import acting, storage_options
from omnigraph.cli.options.cluster import config_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.cluster_report import end_with
from omnigraph.cli.output.output import json_option
from omnigraph.errors import InvalidInputError


class ActorRequiredError(InvalidInputError):
    """An approval needs to say who gives it."""

    code = "OG-ACTOR-REQUIRED"
    hint = "give `--as ACTOR`, or set `operator.actor` in the operator's configuration"
    template = "an approval needs an actor"


@click.command("approve", cls=ScopedCommand)
@click.argument("resource")
@config_option
@json_option
def command(resource: str, config_dir: str, as_json: bool) -> None:
    """Allow the next `apply` to delete a graph that is no longer declared."""
    from omnigraph.cluster.commands.approve import approve  # noqa: PLC0415 loads Lance
    from omnigraph.cluster.commands.run import run_declared  # noqa: PLC0415 loads Lance

    actor = acting()
    if actor is None:
        raise ActorRequiredError
    given = partial(approve, resource=resource, actor=actor)
    end_with(
        config_dir,
        run_declared(config_dir, given, storage_options=storage_options()),
        as_json=as_json,
    )
