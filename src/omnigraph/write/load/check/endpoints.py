"""Edges of a load end in nodes that exist, and stored edges do not lose theirs to an overwrite.

With `cascade`, an overwrite also removes the stored edges of nodes that it removes. Sources that
remain must still have as many edges as `@card` wants.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.schema import EdgeType
from omnigraph.store.records import ROW_ADDRESS
from omnigraph.write.load.check.findings import FirstRows, LoadScope
from omnigraph.write.load.check.hashes import StoredHashes
from omnigraph.write.load.check.hashing import Hashes
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.rules.cardinality import card_violation
from omnigraph.write.rules.endpoints import edge_ends, missing_end
from omnigraph.write.stage.columns import Integers, Mask, flat, places_in
from omnigraph.write.stage.stored_rows import PROBES_MAX


def check_ends(edge: EdgeType, loaded: LoadedType, scope: LoadScope) -> None:
    """Check that both ends of every written edge will be there."""
    findings = scope.findings
    for end, node_type in edge_ends(edge):
        missing = _rows_without_node(loaded, end, TableKey.node(node_type), scope)
        shown = missing.rows()
        texts = loaded.pick(shown, (end,))[end].to_pylist()
        positions = loaded.positions(shown)
        for row, text, position in zip(shown.tolist(), texts, positions, strict=True):
            findings.add(loaded, row, missing_end(edge, end, text, position))
        findings.count("endpoint", missing.total - len(shown))


def _rows_without_node(loaded: LoadedType, end: str, node_key: str, scope: LoadScope) -> FirstRows:
    """Find the edges one of whose ends will not be there."""
    written = scope.types.get(node_key)
    has_stored = bool(scope.stored.row_count(node_key)) and not scope.is_overwritten(node_key)
    column = loaded.ends[end]
    is_open = np.ones(loaded.row_count, np.bool_) if loaded.live is None else loaded.live.copy()
    if written is not None:
        keeps_ends = scope.options.persists_topology and not has_stored
        for rows, found in written.lookup().joined(column):
            _clear(is_open, rows, found >= 0)
            if keeps_ends:
                loaded.note_ends(end, rows, found)
    count = int(np.count_nonzero(is_open))
    if count:
        scope.rest_on(node_key)
    if count > PROBES_MAX and has_stored:
        for rows, found in scope.stored_lookup(loaded, node_key).joined(column):
            _clear(is_open, rows, found >= 0)
    missing = FirstRows(scope.findings.wanted)
    rows = np.flatnonzero(is_open)
    if has_stored and 0 < count <= PROBES_MAX:
        texts = loaded.pick(rows, (end,))[end]
        rows = rows[~scope.stored.contains(node_key, texts)]
    missing.add(rows)
    return missing


def _clear(mask: Mask, rows: Integers, hits: Mask) -> None:
    """Unset the rows that were hit; those of one slab mostly follow each other."""
    if not len(rows):
        return
    low, high = int(rows[0]), int(rows[-1]) + 1
    if high - low == len(rows):
        mask[low:high] &= ~hits
    else:
        mask[rows[hits]] = False


# -- stored edges of nodes that go ----------------------------------------------------------------


def check_orphans(edge: EdgeType, scope: LoadScope) -> None:
    """Check that no stored edge loses its node, or remove the edge too with `cascade`."""
    if scope.is_overwritten(edge.table_key):
        return
    removed: list[Hashes] = []
    for end, node_type in edge_ends(edge):
        nodes = scope.types.get(TableKey.node(node_type))
        if nodes is None or not scope.is_overwritten(nodes.table_key):
            continue
        scope.rest_on(edge.table_key)
        orphans = _orphans(edge, end, nodes, scope)
        if scope.options.cascade:
            removed.append(orphans.rows().astype(np.uint64))
        elif orphans.total:
            _add_orphans(edge, end, orphans, scope)
    if any(map(len, removed)):
        _cascade(edge, np.unique(np.concatenate(removed)), scope)


def _orphans(edge: EdgeType, end: str, nodes: LoadedType, scope: LoadScope) -> FirstRows:
    """Find the addresses of stored edges whose node is not in the new image."""
    wanted = scope.findings.wanted
    if scope.options.cascade:
        wanted = scope.stored.row_count(edge.table_key)
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
    return orphans


def _add_orphans(edge: EdgeType, end: str, orphans: FirstRows, scope: LoadScope) -> None:
    shown = orphans.rows()
    handle = scope.stored.snapshot.open(edge.table_key)
    texts = handle.take_addresses(pa.array(shown.astype(np.uint64)), columns=[end])[end]
    for node_id in texts.to_pylist():
        scope.findings.add_unfixable(missing_end(edge, end, node_id, None))
    scope.findings.count("endpoint", orphans.total - len(shown))


def _cascade(edge: EdgeType, removed: Hashes, scope: LoadScope) -> None:
    """Remove stored edges, and check `@card` of the nodes that they started at."""
    scope.findings.cascaded[edge.table_key] = removed
    scope.reads.pop(edge.table_key, None)
    if edge.cardinality.min == 0:
        return
    handle = scope.stored.snapshot.open(edge.table_key)
    sources = flat(handle.take_addresses(pa.array(removed), columns=["src"])["src"]).unique()
    nodes = scope.types.get(TableKey.node(edge.from_type))
    if nodes is not None:
        stays = nodes.lookup().rows_of(nodes.hasher.pairs(sources)) >= 0
        sources = sources.filter(pa.array(stays))
    there = scope.stored.where(edge.table_key, "src", sources, columns=("src",), with_rows=True)
    goes = np.isin(flat(there[ROW_ADDRESS]).to_numpy(), removed)
    staying = flat(there["src"]).filter(pa.array(~goes))
    counts = np.zeros(len(sources), np.int64)
    places = places_in(staying, sources).drop_null().to_numpy()
    counts += np.bincount(places, minlength=len(sources))
    for place in np.flatnonzero(counts < edge.cardinality.min).tolist():
        violation = card_violation(edge, sources[place].as_py(), int(counts[place]), None)
        scope.findings.add_unfixable(violation)
