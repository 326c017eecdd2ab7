"""From an applied revision to the graphs that a server serves.

The revision is checked as a whole before anything is opened. What concerns one graph puts that
graph into quarantine; the others are served.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from omnigraph.cluster.applied import (
    AppliedGraph,
    AppliedPolicy,
    AppliedRevision,
    ClusterNotReadyError,
)
from omnigraph.cluster.desired import EmbeddingProfile
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.errors import OmnigraphError
from omnigraph.graph import (
    EmbeddingConfig,
    Graph,
    Registry,
    accepted_schema,
    config_of_profile,
    register_queries,
    require_queries_hold,
)
from omnigraph.names import is_servable
from omnigraph.policy import Policy, PolicyKind
from omnigraph.server.access import Gate, Mode, mode_of
from omnigraph.server.graphs import (
    Graphs,
    OpenedGraph,
    ServedGraph,
    ServedRevision,
)
from omnigraph.server.shared import Shared

OPENED_AT_ONCE_MAX: Final = 4
_log = logging.getLogger(__name__)


class _QuarantinedError(Exception):
    """One graph cannot be served."""

    def __init__(self, graph_id: str, code: str, problem: object) -> None:
        self.finding = warning(code, f"graph.{graph_id}", str(problem))
        super().__init__(str(self.finding))


@dataclass(frozen=True)
class Rules:
    """What a server was started with that decides how a revision is served."""

    has_tokens: bool
    unauthenticated: bool = False
    requires_all_graphs: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckedGraph:
    """One graph with everything that was read for it; not yet opened."""

    applied: AppliedGraph
    queries: Registry
    policy: Policy | None
    embedding: EmbeddingConfig | None
    blob_bases: tuple[str, ...]


@dataclass(frozen=True)
class CheckedRevision:
    """A revision that can be served, as far as can be said before its graphs are opened."""

    revision: AppliedRevision
    mode: Mode
    server_policy: Policy | None
    graphs: tuple[CheckedGraph, ...]
    quarantined: Mapping[str, Diagnostic]
    rules: Rules


def check_revision(revision: AppliedRevision, rules: Rules) -> CheckedRevision:
    """Compile policies and queries, resolve secrets and decide the state, or raise."""
    revision.require_ready()
    server_policy = _server_policy(revision)
    graphs: list[CheckedGraph] = []
    quarantined = dict(revision.quarantined)
    for graph_id, applied in revision.graphs.items():
        try:
            graphs.append(_checked(applied, rules.environ))
        except _QuarantinedError as problem:
            quarantined[graph_id] = problem.finding
    _require_healthy(revision.root, len(graphs), quarantined, rules)
    mode = mode_of(
        has_tokens=rules.has_tokens,
        has_policy=server_policy is not None or any(one.policy for one in graphs),
        unauthenticated=rules.unauthenticated,
    )
    return CheckedRevision(revision, mode, server_policy, tuple(graphs), quarantined, rules)


def open_revision(checked: CheckedRevision, shared: Shared, before: Graphs | None = None) -> Graphs:
    """Open the graphs of a revision; those that have not changed since `before` are kept."""
    revision = checked.revision
    quarantined = dict(checked.quarantined)
    served: dict[str, ServedGraph] = {}

    def open_one(graph: CheckedGraph) -> ServedGraph | _QuarantinedError:
        known = None if before is None else before.find(graph.applied.graph_id)
        try:
            return _opened(graph, checked.mode, shared, known)
        except _QuarantinedError as problem:
            return problem

    with ThreadPoolExecutor(OPENED_AT_ONCE_MAX) as pool:
        for graph, found in zip(checked.graphs, pool.map(open_one, checked.graphs), strict=True):
            if isinstance(found, ServedGraph):
                served[found.graph_id] = found
            else:
                quarantined[graph.applied.graph_id] = found.finding
    _require_healthy(revision.root, len(served), quarantined, checked.rules)
    return Graphs(
        served,
        Gate(checked.mode, checked.server_policy),
        ServedRevision(revision.state_revision, revision.identity, quarantined),
    )


def _require_healthy(
    root: str, healthy: int, quarantined: Mapping[str, Diagnostic], rules: Rules
) -> None:
    findings = [replace(one, severity="error") for one in quarantined.values()]
    if not healthy:
        none_left = error("cluster_no_healthy_graphs", root, "every graph is quarantined")
        raise ClusterNotReadyError(root, [none_left, *findings])
    if rules.requires_all_graphs and findings:
        raise ClusterNotReadyError(root, findings)


def _server_policy(revision: AppliedRevision) -> Policy | None:
    bundle = revision.cluster_policy
    if bundle is None:
        return None
    try:
        return Policy.parse(bundle.text, kind=PolicyKind.SERVER)
    except OmnigraphError as problem:
        finding = error("policy_invalid", f"policy.{bundle.name}", str(problem))
        raise ClusterNotReadyError(revision.root, [finding]) from problem


def _checked(applied: AppliedGraph, environ: Mapping[str, str]) -> CheckedGraph:
    graph_id = applied.graph_id
    if not is_servable(graph_id):
        problem = f"'{graph_id}' cannot be the id of a served graph: use letters, digits and `-`"
        raise _QuarantinedError(graph_id, "invalid_resource_id", problem)
    with _or_quarantine(graph_id, "query_parse_error"):
        queries = register_queries(applied.queries)
    with _or_quarantine(graph_id, "policy_invalid"):
        policy = None if applied.policy is None else _graph_policy(applied.policy, graph_id)
    with _or_quarantine(graph_id, "embedding_api_key_required"):
        embedding = None if applied.embedding is None else _embedding(applied.embedding, environ)
    bases = tuple(base.uri for base in applied.blob_bases if base.scope == "server_safe")
    return CheckedGraph(applied, queries, policy, embedding, bases)


def _graph_policy(bundle: AppliedPolicy, graph_id: str) -> Policy:
    return Policy.parse(bundle.text, graph_id=graph_id)


def _embedding(profile: EmbeddingProfile, environ: Mapping[str, str]) -> EmbeddingConfig:
    return config_of_profile(
        provider=profile.kind,
        base_url=profile.base_url,
        model=profile.model,
        api_key=profile.api_key,
        environ=environ,
    )


def _opened(
    checked: CheckedGraph, mode: Mode, shared: Shared, known: ServedGraph | None
) -> ServedGraph:
    applied = checked.applied
    graph_id = applied.graph_id
    with _or_quarantine(graph_id, "graph_open_failed"):
        kept = _kept(checked, known)
        if known is not None and kept is not None and known.is_of(applied.digest, mode):
            return known
        opened = kept or _open(checked)
        schema = accepted_schema(opened.graph.schema, applied.schema_digest)
    with _or_quarantine(graph_id, "query_typecheck_error"):
        require_queries_hold(checked.queries, schema.source)
    with _or_quarantine(graph_id, "invalid_external_blob_base"):
        graph = opened.graph.with_blob_bases(checked.blob_bases)
    for problem in checked.queries.warnings:
        _log.warning("stored query '%s': %s", problem.key, problem.message)
    _log.info("graph routed", extra={"graph_id": graph_id})
    return ServedGraph(
        graph_id,
        graph.with_policy(checked.policy).with_schema(schema.schema_hash),
        Gate(mode, checked.policy),
        checked.queries,
        shared.export_slot(graph_id) if known is None else known.export_slot,
        is_in_cluster=True,
        digest=applied.digest,
        opened=opened,
    )


def _kept(checked: CheckedGraph, known: ServedGraph | None) -> OpenedGraph | None:
    """Return the graph that is open already, unless it is another one by now."""
    opened = None if known is None else known.opened
    if opened is None or not opened.serves(checked.applied.uri, checked.embedding):
        return None
    return opened


def _open(checked: CheckedGraph) -> OpenedGraph:
    graph = Graph.open(checked.applied.uri, embedding=checked.embedding)
    return OpenedGraph(graph, checked.embedding)


@contextmanager
def _or_quarantine(graph_id: str, code: str) -> Iterator[None]:
    """Turn what goes wrong with one graph into its quarantine."""
    try:
        yield
    except (OmnigraphError, OSError) as problem:
        raise _QuarantinedError(graph_id, code, problem) from problem
