"""`@card`: how many edges of a type start at a node.

Only affected sources are counted: those of written edges, and the former ones of edges that moved
or went. So a node may be created without the edge that `@card(1..1)` wants, and its last edge
cannot be taken away. A node that goes has no edges to count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType
from omnigraph.schema.values.row_errors import cut
from omnigraph.write.rules import codes
from omnigraph.write.rules.endpoints import removed_ids
from omnigraph.write.rules.judgement import Judgement, position_at
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import Integers, concatenated, flat, is_in, places_in, without
from omnigraph.write.stage.delta import TableDelta

_RULE: Final = "cardinality"


@dataclass(frozen=True)
class SourceCounts:
    """How many edges start at each of some nodes."""

    sources: pa.Array
    counts: Integers


def check_cardinality(edge: EdgeType, judgement: Judgement) -> None:
    """Count the edges of affected sources after the change."""
    delta = judgement.of(edge.table_key)
    limits = edge.cardinality
    if delta is None or (limits.min == 0 and limits.max is None):
        return
    counted = _count(edge, delta, judgement)
    too_few = counted.counts < limits.min
    too_many = (
        np.zeros(len(too_few), np.bool_) if limits.max is None else counted.counts > limits.max
    )
    rows = np.flatnonzero(too_few | too_many)
    shown = rows[: judgement.log.room].tolist()
    positions = _positions(delta, counted.sources, shown)
    for row in shown:
        source, count = counted.sources[row].as_py(), int(counted.counts[row])
        judgement.log.add(card_violation(edge, source, count, positions.get(row)))
    judgement.log.count(_RULE, len(rows) - len(shown))


def _count(edge: EdgeType, delta: TableDelta, judgement: Judgement) -> SourceCounts:
    written = flat(delta.rows["src"])
    if judgement.is_overwritten(edge.table_key) or not judgement.stored.row_count(edge.table_key):
        return _counts(pc.unique(written), [written])
    changed = concatenated(delta.rows["id"], delta.deleted)
    former = _former_sources(edge, delta, changed, judgement)
    sources = pc.unique(concatenated(written, former))
    sources = without(sources, removed_ids(TableKey.node(edge.from_type), judgement))
    stored = judgement.stored.where(edge.table_key, "src", sources, columns=("id", "src"))
    staying = stored.filter(pa.array(~is_in(stored["id"], changed)))["src"]
    return _counts(sources, [written, flat(staying)])


def _former_sources(
    edge: EdgeType, delta: TableDelta, changed: pa.Array, judgement: Judgement
) -> pa.Array:
    if delta.ids_are_new and not len(delta.deleted):
        return pa.array([], pa.utf8())
    found = judgement.stored.where(edge.table_key, "id", changed, columns=("src",))
    return flat(found["src"])


def _counts(sources: pa.Array, edges: Iterable[pa.Array]) -> SourceCounts:
    counts = np.zeros(len(sources), np.int64)
    for column in edges:
        places = places_in(column, sources).drop_null().to_numpy()
        counts += np.bincount(places, minlength=len(sources))
    return SourceCounts(sources, counts)


def _positions(delta: TableDelta, sources: pa.Array, rows: list[int]) -> dict[int, int | None]:
    """Find where the last written edge of each shown source came from."""
    if not rows:
        return {}
    shown = sources.take(pa.array(rows))
    written = flat(delta.rows["src"])
    places = places_in(written, shown)
    edges = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
    # Of several edges of one source the assignment keeps the last.
    last = np.full(len(rows), -1, np.int64)
    last[places.drop_null().to_numpy()] = edges
    return {
        row: position_at(delta, int(edge))
        for row, edge in zip(rows, last, strict=True)
        if edge >= 0
    }


def card_violation(edge: EdgeType, source: str, count: int, position: int | None) -> Violation:
    """Say that a node has too few or too many edges."""
    limits = edge.cardinality
    is_few = count < limits.min
    bound = f"min {limits.min}" if is_few else f"max {limits.max}"
    return Violation(
        position=position,
        type=edge.name,
        property="src",
        value=cut(source),
        rule=_RULE,
        code=codes.TOO_FEW_EDGES if is_few else codes.TOO_MANY_EDGES,
        message=f"@card violation on edge {edge.name}: source '{cut(source)}' has {count} edges"
        f" ({bound})",
        table_key=edge.table_key,
    )
