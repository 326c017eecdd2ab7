"""`omnigraph profile …`: the addresses in the operator's file."""

from __future__ import annotations

import os

import click

from omnigraph.cli.address import operator
from omnigraph.cli.config.operator_config import InvalidProfileError, OperatorConfig
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.output.output import Output, json_option
from omnigraph.texts import redacted

_DEFAULTS = "(defaults)"


@click.group("profile", cls=ScopedGroup)
def command() -> None:
    """See the addresses that the operator's configuration names."""


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the profiles, broken ones too."""
    settings = operator()
    active = os.environ.get("OMNIGRAPH_PROFILE")
    shapes = [_row(settings, name, active) for name in sorted(settings.profiles)]
    lines = [
        f"{'*' if shape['active'] else ' '} {shape['name']}  {shape['binding']}" for shape in shapes
    ]
    Output(as_json=as_json).result("\n".join(lines) or "(no profiles)", shapes)


@command.command("show")
@click.argument("name", required=False)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show one profile, else the active one, else the defaults."""
    settings = operator()
    name = name or os.environ.get("OMNIGRAPH_PROFILE")
    if name:
        found = settings.profile(name)
        shape = _shown(settings, name, found.kind, found.target, found.default_graph)
    else:
        shape = _defaults(settings)
    text = "\n".join(f"{key}: {value}" for key, value in shape.items() if value is not None)
    Output(as_json=as_json).result(text, shape)


def _row(settings: OperatorConfig, name: str, active: str | None) -> dict[str, object]:
    shape: dict[str, object] = {
        "name": name,
        "binding": "",
        "scope_kind": None,
        "target": None,
        "valid": True,
        "error": None,
        "default_graph": None,
        "active": name == active,
    }
    try:
        profile = settings.profile(name)
    except InvalidProfileError as error:
        problem = {"binding": f"invalid: {error.problem}", "valid": False, "error": str(error)}
        return shape | problem
    return shape | {
        "binding": f"{profile.kind}: {redacted(profile.target)}",
        "scope_kind": profile.kind,
        "target": redacted(profile.target),
        "default_graph": profile.default_graph,
    }


def _shown(
    settings: OperatorConfig, name: str, kind: str, target: str | None, graph: str | None
) -> dict[str, object]:
    return {
        "name": name,
        "scope_kind": kind,
        "target": None if target is None else redacted(target),
        "endpoint": None if target is None else _endpoint(settings, kind, target),
        "default_graph": graph,
        "output_format": settings.output or "table",
    }


def _defaults(settings: OperatorConfig) -> dict[str, object]:
    kind, target = "none", None
    if settings.default_server:
        kind, target = "server", settings.default_server
    elif settings.default_store:
        kind, target = "store", settings.default_store
    return _shown(settings, _DEFAULTS, kind, target, settings.default_graph)


def _endpoint(settings: OperatorConfig, kind: str, target: str) -> str | None:
    if kind == "store" or "://" in target:
        return redacted(target)
    known = settings.servers if kind == "server" else settings.clusters
    return redacted(known[target]) if target in known else None
