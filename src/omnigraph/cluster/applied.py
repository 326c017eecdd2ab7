"""What a ledger says is applied, in the form that a server and the command line work with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from omnigraph.cluster.desired import BlobBase, EmbeddingProfile
from omnigraph.cluster.diagnostics import Diagnostic
from omnigraph.errors import InvalidInputError, NotFoundError

PENDING = "cluster_recovery_pending"
"""The code of a graph that an unfinished operation of the cluster names."""


class ClusterNotReadyError(InvalidInputError):
    """The applied revision of a cluster cannot be served; carries every finding."""

    code = "OG-CLUSTER-NOT-READY"
    hint = "`omnigraph cluster status` shows the ledger; `omnigraph cluster apply` repairs most"

    def __init__(self, target: str, findings: Iterable[Diagnostic]) -> None:
        self.target = target
        self.findings = tuple(findings)
        lines = (f"[{one.code}] {one.path}: {one.message}" for one in self.findings)
        super().__init__("\n".join((f"the cluster at {target} is not ready to serve:", *lines)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.target, self.findings)


class GraphNotAppliedError(NotFoundError):
    """A graph of a cluster was asked for that is not applied."""

    code = "OG-GRAPH-NOT-APPLIED"
    hint = "declare it in cluster.yaml, then `omnigraph cluster apply`"
    graph_id: str
    root: str
    applied: tuple[str, ...]

    def _message(self) -> str:
        known = ", ".join(self.applied) or "none"
        return (
            f"[graph_not_applied] graph.{self.graph_id}: graph '{self.graph_id}' is not applied in"
            f" cluster {self.root} (applied: {known})"
        )


@dataclass(frozen=True)
class AppliedPolicy:
    """A bundle, and what it is bound to: `cluster` or `graph.<id>`."""

    name: str
    digest: str
    text: str
    applies_to: tuple[str, ...]

    @property
    def is_of_cluster(self) -> bool:
        """Whether it decides about the server instead of about graphs."""
        return "cluster" in self.applies_to


@dataclass(frozen=True)
class AppliedGraph:
    """One graph that may be served, with everything that decides about it."""

    graph_id: str
    uri: str
    digest: str
    """Of the graph entry and its policy: equal digests mean that nothing changed."""
    schema_digest: str | None
    queries: Mapping[str, str]
    """Query name to the text of its file."""
    policy: AppliedPolicy | None = None
    """The bundle that is bound to it."""
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
    policies: tuple[AppliedPolicy, ...] = ()
    fatal: tuple[Diagnostic, ...] = ()
    quarantined: Mapping[str, Diagnostic] = field(default_factory=dict)
    """Graphs that may not be served, and why."""

    @property
    def cluster_policy(self) -> AppliedPolicy | None:
        """The bundle that decides about the server."""
        return next((one for one in self.policies if one.is_of_cluster), None)

    @property
    def is_pending(self) -> bool:
        """Whether an operation of the cluster is under way, or was interrupted."""
        return any(one.code == PENDING for one in self.quarantined.values())

    def require_ready(self) -> AppliedRevision:
        """Return it, or raise what keeps it from being served."""
        if self.fatal:
            raise ClusterNotReadyError(self.root, self.fatal)
        return self
