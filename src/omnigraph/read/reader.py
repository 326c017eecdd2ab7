"""Reads of one graph: from a text and parameters to a result."""

from __future__ import annotations

from omnigraph.clock import Clock
from omnigraph.manifest import Snapshot
from omnigraph.names import TableKey
from omnigraph.query.bindings import Bindings
from omnigraph.query.compile import cached_queries
from omnigraph.query.language.parse import QueryText
from omnigraph.query.params import coerce_params
from omnigraph.query.plan.plan import NearestRanking, ReadPlan
from omnigraph.query.select import QueryKindError, require_kind, select_query
from omnigraph.read.context import Embed
from omnigraph.read.execute import Executor, ReadOptions, ReadRequest
from omnigraph.read.result import QueryResult, Target
from omnigraph.search.embedding.client import LazyEmbeddingClient
from omnigraph.search.embedding.table import EmbeddingsTable
from omnigraph.search.topology.cache import Topologies

_MICROSECONDS_PER_MILLISECOND = 1000


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
        self._embed = None if embeddings is None else _embed_with(embeddings, recorded)
        self._executor = Executor(topologies, clock)

    def run(
        self,
        snapshot: Snapshot,
        text: QueryText,
        *,
        name: str | None,
        params: object,
        target: Target,
        options: ReadOptions,
    ) -> QueryResult:
        """Answer one query of a text on one snapshot."""
        queries = cached_queries(text)
        query = select_query(queries.file, name)
        require_kind(query, expect_mutation=False)
        plan = queries.plan(query, snapshot.catalog)
        if not isinstance(plan, ReadPlan):
            raise QueryKindError(query.name, is_mutation=True)
        bindings = Bindings(
            coerce_params(query.parameters, params),
            self._clock.now_us() // _MICROSECONDS_PER_MILLISECOND,
        )
        request = ReadRequest(plan, snapshot, bindings, target, options, self._embed)
        return self._executor.run(request)


def _embed_with(embeddings: LazyEmbeddingClient, recorded: EmbeddingsTable | None) -> Embed:
    def embed(ranking: NearestRanking, table_key: str, text: str) -> tuple[float, ...]:
        client = embeddings.get()
        client.require_model(ranking.property, ranking.model)
        if ranking.model is None and recorded is not None:
            _, type_name = TableKey(table_key).parts
            client.require_one_of(ranking.property, recorded.models(type_name, ranking.property))
        vector = client.embed_query(text, dimension=ranking.dimension)
        return tuple(float(item) for item in vector.tolist())

    return embed
