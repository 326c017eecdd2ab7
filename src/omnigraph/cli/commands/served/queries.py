"""`omnigraph queries …`: the stored queries of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.address import ConflictingAddressError, open_graph, resolve_scope
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.output.output import Output, json_option
from omnigraph.cli.planned import PlannedCommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@click.group("queries", cls=ScopedGroup)
def command() -> None:
    """See the stored queries of a served graph."""


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the stored queries by name."""
    from omnigraph.graph import Graph  # noqa: PLC0415 loads Lance

    scope = resolve_scope()
    graph = None if scope.kind == "store" else open_graph(read_only=True)
    if graph is None or isinstance(graph, Graph):
        raise ConflictingAddressError(
            f"`queries list` needs a cluster or a server and {scope.target} is one graph:"
            " give `--server <name|url> --graph <id>`"
        )
    shapes = [_shape(one) for one in graph.list_queries()]
    lines = [line for shape in shapes for line in _lines(shape)]
    text = "\n".join(lines) or "(no stored queries registered)"
    Output(as_json=as_json).result(text, {"queries": shapes})


@command.command(
    "validate",
    hidden=True,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def validate() -> None:
    """Check the stored queries of a cluster against their schemas."""
    raise PlannedCommandError(("queries", "validate"))


def _shape(entry: Mapping[str, Any]) -> dict[str, Any]:
    params = [
        {"name": one["name"], "type": _type(one), "nullable": one["nullable"]}
        for one in entry["params"]
    ]
    # A server lists only those that it exposes.
    return {**entry, "mcp_expose": True, "params": params}


def _type(param: Mapping[str, Any]) -> str:
    if param["kind"] == "vector":
        return f"vector({param['vector_dim']})"
    return f"[{param['item_kind']}]" if param["kind"] == "list" else str(param["kind"])


def _lines(shape: Mapping[str, Any]) -> Iterator[str]:
    kind = "mutation" if shape["mutation"] else "read"
    params = ", ".join(
        f"${one['name']}: {one['type']}{'?' if one['nullable'] else ''}" for one in shape["params"]
    )
    yield f"{kind}  {shape['name']}({params})"
    for name in ("description", "instruction"):
        first, *more = shape.get(name, "").splitlines() or [""]
        if first:
            yield f"  {name}: {first}"
        yield from (f"  {' ' * len(name)}  {line}" for line in more)
