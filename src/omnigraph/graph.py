"""The public face: a graph at a root, bound to one branch."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from omnigraph.changes.commit_changes import (
    PAGE_CHANGES_DEFAULT,
    CommitPage,
    changes_between,
    commit_page,
)
from omnigraph.changes.diff import Difference, difference
from omnigraph.changes.feed import Feed, FeedPage, FeedRequest
from omnigraph.changes.selection import Selection
from omnigraph.clock import SystemClock
from omnigraph.engine import (
    EngineChoice,
    FrameRequest,
    LoadRequest,
    choose,
    engine_named,
    run_load,
)
from omnigraph.errors import InvalidInputError
from omnigraph.manifest import (
    GraphCommit,
    OpenMode,
    ReadTarget,
    Snapshot,
    Tag,
    init_repository,
    open_repository,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.repository import check_contract, reconcile_commits
from omnigraph.merge.decision_file import conflict_lines, read_decisions
from omnigraph.merge.merger import Merger, MergeRequest, MergeResult, RevertRequest
from omnigraph.merge.resolve import Decisions, Prefer, Strategy
from omnigraph.names import MAIN, BranchName
from omnigraph.query import SchemaSource, lint_queries
from omnigraph.query.stored import QueryKindError
from omnigraph.read.limits import MEMORY_MAX_DEFAULT, Limits
from omnigraph.read.reader import Reader, ReadOptions
from omnigraph.read.result import QueryResult, Target
from omnigraph.recovery import PendingRecovery, Recovery, RecoveryRecord
from omnigraph.schema import compile_schema, compile_stored, plan_schema, read_ir
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.search.embed_file import (
    EmbedFileRequest,
    EmbedFileResult,
    EmbedSpec,
    Selector,
    embed_file,
)
from omnigraph.search.embedding import LazyEmbeddingClient
from omnigraph.search.embeddings_table import EmbeddingsTable
from omnigraph.search.topology_cache import Topologies
from omnigraph.search.topology_store import TopologyStore
from omnigraph.store import connect
from omnigraph.store.filters import Comparison
from omnigraph.store.records import ScanRequest
from omnigraph.syntax.grammar import decode_source
from omnigraph.write.auto_optimize import AutoOptimize
from omnigraph.write.cleanup import Cleanup, CleanupResult, DatasetCleanup
from omnigraph.write.cleanup_plan import ORPHAN_AGE_S, CleanupPolicy
from omnigraph.write.delta import WriteMode
from omnigraph.write.embed import EmbedMode, RowEmbedder
from omnigraph.write.embed_stored import EmbedRequest, EmbedResult, StoredEmbedding
from omnigraph.write.export import (
    ExportFormat,
    ExportResult,
    export_here,
    plan_export,
    stream_lines,
)
from omnigraph.write.health import Finding, Health, examine
from omnigraph.write.load import (
    Loader,
    LoadOptions,
    LoadResult,
    OnDuplicate,
    OnError,
    choice,
)
from omnigraph.write.load_source import RecordSource
from omnigraph.write.load_tables import TableSource, table_source
from omnigraph.write.mutate import MutationRequest, MutationResult, Mutations
from omnigraph.write.optimize import TableReport, Upkeep, UpkeepReport
from omnigraph.write.protocol import Committer
from omnigraph.write.repair import Repair, RepairReport, TableRepair
from omnigraph.write.schema_apply import SchemaApplied, SchemaApply
from omnigraph.write.staging_record import StagingRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from omnigraph.clock import Clock
    from omnigraph.manifest import Repository
    from omnigraph.manifest.state import ManifestState
    from omnigraph.query import LintReport
    from omnigraph.schema import Catalog, PlannedSchema
    from omnigraph.store.durability import Durability
    from omnigraph.syntax import SourceText
    from omnigraph.write.load_sink import LoadSource
    from omnigraph.write.load_source import RecordInput
    from omnigraph.write.load_tables import TableInput

__all__ = [
    "MEMORY_MAX_DEFAULT",
    "CleanupResult",
    "CommitPage",
    "DatasetCleanup",
    "Difference",
    "EmbedFileRequest",
    "EmbedFileResult",
    "EmbedMode",
    "EmbedResult",
    "EmbedSpec",
    "ExportResult",
    "FeedPage",
    "FeedRequest",
    "Finding",
    "Graph",
    "GraphCommit",
    "Health",
    "LoadResult",
    "MergeResult",
    "MutationResult",
    "OpenMode",
    "PendingRecovery",
    "QueryKindError",
    "QueryResult",
    "ReadTarget",
    "RecoveryRecord",
    "RepairReport",
    "SchemaApplied",
    "Selection",
    "Selector",
    "Snapshot",
    "TableRepair",
    "TableReport",
    "Tag",
    "UpkeepReport",
    "embed_records",
    "init_from_file",
    "lint_files",
]

SYSTEM_ACTOR_PREFIX: Final = "omnigraph:"


class ReservedActorError(InvalidInputError):
    """A caller used an actor id that belongs to the system."""

    code = "OG-ACTOR"
    hint = "`--as NAME` with a name of your own"

    def __init__(self, actor_id: str) -> None:
        self.actor_id = actor_id
        super().__init__(
            f"actor id '{actor_id}' is reserved: ids starting with '{SYSTEM_ACTOR_PREFIX}' belong"
            " to the system"
        )


class ReadOnlyGraphError(InvalidInputError):
    """The graph was opened for reading only."""

    code = "OG-READ-ONLY"
    hint = "open it with mode=OpenMode.READ_WRITE"

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(f"{operation} needs a graph that was opened for writing")


class Graph:
    """A graph, bound to one of its branches. Safe to share between threads.

    ```python
    with Graph.init("brain.omni", "node Person { name: String @key }") as graph:
        graph.branch_create("draft")
        print(graph.branch_list())
    ```
    """

    def __init__(
        self,
        repository: Repository,
        *,
        mode: OpenMode,
        incarnation: Incarnation,
        auto_optimize: bool = True,
    ) -> None:
        self._repository = repository
        self._mode = mode
        self._incarnation = incarnation
        self._guard = threading.Lock()
        self._recovery = Recovery(repository)
        self._committer = Committer(repository, self._recovery, owner_id=repository.clock.ulid())
        self._upkeep = Upkeep(repository, self._recovery, self._committer)
        self._staging = StagingRecords(repository.store.objects, repository.clock)
        self._auto_optimize = AutoOptimize(repository, self._upkeep, enabled=auto_optimize)
        self._committer.on_commit = self._auto_optimize.note
        self._committer.on_published = self._auto_optimize.record
        is_writable = mode is OpenMode.READ_WRITE
        self._topologies = Topologies(TopologyStore(repository.store, is_writable=is_writable))
        self._embeddings = LazyEmbeddingClient(repository.clock, environ=os.environ)
        self._reader = Reader(self._topologies, repository.clock, embeddings=self._embeddings)

    # -- making and opening ---------------------------------------------------------------------

    @classmethod
    def init(
        cls,
        uri: str | os.PathLike[str],
        schema: str | SourceText,
        *,
        actor_id: str | None = None,
        force: bool = False,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "full",
        clock: Clock | None = None,
        auto_optimize: bool = True,
    ) -> Self:
        """Make a new graph with this schema; the root must not hold one.

        `force` replaces leftover schema files, never a graph. `auto_optimize=False` leaves the
        tidying after small writes to calls of `optimize`.
        """
        _check_actor(actor_id)
        clock = clock or SystemClock()
        compiled = compile_schema(schema, domain=clock.ulid())
        store = connect(str(uri), storage_options=storage_options, durability=durability)
        repository = init_repository(store, clock, compiled, actor_id=actor_id, force=force)
        return cls(
            repository,
            mode=OpenMode.READ_WRITE,
            incarnation=Incarnation(MAIN),
            auto_optimize=auto_optimize,
        )

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        branch: str = MAIN,
        mode: OpenMode = OpenMode.READ_WRITE,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "full",
        clock: Clock | None = None,
        auto_optimize: bool = True,
    ) -> Self:
        """Open a graph and bind to a branch."""
        store = connect(str(uri), storage_options=storage_options, durability=durability)
        repository = open_repository(
            store,
            clock or SystemClock(),
            mode=mode,
            mend=lambda repository: Recovery(repository).mend(),
            heal=lambda repository: Recovery(repository).sweep(),
        )
        incarnation = repository.branches.resolve(BranchName.parse(branch))
        if mode is OpenMode.READ_WRITE:
            Recovery(repository).mend_branch(incarnation)
            if not incarnation.is_main:
                reconcile_commits(repository, incarnation)
        return cls(repository, mode=mode, incarnation=incarnation, auto_optimize=auto_optimize)

    def close(self) -> None:
        """Let go of the graph, after tidying up behind many small writes.

        Nothing is lost without it: every write was finished by its call.
        """
        self._auto_optimize.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def uri(self) -> str:
        """The root of the graph."""
        return self._repository.root

    @property
    def branch(self) -> str:
        """The branch that this handle is bound to."""
        return str(self._bound().branch)

    # -- branches -------------------------------------------------------------------------------

    def branch_create(self, name: str, *, actor_id: str | None = None) -> None:
        """Cut a branch from the head of the bound one; costs nothing that grows with the graph."""
        self._create_branch(BranchName.parse(name), self._bound(), actor_id)

    def branch_create_from(self, source: str, name: str, *, actor_id: str | None = None) -> None:
        """Cut a branch from the head of another one."""
        incarnation = self._repository.branches.resolve(BranchName.parse(source))
        self._create_branch(BranchName.parse(name), incarnation, actor_id)

    def branch_list(self) -> list[str]:
        """Return the names of all branches, sorted, `main` first."""
        return [str(name) for name in self._repository.branches.names()]

    def branch_delete(self, name: str, *, actor_id: str | None = None) -> None:
        """Delete a branch that no other one was cut from."""
        self._require_writable("branch delete")
        _check_actor(actor_id)
        self._repository.branches.delete(
            BranchName.parse(name),
            bound=self._bound().branch,
            operation_id=self._repository.clock.ulid(),
        )

    def branch_merge(
        self,
        source: str,
        target: str = MAIN,
        *,
        strategy: str = Strategy.ROW,
        prefer: str | None = None,
        resolve_file: Path | None = None,
        dry_run: bool = False,
        message: str | None = None,
        actor_id: str | None = None,
    ) -> MergeResult:
        """Merge a branch into another one as one commit with two parents, or not at all.

        With `strategy="property"` two sides may change different properties of one row. Conflicts
        of rows are settled by `resolve_file` (lines of `merge_conflicts`, edited) and by `prefer`
        (`source` or `target`); those that stay are an error that lists all of them. `dry_run` says
        what would happen and writes nothing.
        """
        if not dry_run:
            self._require_writable("branch merge")
        _check_actor(actor_id)
        resolve = self._repository.branches.resolve
        request = MergeRequest(
            resolve(BranchName.parse(source)),
            resolve(BranchName.parse(target)),
            actor_id=actor_id,
            decisions=self._decisions(strategy, prefer, resolve_file),
            dry_run=dry_run,
            message=message,
        )
        return Merger(self._repository, self._committer).merge(request)

    def merge_conflicts(
        self, source: str, target: str = MAIN, *, strategy: str = Strategy.ROW
    ) -> Iterator[str]:
        """Yield a line of JSON for every row in conflict, with its images on all sides."""
        resolve = self._repository.branches.resolve
        request = MergeRequest(
            resolve(BranchName.parse(source)),
            resolve(BranchName.parse(target)),
            decisions=self._decisions(strategy, None, None),
        )
        return conflict_lines(Merger(self._repository, self._committer).conflicts(request))

    def commit_revert(
        self,
        commit_id: str,
        *,
        branch: str | None = None,
        prefer: str | None = None,
        actor_id: str | None = None,
    ) -> MergeResult:
        """Undo what one commit changed, as a new commit; conflicts are those of a merge.

        `prefer="source"` undoes also what was changed again since, `target` leaves that alone.
        """
        self._require_writable("commit revert")
        _check_actor(actor_id)
        decisions = Decisions(
            prefer=None if prefer is None else choice(Prefer, prefer, "preference")
        )
        target = self._incarnation_of(branch)
        request = RevertRequest(commit_id, target, actor_id=actor_id, decisions=decisions)
        return Merger(self._repository, self._committer).revert(request)

    def sync_branch(self, branch: str | None = None) -> None:
        """Bind this handle to the latest head of a branch, by default of the one it is bound to."""
        if branch is None:
            self._repository.reader.head_version(self._bound())
            return
        incarnation = self._repository.branches.resolve(BranchName.parse(branch))
        with self._guard:
            self._incarnation = incarnation

    # -- commits --------------------------------------------------------------------------------

    def list_commits(
        self, branch: str | None = None, *, limit: int | None = None, before: int | None = None
    ) -> list[GraphCommit]:
        """Return commits newest first, with those that the branch inherited.

        `before` is a manifest version: only older commits are listed.
        """
        return self._state_of(branch).commits(limit=limit, before=before)

    def get_commit(self, commit_id: str) -> GraphCommit:
        """Find one commit on any branch."""
        return self._repository.history.get(commit_id)

    def head_commit_id_for_branch(self, branch: str | None = None) -> str:
        """Return the id of a branch's newest commit."""
        return self._state_of(branch).head.commit_id

    def merge_base(self, source: str, target: str) -> GraphCommit | None:
        """Find the commit that a merge of two branches would start from."""
        resolve = self._repository.branches.resolve
        return self._repository.history.merge_base(
            resolve(BranchName.parse(source)), resolve(BranchName.parse(target))
        )

    # -- changes --------------------------------------------------------------------------------

    def diff_between(
        self, before: ReadTarget, after: ReadTarget, selection: Selection | None = None
    ) -> Difference:
        """Return the net difference of two states of the graph, on whatever branches they are."""
        old, new = self.snapshot_of(before), self.snapshot_of(after)
        return difference(old, new, selection or Selection())

    def changes_between(
        self, before: ReadTarget, after: ReadTarget, selection: Selection | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield what differs between two states, with the rows of both sides."""
        old, new = self.snapshot_of(before), self.snapshot_of(after)
        return changes_between(old, new, selection or Selection())

    def commit_changes(
        self,
        commit_id: str,
        selection: Selection | None = None,
        *,
        limit: int = PAGE_CHANGES_DEFAULT,
        page_token: str | None = None,
    ) -> CommitPage:
        """Return a page of what one commit changed, with the rows before and after."""
        history = self._repository.history
        return commit_page(
            history,
            history.get(commit_id),
            selection or Selection(),
            graph=self.uri,
            limit=limit,
            page_token=page_token,
        )

    def poll_changes(self, request: FeedRequest, *, branch: str | None = None) -> FeedPage:
        """Return a page of what happened on a branch since a cursor."""
        snapshot = self._repository.history.snapshot(self._incarnation_of(branch))
        feed = Feed(self._repository.history, snapshot, request.selection, graph=self.uri)
        return feed.poll(request)

    def baseline(
        self, *, branch: str | None = None, selection: Selection | None = None
    ) -> tuple[Iterator[bytes], dict[str, str]]:
        """Return every entity of a branch as lines of JSON, and where the feed goes on after them.

        The second part holds `snapshot_commit_id` and `resume_cursor`: use it only after all lines.
        """
        selection = selection or Selection()
        snapshot = self._repository.history.snapshot(self._incarnation_of(branch))
        lines = stream_lines(
            snapshot, sorted(selection.types or ()), kinds=selection.kinds or ("node", "edge")
        )
        feed = Feed(self._repository.history, snapshot, selection, graph=self.uri)
        cursor = feed.cursor_at(snapshot.commit_id)
        return lines, {"snapshot_commit_id": snapshot.commit_id, "resume_cursor": cursor}

    # -- snapshots ------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot of the bound branch."""
        return self._repository.history.snapshot(self._bound())

    def snapshot_of(self, target: ReadTarget) -> Snapshot:
        """Return the snapshot of a branch, a commit, a tag or a moment."""
        return self._repository.history.snapshot_of(target, self._bound())

    def snapshot_at_version(self, version: int) -> Snapshot:
        """Return the snapshot of one manifest version of the bound branch."""
        return self._repository.history.snapshot_at_version(self._bound(), version)

    def entity_at(self, table_key: str, entity_id: str, version: int) -> pa.Table:
        """Return one entity at one manifest version: a table of one row, or of none."""
        handle = self._repository.history.table_at_version(self._bound(), version, table_key)
        request = ScanRequest(row_filter=Comparison("id", "=", entity_id), limit=1)
        return handle.scan(request).read_all()

    def refresh(self) -> Snapshot:
        """Look at storage again: settle dead writes, check the schema, update derived tables."""
        if self._mode is OpenMode.READ_WRITE:
            self._recovery.sweep()
        snapshot = self.snapshot()
        check_contract(snapshot.state)
        if self._mode is OpenMode.READ_WRITE:
            reconcile_commits(self._repository, snapshot.incarnation)
        return snapshot

    # -- loads ----------------------------------------------------------------------------------

    def load(
        self,
        data: RecordInput | Mapping[str, object],
        *,
        mode: str,
        branch: str | None = None,
        from_branch: str | None = None,
        reader: str = ConversionMode.STRICT,
        expected_head: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        embed: str = EmbedMode.MISSING,
        actor_id: str | None = None,
        external_blob_bases: Sequence[str] = (),
        on_error: str = OnError.FAIL,
        quarantine: str | Path | None = None,
        max_errors: int | None = None,
        on_duplicate: str = OnDuplicate.ERROR,
        order_by: Sequence[str] = (),
        engine: str = EngineChoice.AUTO,
        spark: object | None = None,
        progress: bool = False,
    ) -> LoadResult:
        """Load graph JSONL (paths, globs, bytes or an open file) as one commit, or not at all.

        `data` may also map names of types to tables: Arrow, pandas, polars, Spark DataFrames, paths
        of parquet files, or descriptions of sources (`format`, `path`, `options`, `schema`, `map`).

        `mode` is `append`, `merge` or `overwrite`, `reader` is `strict` or `compatible`. With
        `from_branch` a branch that does not exist is cut from that one first. `expected_head` makes
        the load conditional: when the branch has another head, nothing happens. Blobs given by
        URI are taken only from below `external_blob_bases`. The commit keeps `properties`.

        With `on_error="quarantine"` rows that break a rule are left out and written to the
        directory `quarantine`; a load with more than `max_errors` of them fails. In a merge,
        `on_duplicate="last"` lets the last of several records of one id win. `embed` says which
        vectors of `@embed` properties are made, if a provider is configured: `missing`, `all` or
        `off`.

        `engine` is `local`, `spark`, or `auto`: Spark for its DataFrames, for the session `spark`,
        where one is configured, and for large inputs. `order_by` names columns of DataFrames that
        say which row is the last; `progress` shows what Spark does on stderr.
        """
        self._require_writable("load")
        _check_actor(actor_id)
        conversion = choice(ConversionMode, reader, "reader")
        options = LoadOptions(
            mode=choice(WriteMode, mode, "load mode"),
            target=self._load_target(branch),
            from_branch=None if from_branch is None else BranchName.parse(from_branch),
            conversion=conversion,
            expected_head=expected_head,
            message=message,
            properties=dict(properties or {}),
            actor_id=actor_id,
            external_blob_bases=tuple(external_blob_bases),
            on_error=choice(OnError, on_error, "on_error"),
            quarantine=None if quarantine is None else Path(quarantine),
            max_errors=max_errors,
            on_duplicate=choice(OnDuplicate, on_duplicate, "on_duplicate"),
        )
        request = LoadRequest(
            self._repository,
            self._committer,
            data,
            options,
            session=spark,
            order_by=tuple(order_by),
            shows_progress=progress,
        )

        embedder = self._embedder(embed)
        asked = choice(EngineChoice, engine, "engine")
        if asked is EngineChoice.AUTO and embedder.is_active and self._has_embeddings():
            # Only this process makes vectors.
            asked = EngineChoice.LOCAL

        def local() -> LoadResult:
            source: LoadSource = (
                table_source(data, self.catalog())
                if isinstance(data, Mapping)
                else RecordSource(data, conversion)
            )
            return Loader(self._repository, self._committer, embedder).load(source, options)

        return run_load(asked, request, local)

    def load_tables(
        self,
        *,
        nodes: Mapping[str, TableInput] | None = None,
        edges: Mapping[str, TableInput] | None = None,
        mode: str,
        branch: str | None = None,
        from_branch: str | None = None,
        expected_head: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        embed: str = EmbedMode.MISSING,
        actor_id: str | None = None,
        external_blob_bases: Sequence[str] = (),
        on_error: str = OnError.FAIL,
        quarantine: str | Path | None = None,
        max_errors: int | None = None,
        on_duplicate: str = OnDuplicate.ERROR,
    ) -> LoadResult:
        """Load Arrow, pandas or polars tables, or parquet files, by type as one commit.

        Columns have the names of properties; edges have `src` and `dst`, or `from` and `to`.
        The other arguments are those of `load`.
        """
        self._require_writable("load")
        _check_actor(actor_id)
        options = LoadOptions(
            mode=choice(WriteMode, mode, "load mode"),
            target=self._load_target(branch),
            from_branch=None if from_branch is None else BranchName.parse(from_branch),
            expected_head=expected_head,
            message=message,
            properties=dict(properties or {}),
            actor_id=actor_id,
            external_blob_bases=tuple(external_blob_bases),
            on_error=choice(OnError, on_error, "on_error"),
            quarantine=None if quarantine is None else Path(quarantine),
            max_errors=max_errors,
            on_duplicate=choice(OnDuplicate, on_duplicate, "on_duplicate"),
            persists_topology=True,
        )
        return Loader(self._repository, self._committer, self._embedder(embed)).load(
            TableSource(nodes or {}, edges or {}), options
        )

    # -- reads ----------------------------------------------------------------------------------

    def query(
        self,
        text: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        target: ReadTarget | None = None,
        explain: bool = False,
        profile: bool = False,
        timeout_s: float | None = None,
        rows_max: int | None = None,
        memory_max: int | None = MEMORY_MAX_DEFAULT,
        cancelled: threading.Event | None = None,
    ) -> QueryResult:
        """Run a read on one snapshot; `name` picks one of several queries in the text.

        `target` is a branch, commit, tag or moment, by default the head of the bound branch.
        `explain` says how it would be answered, `profile` how it was. A read that exceeds a limit
        is an error, never a part of the answer.
        """
        snapshot = self.snapshot() if target is None else self.snapshot_of(target)
        return self._reader.run(
            snapshot,
            text,
            name=name,
            params=params,
            target=_shown_target(snapshot, target),
            options=ReadOptions(
                Limits(timeout_s=timeout_s, rows_max=rows_max, memory_max=memory_max),
                explain=explain,
                profile=profile,
                cancelled=cancelled,
            ),
        )

    # -- exports and frames ---------------------------------------------------------------------

    def export(
        self,
        out: str | os.PathLike[str],
        *,
        format: str = ExportFormat.JSONL,  # noqa: A002 - what everybody calls it
        types: Sequence[str] = (),
        target: ReadTarget | None = None,
        engine: str = EngineChoice.AUTO,
        spark: object | None = None,
        progress: bool = False,
    ) -> ExportResult:
        """Write one snapshot to an empty folder: a folder per type, a file per group of fragments.

        `format` is `jsonl` or `parquet`; a load takes both back. `types` names some types, by
        default all. `engine` is as in `load`; on Spark the folder must be one that workers share.
        """
        snapshot = self.snapshot() if target is None else self.snapshot_of(target)
        form = choice(ExportFormat, format, "export format")
        plan = plan_export(snapshot, out, export_format=form, types=types)
        asked = choice(EngineChoice, engine, "engine")
        chosen = choose(asked, {"export": plan}, session=spark).engine
        if chosen is EngineChoice.LOCAL:
            return export_here(plan, self._repository.store.datasets)
        return engine_named(chosen).export(
            plan, self._repository, session=spark, shows_progress=progress
        )

    def export_lines(
        self, *, types: Sequence[str] = (), target: ReadTarget | None = None
    ) -> Iterator[bytes]:
        """Yield one line of graph JSONL per entity of one snapshot, by type and id."""
        snapshot = self.snapshot() if target is None else self.snapshot_of(target)
        return stream_lines(snapshot, types)

    def to_spark(
        self,
        spark: object,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        target: ReadTarget | None = None,
    ) -> Any:
        """Return the rows of one type as a Spark DataFrame of one snapshot.

        `columns` names columns, Blobs among them; without it all others come. `where` is a filter
        in SQL that storage answers: comparisons, `AND`, `OR`, `NOT`, `IN`, `BETWEEN`, `LIKE`,
        `IS NULL`.
        """
        return engine_named("spark").frame(
            FrameRequest(
                self._repository,
                self.snapshot() if target is None else self.snapshot_of(target),
                spark,
                name,
                None if columns is None else tuple(columns),
                where,
            )
        )

    def graphframe(self, spark: object, *, edges: Sequence[str] | None = None) -> Any:
        """Return nodes and edges of the newest snapshot as a `GraphFrame`.

        A vertex id is `Type:id`; `edges` names the edge types to take, by default all.
        """
        chosen = None if edges is None else tuple(edges)
        return engine_named("spark").frame(
            FrameRequest(self._repository, self.snapshot(), spark, edges=chosen)
        )

    # -- mutations ------------------------------------------------------------------------------

    def mutate(
        self,
        query_text: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        expected_head: str | None = None,
        embed: str = EmbedMode.MISSING,
        actor_id: str | None = None,
    ) -> MutationResult:
        """Run a mutation query as one commit; `name` picks one of several in the text.

        `expected_head` makes it conditional: when the branch has another head, nothing happens.
        `embed` says which vectors of `@embed` properties are made, if a provider is configured:
        `missing`, `all` or `off`.
        """
        self._require_writable("mutate")
        _check_actor(actor_id)
        request = MutationRequest(
            query_text,
            name,
            params,
            self._incarnation_of(branch),
            expected_head=expected_head,
            actor_id=actor_id,
        )
        return Mutations(self._repository, self._committer, self._embedder(embed)).run(request)

    # -- embedding ------------------------------------------------------------------------------

    def embed(
        self,
        types: Sequence[str] = (),
        *,
        mode: str = EmbedMode.MISSING,
        branch: str | None = None,
        actor_id: str | None = None,
    ) -> EmbedResult:
        """Make the vectors that `@embed` asks for, for stored rows, as one commit.

        `missing` makes those that are null, or stale because the text or the model has changed;
        `all` makes every vector again. Without `types` all node types have their turn.
        """
        self._require_writable("embed")
        _check_actor(actor_id)
        chosen = choice(EmbedMode, mode, "embed mode")
        request = EmbedRequest(self._incarnation_of(branch), tuple(types), chosen, actor_id)
        return StoredEmbedding(
            self._repository,
            self._committer,
            self._embeddings_table,
            self._embedder(chosen, is_asked_for=True),
            model=self._embeddings.get().model,
        ).run(request)

    # -- schema ---------------------------------------------------------------------------------

    def schema_source(self) -> str:
        """Return the accepted schema text of the bound branch."""
        return self.snapshot().schema.source

    def catalog(self) -> Catalog:
        """Return what the accepted schema of the bound branch declares."""
        schema = self.snapshot().schema
        return compile_stored(schema.source, read_ir(schema.ir)).catalog

    def plan_schema(
        self, desired: str | SourceText, *, allow_data_loss: bool = False
    ) -> PlannedSchema:
        """Plan the way from the accepted schema to a desired one; touches no data."""
        snapshot = self.snapshot()
        return plan_schema(
            desired,
            accepted=read_ir(snapshot.schema.ir),
            allow_data_loss=allow_data_loss,
            row_counts={key: entry.row_count for key, entry in snapshot.entries.items()},
        )

    def plan_schema_file(self, path: Path, *, allow_data_loss: bool = False) -> PlannedSchema:
        """Plan the way to the schema in a file."""
        desired = decode_source(path.read_bytes(), str(path), "S")
        return self.plan_schema(desired, allow_data_loss=allow_data_loss)

    def apply_schema(
        self,
        desired: str | SourceText,
        *,
        allow_data_loss: bool = False,
        actor_id: str | None = None,
    ) -> SchemaApplied:
        """Make a desired schema the accepted one of `main`, with what it means for stored rows.

        `allow_data_loss` makes drops hard: what they remove is purged from older snapshots too.
        """
        self._require_writable("schema apply")
        _check_actor(actor_id)
        work = SchemaApply(self._repository, self._recovery, self._committer)
        return work.apply(desired, allow_data_loss=allow_data_loss, actor_id=actor_id)

    def apply_schema_file(
        self, path: Path, *, allow_data_loss: bool = False, actor_id: str | None = None
    ) -> SchemaApplied:
        """Make the schema in a file the accepted one."""
        desired = decode_source(path.read_bytes(), str(path), "S")
        return self.apply_schema(desired, allow_data_loss=allow_data_loss, actor_id=actor_id)

    def lint(self, queries: bytes, *, query_path: str) -> LintReport:
        """Check the queries of one file against the accepted schema."""
        source = SchemaSource("graph", self.uri)
        return lint_queries(queries, self.catalog(), schema_source=source, query_path=query_path)

    # -- upkeep ---------------------------------------------------------------------------------

    def ensure_indices(self, branch: str | None = None) -> UpkeepReport:
        """Build the declared indexes that are missing, and fold in rows that they do not cover."""
        self._require_writable("ensure_indices")
        return self._upkeep.ensure_indices(self._incarnation_of(branch))

    def optimize(self) -> UpkeepReport:
        """Compact and index every table of `main` in one commit; removes no version."""
        self._require_writable("optimize")
        return self._upkeep.optimize()

    def examine(self, *, try_writing: bool = True) -> list[Finding]:
        """Look for what is wrong or slow, and say what helps; see `omnigraph doctor`."""
        return examine(self._repository, self._recovery, self.snapshot(), try_writing=try_writing)

    def repair(self, *, confirm: bool = False, force: bool = False) -> RepairReport:
        """Show versions that came from outside; `confirm` publishes upkeep, `force` the rest."""
        if confirm:
            self._require_writable("repair")
        work = Repair(self._repository, self._recovery, self._committer)
        return work.run(confirm=confirm, force=force)

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than_s: int | None = None,
        orphan_age_s: int = ORPHAN_AGE_S,
        confirm: bool = False,
    ) -> CleanupResult:
        """Remove old versions and leftovers that nothing needs; without `confirm` only count them.

        With both options a version goes only if neither keeps it.
        """
        if confirm:
            self._require_writable("cleanup")
        policy = CleanupPolicy(keep_versions, older_than_s, orphan_age_s)
        work = Cleanup(self._repository, self._recovery, self._staging)
        return work.run(policy, confirm=confirm)

    # -- recovery -------------------------------------------------------------------------------

    def recovery_list(self) -> list[RecoveryRecord]:
        """Return what recovery has done, newest first."""
        return self._recovery.log.rows()

    def recovery_show(self, operation_id: str) -> RecoveryRecord:
        """Return what recovery did about one operation."""
        return self._recovery.show(operation_id)

    def recovery_status(self) -> list[PendingRecovery]:
        """Return the records of unfinished writes and what recovery would do; changes nothing."""
        return self._recovery.status()

    def recovery_quarantine(self, operation_id: str) -> str:
        """Set the record of an operation aside that recovery cannot settle; return where it is.

        Works on a graph that was opened for reading only: such a record stops every other open.
        """
        return self._recovery.quarantine(operation_id)

    # -- tags -----------------------------------------------------------------------------------

    def tag_create(
        self, name: str, target: ReadTarget | None = None, *, actor_id: str | None = None
    ) -> Tag:
        """Name a commit, by default the head of the bound branch, and keep its versions."""
        self._require_writable("tag create")
        _check_actor(actor_id)
        snapshot = self.snapshot() if target is None else self.snapshot_of(target)
        return self._repository.tags.create(name, snapshot, actor_id=actor_id)

    def tag_delete(self, name: str) -> None:
        """Forget a tag."""
        self._require_writable("tag delete")
        self._repository.tags.delete(name)

    def tag_list(self) -> list[Tag]:
        """Return all tags, sorted by name."""
        return list(self._repository.tags.list().values())

    # -- inside ---------------------------------------------------------------------------------

    def _decisions(self, strategy: str, prefer: str | None, path: Path | None) -> Decisions:
        takes, rows = ({}, {}) if path is None else read_decisions(path.read_text(), self.catalog())
        return Decisions(
            choice(Strategy, strategy, "merge strategy"),
            None if prefer is None else choice(Prefer, prefer, "preference"),
            takes,
            rows,
        )

    def _bound(self) -> Incarnation:
        with self._guard:
            return self._incarnation

    def _has_embeddings(self) -> bool:
        return any(node.embed_sources for node in self.catalog().node_types.values())

    def _load_target(self, branch: str | None) -> Incarnation | BranchName:
        return self._bound() if branch is None else BranchName.parse(branch)

    def _state_of(self, branch: str | None) -> ManifestState:
        return self._repository.reader.latest(self._incarnation_of(branch))

    def _incarnation_of(self, branch: str | None) -> Incarnation:
        if branch is None:
            return self._bound()
        return self._repository.branches.resolve(BranchName.parse(branch))

    def _create_branch(self, name: BranchName, source: Incarnation, actor_id: str | None) -> None:
        self._require_writable("branch create")
        _check_actor(actor_id)
        self._repository.branches.create(
            name, source=source, operation_id=self._repository.clock.ulid()
        )

    @property
    def _embeddings_table(self) -> EmbeddingsTable:
        return EmbeddingsTable(self._repository.store.datasets)

    def _embedder(self, embed: str, *, is_asked_for: bool = False) -> RowEmbedder:
        mode = choice(EmbedMode, embed, "embed mode")
        return RowEmbedder(
            self._embeddings, self._embeddings_table, mode, is_asked_for=is_asked_for
        )

    def _require_writable(self, operation: str) -> None:
        if self._mode is OpenMode.READ_ONLY:
            raise ReadOnlyGraphError(operation)


def init_from_file(uri: str, schema_path: Path, *, force: bool = False) -> Graph:
    """Make a new graph with the schema in a file."""
    schema = decode_source(schema_path.read_bytes(), str(schema_path), "S")
    return Graph.init(uri, schema, force=force)


def embed_records(request: EmbedFileRequest) -> EmbedFileResult:
    """Make the vectors of records in a file, with the provider of the environment."""
    return embed_file(request, LazyEmbeddingClient(SystemClock(), environ=os.environ).get)


def lint_files(*, query_path: Path, schema_path: Path) -> LintReport:
    """Check a file of queries against a schema file, without a graph."""
    schema = decode_source(schema_path.read_bytes(), str(schema_path), "S")
    catalog = compile_schema(schema, domain=SystemClock().ulid()).catalog
    return lint_queries(
        query_path.read_bytes(),
        catalog,
        schema_source=SchemaSource("file", str(schema_path)),
        query_path=str(query_path),
    )


def _shown_target(snapshot: Snapshot, target: ReadTarget | None) -> Target:
    if target is None or target.kind == "branch":
        return Target(branch=str(snapshot.branch))
    return Target(snapshot=snapshot.commit_id)


def _check_actor(actor_id: str | None) -> None:
    if actor_id is not None and actor_id.startswith(SYSTEM_ACTOR_PREFIX):
        raise ReservedActorError(actor_id)
