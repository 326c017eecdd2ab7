"""What a ledger says is applied, in the form that a server and the command line work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.cluster.desired import BlobBase, EmbeddingProfile
from omnigraph.cluster.diagnostics import Diagnostic


@dataclass(frozen=True)
class AppliedGraph:
    """One graph that may be served, with everything that decides about it."""

    graph_id: str
    uri: str
    digest: str
    """Of the graph entry and its policy: equal digests mean that nothing changed."""
    queries: Mapping[str, str]
    """Query name to the text of its file."""
    policy: str | None = None
    """The text of the bundle that is bound to it."""
    embedding: EmbeddingProfile | None = None
    blob_bases: tuple[BlobBase, ...] = ()


@dataclass(frozen=True)
class AppliedRevision:
    """One applied revision, read at one moment and verified against its digests."""

    root: str
    state_revision: int
    identity: str
    """`sha256:` of the ledger's bytes: another value means another revision."""
    graphs: Mapping[str, AppliedGraph]
    cluster_policy: str | None = None
    fatal: tuple[Diagnostic, ...] = ()
    quarantined: Mapping[str, Diagnostic] = field(default_factory=dict)
    """Graphs that may not be served, and why."""
