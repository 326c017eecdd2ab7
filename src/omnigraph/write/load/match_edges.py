"""Which edges of a merge are stored already, although the input gives them no id.

1. Stored edges whose ids the input names belong to those records, and stand for no other.
2. A record without an id takes the stored edge that has its tuple of the first `@unique` group with
   both ends whose members are all there. It updates that edge, or leaves it as it is.
3. A record without such a group stands for a stored edge that equals the row which the record would
   insert. Each stored edge stands for one record; a record that finds none is a new edge.
4. So a second load of the same input changes nothing. Edges with a `@key` need nothing of this:
   their id spells the key.
5. Rows are compared by hashes (`check/row_hashing.py`). In memory are those of `rows_at_once` rows
   of the load, and a few bytes per row for masks; stored edges are read once for each group. For
   few records only the stored edges of their sources are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.schema import EdgeType, EntityType
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.store.blob_contents import with_blobs
from omnigraph.store.records import ROW_ADDRESS, ROW_ID, ScanRequest
from omnigraph.write.load.check.buckets import Buckets, divided
from omnigraph.write.load.check.hashes import HashedColumn, RowLookup, StoredHashes
from omnigraph.write.load.check.hashing import (
    Hashes,
    HashIndex,
    HashPairs,
    distinct_hashes,
    is_among,
)
from omnigraph.write.load.check.matches import Matches
from omnigraph.write.load.check.row_hashing import hash_rows, hash_tuples
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.partial import required_properties
from omnigraph.write.load.rows.absent import any_of
from omnigraph.write.load.rows.taken_ids import TakenIds
from omnigraph.write.load.rows.types import ENDS, LoadedType
from omnigraph.write.stage.columns import Integers, Mask, flat, slabs
from omnigraph.write.stage.stored_rows import PROBES_MAX, StoredRows

_WHOLE_SCAN_SHARE: Final = 4
"""Stored edges are read whole where the load has at least one row for so many of them."""


def matched_types(
    types: Mapping[str, LoadedType], stored: StoredRows, options: LoadOptions
) -> Mapping[str, LoadedType]:
    """Return the rows of a load, those that stand for stored edges matched with them."""
    if not options.matches_edges:
        return types
    return {key: match_edges(loaded, stored) for key, loaded in types.items()}


def is_matched(entity_type: EntityType) -> bool:
    """Whether rows of a type that have no id may stand for stored ones."""
    return isinstance(entity_type, EdgeType) and not entity_type.key


def end_groups(edge: EntityType) -> tuple[tuple[str, ...], ...]:
    """Return the `@unique` groups that contain both ends, in canonical order."""
    return tuple(members for members in edge.unique_constraints if set(ENDS) <= set(members))


def match_edges(loaded: LoadedType, stored: StoredRows) -> LoadedType:
    """Return the rows of one type, those that stand for stored edges matched with them."""
    if not is_matched(loaded.entity_type) or not stored.row_count(loaded.table_key):
        return loaded
    wanted = loaded.made_rows()
    if loaded.live is not None:
        wanted &= loaded.live
    if not wanted.any():
        return loaded
    matching = _Matching(loaded, stored, wanted)
    groups = end_groups(loaded.entity_type)
    if groups:
        # A row that equals a stored edge has its tuple, too: it is quicker to see that first.
        matching.by_equality(matching.with_group(groups))
    for members in groups:
        matching.by_tuple(members)
    matching.by_equality(matching.wanted)
    return matching.result()


@dataclass(frozen=True, eq=False)
class _StoredEdges:
    """Some stored edges: pairs of hashes, and where the rows are."""

    pairs: HashPairs
    row_ids: Hashes
    addresses: Hashes

    def filter(self, mask: Mask) -> _StoredEdges:
        return _StoredEdges(self.pairs.filter(mask), self.row_ids[mask], self.addresses[mask])


@dataclass(eq=False)
class _Matching:
    """Matches the rows of one type; `wanted` are those that still look for a stored edge."""

    loaded: LoadedType
    stored: StoredRows
    wanted: Mask
    equal: Mask | None = None
    used: list[Hashes] = field(default_factory=list)
    """Row ids of the stored edges that rows have taken."""

    def __post_init__(self) -> None:
        self.taken = Matches(self.loaded.budget, self.loaded.row_count)
        self.handle = self.stored.snapshot.open(self.loaded.table_key)

    def result(self) -> LoadedType:
        """Return the rows with what was found."""
        if self.equal is None and not self.taken.count:
            return self.loaded
        taken = TakenIds(self.taken, self.handle) if self.taken.count else None
        return self.loaded.matched(self.equal, taken)

    # -- tuples -----------------------------------------------------------------------------------

    def with_group(self, groups: Sequence[tuple[str, ...]]) -> Mask:
        """Return the rows that have all members of a group."""
        schema = self.loaded.destination.schema
        if any(not any(schema.field(name).nullable for name in group) for group in groups):
            return self.wanted
        found = np.zeros(self.loaded.row_count, np.bool_)
        names = tuple(dict.fromkeys(name for group in groups for name in group))
        for start, batch in self.loaded.batches(names):
            valid = {name: valid_mask(batch[name]) for name in names}
            is_whole = [np.logical_and.reduce([valid[name] for name in group]) for group in groups]
            found[start : start + batch.num_rows] = np.logical_or.reduce(is_whole)
        return self.wanted & found

    def by_tuple(self, members: tuple[str, ...]) -> None:
        """Match the rows that have all members of a group; they look no further."""
        if not self.wanted.any():
            return
        budget = self.loaded.budget
        hashed = HashedColumn(budget, 2)
        is_whole = np.zeros(self.loaded.row_count, np.bool_)
        for start, batch in self.loaded.batches(members):
            columns = [batch[name] for name in members]
            pairs = hash_tuples(self.loaded.hasher, columns, batch.num_rows)
            hashed.append(pairs.first, pairs.second)
            own = slice(start, start + batch.num_rows)
            is_there = np.logical_and.reduce([valid_mask(column) for column in columns])
            is_whole[own] = is_there & ~self._lacking(members, start, batch.num_rows)
        own_rows = self.wanted & is_whole
        self.wanted = self.wanted & ~is_whole
        if not own_rows.any():
            return
        lookup = RowLookup(hashed, own_rows, budget.rows_at_once)
        waiting = Buckets(budget, 4)
        for edges in self._stored_tuples(members):
            if lookup.is_divided:
                pairs = edges.pairs
                waiting.append(pairs.first, pairs.second, edges.row_ids, edges.addresses)
            else:
                self._take(lookup.rows_of(edges.pairs), edges.row_ids, edges.addresses)
        if lookup.is_divided:
            for (_, _, row_ids, addresses), rows in lookup.joined_buckets(waiting):
                self._take(rows, row_ids, addresses)
        waiting.close()
        hashed.forget_buckets()

    def _take(self, rows: Integers, row_ids: Hashes, addresses: Hashes) -> None:
        hits = rows >= 0
        if hits.any():
            self.taken.add(rows[hits], row_ids[hits], addresses[hits])
            self._use(row_ids[hits])

    def _use(self, row_ids: Hashes) -> None:
        """Remember taken edges, if rows of another group may look for them.

        A row without any group has nulls where an edge that a group has found has none.
        """
        if len(end_groups(self.loaded.entity_type)) > 1:
            self.used.append(row_ids)

    def _stored_tuples(self, members: tuple[str, ...]) -> Iterator[_StoredEdges]:
        scheme = self.loaded.hasher
        for slab in self._slabs(members):
            columns = [flat(slab[name]) for name in members]
            pairs = hash_tuples(scheme, columns, slab.num_rows)
            is_whole = np.logical_and.reduce([valid_mask(column) for column in columns])
            found = _StoredEdges(pairs, _numbers(slab, ROW_ID), _numbers(slab, ROW_ADDRESS))
            yield found.filter(is_whole)

    # -- equality ---------------------------------------------------------------------------------

    def by_equality(self, asked: Mask) -> None:
        """Match rows with stored edges that equal them; those that find one look no further."""
        if not asked.any():
            return
        names = tuple(name for name in self.loaded.destination.schema.names if name != "id")
        budget, scheme = self.loaded.budget, self.loaded.hasher
        hashed = Buckets(budget, 3)
        parts: list[tuple[HashPairs, Integers]] = []
        is_divided = int(np.count_nonzero(asked)) > budget.rows_at_once
        for start, batch in self.loaded.batches(names):
            own = asked[start : start + batch.num_rows]
            own = own & ~self._lacking(names, start, batch.num_rows)
            if not own.any():
                continue
            pairs = hash_rows(scheme, [batch[name] for name in names], batch.num_rows).filter(own)
            rows = np.flatnonzero(own) + start
            if is_divided:
                hashed.append(pairs.first, pairs.second, rows.astype(np.uint64))
            else:
                parts.append((pairs, rows))
        equal = np.zeros(self.loaded.row_count, np.bool_)
        if is_divided:
            self._match_parts(names, hashed, equal)
        elif parts:
            groups = EqualRows(*_joined(parts))
            for pairs, row_ids in self._stored_pairs(names):
                self._use(row_ids[groups.count(pairs)])
            equal[groups.matched()] = True
        hashed.close()
        if equal.any():
            self.equal = equal if self.equal is None else self.equal | equal
            self.wanted = self.wanted & ~equal

    def _lacking(self, names: Sequence[str], start: int, count: int) -> Mask:
        """Return the rows that lack one of some required properties.

        What stands in its place means nothing: null, or a placeholder in rows that tasks wrote.
        """
        absent = self.loaded.absent
        asked = [name for name in self._required if name in names and name in absent.names]
        if not asked:
            return np.zeros(count, np.bool_)
        return any_of(absent.between(start, start + count), asked, count)

    @cached_property
    def _required(self) -> tuple[str, ...]:
        return required_properties(self.loaded.entity_type)

    def _match_parts(self, names: tuple[str, ...], hashed: Buckets, equal: Mask) -> None:
        budget = self.loaded.budget
        there = Buckets(budget, 3)
        for pairs, row_ids in self._stored_pairs(names):
            there.append(pairs.first, pairs.second, row_ids)
        for within in divided(hashed.counts, budget.rows_at_once):
            first, second, rows = hashed.rows(within)
            groups = EqualRows(HashPairs(first, second), rows.view(np.int64))
            for one, other, row_ids in there.slabs(within):
                self._use(row_ids[groups.count(HashPairs(one, other))])
            equal[groups.matched()] = True
        there.close()

    def _stored_pairs(self, names: tuple[str, ...]) -> Iterator[tuple[HashPairs, Hashes]]:
        """Hash the stored edges that stand for no other row; with their row ids."""
        scheme, schema = self.loaded.hasher, self.loaded.destination.schema
        for slab in self._whole_slabs(names):
            for batch in self._with_blobs(slab):
                columns = [_as(flat(batch[name]), schema.field(name).type) for name in names]
                row_ids: Hashes = flat(batch[ROW_ID]).to_numpy()
                yield hash_rows(scheme, columns, batch.num_rows), row_ids

    def _with_blobs(self, slab: pa.Table) -> Iterator[pa.RecordBatch | pa.Table]:
        blobs = self.loaded.entity_type.blob_properties
        if not blobs:
            yield slab
            return
        for batch in slab.combine_chunks().to_batches():
            yield from with_blobs(self.handle, batch, blobs)

    # -- stored edges -----------------------------------------------------------------------------

    def _whole_slabs(self, names: tuple[str, ...]) -> Iterator[pa.Table]:
        """Read whole stored edges; of many only those that share both ends with a row."""
        rows = self.loaded.live_count
        has_blobs = bool(self.loaded.entity_type.blob_properties)
        is_narrow = len(names) == len(ENDS)
        share = 0 if has_blobs else _WHOLE_SCAN_SHARE
        stored = self.stored.row_count(self.loaded.table_key)
        is_many = rows * share >= stored or rows > self.loaded.budget.rows_at_once
        if rows <= PROBES_MAX or is_narrow or is_many:
            yield from self._slabs(names)
            return
        wanted = self._ends_of_rows()
        rest = [name for name in names if name not in ENDS]
        for slab in self._slabs(ENDS):
            columns = [flat(slab[end]) for end in ENDS]
            pairs = hash_tuples(self.loaded.hasher, columns, slab.num_rows)
            found = slab.filter(pa.array(is_among(pairs.first, wanted)))
            if found.num_rows:
                taken = self.handle.take(flat(found[ROW_ID]), columns=rest)
                for name in rest:
                    found = found.append_column(taken.schema.field(name), flat(taken[name]))
                yield found

    def _ends_of_rows(self) -> Hashes:
        found = [np.zeros(0, np.uint64)]
        for _, batch in self.loaded.batches(ENDS):
            columns = [batch[end] for end in ENDS]
            found.append(hash_tuples(self.loaded.hasher, columns, batch.num_rows).first)
        return distinct_hashes(np.concatenate(found))

    def _slabs(self, columns: tuple[str, ...]) -> Iterator[pa.Table]:
        """Read stored edges that no record names or has taken, with their places."""
        loaded, key = self.loaded, self.loaded.table_key
        names = tuple(dict.fromkeys(("id", *columns))) if self._looks_at_ids else columns
        found: Iterator[pa.Table]
        if loaded.live_count <= PROBES_MAX:
            sources = loaded.pick(np.flatnonzero(self._asking), ("src",))["src"]
            found = iter([self.stored.where(key, "src", sources, columns=names, with_rows=True)])
        else:
            request = ScanRequest(columns=names, with_row_id=True, with_row_address=True)
            reader = self.handle.scan(request)
            found = slabs(reader, reader.schema)
        used = np.sort(np.concatenate([np.zeros(0, np.uint64), *self.used]))
        for slab in found:
            is_free = ~is_among(_numbers(slab, ROW_ID), used)
            if self._looks_at_ids:
                pairs = loaded.hasher.pairs(flat(slab["id"]))
                is_free &= loaded.lookup().rows_of(pairs) < 0
            elif loaded.has_given_ids:
                is_free &= ~is_among(_numbers(slab, ROW_ADDRESS), self._named)
            yield slab if is_free.all() else slab.filter(pa.array(is_free))

    @property
    def _looks_at_ids(self) -> bool:
        """Whether an index of all ids of the load tells which stored edges its records name."""
        return self.loaded.has_given_ids and not self.loaded.lookup().is_divided

    @cached_property
    def _named(self) -> Hashes:
        """The addresses of the stored edges that records name, sorted; for many ids."""
        loaded = self.loaded
        ids = StoredHashes(
            self.stored,
            loaded.table_key,
            "id",
            scheme=loaded.hasher,
            budget=loaded.budget,
            by_address=True,
        )
        found = [rows[hits >= 0] for rows, hits in loaded.lookup().joined(ids)]
        ids.forget_buckets()
        named = np.concatenate([np.zeros(0, np.int64), *found]).astype(np.uint64)
        return np.sort(named)

    @property
    def _asking(self) -> Mask:
        """The rows without an id."""
        made = self.loaded.made_rows()
        return made if self.loaded.live is None else made & self.loaded.live


class EqualRows:
    """Rows by the pair of their hashes, and how many stored rows have each pair."""

    def __init__(self, pairs: HashPairs, rows: Integers) -> None:
        order = np.argsort(pairs.first)
        shares = pairs.first[order][1:] == pairs.first[order][:-1]
        if shares.any():
            # The quick sort keeps no order among equal numbers, and different rows may share one.
            among = np.append(shares, False) | np.insert(shares, 0, False)
            own = order[among]
            order[among] = own[np.lexsort((rows[own], pairs.second[own], pairs.first[own]))]
        first, second = pairs.first[order], pairs.second[order]
        is_head = np.ones(len(order), np.bool_)
        is_head[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        self._rows = rows[order]
        self._heads = np.flatnonzero(is_head)
        self._index = HashIndex(HashPairs(first[is_head], second[is_head]))
        self._counts = np.zeros(len(self._heads), np.int64)

    def count(self, pairs: HashPairs) -> Mask:
        """Count stored rows; return which of them have a pair of a row."""
        places = self._index.places(pairs)
        is_hit: Mask = places >= 0
        self._counts += np.bincount(places[is_hit], minlength=len(self._counts))
        return is_hit

    def matched(self) -> Integers:
        """Return the first rows of each pair, as many as stored rows have it."""
        sizes = np.diff(np.append(self._heads, len(self._rows)))
        place = np.arange(len(self._rows)) - np.repeat(self._heads, sizes)
        return self._rows[place < np.repeat(self._counts, sizes)]


def _joined(parts: list[tuple[HashPairs, Integers]]) -> tuple[HashPairs, Integers]:
    first = np.concatenate([pairs.first for pairs, _ in parts])
    second = np.concatenate([pairs.second for pairs, _ in parts])
    return HashPairs(first, second), np.concatenate([rows for _, rows in parts])


def _numbers(slab: pa.Table, name: str) -> Hashes:
    found: Hashes = flat(slab[name]).to_numpy()
    return found


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
