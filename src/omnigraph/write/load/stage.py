"""Checked rows become one transaction per table.

1. Rows without a stored row of their id are appended, as the fragments that they may be already.
2. In a merge the others are compared with the stored rows: equal ones are `unchanged` and not
   written; changed ones are rewritten under their stable row ids, and exactly their old versions
   removed.
3. A vector that the graph has made from a text (`@embed`) neither makes a row different nor gets
   lost while the input leaves it out and the text is the same.
4. Rows are compared batch by batch. The addresses of stored rows are spilled to a file when there
   are many; a changed row takes 8 bytes of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.manifest.forks import WriteBase
from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.values.equality import equal_rows
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.store.blob_contents import blob_slices
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_ID,
    ScanRequest,
    WrittenDeletion,
    WrittenFragment,
)
from omnigraph.write.commit.job import TableWrite
from omnigraph.write.load.check.buckets import Buckets
from omnigraph.write.load.check.hashing import Hashes, HashPairs
from omnigraph.write.load.check.matches import Matches
from omnigraph.write.load.check.scope import live_rows
from omnigraph.write.load.rows.row_parts import TableBases
from omnigraph.write.load.rows.taken_ids import stored_ids
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.stage.columns import Mask, flat, slabs, to_mask
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.stage_rows import stage_all_rows, stage_rows, write_rewritten
from omnigraph.write.stage.stored_rows import PROBES_MAX, StoredRows

_DECLARED_ROWS_MIN: Final = 1 << 18
"""Fewer rows need no staging record: they are committed in a moment."""


@dataclass(frozen=True)
class StagedTable:
    """What is staged of one type; `write` is None when the table stays as it is."""

    write: TableWrite | None
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0

    @property
    def bytes_written(self) -> int:
        """The size of the new files."""
        staged = () if self.write is None else self.write.staged
        return sum(file.size or 0 for one in staged for file in one.files)


def stage_type(
    loaded: LoadedType, stored: StoredRows, bases: TableBases, mode: WriteMode
) -> StagedTable:
    """Stage all live rows of a type on top of a snapshot."""
    staged = _stage_live(loaded, stored, bases, mode)
    return replace(staged, unchanged=staged.unchanged + loaded.equal_count)


def _stage_live(
    loaded: LoadedType, stored: StoredRows, bases: TableBases, mode: WriteMode
) -> StagedTable:
    entry = stored.entry(loaded.table_key)
    if not loaded.live_count and mode is not WriteMode.OVERWRITE:
        return StagedTable(None)
    if loaded.row_count >= _DECLARED_ROWS_MIN:
        bases.declare(bases.of(entry))
    if mode is WriteMode.OVERWRITE:
        base = bases.of(entry)
        schema, fragments = loaded.destination.schema, _fragments(loaded, base, loaded.live)
        write = stage_all_rows(loaded.table_key, base, bases.datasets, schema, fragments=fragments)
        return StagedTable(write, inserted=write.row_count)
    matches = None
    if entry.row_count and _may_be_stored(loaded):
        matches = _matches(loaded, stored)
    if matches is None or not matches.count:
        base = bases.of(entry)
        fragments = _fragments(loaded, base, loaded.live)
        write = stage_rows(loaded.table_key, base, bases.datasets, fragments=fragments)
        return StagedTable(write, inserted=loaded.live_count)
    return _stage_update(loaded, stored, bases, matches)


def preview_type(loaded: LoadedType, stored: StoredRows, mode: WriteMode) -> StagedTable:
    """Count what staging would do, and write nothing."""
    entry = stored.entry(loaded.table_key)
    if mode is WriteMode.OVERWRITE or not (entry.row_count and _may_be_stored(loaded)):
        return StagedTable(None, inserted=loaded.live_count, unchanged=loaded.equal_count)
    matches = _matches(loaded, stored)
    changes = _Changes(loaded, stored.snapshot.open(loaded.table_key), matches)
    for _ in changes.rows():
        pass
    return StagedTable(
        None,
        inserted=loaded.live_count - matches.count,
        updated=changes.count,
        unchanged=matches.count - changes.count + loaded.equal_count,
    )


def _may_be_stored(loaded: LoadedType) -> bool:
    return loaded.given.row_count > 0 or loaded.taken is not None


def stage_cascade(
    table_key: str, addresses: Hashes, stored: StoredRows, bases: TableBases
) -> StagedTable:
    """Remove the stored edges of removed nodes."""
    base = bases.of(stored.entry(table_key))
    deletions = bases.datasets.write_deletions(base.base, pa.array(addresses))
    write = stage_rows(table_key, base, bases.datasets, fragments=(), deletions=deletions)
    return StagedTable(write, removed=len(addresses))


def _fragments(
    loaded: LoadedType, base: WriteBase, kept: Mask | None
) -> tuple[WrittenFragment, ...]:
    fragments: tuple[WrittenFragment, ...] = ()
    start = 0
    for part in (loaded.fresh, loaded.given):
        own = None if kept is None else kept[start : start + part.row_count]
        start += part.row_count
        if own is not None and own.all():
            own = None
        if part.row_count and (own is None or own.any()):
            fragments += part.fragments(base, own)
    return fragments


# -- rows that are stored already -----------------------------------------------------------------


def _matches(loaded: LoadedType, stored: StoredRows) -> Matches:
    matches = Matches(loaded.budget, loaded.row_count)
    if loaded.live_count <= PROBES_MAX:
        alive = live_rows(loaded, loaded.id_start or 0)
        ids = loaded.pick(alive, ("id",))["id"]
        located = stored.locate(loaded.table_key, ids)
        found = located.found
        matches.add(alive[found], located.row_ids[found], located.addresses[found])
        return matches
    divided = Buckets(loaded.budget, 4)
    lookup = loaded.lookup()
    for pairs, row_ids, addresses in _stored_ids(loaded, stored):
        if lookup.is_divided:
            divided.append(pairs.first, pairs.second, row_ids, addresses)
        else:
            rows = lookup.rows_of(pairs)
            hits = rows >= 0
            if hits.any():
                matches.add(rows[hits], row_ids[hits], addresses[hits])
    if lookup.is_divided:
        for (_, _, row_ids, addresses), rows in lookup.joined_buckets(divided):
            hits = rows >= 0
            matches.add(rows[hits], row_ids[hits], addresses[hits])
    divided.close()
    loaded.forget_lookup()
    return matches


def _stored_ids(
    loaded: LoadedType, stored: StoredRows
) -> Iterator[tuple[HashPairs, Hashes, Hashes]]:
    """Read the ids of all stored rows as hashes, and where the rows are."""
    request = ScanRequest(columns=("id",), with_row_id=True, with_row_address=True)
    reader = stored.snapshot.open(loaded.table_key).scan(request)
    for slab in slabs(reader, reader.schema):
        row_ids, addresses = (flat(slab[name]).to_numpy() for name in (ROW_ID, ROW_ADDRESS))
        yield loaded.hasher.pairs(flat(slab["id"])), row_ids, addresses


def _stage_update(
    loaded: LoadedType, stored: StoredRows, bases: TableBases, matches: Matches
) -> StagedTable:
    entry = stored.entry(loaded.table_key)
    handle = stored.snapshot.open(loaded.table_key)
    is_new = np.ones(loaded.row_count, np.bool_) if loaded.live is None else loaded.live.copy()
    for rows in matches.rows():
        is_new[rows] = False
    inserted = int(np.count_nonzero(is_new))
    changes = _Changes(loaded, handle, matches)
    rewritten = changes.rows()
    first = next(rewritten, None)
    if not inserted and first is None:
        return StagedTable(None, unchanged=matches.count)
    base = bases.of(entry)
    datasets, schema = bases.datasets, loaded.destination.schema
    fragments: tuple[WrittenFragment, ...] = ()
    deletions: Sequence[WrittenDeletion] = ()
    if first is not None:
        fragments += write_rewritten(datasets, base.base, schema, chain([first], rewritten))
        deletions = datasets.write_deletions(base.base, changes.addresses())
    if inserted:
        fragments += _fragments(loaded, base, is_new)
    return StagedTable(
        stage_rows(loaded.table_key, base, datasets, fragments=fragments, deletions=deletions),
        inserted=inserted,
        updated=changes.count,
        unchanged=matches.count - changes.count,
    )


class _Changes:
    """The rows of a load that differ from the stored rows of their ids."""

    def __init__(self, loaded: LoadedType, handle: DatasetHandle, matches: Matches) -> None:
        self._loaded = loaded
        self._handle = handle
        self._matches = matches
        self._addresses: list[Hashes] = []

    @property
    def count(self) -> int:
        """How many rows differ, once all were read."""
        return sum(map(len, self._addresses))

    def addresses(self) -> pa.Array:
        """Return where their stored versions are, once all were read."""
        return pa.array(np.concatenate(self._addresses))

    def rows(self) -> Iterator[tuple[pa.RecordBatch, Hashes]]:
        """Read the changed rows with their stable row ids."""
        schema = self._loaded.destination.schema
        for start, batch in self._loaded.batches():
            own = self._matches.between(start, start + batch.num_rows)
            if not len(own.rows):
                continue
            given = batch.take(pa.array(own.rows - start))
            differs, columns = compared(
                self._loaded.entity_type,
                self._handle,
                given,
                row_ids=own.row_ids,
                addresses=own.addresses,
            )
            if not differs.any():
                continue
            self._addresses.append(own.addresses[differs])
            mask = pa.array(differs)
            arrays = [column.filter(mask) for column in columns]
            if self._loaded.taken is not None:
                arrays[0] = stored_ids(self._handle, own.row_ids[differs])
            yield pa.RecordBatch.from_arrays(arrays, schema=schema), own.row_ids[differs]


def compared(
    entity_type: EntityType,
    handle: DatasetHandle,
    given: pa.RecordBatch,
    *,
    row_ids: Hashes,
    addresses: Hashes,
) -> tuple[Mask, list[pa.Array]]:
    """Return which rows differ from the stored ones, and the columns to write for those.

    The rows were found by their ids, which are not compared again.
    """
    columns = dict(zip(given.schema.names, given.columns, strict=True))
    same: Mask = np.ones(given.num_rows, np.bool_)
    embedded = _embedded(entity_type)
    if embedded:
        names = list(dict.fromkeys([*embedded, *embedded.values()]))
        stored = handle.take(pa.array(row_ids), columns=names)
        before = {name: _as(flat(stored[name]), given[name].type) for name in names}
        equal = {name: equal_rows(given[name], before[name]) for name in names}
        for target, source in embedded.items():
            derived = ~valid_mask(given[target]) & equal[source]
            columns[target] = _chosen(derived, before[target], given[target])
            equal[target] |= derived
        same &= np.logical_and.reduce(list(equal.values()))
    for names in _by_cost(
        given, {"id", *embedded, *embedded.values(), *entity_type.blob_properties}
    ):
        _compare(handle, given.select(names), row_ids=row_ids, same=same)
    for name in entity_type.blob_properties:
        same &= _equal_blobs(
            handle, name, given[name], row_ids=row_ids, addresses=addresses, asked=same
        )
    return ~same, list(columns.values())


def _by_cost(given: pa.RecordBatch, others: set[str]) -> list[list[str]]:
    """Group columns: numbers are fetched for a sixth of what texts and lists cost."""
    plain = [name for name in given.schema.names if name not in others]
    cheap = [name for name in plain if pa.types.is_primitive(given.schema.field(name).type)]
    return [names for names in (cheap, [name for name in plain if name not in cheap]) if names]


def _compare(handle: DatasetHandle, given: pa.RecordBatch, *, row_ids: Hashes, same: Mask) -> None:
    """Compare some columns, in rows that are the same so far."""
    rows = np.flatnonzero(same)
    if not len(rows):
        return
    stored = handle.take(pa.array(row_ids[rows]), columns=given.schema.names)
    if len(rows) < given.num_rows:
        given = given.take(pa.array(rows))
    for name in given.schema.names:
        same[rows] &= equal_rows(given[name], _as(flat(stored[name]), given[name].type))


def _equal_blobs(
    handle: DatasetHandle,
    name: str,
    given: pa.Array,
    *,
    row_ids: Hashes,
    addresses: Hashes,
    asked: Mask,
) -> Mask:
    """Compare blobs in rows that are equal in all else: null, bytes of ours, or a reference.

    Only bytes are ever given in a merge, so a stored reference is always something else.
    """
    described = flat(handle.take_addresses(pa.array(addresses), columns=[name])[name])
    uris = pc.struct_field(described, "blob_uri")
    is_ours = valid_mask(described) & ~to_mask(pc.not_equal(uris, "").fill_null(False))
    is_given = valid_mask(given)
    equal: Mask = ~is_given & ~valid_mask(described)
    contents = pc.struct_field(given, "data")
    sizes = pc.cast(pc.struct_field(described, "size"), pa.int64()).fill_null(0)
    is_as_long = to_mask(pc.equal(pc.binary_length(contents), sizes).fill_null(False))
    rows = np.flatnonzero(asked & is_given & is_ours & is_as_long)
    for start, stop in blob_slices(np.asarray(sizes)[rows]):
        part = rows[start:stop]
        stored = handle.read_blobs(name, row_ids[part].tolist())
        wanted = contents.take(pa.array(part)).to_pylist()
        equal[part] = [old == new for old, new in zip(stored, wanted, strict=True)]
    return equal


def _embedded(entity_type: EntityType) -> dict[str, str]:
    """Return the properties that the graph fills by itself, and the texts that they come from."""
    if not isinstance(entity_type, NodeType):
        return {}
    return {target: note.source for target, note in entity_type.embed_sources.items()}


def _chosen(mask: Mask, first: pa.Array, second: pa.Array) -> pa.Array:
    """Take rows of `first` where the mask says so, and of `second` elsewhere."""
    if not mask.any():
        return second
    count = len(mask)
    places = np.where(mask, np.arange(count), np.arange(count) + count)
    return pa.concat_arrays([first, second]).take(pa.array(places))


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
