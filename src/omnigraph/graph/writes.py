"""Loads, mutations and embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from omnigraph.engine import (
    EngineChoice,
    LoadRequest,
    run_load,
)
from omnigraph.graph.core import GraphCore
from omnigraph.manifest.layout import Incarnation
from omnigraph.names import BranchName, TableKey, check_actor, check_commit_texts, check_id, choice
from omnigraph.query import QueryText
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.search.embedding.table import EmbeddingsTable
from omnigraph.write.embed.row_embedder import EmbedMode, RowEmbedder
from omnigraph.write.embed.stored import EmbedRequest, EmbedResult, StoredEmbedding
from omnigraph.write.load.input.interfaces import LoadSource
from omnigraph.write.load.input.source import RecordInput, RecordSource
from omnigraph.write.load.input.tables import TableInput, table_source
from omnigraph.write.load.loader import Loader
from omnigraph.write.load.options import LoadOptions, OnDuplicate, OnError
from omnigraph.write.load.result import LoadResult
from omnigraph.write.load.workers import LocalLoadWorkers
from omnigraph.write.mutate.mutations import MutationRequest, MutationResult, Mutations
from omnigraph.write.stage.blob_bases import blob_bases
from omnigraph.write.stage.delta import WriteMode


class WriteCalls(GraphCore):
    """Calls that change rows."""

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
        cascade: bool = False,
        order_by: Sequence[str] = (),
        engine: str = EngineChoice.AUTO,
        spark: object | None = None,
        progress: bool = False,
        dry_run: bool = False,
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
        `on_duplicate="last"` lets the last of several records of one id win. An overwrite with
        `cascade` takes stored edges along with the nodes that go, instead of refusing. `embed` says
        which vectors of `@embed` properties are made, if a provider is configured: `missing`, `all`
        or `off`. A `dry_run` checks and counts everything, in this process, and writes nothing.

        `engine` is `local`, `spark`, or `auto`: Spark for its DataFrames, for the session `spark`,
        where one is configured, and for large inputs. `order_by` names columns of DataFrames that
        say which row is the last; `progress` shows what Spark does on stderr.
        """
        if not dry_run:
            self._require_writable("load")
        check_actor(actor_id)
        check_commit_texts(message=message, properties=properties)
        check_id("the expected head", expected_head)
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
            external_blob_bases=blob_bases(external_blob_bases),
            on_error=choice(OnError, on_error, "on_error"),
            quarantine=None if quarantine is None else Path(quarantine),
            max_errors=max_errors,
            on_duplicate=choice(OnDuplicate, on_duplicate, "on_duplicate"),
            cascade=cascade,
            is_dry_run=dry_run,
        )
        embedder = self._embedder(embed)
        request = LoadRequest(
            self._repository,
            self._committer,
            data,
            options,
            session=spark,
            order_by=tuple(order_by),
            shows_progress=progress,
            embedder=embedder,
        )

        def local() -> LoadResult:
            source: LoadSource = (
                table_source(data, self.catalog())
                if isinstance(data, Mapping)
                else RecordSource(data, conversion)
            )
            # Whoever brings tables brings many edges, and is going to traverse them.
            own = replace(options, persists_topology=isinstance(data, Mapping))
            return Loader(self._repository, self._committer, embedder).load(
                LocalLoadWorkers(source), own
            )

        return run_load(choice(EngineChoice, engine, "engine"), request, local)

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
        cascade: bool = False,
        dry_run: bool = False,
    ) -> LoadResult:
        """Load Arrow, pandas or polars tables, or parquet files, by type as one commit.

        Columns have the names of properties; edges have `src` and `dst`, or `from` and `to`.
        The other arguments are those of `load`.
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
            embed=embed,
            actor_id=actor_id,
            external_blob_bases=external_blob_bases,
            on_error=on_error,
            quarantine=quarantine,
            max_errors=max_errors,
            on_duplicate=on_duplicate,
            cascade=cascade,
            engine=EngineChoice.LOCAL,
            dry_run=dry_run,
        )

    def mutate(
        self,
        text: QueryText,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        expected_head: str | None = None,
        embed: str = EmbedMode.MISSING,
        actor_id: str | None = None,
        external_blob_bases: Sequence[str] = (),
    ) -> MutationResult:
        """Run a mutation query as one commit; `name` picks one of several in the text.

        `expected_head` makes it conditional: when the branch has another head, nothing happens.
        `embed` says which vectors of `@embed` properties are made, if a provider is configured:
        `missing`, `all` or `off`. Blobs that are given by URI are read from below
        `external_blob_bases` only, and copied in.
        """
        self._require_writable("mutate")
        check_actor(actor_id)
        check_id("the expected head", expected_head)
        request = MutationRequest(
            text,
            name,
            params,
            self._incarnation_of(branch),
            expected_head=expected_head,
            actor_id=actor_id,
            external_blob_bases=blob_bases(external_blob_bases),
        )
        return Mutations(self._repository, self._committer, self._embedder(embed)).run(request)

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
        `all` makes every vector again. Without `types` all node types have their lock.
        """
        self._require_writable("embed")
        check_actor(actor_id)
        chosen = choice(EmbedMode, mode, "embed mode")
        request = EmbedRequest(self._incarnation_of(branch), tuple(types), chosen, actor_id)
        return StoredEmbedding(
            self._repository,
            self._committer,
            self._embeddings_table,
            self._embedder(chosen, is_asked_for=True),
            model=self._embeddings.get().model,
        ).run(request)

    def _load_target(self, branch: str | None) -> Incarnation | BranchName:
        return self._bound() if branch is None else BranchName.parse(branch)

    @property
    def _embeddings_table(self) -> EmbeddingsTable:
        return EmbeddingsTable(self._repository.store.datasets)

    def _embedder(self, embed: str, *, is_asked_for: bool = False) -> RowEmbedder:
        mode = choice(EmbedMode, embed, "embed mode")
        return RowEmbedder(
            self._embeddings, self._embeddings_table, mode, is_asked_for=is_asked_for
        )
