"""The public face: a graph at a root, bound to one branch."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import pyarrow as pa

from omnigraph.clock import Clock, SystemClock
from omnigraph.display import Display
from omnigraph.graph.arguments import (
    check_commit,
    checked_progress,
    one_target,
    query_text,
    root_of,
)
from omnigraph.graph.authorize import write_gate
from omnigraph.graph.cluster_guard import require_outside_cluster
from omnigraph.graph.flat_names import FlatNames
from omnigraph.graph.late import (
    blobs,
    commit_terms,
    conversions,
    engines,
    exporter,
    file_kinds,
    lineage_inputs,
    lineage_record,
    lineage_transport,
    load_options,
    load_result,
    loads,
    mutations,
    policies,
    record_input,
    row_embedder,
    stored_vectors,
    table_input,
    weights,
    write_modes,
)
from omnigraph.graph.opening import bind_for_writing, open_for_writing
from omnigraph.graph.running_exports import exporting, tracked
from omnigraph.graph.schema_hold import SchemaHold
from omnigraph.graph.session import start_session
from omnigraph.manifest import (
    AnyTarget,
    OpenMode,
    ReadTarget,
    Snapshot,
    init_repository,
    open_read_only,
)
from omnigraph.manifest.errors import ProcessBoundError
from omnigraph.manifest.layout import MAIN_INCARNATION
from omnigraph.manifest.repository import (
    assemble,
    check_contract,
    reconcile_commits,
    require_graph,
)
from omnigraph.names import (
    MAIN,
    ArgumentError,
    BranchName,
    TableKey,
    check_count,
    check_id,
    check_label,
    check_retries,
    choice,
    names_given,
    one_of,
)
from omnigraph.policy import Action
from omnigraph.progress import Report
from omnigraph.query import QueryText
from omnigraph.read.execute import ReadOptions
from omnigraph.read.limits import MEMORY_MAX_DEFAULT, Limits
from omnigraph.read.result import QueryResult, Target
from omnigraph.read.short_reads import SHORT_READS
from omnigraph.recovery import (
    BrokenManifest,
    Recovery,
    find_broken_manifests,
    put_manifests_back,
)
from omnigraph.schema import compile_schema
from omnigraph.search.embedding.config import (
    EmbeddingConfig,
    EmbeddingFunction,
    embedding_config,
)
from omnigraph.store import connect
from omnigraph.store.blob_bases import blob_bases
from omnigraph.store.durability import DURABILITIES, Durability
from omnigraph.store.filters import Comparison
from omnigraph.store.records import ScanRequest
from omnigraph.syntax.given import GivenSource, given_source
from omnigraph.texts import shown

_ENTITY_KINDS: Final = ("node", "edge")


class Graph(FlatNames):
    """A graph, bound to one of its branches. Safe to share between threads.

    Reading and writing rows are methods of the graph; everything else is a method of one of its
    parts: `branches`, `commits`, `tags`, `changes`, `schema`, `maintenance`, `recovery`.

    ```python
    with Graph.init("brain.omni", "node Person { name: String @key }") as graph:
        graph.branches.create("draft")
        print(graph.branches.list())
    ```
    """

    # -- opening ----------------------------------------------------------------------------------

    @classmethod
    def init(
        cls,
        uri: str | os.PathLike[str],
        schema: GivenSource,
        *,
        actor_id: str | None = None,
        policy: policies.Policy | str | os.PathLike[str] | None = None,
        force: bool = False,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "full",
        clock: Clock | None = None,
        auto_optimize: bool = True,
        checksums: bool = True,
        embedding: EmbeddingConfig | EmbeddingFunction | None = None,
        by_cluster: bool = False,
    ) -> Self:
        """Make a new graph with this schema, a text or a file; the root must not hold one.

        `force` replaces leftover schema files, never a graph. `auto_optimize=False` leaves the
        compaction after small writes to calls of `optimize`; `checksums=False` writes files without
        the checksums that `scrub` compares. `policy`, `actor_id` and `embedding` are as in `open`;
        the actor is also that of the first commit. Among the graphs of a cluster only
        `omnigraph cluster apply` makes one, and says `by_cluster`.
        """
        gate = write_gate(policy, actor_id)
        vectors = embedding_config(embedding)
        one_of(DURABILITIES, durability, "durability")
        clock = clock or SystemClock()
        if not by_cluster:
            require_outside_cluster("init", root_of(uri), storage_options=storage_options)
        text = given_source(schema, suffix=".pg", letter="S")
        compiled = compile_schema(text, domain=clock.ulid())
        store = connect(
            root_of(uri),
            storage_options=storage_options,
            durability=durability,
            checksums=checksums,
        )
        repository = init_repository(store, clock, compiled, actor_id=actor_id, force=force)
        return cls(
            start_session(
                repository,
                Recovery(repository),
                mode=OpenMode.READ_WRITE,
                incarnation=MAIN_INCARNATION,
                gate=gate,
                auto_optimize=auto_optimize,
                embedding=vectors,
            )
        )

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        branch: str = MAIN,
        mode: OpenMode | str = OpenMode.READ_WRITE,
        policy: policies.Policy | str | os.PathLike[str] | None = None,
        actor_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "full",
        clock: Clock | None = None,
        auto_optimize: bool = True,
        checksums: bool = True,
        embedding: EmbeddingConfig | EmbeddingFunction | None = None,
        external_blob_bases: Sequence[str] = (),
    ) -> Self:
        """Open a graph and bind to a branch.

        `policy` is a bundle, or the path of one: every write through this handle is then decided by
        it before it begins, and one without an actor is denied. `actor_id` is who writes. A handle
        that has one acts for no other; without one, each call names its own.
        `embedding` makes the vectors: a configuration, or a function from a list of texts to as
        many vectors; by default the provider of the environment. Every write may
        read external blobs from below `external_blob_bases`, besides those that its call names.
        """
        gate = write_gate(policy, actor_id)
        vectors = embedding_config(embedding)
        mode = choice(OpenMode, mode, "mode")
        one_of(DURABILITIES, durability, "durability")
        store = connect(
            root_of(uri),
            storage_options=storage_options,
            durability=durability,
            checksums=checksums,
        )
        clock = clock or SystemClock()
        if mode is OpenMode.READ_WRITE:
            repository, recovery = open_for_writing(store, clock)
            incarnation = bind_for_writing(repository, recovery, BranchName.parse(branch))
        else:
            repository = open_read_only(store, clock)
            recovery = Recovery(repository)
            incarnation = repository.branches.resolve(BranchName.parse(branch))
        return cls(
            start_session(
                repository,
                recovery,
                mode=mode,
                incarnation=incarnation,
                gate=gate,
                auto_optimize=auto_optimize,
                embedding=vectors,
                external_blob_bases=blob_bases(external_blob_bases),
            )
        )

    def with_policy(
        self,
        policy: policies.Policy | str | os.PathLike[str] | None,
        *,
        actor_id: str | None = None,
    ) -> Self:
        """Return another handle of this open graph, with a policy and an actor of its own.

        Both handles share everything else, also the bound branch; closing one closes both.
        """
        return type(self)(replace(self._session, gate=write_gate(policy, actor_id)))

    def with_schema(self, schema_hash: str) -> Self:
        """Return another handle of this open graph that is held to one accepted schema of `main`.

        While `main` has another schema, it reads the newest snapshot that has this one, and
        refuses to write there. Other branches have schemas of their own. Both handles share
        everything else; closing one closes both.
        """
        session = self._session
        return type(self)(
            replace(
                session,
                hold=SchemaHold(schema_hash, session.repository.history),
            )
        )

    def with_blob_bases(self, external_blob_bases: Sequence[str]) -> Self:
        """Return another handle of this open graph that may read external blobs from elsewhere."""
        bases = blob_bases(external_blob_bases)
        return type(self)(replace(self._session, external_blob_bases=bases))

    def on_terms(self, terms: commit_terms.CommitTerms) -> Self:
        """Return another handle of this open graph, whose loads and merges commit on these terms.

        Both handles share everything else, also the bound branch; closing one closes both.
        """
        return type(self)(replace(self._session, terms=terms))

    def with_job(self, name: str | None = None, *, namespace: str) -> Self:
        """Return another handle of this open graph, whose commits name a job in their lineage.

        Without a name each write is called by what it does: `load`, `merge`. Both handles share
        everything else, also the bound branch; closing one closes both.
        """
        check_label("the namespace of a job", namespace)
        return type(self)(replace(self._session, job_namespace=namespace, job_name=name))

    def close(self) -> None:
        """Release the graph, after the compaction that many small writes have left to do.

        Nothing is lost without it: every write was finished by its call. A closed graph answers
        nothing more, and its memory is free; closing it again does nothing.
        """
        if not self._opened.closed.is_set():
            self._opened.finish()
            self._opened.closed.set()
            self._opened.forget()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: locks, threads and open files stay in their process."""
        raise ProcessBoundError(f"the graph {self.uri}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @classmethod
    def repair_manifests(
        cls,
        uri: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "full",
        clock: Clock | None = None,
        confirm: bool = False,
    ) -> tuple[BrokenManifest, ...]:
        """Find branches whose newest manifest version cannot be used; the graph need not open.

        `confirm` puts the version below back. Nothing is removed, and no commit below is lost.
        """
        one_of(DURABILITIES, durability, "durability")
        store = connect(root_of(uri), storage_options=storage_options, durability=durability)
        repository = assemble(store, clock or SystemClock())
        require_graph(repository)
        if not confirm:
            return find_broken_manifests(repository)
        return put_manifests_back(repository, Recovery(repository).log)

    # -- snapshots --------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The root of the graph."""
        return self._opened.repository.root

    @property
    def branch(self) -> str:
        """The branch that this handle is bound to."""
        return str(self._opened.binding.get().branch)

    def __repr__(self) -> str:
        state = " closed" if self._opened.closed.is_set() else ""
        return f"<Graph {shown(self.uri)} branch={self.branch}{state}>"

    def _repr_html_(self) -> str:
        if self._opened.closed.is_set():
            return Display(repr(self)).html()
        snapshot = self.snapshot()
        rows = [(str(key), entry.row_count) for key, entry in snapshot.entries.items()]
        title = f"graph {self.uri} on branch {self.branch} at commit {snapshot.commit_id}"
        return Display(title, ("type", "rows"), rows).html()

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot of the bound branch."""
        return self._session.snapshot()

    def snapshot_of(self, target: AnyTarget) -> Snapshot:
        """Return the snapshot of a branch, a commit, a tag or a moment.

        A snapshot that this handle has returned stands for itself.
        """
        return self._session.snapshot_of(target)

    def snapshot_at_version(self, version: int) -> Snapshot:
        """Return the snapshot of one manifest version of the bound branch."""
        bound = self._session.binding.get()
        return self._session.repository.history.snapshot_at_version(bound, version)

    def entity_at(self, table_key: str, entity_id: str, version: int) -> pa.Table:
        """Return one entity at one manifest version: a table of one row, or of none."""
        bound = self._session.binding.get()
        handle = self._session.repository.history.table_at_version(bound, version, table_key)
        request = ScanRequest(row_filter=Comparison("id", "=", entity_id), limit=1)
        return handle.scan(request).read_all()

    def refresh(self) -> Snapshot:
        """Look at storage again: settle dead writes, check the schema, update derived tables."""
        session = self._session
        if session.is_writable:
            session.recovery.sweep()
        snapshot = self.snapshot()
        check_contract(snapshot.state)
        if session.is_writable:
            reconcile_commits(session.repository, snapshot.incarnation)
            session.repository.checksums.record()
        return snapshot

    # -- reading ----------------------------------------------------------------------------------

    def query(
        self,
        text: QueryText | os.PathLike[str],
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        target: AnyTarget | None = None,
        branch: str | None = None,
        explain: bool = False,
        profile: bool = False,
        timeout_s: float | None = None,
        rows_max: int | None = None,
        memory_max: int | None = MEMORY_MAX_DEFAULT,
        cancelled: threading.Event | None = None,
        strict_params: bool = True,
    ) -> QueryResult:
        """Run a read on one snapshot; `name` picks one of several queries in the text.

        A `Path` names a file with the text.
        A text that is one `match … return …` alone is a query too, without name and parameters.

        `target` is a `ReadTarget`, a moment, a snapshot such as that of `snapshot_at_version`, or
        a text: the name of a branch, else of a tag, else the id of a commit. `branch` is short for
        `ReadTarget.branch`. By default the head of the bound branch is read.
        `explain` returns the plan instead of rows, `profile` adds what each step cost. A read that
        exceeds a limit is an error; it never returns a part of the rows. A parameter that the
        query does not declare is an error, or without `strict_params` a warning of the result.
        """
        text = query_text(text)
        check_count("rows_max", rows_max)
        if not isinstance(timeout_s, int | float | None):
            raise ArgumentError.of("timeout_s", "a number of seconds", timeout_s)
        target = one_target(target, branch)
        if target is not None:
            target = self._session.target_of(target)
        found = None if self._session.is_on_disk else self._session.snapshot_of(target)
        with SHORT_READS.held():
            snapshot = found or self._session.snapshot_of(target)
            return self._session.reader.run(
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
                strict_params=strict_params,
            )

    def export(
        self,
        out: str | os.PathLike[str],
        *,
        format: str = "jsonl",  # noqa: A002 - the usual name
        types: Sequence[str] = (),
        target: AnyTarget | None = None,
        engine: str = "auto",
        spark: object | None = None,
        progress: bool = False,
    ) -> exporter.ExportResult:
        """Write one snapshot to an empty folder: a folder per type, a file per group of fragments.

        `format` is `jsonl` or `parquet`, which a load takes back, or `csv`. `types` names some
        types, by default all. `engine` is as in `load`; on Spark the folder must be one that
        workers share.
        """
        snapshot = self._session.snapshot_of(target)
        form = choice(exporter.ExportFormat, format, "export format")
        plan = exporter.plan_export(snapshot, out, export_format=form, types=types)
        asked = choice(engines.EngineChoice, engine, "engine")
        chosen = engines.choose(asked, weights.Weight(plan.nbytes), session=spark).engine
        with exporting(self.uri):
            if chosen is engines.EngineChoice.LOCAL:
                return exporter.export_here(plan, self._session.repository.store.datasets)
            return engines.engine_named(chosen).export(
                plan, self._session.repository, session=spark, shows_progress=progress
            )

    def export_lines(
        self, *, types: Sequence[str] = (), target: AnyTarget | None = None
    ) -> Iterator[bytes]:
        """Yield one line of graph JSONL per entity of one snapshot, by type and id."""
        snapshot = self._session.snapshot_of(target)
        return tracked(self.uri, exporter.stream_lines(snapshot, types))

    def export_batches(
        self,
        *,
        types: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        target: AnyTarget | None = None,
    ) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        """Yield the rows of one snapshot as Arrow, type by type, as they are stored.

        Each item is the key of a type (`node:Person`) and its batches, to be read before the next.
        With `columns` only those of each type are read that have one of these names.
        """
        snapshot = self._session.snapshot_of(target)
        return tracked(self.uri, exporter.stream_batches(snapshot, types, columns))

    def blob(
        self,
        entity: blobs.EntityKind,
        type_name: str,
        entity_id: str,
        property: str,  # noqa: A002 - what the schema calls it
        *,
        target: AnyTarget | None = None,
    ) -> blobs.Blob:
        """Return one Blob value of a node or an edge: what it is, and its bytes in parts.

        The value of a null, and of an entity that does not exist, is an error. An external one
        has an address and no bytes.
        """
        one_of(_ENTITY_KINDS, entity, "kind of entity")
        snapshot = self._session.snapshot_of(target)
        return blobs.find_blob(snapshot, blobs.BlobSelector(entity, type_name, entity_id, property))

    def to_spark(
        self,
        spark: object,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        target: AnyTarget | None = None,
    ) -> Any:
        """Return the rows of one type as a Spark DataFrame of one snapshot.

        `columns` names columns, Blobs among them; without it all others come. `where` is a filter
        in SQL that storage answers: comparisons, `AND`, `OR`, `NOT`, `IN`, `BETWEEN`, `LIKE`,
        `IS NULL`.
        """
        return engines.engine_named("spark").frame(
            engines.FrameRequest(
                self._session.repository,
                self._session.snapshot_of(target),
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
        return engines.engine_named("spark").frame(
            engines.FrameRequest(self._session.repository, self.snapshot(), spark, edges=chosen)
        )

    # -- writing ----------------------------------------------------------------------------------

    def load(
        self,
        data: record_input.RecordInput | Mapping[str, object],
        *,
        mode: str,
        format: str | None = None,  # noqa: A002 - the usual name
        branch: str | None = None,
        from_branch: str | None = None,
        reader: str = "strict",
        expected_head: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        job: str | lineage_record.Job | None = None,
        embed: str = "missing",
        actor_id: str | None = None,
        external_blob_bases: Sequence[str] = (),
        on_error: str = "fail",
        quarantine: str | Path | None = None,
        max_errors: int | None = None,
        on_duplicate: str = "error",
        missing: str | None = None,
        null_cells: str = "null",
        edges: str | None = None,
        cascade: bool = False,
        order_by: Sequence[str] = (),
        engine: str = "auto",
        spark: object | None = None,
        progress: bool | Report = False,
        cancelled: threading.Event | None = None,
        dry_run: bool = False,
    ) -> load_result.LoadResult:
        """Load graph records, tables by type, or an exported folder as one commit, or not at all.

        Graph records are JSON lines or an array: paths, folders, globs, URIs, bytes, an open file,
        or a list of objects. `data` may also map names of types to tables: paths of files, Arrow,
        pandas, polars, lists of objects, Spark DataFrames, or descriptions of sources (`path`,
        `format`, `options`, `map`). The name of a file and its content say its format;
        `format` names one: `jsonl`, `json`, `csv`, `tsv`, `parquet`, `arrow`, `orc`.

        `mode` is `append`, `merge` or `overwrite`, `reader` is `strict` or `compatible`. With
        `from_branch` a branch that does not exist is cut from that one first. `expected_head` makes
        the load conditional: when the branch has another head, nothing happens. Blobs given by
        URI are taken only from below `external_blob_bases`. The commit keeps `properties`, and
        says which inputs it was made from and by which `job`.

        With `on_error="quarantine"` rows that break a rule are left out and written to the
        directory `quarantine`; a load with more than `max_errors` of them fails. In a merge an
        edge without an id is the stored edge that it stands for, so that a second load of the same
        input changes nothing; `edges="add"` makes it a new edge instead. An overwrite with
        `cascade` removes stored edges together with their nodes, instead of refusing. `embed`
        chooses which vectors of `@embed` properties are made, if a provider is configured:
        `missing`, `all` or `off`. A `dry_run` checks and counts everything, in this process, and
        writes nothing.

        A merge keeps properties of stored rows that the input does not name; with `missing="null"`
        they become their `@default` or null, which is what the compatible reader does unless asked
        otherwise. A null in a table is a value; with `null_cells="keep"` it names nothing. Of
        several records of one id, `on_duplicate` takes the `last` or the `first`, or folds them
        with `combine`; `error` refuses them.

        `engine` is `local`, `spark`, or `auto`: Spark for its DataFrames, for the session `spark`,
        where one is configured, and for what does not fit here. `order_by` names the columns of
        DataFrames by which the last row of an id is found; `progress` shows on stderr what the
        load does, or is called with it. A job of Spark ends without a commit once `cancelled` is
        set.
        """
        session = self._session
        if not dry_run:
            session.require_writable("load")
        actor_id = session.authorize(
            Action.CHANGE, branch=session.branch_of(branch), actor_id=actor_id
        )
        source = None if from_branch is None else BranchName.parse(from_branch)
        check_commit(message, properties)
        check_id("the expected head", expected_head)
        options = load_options.LoadOptions(
            mode=choice(write_modes.WriteMode, mode, "load mode"),
            target=loads.load_target(session, branch, source, actor_id),
            from_branch=source,
            conversion=choice(conversions.ConversionMode, reader, "reader"),
            expected_head=expected_head,
            message=message,
            properties=dict(properties or {}),
            job=session.job(job, "load"),
            described=lineage_inputs.Described() if dry_run else lineage_inputs.describe(data),
            actor_id=actor_id,
            external_blob_bases=self._session.blob_bases(external_blob_bases),
            on_error=choice(load_options.OnError, on_error, "on_error"),
            quarantine=None if quarantine is None else Path(quarantine),
            max_errors=max_errors,
            on_duplicate=choice(load_options.OnDuplicate, on_duplicate, "on_duplicate"),
            missing=None if missing is None else choice(load_options.Missing, missing, "missing"),
            null_cells=choice(load_options.NullCells, null_cells, "null_cells"),
            order_by=tuple(order_by),
            edges=None if edges is None else choice(load_options.EdgeIdentity, edges, "edges"),
            cascade=cascade,
            is_dry_run=dry_run,
            terms=session.terms,
        )
        request = engines.LoadRequest(
            session.repository,
            session.committer,
            loads.load_data(data, session),
            options,
            session=spark,
            order_by=tuple(order_by),
            shows_progress=checked_progress(progress) is True,
            report=None if isinstance(progress, bool) else progress,
            cancelled=cancelled,
            embedder=session.embedder(embed),
            form=None if format is None else file_kinds.format_named(format),
        )
        return loads.load_with(session, choice(engines.EngineChoice, engine, "engine"), request)

    def load_tables(
        self,
        *,
        nodes: Mapping[str, table_input.TableInput] | None = None,
        edges: Mapping[str, table_input.TableInput] | None = None,
        mode: str,
        branch: str | None = None,
        from_branch: str | None = None,
        expected_head: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        job: str | lineage_record.Job | None = None,
        embed: str = "missing",
        actor_id: str | None = None,
        external_blob_bases: Sequence[str] = (),
        on_error: str = "fail",
        quarantine: str | Path | None = None,
        max_errors: int | None = None,
        on_duplicate: str = "error",
        missing: str | None = None,
        null_cells: str = "null",
        edge_identity: str | None = None,
        cascade: bool = False,
        dry_run: bool = False,
    ) -> load_result.LoadResult:
        """Load tables, files or lists of objects by type as one commit, in this process.

        Columns have the names of properties; edges have `src` and `dst`, or `from` and `to`.
        `edge_identity` is what `load` calls `edges`; the other arguments are those of `load`.
        """
        tables: dict[str, object] = {
            TableKey.node(name): table for name, table in (nodes or {}).items()
        }
        tables |= {TableKey.edge(name): table for name, table in (edges or {}).items()}
        return self.load(
            tables,
            mode=mode,
            branch=branch,
            from_branch=from_branch,
            expected_head=expected_head,
            message=message,
            properties=properties,
            job=job,
            embed=embed,
            actor_id=actor_id,
            external_blob_bases=external_blob_bases,
            on_error=on_error,
            quarantine=quarantine,
            max_errors=max_errors,
            on_duplicate=on_duplicate,
            missing=missing,
            null_cells=null_cells,
            edges=edge_identity,
            cascade=cascade,
            engine=engines.EngineChoice.LOCAL,
            dry_run=dry_run,
        )

    def mutate(
        self,
        text: QueryText | os.PathLike[str],
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        expected_head: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        retries: int = 0,
        embed: str = "missing",
        actor_id: str | None = None,
        external_blob_bases: Sequence[str] = (),
    ) -> mutations.MutationResult:
        """Run a mutation query as one commit; `name` picks one of several in the text.

        A `Path` names a file with the text.
        `expected_head` makes it conditional: when the branch has another head, nothing happens.
        The commit keeps `message` and `properties`. A query that lost a race is run again from its
        text on the new state, up to `retries` times; one that only inserts always is.
        `embed` chooses which vectors of `@embed` properties are made, if a provider is configured:
        `missing`, `all` or `off`. Blobs that are given by URI are read from below
        `external_blob_bases` only, and copied in.
        """
        actor_id = self._changes_as("mutate", branch, actor_id)
        check_id("the expected head", expected_head)
        check_commit(message, properties)
        check_retries(retries)
        request = mutations.MutationRequest(
            query_text(text),
            name,
            params,
            self._session.incarnation_of(branch),
            expected_head=expected_head,
            actor_id=actor_id,
            external_blob_bases=self._session.blob_bases(external_blob_bases),
            message=message,
            properties=dict(properties or {}),
            retries=retries,
        )
        return mutations.Mutations(
            self._session.repository, self._session.committer, self._session.embedder(embed)
        ).run(request)

    def delete_rows(
        self,
        ids: Mapping[str, Sequence[str]],
        *,
        branch: str | None = None,
        expected_head: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        actor_id: str | None = None,
    ) -> mutations.RemovalResult:
        """Delete rows by their ids as one commit: `{"node:Person": ["ann"], "edge:Knows": []}`.

        The edges at a deleted node go with it. Ids that are not there are passed over. With
        `expected_head`, nothing happens when the branch has another head.
        """
        actor_id = self._changes_as("mutate", branch, actor_id)
        check_id("the expected head", expected_head)
        check_commit(message, properties)
        request = mutations.RemovalRequest(
            ids,
            self._session.incarnation_of(branch),
            expected_head,
            actor_id,
            message,
            dict(properties or {}),
        )
        return mutations.Mutations(
            self._session.repository,
            self._session.committer,
            self._session.embedder("off"),
        ).remove(request)

    def embed(
        self,
        types: Sequence[str] = (),
        *,
        mode: str = "missing",
        branch: str | None = None,
        actor_id: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        job: str | lineage_record.Job | None = None,
    ) -> stored_vectors.EmbedResult:
        """Make the vectors that `@embed` asks for, for stored rows, as one commit.

        `missing` makes those that are null, or stale because the text or the model has changed;
        `all` makes every vector again. Without `types` it covers all node types.
        """
        actor_id = self._changes_as("embed", branch, actor_id)
        chosen = choice(row_embedder.EmbedMode, mode, "embed mode")
        check_commit(message, properties)
        session, clock = self._session, self._session.repository.clock
        named = session.job(job, "embed").of_run(clock.ulid())
        request = stored_vectors.EmbedRequest(
            session.incarnation_of(branch),
            names_given(types),
            chosen,
            actor_id,
            message,
            dict(properties or {}),
            named,
        )
        embedding = stored_vectors.StoredEmbedding(
            session.repository,
            session.committer,
            session.embeddings_table,
            session.embedder(chosen, is_asked_for=True),
            model=session.embeddings.get().model,
        )
        with lineage_transport.LongJob(session.live, named, "EMBED", clock.now_us) as long_job:
            long_job.begin()
            result = embedding.run(request)
            long_job.has_commit = result.commit is not None
        return result

    def _changes_as(self, operation: str, branch: str | None, actor_id: str | None) -> str | None:
        """Return the actor of a change of rows, or raise unless it may be done."""
        session = self._session
        session.require_writable(operation)
        return session.authorize(Action.CHANGE, branch=session.branch_of(branch), actor_id=actor_id)


def _shown_target(snapshot: Snapshot, target: ReadTarget | Snapshot | None) -> Target:
    if target is None or (isinstance(target, ReadTarget) and target.kind == "branch"):
        return Target(branch=str(snapshot.branch))
    return Target(snapshot=snapshot.commit_id)
