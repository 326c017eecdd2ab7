"""Counts the edges of a load by source, for `@card`.

Sources are counted by hash, part by part: of a part the distinct sources are in memory, however
many edges they have. Stored edges are read once for each part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.schema import EdgeType
from omnigraph.store.records import ROW_ADDRESS
from omnigraph.write.load.check.hashes import HashPart
from omnigraph.write.load.check.hashing import Hashes, distinct_hashes, is_among
from omnigraph.write.load.check.scope import FirstRows, LoadScope, live_rows
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.rules.cardinality import SourceCounts, is_outside
from omnigraph.write.rules.check import NOTHING, Found, Source
from omnigraph.write.stage.columns import Integers, Mask, flat
from omnigraph.write.stage.stored_rows import PROBES_MAX

_NO_EDGES: Final = np.zeros(0, np.int64)


def written_sources(edge: EdgeType, loaded: LoadedType, scope: LoadScope) -> Found[Source]:
    """Count the edges of the sources of written edges, and of those that written edges leave."""
    if not loaded.live_count:
        return NOTHING
    has_stored = bool(scope.stored.row_count(edge.table_key))
    stored = None
    if has_stored and not scope.is_overwritten(edge.table_key):
        stored = _StoredEdges(loaded, scope)
    bad = FirstRows(scope.findings.wanted, width=4)
    for number, part in enumerate(loaded.ends["src"].parts(loaded.live)):
        counted = _written(part)
        if stored is not None:
            counted = _with_stored(counted, stored, part)
        found = np.flatnonzero(is_outside(counted.totals, edge.cardinality))
        numbers = np.full(len(found), number)
        sources = counted.sources[found].view(np.int64)
        bad.add(counted.first[found], counted.totals[found], sources, numbers)
    return Found(list(_named(loaded, bad, scope)), bad.total)


def cascaded_sources(
    edge: EdgeType, removed: Hashes, nodes: LoadedType | None, scope: LoadScope
) -> Found[Source]:
    """Count the edges that stay of the sources of removed ones, given by address.

    `nodes` are the sources that an overwrite keeps.
    """
    if edge.cardinality.min == 0:
        return NOTHING
    handle = scope.stored.snapshot.open(edge.table_key)
    sources = flat(handle.take_addresses(pa.array(removed), columns=["src"])["src"]).unique()
    if nodes is not None:
        stays = nodes.lookup().rows_of(nodes.hasher.pairs(sources)) >= 0
        sources = sources.filter(pa.array(stays))
    there = scope.stored.where(edge.table_key, "src", sources, columns=("src",), with_rows=True)
    goes = np.isin(flat(there[ROW_ADDRESS]).to_numpy(), removed)
    counted = SourceCounts.of(sources, [flat(there["src"]).filter(pa.array(~goes))])
    rows = counted.outside(edge.cardinality)
    found = [
        Source(sources[row].as_py(), int(counted.counts[row]), _NO_EDGES)
        for row in rows[: scope.findings.wanted].tolist()
    ]
    return Found(found, len(rows))


@dataclass(frozen=True, eq=False)
class _Counted:
    """Edges by source: hashes in ascending order, and how many edges there will be.

    `first` is the row of the first written edge, for the order of messages.
    """

    sources: Hashes
    totals: Integers
    first: Integers


def _written(part: HashPart) -> _Counted:
    """Count the written edges of the sources of one part."""
    pieces: list[_Counted] = []
    size = 0
    for hashes, rows in part.slabs():
        sources, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        pieces.append(_Counted(sources, counts.astype(np.int64), rows[first]))
        size += len(sources)
        if size > 2 * part.rows_max:
            pieces = [_merged(pieces)]
            size = len(pieces[0].sources)
    return _merged(pieces)


def _merged(pieces: list[_Counted]) -> _Counted:
    if len(pieces) == 1:
        return pieces[0]
    nothing = _Counted(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    whole = [*pieces, nothing]
    sources, places = np.unique(np.concatenate([one.sources for one in whole]), return_inverse=True)
    totals = np.zeros(len(sources), np.int64)
    np.add.at(totals, places, np.concatenate([one.totals for one in whole]))
    first = np.full(len(sources), np.iinfo(np.int64).max)
    np.minimum.at(first, places, np.concatenate([one.first for one in whole]))
    return _Counted(sources, totals, first)


# -- stored edges ---------------------------------------------------------------------------------


class _StoredEdges:
    """The stored edges of a table, with the sources that they start at."""

    def __init__(self, loaded: LoadedType, scope: LoadScope) -> None:
        self._loaded = loaded
        self._scope = scope
        self._few = live_rows(loaded) if loaded.live_count <= PROBES_MAX else None
        self._former: Hashes | None = None

    @property
    def former(self) -> Hashes:
        """The sources of stored edges that the load replaces."""
        if self._former is None:
            self._former = self._read_former()
        return self._former

    def _read_former(self) -> Hashes:
        loaded, scope = self._loaded, self._scope
        if loaded.id_start is None or not loaded.has_given_ids:
            return np.zeros(0, np.uint64)
        if self._few is not None:
            ids = loaded.pick(self._few, ("id",))["id"]
            found = scope.stored.where(loaded.table_key, "id", ids, columns=("src",))
            return distinct_hashes(loaded.hasher.texts(flat(found["src"])))
        parts = [np.zeros(0, np.uint64)]
        for slab, is_moved in self._scanned():
            moved = slab.filter(pa.array(is_moved))
            parts.append(distinct_hashes(loaded.hasher.texts(flat(moved["src"]))))
        return distinct_hashes(np.concatenate(parts))

    def staying(self) -> Iterator[Hashes]:
        """Read the sources of the edges that stay; of few written edges only what matters."""
        loaded, scope = self._loaded, self._scope
        slabs = self._scanned()
        if self._few is not None:
            picked = loaded.pick(self._few, ("id", "src"))
            wanted = [flat(picked["src"])]
            if len(self.former):
                found = scope.stored.where(loaded.table_key, "id", picked["id"], columns=("src",))
                wanted.append(flat(found["src"]).cast(pa.utf8()))
            there = scope.stored.where(
                loaded.table_key, "src", pa.chunked_array(wanted), columns=("id", "src")
            )
            found_rows = loaded.lookup().rows_of(loaded.hasher.pairs(flat(there["id"])))
            slabs = iter([(there, found_rows >= 0)])
        for slab, is_moved in slabs:
            staying = slab.filter(pa.array(~is_moved))
            yield loaded.hasher.texts(flat(staying["src"]))

    def _scanned(self) -> Iterator[tuple[pa.Table, Mask]]:
        """Read all stored edges, and which of them the load replaces."""
        loaded, scope = self._loaded, self._scope
        start = 0
        for slab in scope.stored.scan(loaded.table_key, ("id", "src")):
            if loaded.has_given_ids:
                numbers = np.arange(start, start + slab.num_rows)
                is_moved = scope.is_written(loaded, slab, numbers)
            else:
                is_moved = np.zeros(slab.num_rows, np.bool_)
            start += slab.num_rows
            yield slab, is_moved


def _with_stored(counted: _Counted, stored: _StoredEdges, part: HashPart) -> _Counted:
    """Add the stored edges that stay, and the former sources of edges that move."""
    former = part.own(stored.former)
    behind = np.full(len(former), np.iinfo(np.int64).max)
    counted = _merged([counted, _Counted(former, np.zeros(len(former), np.int64), behind)])
    sources, totals = counted.sources, counted.totals.copy()
    if not len(sources):
        return counted
    for found in stored.staying():
        places = np.minimum(np.searchsorted(sources, found), len(sources) - 1)
        hits = places[sources[places] == found]
        totals += np.bincount(hits, minlength=len(sources))
    return _Counted(sources, totals, counted.first)


# -- names ----------------------------------------------------------------------------------------


def _named(loaded: LoadedType, bad: FirstRows, scope: LoadScope) -> Iterator[Source]:
    """Read the ids of sources that were found by their hashes, and their written edges."""
    _, totals, hashes, numbers = bad.columns()
    if not len(totals):
        return
    edges = _edges_of(loaded, hashes.view(np.uint64), numbers)
    lasts = np.array(sorted(int(own[-1]) for own in edges.values() if len(own)), np.int64)
    node_ids = loaded.pick(lasts, ("src",))["src"].to_pylist()
    by_row = dict(zip(lasts.tolist(), node_ids, strict=True))
    for total, source in zip(totals.tolist(), hashes.view(np.uint64), strict=True):
        own = edges[int(source)]
        if len(own):
            yield Source(by_row[int(own[-1])], total, own)
        else:
            yield _former_source(loaded, source, total, scope)


def _edges_of(loaded: LoadedType, sources: Hashes, numbers: Integers) -> dict[int, Integers]:
    """Return the written edges of some sources; `numbers` are the parts that these are in."""
    found: dict[int, list[Integers]] = {int(source): [] for source in sources}
    for number, part in enumerate(loaded.ends["src"].parts(loaded.live)):
        own = np.sort(sources[numbers == number])
        for hashes, rows in part.slabs() if len(own) else ():
            hit = is_among(hashes, own)
            for source in np.unique(hashes[hit]):
                found[int(source)].append(rows[hashes == source])
    return {key: np.sort(np.concatenate([_NO_EDGES, *rows])) for key, rows in found.items()}


def _former_source(loaded: LoadedType, source: np.uint64, total: int, scope: LoadScope) -> Source:
    """Return a source that only moved edges started at, with the rows that move them."""
    key = loaded.table_key
    slabs = scope.stored.scan(key, ("id", "src"))
    if loaded.live_count <= PROBES_MAX:
        picked = loaded.pick(live_rows(loaded), ("id",))["id"]
        slabs = iter([scope.stored.where(key, "id", picked, columns=("id", "src"))])
    node_id, leaving = "", [_NO_EDGES]
    for slab in slabs:
        is_here = loaded.hasher.texts(flat(slab["src"])) == source
        found = slab.filter(pa.array(is_here))
        moving = loaded.lookup().rows_of(loaded.hasher.pairs(flat(found["id"])))
        moving = moving[moving >= 0]
        if len(moving):
            node_id = node_id or found["src"][0].as_py()
            leaving.append(moving)
            if not scope.findings.quarantines:
                break
    return Source(node_id, total, _NO_EDGES, np.concatenate(leaving))
