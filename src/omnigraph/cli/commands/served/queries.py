"""`omnigraph queries …`: the stored queries of a cluster or a server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.address import (
    ConflictingAddressError,
    open_graph,
    resolve_cluster,
    resolve_scope,
)
from omnigraph.cli.commands.served.applied import chosen_graphs
from omnigraph.cli.options.flags import ScopedGroup
from omnigraph.cli.output.output import Output, json_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnigraph.cli.address import Scope
    from omnigraph.cluster.applied import AppliedGraph


@click.group("queries", cls=ScopedGroup)
def command() -> None:
    """See and check the stored queries of a cluster or a server."""


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the stored queries by name."""
    scope = resolve_scope()
    shapes = _applied(scope) if scope.kind == "cluster" else _served(scope)
    lines = [line for shape in shapes for line in _lines(shape)]
    text = "\n".join(lines) or "(no stored queries registered)"
    Output(as_json=as_json).result(text, {"queries": shapes})


def _served(scope: Scope) -> list[dict[str, Any]]:
    from omnigraph.graph import Graph  # noqa: PLC0415 loads Lance

    graph = None if scope.kind == "store" else open_graph(read_only=True)
    if graph is None or isinstance(graph, Graph):
        raise ConflictingAddressError(
            f"`queries list` needs a cluster or a server and {scope.target} is one graph:"
            " give `--cluster <dir|uri>` or `--server <name|url> --graph <id>`"
        )
    return [_shape(one) for one in graph.list_queries()]


def _applied(scope: Scope) -> list[dict[str, Any]]:
    """Return the queries of the picked graph, else of all, each with its graph."""
    from omnigraph.graph import register_queries  # noqa: PLC0415 loads Lance

    graphs = chosen_graphs(scope)
    found = [
        (entry["name"], graph.graph_id, _shape(entry))
        for graph in graphs
        for entry in register_queries(graph.queries).catalog()
    ]
    found.sort(key=lambda one: one[:2])
    if len(graphs) == 1:
        return [shape for _, _, shape in found]
    return [{**shape, "graph_id": graph_id} for _, graph_id, shape in found]


@command.command("validate")
@json_option
def validate(as_json: bool) -> None:
    """Check the stored queries of a cluster against the schemas that its graphs have now."""
    scope = resolve_cluster()
    graphs = chosen_graphs(scope)
    breakages: list[dict[str, str]] = []
    warnings: list[dict[str, str]] = []
    for graph in graphs:
        broken, warned = _checked(graph)
        name = {} if len(graphs) == 1 else {"graph_id": graph.graph_id}
        breakages += [{**name, **one} for one in broken]
        warnings += [{**name, **one} for one in warned]
    shape = {"ok": not breakages, "breakages": breakages, "warnings": warnings}
    lines = [f"ERROR {_said(one)}" for one in breakages]
    lines += [f"WARN  {_said(one)}" for one in warnings]
    count = sum(len(graph.queries) for graph in graphs)
    lines += [] if breakages else [f"{count} stored queries hold"]
    Output(as_json=as_json).result("\n".join(lines), shape)
    sys.exit(1 if breakages else 0)


def _checked(applied: AppliedGraph) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return what is broken, and what is worth a warning."""
    from omnigraph.graph import (  # noqa: PLC0415 loads Lance
        Graph,
        OpenMode,
        RegistryError,
        register_queries,
        require_queries_hold,
    )

    try:
        registry = register_queries(applied.queries)
        with Graph.open(applied.uri, mode=OpenMode.READ_ONLY) as graph:
            require_queries_hold(registry, graph.schema.source())
    except RegistryError as error:
        return [{"query": one.key, "message": one.message} for one in error.problems], []
    return [], [{"query": one.key, "message": one.message} for one in registry.warnings]


def _said(one: Mapping[str, str]) -> str:
    graph = f"{one['graph_id']}." if "graph_id" in one else ""
    return f"{graph}{one['query']}: {one['message']}"


def _shape(entry: Mapping[str, Any]) -> dict[str, Any]:
    params = [
        {"name": one["name"], "type": _type(one), "nullable": one["nullable"]}
        for one in entry["params"]
    ]
    # Only those that are exposed are listed.
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
    graph = f"  ({shape['graph_id']})" if "graph_id" in shape else ""
    yield f"{kind}  {shape['name']}({params}){graph}"
    for name in ("description", "instruction"):
        first, *more = shape.get(name, "").splitlines() or [""]
        if first:
            yield f"  {name}: {first}"
        yield from (f"  {' ' * len(name)}  {line}" for line in more)
