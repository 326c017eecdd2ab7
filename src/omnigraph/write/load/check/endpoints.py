"""Finds written edges without a node, and stored edges that lose theirs to an overwrite."""

from __future__ import annotations

import numpy as np

from omnigraph.schema import EdgeType
from omnigraph.write.load.check.hashes import StoredHashes
from omnigraph.write.load.check.scope import FirstRows, LoadScope
from omnigraph.write.load.rows.types import END_ROWS_MIN, LoadedType
from omnigraph.write.rules.check import FoundRows
from omnigraph.write.stage.columns import Integers, Mask
from omnigraph.write.stage.stored_rows import PROBES_MAX


def edges_without_node(loaded: LoadedType, end: str, node_key: str, scope: LoadScope) -> FoundRows:
    """Find the edges one of whose ends will not be there."""
    written = scope.types.get(node_key)
    has_stored = bool(scope.stored.row_count(node_key)) and not scope.is_overwritten(node_key)
    column = loaded.ends[end]
    is_open = np.ones(loaded.row_count, np.bool_) if loaded.live is None else loaded.live.copy()
    if written is not None:
        keeps_ends = (
            scope.options.persists_topology and not has_stored and loaded.row_count >= END_ROWS_MIN
        )
        end_rows = np.full(loaded.row_count, -1, np.int32) if keeps_ends else None
        for rows, found in scope.node_lookup(written).joined(column):
            _clear(is_open, rows, found >= 0)
            if end_rows is not None:
                end_rows[rows] = found
        if end_rows is not None:
            loaded.keep_end_rows(end, end_rows)
    count = int(np.count_nonzero(is_open))
    if count:
        scope.depend_on(node_key)
    if count > PROBES_MAX and has_stored:
        for rows, found in scope.stored_lookup(loaded, node_key).joined(column):
            _clear(is_open, rows, found >= 0)
    missing = FirstRows(scope.findings.wanted)
    rows = np.flatnonzero(is_open)
    if has_stored and 0 < count <= PROBES_MAX:
        texts = loaded.pick(rows, (end,))[end]
        rows = rows[~scope.stored.contains(node_key, texts)]
    missing.add(rows)
    return missing.found()


def _clear(mask: Mask, rows: Integers, hits: Mask) -> None:
    """Unset the rows that were hit; those of one slab mostly follow each other."""
    if not len(rows):
        return
    low, high = int(rows[0]), int(rows[-1]) + 1
    if high - low == len(rows):
        mask[low:high] &= ~hits
    else:
        mask[rows[hits]] = False


def orphan_addresses(
    edge: EdgeType, end: str, nodes: LoadedType, scope: LoadScope, *, wanted: int
) -> FoundRows:
    """Find the addresses of stored edges whose node is not in the new image."""
    orphans = FirstRows(wanted)
    column = StoredHashes(
        scope.stored,
        edge.table_key,
        end,
        scheme=nodes.hasher,
        budget=nodes.budget,
        by_address=True,
    )
    for addresses, found in nodes.lookup().joined(column):
        orphans.add(addresses[found < 0])
    column.forget_buckets()
    return orphans.found()
