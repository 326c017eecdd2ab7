"""Checked rows become one transaction per table.

1. Rows without a stored row of their id are appended, as the fragments that they may be already.
2. In a merge the others are compared with the stored rows: equal ones are `unchanged` and not
   written; changed ones are rewritten under their stable row ids, and exactly their old versions
   removed.
3. Properties that a row does not name keep their stored values (`compare.py`).
4. Rows are compared batch by batch. The addresses of stored rows are spilled to a file when there
   are many; a changed row takes 8 bytes of memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.manifest.forks import WriteBase
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
from omnigraph.write.load.check.hashing import Hashes
from omnigraph.write.load.check.matches import Matches
from omnigraph.write.load.check.scope import live_rows
from omnigraph.write.load.compare import compared
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.rows.absent import masks_of
from omnigraph.write.load.rows.row_parts import TableBases, kept_rows
from omnigraph.write.load.rows.taken_ids import stored_ids
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.stage.columns import Mask, flat, slabs
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.stage_rows import stage_all_rows, stage_rows, write_rewritten
from omnigraph.write.stage.stored_rows import PROBES_MAX, StoredRows

_DECLARED_ROWS_MIN: Final = 1 << 18
"""Fewer rows need no staging record: they are committed in a moment."""

_HASHED_ROWS: Final = 1 << 16
"""Stored ids that are read and hashed together."""


@dataclass(frozen=True)
class StagedTable:
    """What is staged of one type; `write` is None when the table stays as it is."""

    write: TableWrite | None
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    nulled: Mapping[str, int] = field(default_factory=dict)

    @property
    def bytes_written(self) -> int:
        """The size of the new files."""
        staged = () if self.write is None else self.write.staged
        return sum(file.size or 0 for one in staged for file in one.files)


def stage_type(
    loaded: LoadedType, stored: StoredRows, bases: TableBases, options: LoadOptions
) -> StagedTable:
    """Stage all live rows of a type on top of a snapshot."""
    staged = _stage_live(loaded, stored, bases, options)
    return replace(staged, unchanged=staged.unchanged + loaded.equal_count)


def _stage_live(
    loaded: LoadedType, stored: StoredRows, bases: TableBases, options: LoadOptions
) -> StagedTable:
    entry = stored.entry(loaded.table_key)
    if not loaded.live_count and options.mode is not WriteMode.OVERWRITE:
        return StagedTable(None)
    if loaded.row_count >= _DECLARED_ROWS_MIN:
        bases.declare(bases.of(entry))
    if options.mode is WriteMode.OVERWRITE:
        base = bases.of(entry)
        schema, fragments = loaded.destination.schema, _fragments(loaded, base, loaded.live)
        write = stage_all_rows(loaded.table_key, base, bases.datasets, schema, fragments=fragments)
        return StagedTable(write, inserted=write.row_count, removed=entry.row_count)
    matches = None
    if entry.row_count and _may_be_stored(loaded):
        matches = matches_of(loaded, stored)
    if matches is None or not matches.count:
        base = bases.of(entry)
        fragments = _fragments(loaded, base, loaded.live)
        write = stage_rows(loaded.table_key, base, bases.datasets, fragments=fragments)
        return StagedTable(write, inserted=loaded.live_count)
    return _stage_update(loaded, stored, bases, matches, keeps_absent=options.keeps_absent)


def preview_type(loaded: LoadedType, stored: StoredRows, options: LoadOptions) -> StagedTable:
    """Count what staging would do, and write nothing."""
    entry = stored.entry(loaded.table_key)
    if options.mode is WriteMode.OVERWRITE:
        return StagedTable(None, inserted=loaded.live_count, removed=entry.row_count)
    if not (entry.row_count and _may_be_stored(loaded)):
        return StagedTable(None, inserted=loaded.live_count, unchanged=loaded.equal_count)
    matches = matches_of(loaded, stored)
    handle = stored.snapshot.open(loaded.table_key)
    changes = _Changes(loaded, handle, matches, keeps_absent=options.keeps_absent)
    for _ in changes.rows():
        pass
    return StagedTable(
        None,
        inserted=loaded.live_count - matches.count,
        updated=changes.count,
        unchanged=matches.count - changes.count + loaded.equal_count,
        nulled=changes.nulled,
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
    if loaded.is_overlaid:
        batches = kept_rows((batch for _, batch in loaded.batches()), kept)
        reader = pa.RecordBatchReader.from_batches(loaded.destination.schema, batches)
        return loaded.destination.write(base, reader)
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


def matches_of(loaded: LoadedType, stored: StoredRows) -> Matches:
    """Find the live rows whose ids are stored; the answer is kept for the same published table."""
    entry = stored.entry(loaded.table_key)
    if loaded.matches is None or loaded.matches[0] != entry:
        loaded.matches = entry, _find_matches(loaded, stored)
    return loaded.matches[1]


def _find_matches(loaded: LoadedType, stored: StoredRows) -> Matches:
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
    for ids, row_ids, addresses in _stored_ids(loaded, stored):
        if lookup.is_divided:
            pairs = loaded.hasher.pairs(ids)
            divided.append(pairs.first, pairs.second, row_ids, addresses)
        else:
            places, rows = lookup.hits(ids, loaded.hasher)
            if len(places):
                matches.add(rows, row_ids[places], addresses[places])
    if lookup.is_divided:
        for (_, _, row_ids, addresses), rows in lookup.joined_buckets(divided):
            hits = rows >= 0
            matches.add(rows[hits], row_ids[hits], addresses[hits])
    divided.close()
    loaded.forget_lookup()
    return matches


def _stored_ids(
    loaded: LoadedType, stored: StoredRows
) -> Iterator[tuple[pa.Array, Hashes, Hashes]]:
    """Read the ids of all stored rows, and where the rows are."""
    request = ScanRequest(
        columns=("id",), with_row_id=True, with_row_address=True, batch_rows=_HASHED_ROWS
    )
    reader = stored.snapshot.open(loaded.table_key).scan(request)
    # A whole batch is used as it is; only those of small fragments are put together.
    for slab in slabs(reader, reader.schema, _HASHED_ROWS):
        row_ids, addresses = (flat(slab[name]).to_numpy() for name in (ROW_ID, ROW_ADDRESS))
        yield flat(slab["id"]), row_ids, addresses


def _stage_update(
    loaded: LoadedType,
    stored: StoredRows,
    bases: TableBases,
    matches: Matches,
    *,
    keeps_absent: bool,
) -> StagedTable:
    entry = stored.entry(loaded.table_key)
    handle = stored.snapshot.open(loaded.table_key)
    is_new = np.ones(loaded.row_count, np.bool_) if loaded.live is None else loaded.live.copy()
    for rows in matches.rows():
        is_new[rows] = False
    inserted = int(np.count_nonzero(is_new))
    changes = _Changes(loaded, handle, matches, keeps_absent=keeps_absent)
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
        nulled=changes.nulled,
    )


class _Changes:
    """The rows of a load that differ from the stored rows of their ids."""

    def __init__(
        self, loaded: LoadedType, handle: DatasetHandle, matches: Matches, *, keeps_absent: bool
    ) -> None:
        self.nulled: Counter[str] = Counter()
        """How many stored values become null, by property."""
        self._keeps_absent = keeps_absent
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
            absent = masks_of(
                self._loaded.absent.between(start, start + batch.num_rows), own.rows - start
            )
            differs, columns = compared(
                self._loaded.entity_type,
                self._handle,
                given,
                row_ids=own.row_ids,
                addresses=own.addresses,
                absent=absent if self._keeps_absent else None,
                nulled=self.nulled,
            )
            if not differs.any():
                continue
            self._addresses.append(own.addresses[differs])
            mask = pa.array(differs)
            arrays = [column.filter(mask) for column in columns]
            if self._loaded.taken is not None:
                arrays[0] = stored_ids(self._handle, own.row_ids[differs])
            yield pa.RecordBatch.from_arrays(arrays, schema=schema), own.row_ids[differs]
