"""Digests of declared resources: lower-case SHA-256 in hexadecimal.

A digest covers what a resource means. Two configurations that differ in comments and formatting
have equal digests; another byte in a file gives another digest to everything that contains it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from omnigraph.cluster.addresses import Address
from omnigraph.cluster.desired import BlobBase, EmbeddingProfile
from omnigraph.records import to_json


@dataclass(frozen=True)
class ProviderBinding:
    """The embedding provider of a graph; the digest is none if the provider is not known."""

    address: Address
    digest: str | None


def content_digest(data: bytes) -> str:
    """Return the digest of a schema, a file of queries, a policy or a pipeline.

    >>> content_digest(b"")[:8]
    'e3b0c442'
    """
    return sha256(data).hexdigest()


def provider_digest(profile: EmbeddingProfile) -> str:
    """Return the digest of an embedding provider."""
    return content_digest(_terminated("embedding-provider") + _json(to_json(profile)))


def graph_digest(
    graph_id: str,
    *,
    schema: str | None,
    queries: Mapping[str, str],
    provider: ProviderBinding | None = None,
    blob_bases: Sequence[BlobBase] = (),
) -> str:
    """Return the digest of a graph from the digests of its parts."""
    parts = ["graph", graph_id, "schema", schema or ""]
    for name, digest in sorted(queries.items()):
        parts += ["query", name, digest]
    if provider is not None:
        parts += ["embedding_provider", str(provider.address), provider.digest or ""]
    if blob_bases:
        allowed = {"mode": "allow", "bases": [to_json(base) for base in blob_bases]}
        parts += ["external_blob_policy", _json(allowed).decode()]
    return content_digest(_terminated(*parts))


def config_digest(config: Mapping[str, object], digests: Mapping[Address, str]) -> str:
    """Return the digest of a whole configuration: what it says, and what its files hold."""
    by_address = sorted((str(address), digest) for address, digest in digests.items())
    head = _terminated("cluster-config") + _json(config) + b"\0"
    return content_digest(head + _terminated(*(part for pair in by_address for part in pair)))


def _terminated(*parts: str) -> bytes:
    """Return the parts, with a NUL after each."""
    return b"".join(part.encode() + b"\0" for part in parts)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
