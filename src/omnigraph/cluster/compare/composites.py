"""The digest of a graph is that of its parts: it is computed from them, and never only stored."""

from __future__ import annotations

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


def composed(
    graph_id: str,
    resources: Mapping[str, Entry],
    *,
    provider: Address | None,
    blob_bases: tuple[BlobBase, ...],
) -> Entry:
    """Return the entry of a graph from the entries of its parts."""
    schema = resources.get(str(schema_address(graph_id)))
    binding = None
    if provider is not None:
        bound = resources.get(str(provider))
        binding = ProviderBinding(provider, None if bound is None else bound.digest)
    digest = graph_digest(
        graph_id,
        schema=None if schema is None else schema.digest,
        queries=_queries(graph_id, resources),
        provider=binding,
        blob_bases=blob_bases,
    )
    return Entry(
        digest,
        embedding_provider=None if provider is None else str(provider),
        external_blob_policy=BlobPolicy(bases=blob_bases) if blob_bases else None,
    )


def recomposed(graph_id: str, resources: Mapping[str, Entry]) -> Entry:
    """Return the entry of a graph with its applied provider and blob policy, and a new digest."""
    return composed(
        graph_id,
        resources,
        provider=applied_provider(resources.get(str(graph_address(graph_id)))),
        blob_bases=applied_bases(resources.get(str(graph_address(graph_id)))),
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
    problems = []
    for address, entry in ledger.entries.items():
        if address.kind is not Kind.GRAPH:
            continue
        expected = recomposed(address.name, ledger.resources)
        if expected.digest != entry.digest:
            message = (
                f"the ledger records the digest {entry.digest}, its parts have {expected.digest};"
                " put a ledger back that you trust"
            )
            problems.append(error("external_blob_policy_digest_mismatch", str(address), message))
    return tuple(problems)


def _queries(graph_id: str, resources: Mapping[str, Entry]) -> dict[str, str]:
    prefix = f"{Kind.QUERY}.{graph_id}."
    return {
        text.removeprefix(prefix): entry.digest
        for text, entry in resources.items()
        if text.startswith(prefix)
    }
