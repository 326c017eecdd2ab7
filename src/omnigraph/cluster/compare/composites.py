"""The digest of a graph is that of its parts: it is computed from them, and never only stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from omnigraph.cluster.addresses import (
    Address,
    Kind,
    graph_address,
    parse_address,
    schema_address,
)
from omnigraph.cluster.desired import BlobBase
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.cluster.digests import ProviderBinding, graph_digest
from omnigraph.cluster.stored.ledger import BlobPolicy, Entry, Ledger


class Composer:
    """Computes the entries of graphs from the entries of their parts.

    Parts are taken as they are when it is made; only entries of graphs may change afterwards.
    """

    def __init__(self, resources: Mapping[str, Entry]) -> None:
        self._resources = resources
        self._queries: dict[str, dict[str, str]] = defaultdict(dict)
        for text, entry in resources.items():
            address = parse_address(text)
            if address is not None and address.kind is Kind.QUERY:
                self._queries[address.names[0]][address.name] = entry.digest

    @property
    def graph_ids(self) -> tuple[str, ...]:
        """The graphs that have an entry."""
        prefix = f"{Kind.GRAPH}."
        return tuple(t.removeprefix(prefix) for t in self._resources if t.startswith(prefix))

    def composed(
        self, graph_id: str, *, provider: Address | None, blob_bases: tuple[BlobBase, ...]
    ) -> Entry:
        """Return the entry of a graph with this provider and blob policy."""
        schema = self._resources.get(str(schema_address(graph_id)))
        binding = None
        if provider is not None:
            bound = self._resources.get(str(provider))
            binding = ProviderBinding(provider, None if bound is None else bound.digest)
        digest = graph_digest(
            graph_id,
            schema=None if schema is None else schema.digest,
            queries=self._queries.get(graph_id, {}),
            provider=binding,
            blob_bases=blob_bases,
        )
        return Entry(
            digest,
            embedding_provider=None if provider is None else str(provider),
            external_blob_policy=BlobPolicy(bases=blob_bases) if blob_bases else None,
        )

    def recomposed(self, graph_id: str) -> Entry:
        """Return the entry of a graph with its applied provider and blob policy."""
        entry = self._resources.get(str(graph_address(graph_id)))
        return self.composed(
            graph_id, provider=applied_provider(entry), blob_bases=applied_bases(entry)
        )


def applied_provider(entry: Entry | None) -> Address | None:
    """Return the provider that a graph has in the ledger."""
    if entry is None or entry.embedding_provider is None:
        return None
    return parse_address(entry.embedding_provider)


def applied_bases(entry: Entry | None) -> tuple[BlobBase, ...]:
    """Return the bases of external blobs that a graph has in the ledger."""
    if entry is None or entry.external_blob_policy is None:
        return ()
    return entry.external_blob_policy.bases


def composite_problems(ledger: Ledger) -> tuple[Diagnostic, ...]:
    """Return an error for each graph whose digest is not that of its recorded parts."""
    composer = Composer(ledger.resources)
    problems = []
    for graph_id in composer.graph_ids:
        path = str(graph_address(graph_id))
        recorded, expected = ledger.resources[path].digest, composer.recomposed(graph_id).digest
        if recorded != expected:
            message = (
                f"the ledger records the digest {recorded}, its parts have {expected};"
                " put a ledger back that you trust"
            )
            problems.append(error("external_blob_policy_digest_mismatch", path, message))
    return tuple(problems)
