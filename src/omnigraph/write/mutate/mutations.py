"""One mutation query, one commit.

1. An attempt captures one snapshot, compiles the query against the schema of that snapshot, runs
   the statements in memory, validates and stages the net change, and commits it through the write
   protocol. Nothing before the commit moves a head.
2. Parameters are bound, and `now()` is read, once per request: attempts differ only in what they
   find in the graph.
3. A query that only inserts or upserts and loses a race is prepared again, a bounded number of
   times. A query with an update or delete depends on the rows that it found: it is refused, unless
   only maintenance has moved the tables that it read, or the caller allows `retries`. Then it is
   run again from its text on the new state, for the last time under the lock of the branch.
4. `expected_head` is a precondition of the caller: it is checked against the captured snapshot and
   again in the commit, and never retried.
5. A net change of nothing publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.manifest import CommitDraft, Entry, GraphCommit, Repository, Snapshot
from omnigraph.manifest.errors import ExpectedVersionMismatchError, SchemaMovedError
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.requirements import (
    Requirements,
    Revalidate,
    is_only_maintenance,
    is_published_entry,
    mismatch,
)
from omnigraph.manifest.state import ManifestState
from omnigraph.names import TableKey
from omnigraph.query import MutationPlan, QueryDecl, QueryText, cached_queries
from omnigraph.query.bindings import Bindings
from omnigraph.query.compile import CachedQueries
from omnigraph.query.language.tree import Delete, Update
from omnigraph.query.params import coerce_params, require_enum_values
from omnigraph.query.plan.plan import InsertEdge, InsertNode
from omnigraph.query.select import QueryKindError, require_kind, select_query
from omnigraph.recovery import WriterKind
from omnigraph.schema import Catalog
from omnigraph.store.errors import StagedFilesLostError
from omnigraph.write.commit.attempts import OPTIMISTIC_ATTEMPTS_MAX, attempts
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import Claims, TableWrite, WriteJob
from omnigraph.write.embed.row_embedder import RowEmbedder
from omnigraph.write.mutate.pending_rows import PendingChanges
from omnigraph.write.mutate.removal import checked_ids, remove_rows
from omnigraph.write.mutate.statements import Affected, StatementRunner
from omnigraph.write.rules.claims import claims_of
from omnigraph.write.rules.endpoints import edge_ends
from omnigraph.write.rules.validate import Validated, validate
from omnigraph.write.rules.violations import ValidationError
from omnigraph.write.stage.columns import distinct, without
from omnigraph.write.stage.delta import GraphDelta
from omnigraph.write.stage.external_blobs import ExternalBlobs
from omnigraph.write.stage.stage_delta import prestage_new_rows, stage_delta
from omnigraph.write.stage.stored_rows import StoredRows


@dataclass(frozen=True)
class ChangedRows:
    """What a mutation did to the rows of one type.

    `inserted` rows are new, `updated` ones have other values of some properties, `replaced` ones
    were given again as a whole, and `unchanged` ones were assigned the values that they had.
    """

    table_key: str
    inserted: int = 0
    updated: int = 0
    replaced: int = 0
    deleted: int = 0
    unchanged: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the counts as programs see them."""
        kind, name = TableKey(self.table_key).parts
        return {
            "entity_kind": kind,
            "type_name": name,
            "inserted": self.inserted,
            "updated": self.updated,
            "replaced": self.replaced,
            "deleted": self.deleted,
            "unchanged": self.unchanged,
        }


@dataclass(frozen=True, repr=False)
class MutationResult(Displayed):
    """What a mutation has done; `commit` is None when nothing changed."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: GraphCommit | None
    durability: str = "full"
    """`process` when the graph was opened so: the write survives a crash, not a power failure."""
    counts: tuple[ChangedRows, ...] = ()
    """What the commit did to the rows of each type: nodes first, then by name."""

    def _display(self) -> Display:
        counters = ("inserted", "updated", "replaced", "deleted", "unchanged")
        rows = [
            (one.table_key, *(getattr(one, counter) for counter in counters)) for one in self.counts
        ]
        done = "nothing changed" if self.commit is None else f"commit {self.commit.graph_commit_id}"
        return Display(f"{self.query_name} on {self.branch}: {done}", ("type", *counters), rows)

    def to_json(self) -> dict[str, object]:
        """Return the envelope of a mutation; `durability` only where it is less than full."""
        less = {} if self.durability == "full" else {"durability": self.durability}
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "actor_id": self.actor_id,
            "commit": self.commit and self.commit.to_json(),
            "counts": [each.to_json() for each in self.counts],
            **less,
        }


@dataclass(frozen=True)
class RemovalResult:
    """How many rows were deleted in each table that was named; `commit` is None for none."""

    deleted: Mapping[str, int]
    commit: GraphCommit | None


@dataclass(frozen=True)
class MutationRequest:
    """A mutation query of a text, with its parameters and options."""

    query_text: QueryText
    name: str | None
    params: Mapping[str, object] | None
    incarnation: Incarnation
    expected_head: str | None = None
    actor_id: str | None = None
    external_blob_bases: tuple[str, ...] = ()
    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    retries: int = 0
    """How often a query that lost a race is run again from its text."""


@dataclass(frozen=True)
class RemovalRequest:
    """Rows to delete, by their ids in each table."""

    ids: Mapping[str, Sequence[str]]
    incarnation: Incarnation
    expected_head: str | None = None
    actor_id: str | None = None
    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


class Mutations:
    """Runs mutation queries on one graph; `embedder` belongs to one of them."""

    def __init__(self, repository: Repository, committer: Committer, embedder: RowEmbedder) -> None:
        self._repository = repository
        self._committer = committer
        self._embedder = embedder

    def run(self, request: MutationRequest) -> MutationResult:
        """Run one query as one commit, or raise and change nothing."""
        queries = cached_queries(request.query_text)
        query = select_query(queries.file, request.name)
        require_kind(query, expect_mutation=True)
        clock = self._repository.clock
        params = coerce_params(query.parameters, request.params)
        bindings = Bindings(params, clock.now_us() // 1_000)
        options = self._repository.store.settings.storage_options
        external_blobs = ExternalBlobs(request.external_blob_bases, options)
        decided: Mapping[str, Entry] = {}
        branch, retries = request.incarnation.branch, request.retries
        for attempt in attempts(
            self._committer,
            clock,
            branch,
            operation="mutation",
            optimistic_max=_optimistic_max(query, retries),
        ):
            with attempt.lock:
                snapshot = self._repository.history.snapshot(request.incarnation)
                self._committer.require_schema(snapshot.incarnation, snapshot.schema.schema_hash)
                _require_unmoved(snapshot.state, decided)
                Requirements(expected_head=request.expected_head).require(snapshot.state)
                plan = _plan(queries, query, snapshot)
                require_enum_values(plan.parameters, params)
                change = self._change(plan, bindings, snapshot, external_blobs)
                if change.delta.is_empty:
                    return self._result(request, plan, change, commit=None)
                try:
                    commit, counts = self._commit(request, change, snapshot, plan)
                    self._embedder.record()
                    return self._result(request, plan, change, commit=commit, counts=counts)
                except (ExpectedVersionMismatchError, SchemaMovedError) as lost:
                    is_refused = plan.is_strict and not retries and not _is_maintenance(lost)
                    if attempt.is_last or is_refused:
                        raise
                except StagedFilesLostError:
                    # A cleanup with an orphan age of zero has removed staged files.
                    if attempt.is_last:
                        raise
            decided = change.rests_on(snapshot) if plan.is_strict and not retries else {}
        raise AssertionError("the last attempt returns or raises")

    def remove(self, request: RemovalRequest) -> RemovalResult:
        """Delete rows, and the edges at deleted nodes, as one commit.

        Ids that are not there are passed over.
        """
        branch = request.incarnation.branch
        with self._committer.reserved_lock(branch, operation="mutation"):
            snapshot = self._repository.history.snapshot(request.incarnation)
            self._committer.require_schema(snapshot.incarnation, snapshot.schema.schema_hash)
            Requirements(expected_head=request.expected_head).require(snapshot.state)
            catalog = snapshot.catalog
            pending = PendingChanges(snapshot, catalog)
            deleted = {
                str(key): remove_rows(pending, catalog, key, ids)
                for key, ids in checked_ids(request.ids, catalog).items()
            }
            delta = pending.delta()
            if delta.is_empty:
                return RemovalResult(deleted, commit=None)
            change = _Change(Affected(), delta, pending.decisive_entries())
            commit, _ = self._commit(request, change, snapshot)
            return RemovalResult(deleted, commit)

    def _result(
        self,
        request: MutationRequest,
        plan: MutationPlan,
        change: _Change,
        *,
        commit: GraphCommit | None,
        counts: tuple[ChangedRows, ...] = (),
    ) -> MutationResult:
        return MutationResult(
            branch=str(request.incarnation.branch),
            query_name=plan.name,
            affected_nodes=change.affected.nodes,
            affected_edges=change.affected.edges,
            actor_id=request.actor_id,
            commit=commit,
            durability=self._repository.store.settings.durability,
            counts=counts,
        )

    def _change(
        self,
        plan: MutationPlan,
        bindings: Bindings,
        snapshot: Snapshot,
        external_blobs: ExternalBlobs,
    ) -> _Change:
        """Run the statements in memory."""
        catalog = snapshot.catalog
        pending = PendingChanges(snapshot, catalog)
        runner = StatementRunner(
            pending,
            bindings,
            self._repository.clock,
            makes_vectors=self._embedder.is_active,
            external_blobs=external_blobs,
        )
        affected = Affected()
        for number, statement in enumerate(plan.statements, start=1):
            affected += runner.run(statement, number)
        delta = self._embedder.filled(pending.delta(), catalog, StoredRows(snapshot))
        return _Change(affected, delta, pending.decisive_entries(), pending.partial_writes())

    def _commit(
        self,
        request: MutationRequest | RemovalRequest,
        change: _Change,
        snapshot: Snapshot,
        plan: MutationPlan | None = None,
    ) -> tuple[GraphCommit | None, tuple[ChangedRows, ...]]:
        """Validate, stage and publish a change."""
        clock = self._repository.clock
        catalog = snapshot.catalog
        stored = StoredRows(snapshot)
        _expect_ids(change.delta, catalog, stored)
        with prestage_new_rows(
            change.delta, snapshot, request.incarnation, self._repository
        ) as prestaged:
            validated = validate(change.delta, snapshot, catalog, stored=stored)
        operation_id = clock.ulid()
        tables = stage_delta(
            change.delta,
            snapshot,
            request.incarnation,
            self._repository,
            operation_id=operation_id,
            prestaged=prestaged,
            stored=stored,
        )
        written = {table.table_key for table in tables}
        reads = {**validated.reads, **change.decisive}
        job = WriteJob(
            kind=WriterKind.MUTATION,
            incarnation=request.incarnation,
            operation_id=operation_id,
            draft=CommitDraft.new(
                clock,
                "mutation",
                request.actor_id,
                message=request.message,
                properties=request.properties,
            ),
            schema_hash=snapshot.state.head.schema_hash,
            tables=tables,
            reads={key: entry for key, entry in reads.items() if key not in written},
            expected_head=request.expected_head,
            revalidate=_revalidation(validated, change),
            claims=_claims(request, change, tables, plan, catalog),
        )
        return self._committer.commit(job).commit, _counts(change, tables)


@dataclass(frozen=True)
class _Change:
    """The outcome of the statements of a query.

    `decisive` are the entries of tables whose stored rows have decided what a statement does.
    """

    affected: Affected
    delta: GraphDelta
    decisive: Mapping[str, Entry]
    partial: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By table, how many stored rows get other values, and how many keep theirs."""

    def rests_on(self, snapshot: Snapshot) -> dict[str, Entry]:
        """Return the entries that a strict query must find again, maintenance aside."""
        return {key: snapshot.entry(key) for key in sorted({*self.decisive, *self.delta.tables})}


def _claims(
    request: MutationRequest | RemovalRequest,
    change: _Change,
    tables: Sequence[TableWrite],
    plan: MutationPlan | None,
    catalog: Catalog,
) -> Claims | None:
    """Return what the rows of a query claim that inserts new rows and rests on nothing else."""
    if plan is None or request.expected_head is not None or change.decisive:
        return None
    only_inserts = all(isinstance(each, InsertNode | InsertEdge) for each in plan.statements)
    if not only_inserts or not tables or not all(table.can_move for table in tables):
        return None
    return claims_of(change.delta, catalog)


def _optimistic_max(query: QueryDecl, retries: int) -> int:
    """Return how many attempts are made without the lock of the branch.

    The last one that `retries` allow is made under the lock, so that it succeeds.
    """
    is_strict = any(isinstance(statement, Update | Delete) for statement in query.statements)
    return (
        min(retries, OPTIMISTIC_ATTEMPTS_MAX) if is_strict and retries else OPTIMISTIC_ATTEMPTS_MAX
    )


def _counts(change: _Change, tables: Iterable[TableWrite]) -> tuple[ChangedRows, ...]:
    """Count what a commit did, from the sizes of its tables before and after."""
    return tuple(_counts_of(change, table) for table in tables)


def _counts_of(change: _Change, table: TableWrite) -> ChangedRows:
    delta = change.delta.tables[table.table_key]
    updated, unchanged = change.partial.get(table.table_key, (0, 0))
    deleted, before = len(delta.deleted), table.expected.row_count if table.expected else 0
    inserted = table.row_count - before + deleted
    return ChangedRows(
        table_key=table.table_key,
        inserted=inserted,
        updated=updated,
        replaced=delta.rows.num_rows - inserted - updated - unchanged,
        deleted=deleted,
        unchanged=unchanged,
    )


def _plan(queries: CachedQueries, query: QueryDecl, snapshot: Snapshot) -> MutationPlan:
    plan = queries.plan(query, snapshot.catalog)
    if not isinstance(plan, MutationPlan):
        raise QueryKindError(query.name, is_mutation=False)
    return plan


def _expect_ids(delta: GraphDelta, catalog: Catalog, stored: StoredRows) -> None:
    """Name the ids that validation and staging look up, so that one probe per table is enough."""
    for key, table in delta.tables.items():
        if not table.ids_are_new:
            stored.expect(key, table.rows["id"])
        stored.expect(key, table.deleted)
        kind, name = TableKey(key).parts
        if kind == "edge":
            for end, node_type in edge_ends(catalog.edge_types[name]):
                node_key = TableKey.node(node_type)
                written = delta.tables.get(node_key)
                ends = distinct(table.rows[end])
                stored.expect(
                    node_key, ends if written is None else without(ends, written.rows["id"])
                )


def _is_maintenance(lost: ExpectedVersionMismatchError | SchemaMovedError) -> bool:
    return isinstance(lost, ExpectedVersionMismatchError) and lost.is_only_maintenance


def _require_unmoved(state: ManifestState, decided: Mapping[str, Entry]) -> None:
    """Refuse to repeat a strict query on tables that more than maintenance has moved.

    The conflict that sent it back names one table; others may have moved as well.
    """
    for key, expected in decided.items():
        is_same = is_published_entry(state, key, expected)
        if not is_same and not is_only_maintenance(state, key, expected):
            raise mismatch(state, key, expected)


def _revalidation(validated: Validated, change: _Change) -> Revalidate:
    """Return the check of tables that were only read and have moved.

    Decisive tables must not have moved. The rules for the others run again: the nodes of new edges
    exist, and no other writer has added an edge to a deleted node. The latter is a race that was
    lost, not a mistake in the request.
    """

    def revalidate(state: ManifestState, moved: frozenset[str]) -> None:
        for key in sorted(moved & change.decisive.keys()):
            raise mismatch(state, key, change.decisive[key])
        try:
            validated.revalidate(state, moved)
        except ValidationError as error:
            edges = sorted(key for key in moved if TableKey(key).is_edge)
            if not edges:
                raise
            raise mismatch(state, edges[0], validated.reads[edges[0]]) from error

    return revalidate
