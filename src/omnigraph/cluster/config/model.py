"""`cluster.yaml` as it was written, after its shape has been checked. Maps are sorted by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from omnigraph.cluster.desired import Scope
from omnigraph.records import OPTIONAL, Json, JsonObject, to_json

Queries: TypeAlias = "str | tuple[str, ...] | Mapping[str, str]"
"""A directory or file, a list of these, or a file for each name."""


@dataclass(frozen=True)
class ProviderConfig:
    """What is written below `providers.embedding.<name>`."""

    kind: str | None = field(default=None, metadata=OPTIONAL)
    base_url: str | None = field(default=None, metadata=OPTIONAL)
    model: str | None = field(default=None, metadata=OPTIONAL)
    api_key: str | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class AllowedBase:
    """One item of `external_blobs.allow`."""

    base: str
    scope: Scope


@dataclass(frozen=True)
class GraphConfig:
    """What is written below `graphs.<id>`."""

    schema: str
    queries: Queries
    embedding_provider: str | None = None
    external_blobs: tuple[AllowedBase, ...] = ()

    def as_json(self) -> JsonObject:
        """Return the form that the digest covers."""
        members: JsonObject = {
            "schema": self.schema,
            "queries": _queries_json(self.queries),
            "embedding_provider": self.embedding_provider,
        }
        if self.external_blobs:
            members["external_blobs"] = {"allow": to_json(self.external_blobs)}
        return members


@dataclass(frozen=True)
class PolicyConfig:
    """What is written below `policies.<name>`."""

    file: str
    applies_to: tuple[str, ...]


@dataclass(frozen=True)
class PipelineConfig:
    """What is written below `pipelines.<name>`."""

    file: str


@dataclass(frozen=True)
class ClusterConfig:
    """A configuration of the right shape; nothing that it refers to has been read."""

    name: str | None = None
    storage: str | None = None
    state_backend: str | None = None
    state_lock: bool | None = None
    providers: Mapping[str, ProviderConfig] = field(default_factory=dict)
    graphs: Mapping[str, GraphConfig] = field(default_factory=dict)
    policies: Mapping[str, PolicyConfig] = field(default_factory=dict)
    pipelines: Mapping[str, PipelineConfig] = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """Return the form that the digest covers: formatting and comments are gone."""
        members: JsonObject = {
            "version": 1,
            "metadata": {"name": self.name},
            "storage": self.storage,
            "state": {"backend": self.state_backend, "lock": self.state_lock},
            "providers": {"embedding": _members_json(self.providers)},
            "graphs": {graph_id: graph.as_json() for graph_id, graph in self.graphs.items()},
            "policies": _members_json(self.policies),
        }
        if self.pipelines:
            members["pipelines"] = _members_json(self.pipelines)
        return members


def _members_json(members: Mapping[str, object]) -> JsonObject:
    return {name: to_json(member) for name, member in members.items()}


def _queries_json(queries: Queries) -> Json:
    if isinstance(queries, str):
        return queries
    if isinstance(queries, tuple):
        return list(queries)
    return {name: {"file": file} for name, file in queries.items()}
