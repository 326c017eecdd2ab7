"""A cluster in storage, written without its commands: graphs, blobs and a ledger.

Each call of `apply` makes the next revision. What a test wants to be wrong it changes afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph.cluster.addresses import parse_address, policy_address, query_address
from omnigraph.cluster.compare.composites import Composer
from omnigraph.cluster.desired import BlobBase, EmbeddingProfile
from omnigraph.cluster.digests import content_digest, provider_digest
from omnigraph.cluster.stored.catalog import write_blob
from omnigraph.cluster.stored.intents import Intent, IntentKind, write_intent
from omnigraph.cluster.stored.ledger import (
    LEDGER_PATH,
    Entry,
    read_ledger,
    write_ledger,
)
from omnigraph.cluster.stored.root import StorageRoot, open_root
from omnigraph.graph import Graph, apply_schema_by_cluster


@dataclass(frozen=True)
class GraphParts:
    """What is applied of one graph."""

    schema: str
    queries: Mapping[str, str] = field(default_factory=dict)
    """Query name to text."""
    provider: str | None = None
    bases: tuple[BlobBase, ...] = ()


@dataclass(frozen=True)
class Bundle:
    """A policy, and what it is bound to."""

    text: str
    applies_to: tuple[str, ...]


@dataclass(frozen=True)
class Parts:
    """Everything that is applied."""

    graphs: Mapping[str, GraphParts] = field(default_factory=dict)
    policies: Mapping[str, Bundle] = field(default_factory=dict)
    providers: Mapping[str, EmbeddingProfile] = field(default_factory=dict)


class AppliedCluster:
    """A storage root that tests write to."""

    def __init__(self, storage: str) -> None:
        self.root: StorageRoot = open_root(storage)
        self.parts = Parts()

    @property
    def uri(self) -> str:
        """The root as `--cluster` takes it: a URI also on disk."""
        return f"file://{self.root.uri}" if "://" not in self.root.uri else self.root.uri

    def graph_uri(self, graph_id: str) -> str:
        return self.root.graph_uri(graph_id)

    def apply(self, parts: Parts) -> int:
        """Make the graphs of this state, then record it; return the number of the revision."""
        self.move_graphs(parts)
        return self.record(parts)

    def move_graphs(self, parts: Parts) -> None:
        """Create graphs and change schemas, as `apply` does before it writes the ledger."""
        for graph_id, graph in parts.graphs.items():
            before = self.parts.graphs.get(graph_id)
            if before is None:
                uri = self.graph_uri(graph_id)
                Graph.init(uri, graph.schema, durability="process", by_cluster=True).close()
            elif before.schema != graph.schema:
                with Graph.open(self.graph_uri(graph_id), durability="process") as found:
                    apply_schema_by_cluster(found.schema, graph.schema)

    def record(self, parts: Parts) -> int:
        """Write blobs, then the ledger."""
        resources = dict(_resources(parts))
        composer = Composer(resources)
        for graph_id, graph in parts.graphs.items():
            for name, text in graph.queries.items():
                write_blob(self.root, query_address(graph_id, name), text.encode())
            provider = None if graph.provider is None else parse_address(graph.provider)
            resources[f"graph.{graph_id}"] = composer.composed(
                graph_id, provider=provider, blob_bases=graph.bases
            )
        for name, bundle in parts.policies.items():
            write_blob(self.root, policy_address(name), bundle.text.encode())
        stored = read_ledger(self.root)
        number = stored.ledger.state_revision + 1
        ledger = replace(stored.ledger, state_revision=number).with_resources(
            resources, config_digest="c0"
        )
        write_ledger(self.root, ledger, base=stored.identity)
        self.parts = parts
        return number

    def edit_ledger(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the text of the ledger in place, as someone with an editor would."""
        value = json.loads(self.root.objects.get(LEDGER_PATH).data)
        change(value)
        self.root.objects.put(LEDGER_PATH, json.dumps(value).encode())

    def begin(self, graph_id: str | None, kind: IntentKind = "schema_apply") -> str:
        """Write the intent of an operation; return its path."""
        intent = Intent(
            schema_version=1,
            operation_id="01J00000000000000000000000",
            started_at="2026-01-01T00:00:00.000Z",
            actor=None,
            kind=kind,
            graph_id=graph_id,
        )
        write_intent(self.root, intent)
        return intent.path


def _resources(parts: Parts) -> Mapping[str, Entry]:
    found: dict[str, Entry] = {}
    for name, profile in parts.providers.items():
        entry = Entry(provider_digest(profile), embedding_profile=profile)
        found[f"provider.embedding.{name}"] = entry
    for name, bundle in parts.policies.items():
        digest = content_digest(bundle.text.encode())
        found[f"policy.{name}"] = Entry(digest, applies_to=bundle.applies_to)
    for graph_id, graph in parts.graphs.items():
        found[f"schema.{graph_id}"] = Entry(content_digest(graph.schema.encode()))
        for name, text in graph.queries.items():
            found[f"query.{graph_id}.{name}"] = Entry(content_digest(text.encode()))
    return found
