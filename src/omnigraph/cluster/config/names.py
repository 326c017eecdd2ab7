"""Names of declared resources, and how one refers to another."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from omnigraph.cluster.addresses import Address, Kind, graph_address, parse_address
from omnigraph.cluster.config.shape import below
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.names import GRAPH_ID_LENGTH_MAX, GRAPH_IDS_RESERVED, is_servable, nearest_name
from omnigraph.strict_yaml import quoted

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LENGTH_MAX: Final = 255
"""Names are parts of paths in the storage root."""


def check_name(what: str, name: str, path: str) -> list[Diagnostic]:
    """Return what is wrong with the name of a resource."""
    if not _NAME.fullmatch(name):
        rule = "use letters, digits, `_` and `-`, and begin with a letter or `_`"
    elif len(name) > _LENGTH_MAX:
        rule = f"use at most {_LENGTH_MAX} characters"
    else:
        return []
    message = f"{quoted(name)} cannot be the name of a {what}: {rule}"
    return [error("invalid_resource_id", path, message)]


def check_names(what: str, names: Iterable[str], path: str) -> list[Diagnostic]:
    """Return what is wrong with the names of resources that stand in one map."""
    return [found for name in names for found in check_name(what, name, below(path, name))]


def check_graph_ids(graph_ids: Iterable[str]) -> list[Diagnostic]:
    """Return what is wrong with ids of graphs; a server has to be able to serve each of them."""
    ids = tuple(graph_ids)
    wrong = [found for graph_id in ids for found in _check_graph_id(graph_id)]
    return [*wrong, *_check_case(ids)]


def _check_case(graph_ids: Iterable[str]) -> list[Diagnostic]:
    """Return ids that would share a folder on a disk that ignores the case of letters."""
    first: dict[str, str] = {}
    found = []
    for graph_id in graph_ids:
        other = first.setdefault(graph_id.lower(), graph_id)
        if other != graph_id:
            message = (
                f"{quoted(graph_id)} cannot be the id of a graph: it differs from {quoted(other)}"
                " in the case of letters alone, and some disks would keep both in one folder"
            )
            found.append(error("invalid_resource_id", below("graphs", graph_id), message))
    return found


def _check_graph_id(graph_id: str) -> list[Diagnostic]:
    path = below("graphs", graph_id)
    if graph_id in GRAPH_IDS_RESERVED:
        rule = "a server has a route of that name"
    elif not _NAME.fullmatch(graph_id) or not is_servable(graph_id):
        rule = (
            "a server takes letters, digits and `-`, beginning with a letter, and at most"
            f" {GRAPH_ID_LENGTH_MAX} characters"
        )
    else:
        return []
    message = f"{quoted(graph_id)} cannot be the id of a graph: {rule}"
    return [error("invalid_resource_id", path, message)]


def resolve_graph(
    text: str, graph_ids: Collection[str], path: str
) -> tuple[Address | None, list[Diagnostic]]:
    """Return the graph that `<id>` or `graph.<id>` refers to, or what is wrong."""
    address = _resolved(text, Kind.GRAPH)
    if address is None:
        return None, [_wrong_kind(text, path, "`<id>` or `graph.<id>`")]
    return find_graph(address.name, graph_ids, path)


def find_graph(
    graph_id: str, graph_ids: Collection[str], path: str
) -> tuple[Address | None, list[Diagnostic]]:
    """Return the graph of an id, or that it is not declared."""
    if graph_id in graph_ids:
        return graph_address(graph_id), []
    remedy = _remedy(graph_id, graph_ids, "no graph is declared")
    message = f"there is no graph {quoted(graph_id)}; {remedy}"
    return None, [error("dangling_graph_reference", path, message)]


def resolve_provider(
    text: str, names: Collection[str], path: str
) -> tuple[Address | None, list[Diagnostic]]:
    """Return the provider that `<name>` or `provider.embedding.<name>` refers to, or what is wrong.

    A provider that is not declared has an address too.
    """
    address = _resolved(text, Kind.EMBEDDING_PROVIDER)
    if address is None:
        return None, [_wrong_kind(text, path, "`<name>` or `provider.embedding.<name>`")]
    if address.name in names:
        return address, []
    remedy = _remedy(address.name, names, "no embedding provider is declared")
    message = f"there is no embedding provider {quoted(address.name)}; {remedy}"
    return address, [error("dangling_embedding_provider_reference", path, message)]


def _resolved(text: str, kind: Kind) -> Address | None:
    if "." not in text:
        return Address(kind, (text,))
    address = parse_address(text)
    return address if address is not None and address.kind is kind else None


def _wrong_kind(text: str, path: str, expected: str) -> Diagnostic:
    return error("wrong_kind_reference", path, f"{quoted(text)} is not {expected}")


def _remedy(name: str, declared: Iterable[str], nothing: str) -> str:
    names = sorted(declared)
    near = nearest_name(name, names)
    if near is not None:
        return f"did you mean {quoted(near)}?"
    return f"declared are {', '.join(names)}" if names else nothing
