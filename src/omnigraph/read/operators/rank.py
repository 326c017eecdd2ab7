"""Rankings: the best nodes of a scan, and scores as columns.

1. Filters of the ranked variable apply before the ranking cuts.
2. A score comes from the store: a distance of the property's metric, or a BM25 relevance.
3. Nodes of equal score stand in the order of their ids.
4. In a fused ranking the rank of a node in an arm counts only nodes that reach the end of the
   pipeline, so the fusion happens there.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InvalidInputError, UnavailableError
from omnigraph.names import TableKey
from omnigraph.query.plan.plan import (
    Bm25Ranking,
    NearestRanking,
    NodeScan,
    Ranking,
    ReadPlan,
    RrfRanking,
)
from omnigraph.read.column_names import ID
from omnigraph.read.context import Context, ScoreMap
from omnigraph.read.operators.scan import scan_nodes, split_filters
from omnigraph.read.row_table import NULL, RowIds, RowTable, ascending_ids
from omnigraph.search.text.fusion import fuse as fuse_rankings
from omnigraph.store.filters import Filter
from omnigraph.store.records import (
    DISTANCE,
    ROW_ID,
    SCORE,
    ScanRequest,
    TextSearch,
    VectorSearch,
)

_Scores = npt.NDArray[np.float64]
Arm = NearestRanking | Bm25Ranking

RRF_K_MIN: Final = 1
REFINE_FACTOR: Final = 10
"""How many times more rows than wanted are taken from an index before the best are chosen."""
_TIES: Final = (32, 500)
"""How many more rows than wanted are requested of a text index, to see ties with the last."""


class QueryVectorError(InvalidInputError):
    """A query vector does not fit its property."""

    code = "OG-QUERY-VECTOR"
    hint = "give a list of that many numbers, or a text where a provider is configured"
    template = "nearest on '{property_name}' needs {expected}, and got {found}"
    property_name: str
    expected: str
    found: str


class FusionConstantError(InvalidInputError):
    """The constant of a rank fusion is not a positive whole number."""

    code = "OG-QUERY-RRF-K"
    hint = "leave k away, or give a number such as 60"
    template = "k of rrf must be a positive integer, and is {value}"
    value: int | None


class FusionWeightError(InvalidInputError):
    """A weight of a rank fusion is negative or not finite, or both are zero."""

    code = "OG-QUERY-RRF-WEIGHT"
    hint = "give two weights such as 1 and 0.5"
    weights: tuple[float | None, ...]

    def _message(self) -> str:
        shown = ", ".join("null" if weight is None else f"{weight:g}" for weight in self.weights)
        return f"weights of rrf must be finite, not negative and not both zero, and are {shown}"


class EmbeddingMissingError(UnavailableError):
    """A text was given where a vector is needed, and nothing turns texts into vectors."""

    code = "OG-EMBEDDING-MISSING"
    hint = (
        "give a vector, or set OMNIGRAPH_EMBED_PROVIDER (openai-compatible, openai, gemini,"
        " local or mock) and its key"
    )
    template = (
        "nearest on '{property_name}' with a text needs an embedding provider, and none is"
        " configured"
    )
    property_name: str


def candidates_needed(plan: ReadPlan) -> int | None:
    """Return how many of the best nodes are enough; None when all that have a rank are needed.

    Without hops, and when only relevance and ids decide the order, the page is enough.
    """
    is_plain = len(plan.pipeline) == 1 and not plan.is_aggregate and not plan.distinct
    if plan.candidates is not None or not is_plain or plan.limit is None:
        return plan.candidates
    if not isinstance(plan.ranking, Bm25Ranking) or not plan.order[0].descending:
        return None
    if not all(key.implicit for key in plan.order[1:]):
        return None
    return plan.limit + (plan.offset or 0)


# -- at the scan --------------------------------------------------------------------------------


def ranked_scan(
    context: Context, scan: NodeScan, ranking: Ranking, candidates: int | None
) -> RowIds:
    """Return the best nodes that pass the filters of a scan, and remember their scores."""
    table_key = TableKey.node(scan.type_name)
    split = split_filters(scan.filters, context.bindings)
    # Only the store can filter before it ranks; other filters become a list of row ids.
    among = None if split.is_exact else scan_nodes(context, scan)
    row_filter = split.pushed if split.is_exact else None
    for arm in _arms(ranking):
        context.scores[arm] = _arm_scores(
            context, table_key, arm, row_filter=row_filter, among=among, keep=candidates
        )
    return ascending_ids(np.concatenate([context.scores[arm].row_ids for arm in _arms(ranking)]))


def _arms(ranking: Ranking) -> tuple[Arm, ...]:
    return (ranking.first, ranking.second) if isinstance(ranking, RrfRanking) else (ranking,)


def _arm_scores(
    context: Context,
    table_key: str,
    arm: Arm,
    *,
    row_filter: Filter | None,
    among: RowIds | None,
    keep: int | None,
) -> ScoreMap:
    if among is not None and not len(among):
        return _placed(context, table_key, among, np.empty(0), is_ascending=True, keep=None)
    if isinstance(arm, NearestRanking):
        found, scores = _distances(
            context, table_key, arm, row_filter=row_filter, among=among, keep=keep
        )
        return _placed(context, table_key, found, scores, is_ascending=True, keep=keep)
    query = context.bindings.text(arm.query)
    if query is None:
        return _placed(
            context, table_key, np.empty(0, np.int64), np.empty(0), is_ascending=True, keep=None
        )
    search = TextSearch(arm.property, query)
    best = None
    if keep is not None and among is None:
        best = _best_texts(context, table_key, search, row_filter, keep)
    found, scores = best or context.texts.ranked(table_key, search, row_filter, among)
    return _placed(context, table_key, found, scores, is_ascending=False, keep=keep)


def _best_texts(
    context: Context, table_key: str, search: TextSearch, row_filter: Filter | None, keep: int
) -> tuple[RowIds, _Scores] | None:
    """Return the most relevant rows, and all that tie with the last; None when that is unknown.

    The store stops early when it knows how many rows are wanted. A few more are asked for: when
    the last of them is less relevant than the last one wanted, no tie was cut off.
    """
    index = context.indexes.of(context.tables.snapshot, table_key).text(search.column)
    if index is None or not index.is_whole or keep == 0:
        return None
    for ties in _TIES:
        limit = keep + ties
        request = ScanRequest(
            columns=(SCORE,), row_filter=row_filter, with_row_id=True, text=search, limit=limit
        )
        table = context.tables.scan(table_key, request)
        scores = table[SCORE].cast(pa.float64()).to_numpy()
        if len(scores) < limit or np.partition(scores, -keep)[-keep] > scores.min():
            return table[ROW_ID].to_numpy().astype(np.int64), scores
    return None


def _distances(
    context: Context,
    table_key: str,
    arm: NearestRanking,
    *,
    row_filter: Filter | None,
    among: RowIds | None,
    keep: int | None,
) -> tuple[RowIds, _Scores]:
    vector = query_vector(context, arm, table_key)
    rows = context.tables.row_count(table_key) if among is None else len(among)
    wanted = rows if keep is None else min(keep, rows)
    if vector is None or wanted == 0:
        return np.empty(0, np.int64), np.empty(0)
    uses_index = keep is not None and _has_index(context, table_key, arm)
    search = VectorSearch(
        arm.property,
        vector,
        wanted,
        metric=arm.metric,
        use_index=uses_index,
        # Indexes hold compressed vectors: distances are computed again with the stored ones.
        refine_factor=REFINE_FACTOR if uses_index else None,
    )
    request = ScanRequest(
        columns=(DISTANCE,),
        row_filter=row_filter,
        with_row_id=True,
        row_ids=None if among is None else tuple(among.tolist()),
        nearest=search,
    )
    table = context.tables.scan(table_key, request)
    table = table.filter(table[DISTANCE].is_valid())
    return (
        table[ROW_ID].to_numpy().astype(np.int64),
        table[DISTANCE].cast(pa.float64()).to_numpy(),
    )


def _has_index(context: Context, table_key: str, arm: NearestRanking) -> bool:
    indexes = context.indexes.of(context.tables.snapshot, table_key)
    return indexes.vector(arm.property) is not None


def query_vector(context: Context, arm: NearestRanking, table_key: str) -> tuple[float, ...] | None:
    """Return the vector that a ranking compares with; a text is embedded, null is None."""
    bound = context.bindings.value_of(arm.query).value
    if bound is None:
        return None
    if isinstance(bound, str):
        if context.embed is None:
            raise EmbeddingMissingError(arm.property)
        vector = context.embed(arm, table_key, bound)
    elif isinstance(bound, tuple):
        vector = tuple(float(item) for item in bound if isinstance(item, int | float))
    else:
        raise TypeError(f"{bound!r} is no vector")
    if len(vector) != arm.dimension:
        raise QueryVectorError(
            property_name=arm.property,
            expected=f"{arm.dimension} numbers",
            found=str(len(vector)),
        )
    if not all(math.isfinite(item) for item in vector):
        raise QueryVectorError(
            property_name=arm.property, expected="finite numbers", found="NaN or infinity"
        )
    if arm.metric == "cosine" and not any(vector):
        raise QueryVectorError(
            property_name=arm.property,
            expected="a vector with a direction",
            found="zeros only, which have no cosine",
        )
    return vector


def _placed(
    context: Context,
    table_key: str,
    row_ids: RowIds,
    scores: _Scores,
    *,
    is_ascending: bool,
    keep: int | None,
) -> ScoreMap:
    """Order nodes by score, then id, and keep the best."""
    keys = scores if is_ascending else -scores
    order = np.argsort(keys, kind="stable")
    if keep is not None and 0 < keep < len(order):
        order = order[: np.searchsorted(keys[order], keys[order[keep - 1]], side="right")]
    ranked = keys[order]
    if (ranked[1:] == ranked[:-1]).any():
        contenders = row_ids[order]
        # The ids are usually returned as well, and held columns are not read twice.
        context.tables.prefetch(table_key, contenders, [ID])
        ids = context.tables.fetch(table_key, contenders, [ID])[ID]
        order = order[np.lexsort((_text_ranks(ids), ranked))]
    order = order[:keep]
    by_row_id = np.argsort(row_ids[order], kind="stable")
    best = order[by_row_id]
    return ScoreMap(row_ids[best], scores[best], by_row_id.astype(np.int64))


def _text_ranks(ids: pa.Array) -> npt.NDArray[np.int64]:
    order = pa.compute.sort_indices(ids).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


# -- at the end ---------------------------------------------------------------------------------


def fuse(context: Context, nodes: RowIds, ranking: RrfRanking) -> None:
    """Compute the fused score of every node that has reached the end of the pipeline."""
    survivors = ascending_ids(nodes)
    survivors = survivors[survivors != NULL]
    k = context.bindings.integer(ranking.k)
    if k is None or k < RRF_K_MIN:
        raise FusionConstantError(k)
    arms = [_ranked_among(context.scores[arm], survivors) for arm in _arms(ranking)]
    fused = fuse_rankings(arms, k=k, weights=_weights(context, ranking))
    by_row_id = np.argsort(fused.entities, kind="stable")
    context.scores[ranking] = ScoreMap(
        fused.entities[by_row_id], fused.scores[by_row_id], by_row_id.astype(np.int64)
    )


def _weights(context: Context, ranking: RrfRanking) -> tuple[float, ...]:
    if not ranking.weights:
        return (1.0, 1.0)
    bound = [context.bindings.value_of(weight).value for weight in ranking.weights]
    weights = tuple(float(item) if isinstance(item, int | float) else None for item in bound)
    known = tuple(weight for weight in weights if weight is not None)
    is_usable = all(math.isfinite(weight) and weight >= 0 for weight in known)
    if len(known) != len(weights) or not is_usable or not any(known):
        raise FusionWeightError(weights)
    return known


def _ranked_among(scores: ScoreMap, survivors: RowIds) -> RowIds:
    """Return the survivors that an arm ranks, best first."""
    ranked = survivors[np.isin(survivors, scores.row_ids)]
    return ranked[np.argsort(scores.ranks_of(ranked))] if len(ranked) else ranked


# -- as a column --------------------------------------------------------------------------------


def score_column(context: Context, rows: RowTable, ranking: Ranking) -> pa.Array:
    """Return the score of each row; null where its node is not ranked."""
    entities = rows.entities[ranking.variable]
    if ranking not in context.scores:
        _score_present(context, rows, ranking)
    found = context.scores[ranking]
    if not len(found.row_ids):
        return pa.nulls(rows.count, pa.float64())
    scores, is_known = found.of(entities.row_ids)
    return pa.array(scores, mask=~is_known)


def _score_present(context: Context, rows: RowTable, ranking: Ranking) -> None:
    """Compute a ranking that is only shown, for the nodes of the rows."""
    entities = rows.entities[ranking.variable]
    present = ascending_ids(entities.row_ids)
    present = present[present != NULL]
    for arm in _arms(ranking):
        context.scores[arm] = _arm_scores(
            context, entities.table_key, arm, row_filter=None, among=present, keep=None
        )
    if isinstance(ranking, RrfRanking):
        fuse(context, entities.row_ids, ranking)
