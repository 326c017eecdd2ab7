"""From the address of a cluster to its applied revision.

1. No lock is taken and nothing is swept: a command that holds the lock is no obstacle.
2. The ledger is read before and after everything else. If it is still the same, all that was read
   belongs to one revision: blobs are named by their hash, so they never change.
3. What makes the whole cluster unservable is in `fatal`, what concerns one graph in `quarantined`.
   Queries and policies of a quarantined graph are not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from omnigraph.cluster.addresses import (
    Address,
    Kind,
    graph_address,
    parse_address,
    query_address,
    schema_address,
)
from omnigraph.cluster.applied import (
    PENDING,
    AppliedGraph,
    AppliedPolicy,
    AppliedRevision,
    ClusterNotReadyError,
)
from omnigraph.cluster.compare.composites import applied_bases, composite_problems
from omnigraph.cluster.desired import EmbeddingProfile
from omnigraph.cluster.diagnostics import DiagnosedError, Diagnostic, error, has_errors, warning
from omnigraph.cluster.digests import content_digest, provider_digest
from omnigraph.cluster.load_header import load_header
from omnigraph.cluster.stored.catalog import read_blob
from omnigraph.cluster.stored.intents import read_intents
from omnigraph.cluster.stored.ledger import LEDGER_PATH, Entry, StoredLedger, read_ledger
from omnigraph.cluster.stored.root import StorageRoot, open_root

CLUSTER: Final = "cluster"
"""What a bundle of the server is bound to."""
READS_MAX: Final = 8
"""How often a ledger that changes while it is read is read again."""


class _FatalError(Exception):
    """Ends the reading: nothing of the cluster can be served."""

    def __init__(self, *findings: Diagnostic) -> None:
        self.findings = findings
        super().__init__("; ".join(map(str, findings)))


def read_applied(target: str, storage_options: Mapping[str, str] | None = None) -> AppliedRevision:
    """Read the applied revision of a cluster, given by its folder or its storage root."""
    try:
        root = _storage_root(target, storage_options)
    except _FatalError as problem:
        return AppliedRevision(target, 0, "", {}, fatal=problem.findings)
    except DiagnosedError as problem:
        return AppliedRevision(target, 0, "", {}, fatal=(problem.diagnostic,))
    return read_applied_in(root)


def read_applied_in(root: StorageRoot) -> AppliedRevision:
    """Read the applied revision in a storage root."""
    try:
        return _read_settled(root)
    except _FatalError as problem:
        return AppliedRevision(root.uri, 0, "", {}, fatal=problem.findings)
    except DiagnosedError as problem:
        return AppliedRevision(root.uri, 0, "", {}, fatal=(problem.diagnostic,))


def cluster_root(target: str) -> StorageRoot:
    """Open the storage root of a cluster, or raise."""
    with _or_not_ready(target):
        return _storage_root(target, None)


def _storage_root(target: str, storage_options: Mapping[str, str] | None) -> StorageRoot:
    """Open a storage root; a text without `://` is a folder with `cluster.yaml`."""
    if "://" in target:
        return open_root(target, storage_options)
    header = load_header(target)
    if header.storage is None or has_errors(header.diagnostics):
        raise _FatalError(*(one for one in header.diagnostics if one.severity == "error"))
    return open_root(header.storage, storage_options)


def ledger_tag(root: StorageRoot) -> str | None:
    """Return what changes whenever the ledger is written; costs one small request."""
    found = root.objects.head(LEDGER_PATH)
    return None if found is None else found.tag


def applied_graph_uris(
    target: str, storage_options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the applied graphs of a cluster by id, with their storage URIs.

    Only the ledger is read, so this works on a cluster that no server could serve.
    """
    with _or_not_ready(target):
        root = _storage_root(target, storage_options)
        stored = read_ledger(root)
        if not stored.is_found:
            raise _FatalError(_state_missing(root))
    return {graph_id: root.graph_uri(graph_id) for graph_id in _graph_ids(stored)}


@contextmanager
def _or_not_ready(target: str) -> Iterator[None]:
    try:
        yield
    except _FatalError as problem:
        raise ClusterNotReadyError(target, problem.findings) from None
    except DiagnosedError as problem:
        raise ClusterNotReadyError(target, [problem.diagnostic]) from None


def _read_settled(root: StorageRoot) -> AppliedRevision:
    stored = read_ledger(root)
    for _ in range(READS_MAX):
        found = _Reading(root, stored).revision()
        again = read_ledger(root)
        if again.identity == stored.identity:
            return found
        stored = again
    message = f"it has changed {READS_MAX} times while it was read"
    raise _FatalError(error("state_read_error", LEDGER_PATH, message))


def _state_missing(root: StorageRoot) -> Diagnostic:
    message = f"there is no ledger in {root.uri}: `omnigraph cluster import`, then `cluster apply`"
    return error("cluster_state_missing", LEDGER_PATH, message)


def _graph_ids(stored: StoredLedger) -> list[str]:
    return sorted(address.name for address in stored.ledger.entries if address.kind is Kind.GRAPH)


class _Reading:
    """Reads everything that one ledger names, and collects what is wrong with it."""

    def __init__(self, root: StorageRoot, stored: StoredLedger) -> None:
        if stored.identity is None:
            raise _FatalError(_state_missing(root))
        self._root = root
        self._identity = stored.identity
        self._revision_number = stored.ledger.state_revision
        self._composites = {one.path: one for one in composite_problems(stored.ledger)}
        self._entries = stored.ledger.entries
        self._graph_ids = _graph_ids(stored)
        self._queries: dict[str, dict[str, str]] = defaultdict(dict)
        for address, entry in self._of_kind(Kind.QUERY):
            self._queries[address.names[0]][address.name] = entry.digest
        self._fatal: list[Diagnostic] = []

    def revision(self) -> AppliedRevision:
        """Return everything that is applied, or what is wrong with it."""
        pending = self._pending()
        policies = tuple(self._policies(pending))
        by_graph = self._bound(policies)
        served = [graph_id for graph_id in self._graph_ids if graph_id not in pending]
        graphs = {graph_id: self._graph(graph_id, by_graph.get(graph_id)) for graph_id in served}
        if not self._graph_ids:
            self._fail("cluster_empty", LEDGER_PATH, "no graph is applied")
        elif not served:
            self._fail("cluster_no_healthy_graphs", LEDGER_PATH, "every graph is quarantined")
        return AppliedRevision(
            root=self._root.uri,
            state_revision=self._revision_number,
            identity=self._identity,
            graphs={} if self._fatal else graphs,
            policies=policies,
            fatal=(*self._fatal, *(pending.values() if self._fatal else ())),
            quarantined=pending,
        )

    def _fail(self, code: str, path: str, message: str) -> None:
        self._fatal.append(error(code, path, message))

    # -- unfinished operations --------------------------------------------------------------------

    def _pending(self) -> dict[str, Diagnostic]:
        """Return the applied graphs that an unfinished operation names."""
        found = read_intents(self._root)
        self._fatal += [replace(one, severity="error") for one in found.diagnostics]
        pending: dict[str, Diagnostic] = {}
        for path, intent in found.records.items():
            if not intent.graph_id:
                message = f"operation {intent.operation_id} names no graph"
                self._fail("cluster_recovery_unattributed", path, message)
            elif intent.graph_id in self._graph_ids:
                message = (
                    f"graph '{intent.graph_id}': {intent.kind} of {intent.started_at} is not"
                    " finished; `omnigraph cluster apply` finishes it"
                )
                pending[intent.graph_id] = warning(PENDING, path, message)
        return pending

    # -- blobs ------------------------------------------------------------------------------------

    def _text(self, address: Address, digest: str) -> str | None:
        """Return the text of a blob, none with a finding where it is not what it should be."""
        blob = read_blob(self._root, address, digest)
        if blob.is_present:
            try:
                return blob.content.decode("utf-8-sig")
            except UnicodeDecodeError as problem:
                self._fail("catalog_payload_missing", str(address), f"it is no text: {problem}")
                return None
        is_other = blob.state == "mismatch"
        code = "catalog_payload_digest_mismatch" if is_other else "catalog_payload_missing"
        self._fail(code, str(address), blob.message)
        return None

    # -- policies ---------------------------------------------------------------------------------

    def _policies(self, pending: Mapping[str, Diagnostic]) -> Iterator[AppliedPolicy]:
        skipped = {str(graph_address(graph_id)) for graph_id in pending}
        for address, entry in self._of_kind(Kind.POLICY):
            targets = entry.applies_to
            if not targets:
                message = "the entry has no `applies_to`; `omnigraph cluster apply` records it"
                self._fail("policy_bindings_missing", str(address), message)
            elif skipped.issuperset(targets):
                continue
            else:
                self._check_targets(address, targets)
                text = self._text(address, entry.digest)
                if text is not None:
                    yield AppliedPolicy(address.name, entry.digest, text, targets)

    def _check_targets(self, address: Address, targets: tuple[str, ...]) -> None:
        for target in targets:
            if target == CLUSTER:
                continue
            bound = parse_address(target)
            if bound is None or bound.kind is not Kind.GRAPH:
                self._fail("wrong_kind_reference", str(address), f"`{target}` is no graph")
            elif bound.name not in self._graph_ids:
                message = f"it is bound to {target}, which is not applied"
                self._fail("dangling_graph_reference", str(address), message)

    def _bound(self, policies: tuple[AppliedPolicy, ...]) -> dict[str, AppliedPolicy]:
        """Return the policy of each graph; a scope with two is a finding."""
        taken: dict[str, AppliedPolicy] = {}
        for policy in policies:
            for target in policy.applies_to:
                first = taken.setdefault(target, policy)
                if first is not policy:
                    message = f"'{first.name}' and '{policy.name}' are both bound to {target}"
                    self._fail("duplicate_policy_binding", f"policy.{policy.name}", message)
        prefix = f"{Kind.GRAPH}."
        return {
            target.removeprefix(prefix): policy
            for target, policy in taken.items()
            if target.startswith(prefix)
        }

    # -- graphs -----------------------------------------------------------------------------------

    def _graph(self, graph_id: str, policy: AppliedPolicy | None) -> AppliedGraph:
        address = graph_address(graph_id)
        entry = self._entries[address]
        schema = self._entries.get(schema_address(graph_id))
        if str(address) in self._composites:
            self._fatal.append(self._composites[str(address)])
        embedding = None if entry.embedding_provider is None else self._profile(address, entry)
        texts = {
            name: self._text(query_address(graph_id, name), one)
            for name, one in self._queries[graph_id].items()
        }
        found = {name: text for name, text in texts.items() if text is not None}
        bundle = "" if policy is None else f"{policy.name} {policy.digest}"
        return AppliedGraph(
            graph_id=graph_id,
            uri=self._root.graph_uri(graph_id),
            digest=content_digest(f"{entry.digest} {bundle}".encode()),
            schema_digest=None if schema is None else schema.digest,
            queries=found,
            policy=policy,
            embedding=embedding,
            blob_bases=applied_bases(entry),
        )

    def _profile(self, graph: Address, entry: Entry) -> EmbeddingProfile | None:
        """Return how the vectors of a graph are made."""
        text = entry.embedding_provider or ""
        address = parse_address(text)
        if address is None or address.kind is not Kind.EMBEDDING_PROVIDER:
            self._fail("wrong_kind_reference", str(graph), f"`{text}` is no embedding provider")
            return None
        found = self._entries.get(address)
        if found is None:
            self._fail("embedding_provider_missing", str(graph), f"{address} is not applied")
            return None
        profile = found.embedding_profile
        if profile is None:
            message = "the entry has no profile; `omnigraph cluster apply` records it"
            self._fail("embedding_provider_profile_missing", str(address), message)
        elif provider_digest(profile) != found.digest:
            message = f"its profile has the digest {provider_digest(profile)}, not {found.digest}"
            self._fail("embedding_provider_digest_mismatch", str(address), message)
        return profile

    def _of_kind(self, kind: Kind) -> list[tuple[Address, Entry]]:
        return sorted(
            ((address, entry) for address, entry in self._entries.items() if address.kind is kind),
            key=lambda pair: str(pair[0]),
        )
