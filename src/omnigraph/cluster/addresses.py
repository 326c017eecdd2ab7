"""Addresses of the resources of a cluster.

| kind | address |
|---|---|
| graph | `graph.<id>` |
| schema | `schema.<graph id>` |
| query | `query.<graph id>.<name>` |
| policy | `policy.<name>` |
| embedding provider | `provider.embedding.<name>` |
| pipeline | `pipeline.<name>` |

Names have no dots, so an address is read in one way only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What a resource is."""

    GRAPH = "graph"
    SCHEMA = "schema"
    QUERY = "query"
    POLICY = "policy"
    EMBEDDING_PROVIDER = "embedding_provider"
    PIPELINE = "pipeline"


_PREFIXES: Final = {
    Kind.GRAPH: ("graph",),
    Kind.SCHEMA: ("schema",),
    Kind.QUERY: ("query",),
    Kind.POLICY: ("policy",),
    Kind.EMBEDDING_PROVIDER: ("provider", "embedding"),
    Kind.PIPELINE: ("pipeline",),
}
_NAMES_BY_KIND: Final = {kind: 2 if kind is Kind.QUERY else 1 for kind in Kind}


@dataclass(frozen=True)
class Address:
    """The address of one resource; `names` is a name, or a graph and a query.

    >>> str(query_address("papers", "by_doi"))
    'query.papers.by_doi'
    """

    kind: Kind
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((*_PREFIXES[self.kind], *self.names))

    @property
    def name(self) -> str:
        """The name of the resource inside its graph, or inside the cluster."""
        return self.names[-1]

    @property
    def graph_id(self) -> str | None:
        """The graph that it is or belongs to; none for policies, providers and pipelines."""
        is_in_graph = self.kind in (Kind.GRAPH, Kind.SCHEMA, Kind.QUERY)
        return self.names[0] if is_in_graph else None


def graph_address(graph_id: str) -> Address:
    """Return the address of a graph."""
    return Address(Kind.GRAPH, (graph_id,))


def schema_address(graph_id: str) -> Address:
    """Return the address of the schema of a graph."""
    return Address(Kind.SCHEMA, (graph_id,))


def query_address(graph_id: str, name: str) -> Address:
    """Return the address of a stored query."""
    return Address(Kind.QUERY, (graph_id, name))


def policy_address(name: str) -> Address:
    """Return the address of a policy bundle."""
    return Address(Kind.POLICY, (name,))


def provider_address(name: str) -> Address:
    """Return the address of an embedding provider."""
    return Address(Kind.EMBEDDING_PROVIDER, (name,))


def pipeline_address(name: str) -> Address:
    """Return the address of a pipeline."""
    return Address(Kind.PIPELINE, (name,))


def parse_address(text: str) -> Address | None:
    """Read an address; none if the text is not one.

    >>> parse_address("provider.embedding.emb").kind
    <Kind.EMBEDDING_PROVIDER: 'embedding_provider'>
    >>> parse_address("query.papers") is None
    True
    """
    parts = tuple(text.split("."))
    for kind, prefix in _PREFIXES.items():
        names = parts[len(prefix) :]
        if parts[: len(prefix)] == prefix and len(names) == _NAMES_BY_KIND[kind] and all(names):
            return Address(kind, names)
    return None
