"""`@card`: how many edges of a type start at a node.

Only affected sources are counted: those of written edges, and the former ones of edges that moved
or were removed. So a node may be created without the edge that `@card(1..1)` wants, and its last
edge cannot be removed. A removed node has no edges to count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType, EntityType
from omnigraph.schema.catalog import Cardinality
from omnigraph.schema.values.row_errors import cut
from omnigraph.write.rules import codes
from omnigraph.write.rules.check import RuleCheck
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import Integers, concatenated, flat, is_in, places_in, without
from omnigraph.write.stage.delta import TableDelta

CARDINALITY_RULE: Final = "cardinality"


@dataclass(frozen=True)
class SourceCounts:
    """How many edges start at each of some nodes."""

    sources: pa.Array
    counts: Integers

    @classmethod
    def of(cls, sources: pa.Array, edges: Iterable[pa.Array]) -> SourceCounts:
        """Count the edges of some sources in columns of `src`."""
        counts = np.zeros(len(sources), np.int64)
        for column in edges:
            found = places_in(column, sources).drop_null().to_numpy()
            counts += np.bincount(found, minlength=len(sources))
        return cls(sources, counts)

    def outside(self, limits: Cardinality) -> Integers:
        """Return the numbers of the sources that have too few or too many edges."""
        is_outside = self.counts < limits.min
        if limits.max is not None:
            is_outside |= self.counts > limits.max
        return np.flatnonzero(is_outside)


def check_cardinality(entity_type: EntityType, check: RuleCheck) -> None:
    """Count the edges of affected sources after the change."""
    delta = check.of(entity_type.table_key)
    if not isinstance(entity_type, EdgeType) or delta is None:
        return
    limits = entity_type.cardinality
    if limits.min == 0 and limits.max is None:
        return
    counted = _count(entity_type, delta, check)
    rows = counted.outside(limits)
    shown = rows[: check.log.room].tolist()
    positions = _positions(delta, counted.sources, shown)
    for row in shown:
        source, count = counted.sources[row].as_py(), int(counted.counts[row])
        check.log.add(card_violation(entity_type, source, count, positions.get(row)))
    check.log.count(CARDINALITY_RULE, len(rows) - len(shown))


def _count(edge: EdgeType, delta: TableDelta, check: RuleCheck) -> SourceCounts:
    written = flat(delta.rows["src"])
    if not check.stored.row_count(edge.table_key):
        return SourceCounts.of(pc.unique(written), [written])
    changed = concatenated(delta.rows["id"], delta.deleted)
    former = _former_sources(edge, delta, changed, check)
    sources = pc.unique(concatenated(written, former))
    sources = without(sources, check.removed_ids(TableKey.node(edge.from_type)))
    stored = check.stored.where(edge.table_key, "src", sources, columns=("id", "src"))
    staying = stored.filter(pa.array(~is_in(stored["id"], changed)))["src"]
    return SourceCounts.of(sources, [written, flat(staying)])


def _former_sources(
    edge: EdgeType, delta: TableDelta, changed: pa.Array, check: RuleCheck
) -> pa.Array:
    if delta.ids_are_new and not len(delta.deleted):
        return pa.array([], pa.utf8())
    found = check.stored.where(edge.table_key, "id", changed, columns=("src",))
    return flat(found["src"])


def _positions(delta: TableDelta, sources: pa.Array, rows: list[int]) -> dict[int, int | None]:
    """Return the position of the last written edge of each shown source."""
    if not rows:
        return {}
    shown = sources.take(pa.array(rows))
    written = flat(delta.rows["src"])
    found = places_in(written, shown)
    edges = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    # Of several edges of one source the assignment keeps the last.
    last = np.full(len(rows), -1, np.int64)
    last[found.drop_null().to_numpy()] = edges
    return {
        row: delta.position(int(edge)) for row, edge in zip(rows, last, strict=True) if edge >= 0
    }


def card_violation(edge: EdgeType, source: str, count: int, position: int | None) -> Violation:
    """Return the violation of a node that has too few or too many edges."""
    limits = edge.cardinality
    is_few = count < limits.min
    return Violation(
        position=position,
        type=edge.name,
        property="src",
        value=cut(source),
        rule=CARDINALITY_RULE,
        code=codes.TOO_FEW_EDGES if is_few else codes.TOO_MANY_EDGES,
        message=card_message(edge.name, limits, source, count, f"{count} edges"),
        table_key=edge.table_key,
    )


def card_message(
    type_name: str, limits: Cardinality, source: str, count: int, count_text: str
) -> str:
    """Return the sentence about a node that has too few or too many edges."""
    bound = f"min {limits.min}" if count < limits.min else f"max {limits.max}"
    return f"@card violation on edge {type_name}: source '{cut(source)}' has {count_text} ({bound})"
