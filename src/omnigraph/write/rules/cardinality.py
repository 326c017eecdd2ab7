"""`@card`: how many edges of a type start at a node.

Only affected sources are counted: those of written edges, and the former ones of edges that moved
or were removed. So a node may be created without the edge that `@card(1..1)` wants, and its last
edge cannot be removed. A removed node has no edges to count.

Of too many edges those that came last are rejected, of too few all that are written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.schema import EdgeType, EntityType
from omnigraph.schema.catalog import Cardinality
from omnigraph.schema.values.row_errors import cut
from omnigraph.write.rules import codes
from omnigraph.write.rules.check import RuleCheck, Source
from omnigraph.write.rules.violations import Violation
from omnigraph.write.stage.columns import Integers, Mask, places_in

CARDINALITY_RULE: Final = "cardinality"


def has_cardinality(entity_type: EntityType) -> bool:
    """Whether edges of a type are counted."""
    if not isinstance(entity_type, EdgeType):
        return False
    return entity_type.cardinality.min > 0 or entity_type.cardinality.max is not None


def is_outside(counts: Integers, limits: Cardinality) -> Mask:
    """Return which numbers of edges are too small or too large."""
    mask: Mask = counts < limits.min
    if limits.max is not None:
        mask |= counts > limits.max
    return mask


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
        return np.flatnonzero(is_outside(self.counts, limits))


def check_cardinality(entity_type: EntityType, check: RuleCheck) -> None:
    """Count the edges of affected sources after the write."""
    if not isinstance(entity_type, EdgeType) or not has_cardinality(entity_type):
        return
    found = check.sources(entity_type)
    for source in found.first:
        _add(entity_type, source, check)
    check.findings.count(CARDINALITY_RULE, found.total - len(found.first))


def _add(edge: EdgeType, source: Source, check: RuleCheck) -> None:
    rows = check.rows(edge)
    if rows is None or not (len(source.edges) or len(source.leaving)):
        check.findings.add_unfixable(card_violation(edge, source.node_id, source.count, None))
        return
    if not check.findings.quarantines:
        last = source.edges[-1:]
        position = rows.positions(last)[0] if len(last) else None
        check.findings.log.add(card_violation(edge, source.node_id, source.count, position))
        return
    for row in source.leaving.tolist():
        check.findings.add(row, card_violation(edge, source.node_id, source.count, None))
    rejected = _rows_to_reject(edge, source)
    for row, position in zip(rejected.tolist(), rows.positions(rejected), strict=True):
        check.findings.add(row, card_violation(edge, source.node_id, source.count, position))


def _rows_to_reject(edge: EdgeType, source: Source) -> Integers:
    """Return the written edges of a source to reject so that the rule holds."""
    limits = edge.cardinality
    if limits.max is not None and source.count > limits.max:
        excess = min(source.count - limits.max, len(source.edges))
        return source.edges[len(source.edges) - excess :]
    return source.edges


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
