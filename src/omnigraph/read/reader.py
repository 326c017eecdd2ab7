"""Reads of one graph: from a text and parameters to a result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from omnigraph.clock import Clock
from omnigraph.manifest import Snapshot
from omnigraph.names import TableKey
from omnigraph.query.bindings import Bindings
from omnigraph.query.compile import cached_queries
from omnigraph.query.language.parse import QueryText
from omnigraph.query.params import coerce_params, require_enum_values, unknown_params
from omnigraph.query.plan.numbers import with_numbers
from omnigraph.query.plan.plan import NearestRanking, ReadPlan
from omnigraph.query.select import QueryKindError, require_kind, select_query
from omnigraph.read.context import Embed
from omnigraph.read.execute import Executor, ReadOptions, ReadRequest
from omnigraph.read.result import QueryResult, Target
from omnigraph.read.short_reads import SHORT_READS
from omnigraph.read.vector_origin import VectorOrigins
from omnigraph.search.embedding.client import LazyEmbeddingClient
from omnigraph.search.embedding.table import EmbeddingsTable
from omnigraph.search.topology.cache import Topologies

_MICROSECONDS_PER_MILLISECOND = 1000

_log = logging.getLogger(__name__)


class Reader:
    """Answers reads of one graph. Safe to share between threads.

    Topologies are cached by the files that they were made from.
    """

    def __init__(
        self,
        topologies: Topologies,
        clock: Clock,
        *,
        embeddings: LazyEmbeddingClient | None = None,
        recorded: EmbeddingsTable | None = None,
    ) -> None:
        self._clock = clock
        self._embeddings = embeddings
        self._origins = None if recorded is None else VectorOrigins(recorded)
        self._executor = Executor(topologies, clock)

    def forget(self) -> None:
        """Drop everything from memory that makes reads faster."""
        self._executor.forget()

    def prepare(self, newest: Callable[[], Snapshot], written: Collection[str]) -> None:
        """Lay the tables that a commit has written over what is in memory.

        That is done by the writer, for whom it is a small part of the write, so that the next read
        does not wait for it. A failure costs the read time only, also one of `newest`: the branch
        may be gone by now.
        """
        try:
            self._executor.prepare(newest(), written)
        except Exception as error:  # noqa: BLE001 - the write has landed and must not fail any more
            _log.warning("what is in memory was not brought up to date: %s", error)

    def run(
        self,
        snapshot: Snapshot,
        text: QueryText,
        *,
        name: str | None,
        params: object,
        target: Target,
        options: ReadOptions,
        strict_params: bool = True,
    ) -> QueryResult:
        """Answer one query of a text on one snapshot.

        Without `strict_params` a parameter that the query does not declare is a warning of the
        result.
        """
        queries = cached_queries(text)
        query = select_query(queries.file, name)
        require_kind(query, expect_mutation=False)
        plan = queries.plan(query, snapshot.catalog)
        if not isinstance(plan, ReadPlan):
            raise QueryKindError(query.name, is_mutation=True)
        values = coerce_params(query.parameters, params, ignores_unknown=not strict_params)
        require_enum_values(plan.parameters, values)
        bindings = Bindings(values, self._clock.now_us() // _MICROSECONDS_PER_MILLISECOND)
        request = ReadRequest(
            with_numbers(plan, values), snapshot, bindings, target, options, self._embed(snapshot)
        )
        began_s = self._clock.monotonic_s()
        found = self._executor.run(request)
        _log.debug(
            "query %s on %s at commit %s: %d rows in %.1f ms",
            query.name or "without a name",
            snapshot.branch,
            snapshot.commit_id,
            found.row_count,
            (self._clock.monotonic_s() - began_s) * 1000,
        )
        if strict_params:
            return found
        unknown = unknown_params(query.parameters, params)
        return replace(found, warnings=tuple(problem.message for problem in unknown))

    def _embed(self, snapshot: Snapshot) -> Embed | None:
        """Return what makes vectors of texts in a query."""
        embeddings, origins = self._embeddings, self._origins
        if embeddings is None:
            return None

        def embed(ranking: NearestRanking, table_key: str, text: str) -> tuple[float, ...]:
            SHORT_READS.release_own()
            client = embeddings.get()
            client.require_model(ranking.property, ranking.model)
            if ranking.model is None and origins is not None:
                node = snapshot.catalog.node_types[TableKey(table_key).type_name]
                origins.require(client, snapshot, node, ranking.property)
            vector = client.embed_query(text, dimension=ranking.dimension)
            return tuple(float(item) for item in vector.tolist())

        return embed
