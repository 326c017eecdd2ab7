"""The datasets of one snapshot, as one query reads them.

Columns are fetched for row ids. Columns that were read stay in memory for the rest of the query.
Few rows are taken one by one; for many, one scan reads the missing columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.manifest import Snapshot
from omnigraph.read.access.column_cache import ColumnCache, Form, NoLayer, Version
from omnigraph.read.access.layers import FoundRows, Layer, LayeredLookup, ReadColumn, Resident
from omnigraph.read.access.text_lookup import build_text_lookup
from omnigraph.read.access.value_codes import Coded
from omnigraph.read.column_names import ID
from omnigraph.read.limits import Guard
from omnigraph.read.row_table import NULL, RowIds, distinct_ids, is_ascending
from omnigraph.read.short_reads import SHORT_READS
from omnigraph.search.table_delta import ROWS_MAX, TableDeltas
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.filters import Filter, OneOf
from omnigraph.store.records import ROW_ID, DatasetVersion, ScanRequest

TAKE_SHARE_MAX: Final = 8
"""Rows are taken one by one while they are fewer than one in this many; else all are scanned."""

LOOKUP_MAX: Final = 10_000
"""The largest number of ids in one `in` filter; for more, the id column is read."""

FOLD_ROWS: Final = 4_096
"""A layer of more rows is folded into columns of its own version."""

RESIDENT_IDS_MAX: Final = 1_000
"""Up to this many ids are looked up one by one where ids are in memory."""

_OFFSET_TYPES: Final = {
    pa.utf8(): np.int32,
    pa.binary(): np.int32,
    pa.large_utf8(): np.int64,
    pa.large_binary(): np.int64,
}
"""Types whose values are cut out of one buffer, by the width of the offsets into it."""


@dataclass(eq=False)
class _Held:
    """Columns of some rows of one dataset, by ascending row id."""

    row_ids: RowIds
    columns: dict[str, pa.Array]
    is_whole: bool

    def at(self, row_ids: RowIds, names: Sequence[str]) -> dict[str, pa.Array] | None:
        """Return columns of rows, or None when one of the rows is not held."""
        if row_ids is self.row_ids or np.array_equal(self.row_ids, row_ids):
            return {name: self.columns[name] for name in names}
        positions = self.positions(row_ids)
        if positions is None:
            return None
        picks = pa.array(positions)
        return {name: self.columns[name].take(picks) for name in names}

    def positions(self, row_ids: RowIds) -> RowIds | None:
        """Return where rows are, or None when one of them is not held."""
        if not len(row_ids):
            return np.empty(0, np.int64)
        if not len(self.row_ids):
            return None
        found = np.searchsorted(self.row_ids, row_ids)
        found[found == len(self.row_ids)] = 0
        return found if (self.row_ids[found] == row_ids).all() else None


@dataclass(eq=False)
class TableReader:
    """Reads the datasets of one snapshot."""

    snapshot: Snapshot
    guard: Guard
    cache: ColumnCache = field(default_factory=ColumnCache)
    """Columns that outlive the query."""
    deltas: TableDeltas = field(default_factory=TableDeltas)
    """The rows in which versions differ."""
    _handles: dict[str, DatasetHandle] = field(default_factory=dict)
    _found_rows: FoundRows = field(default_factory=FoundRows)
    _held: dict[str, list[_Held]] = field(default_factory=dict)

    def handle(self, table_key: str) -> DatasetHandle:
        """Open a dataset at its published version."""
        if table_key not in self._handles:
            # What follows is a call of the store, which other reads need not wait for.
            SHORT_READS.release_own()
            self._handles[table_key] = self.snapshot.open(table_key)
        return self._handles[table_key]

    def row_count(self, table_key: str) -> int:
        """Return the row count of the manifest."""
        return self.snapshot.entry(table_key).row_count

    def scan(self, table_key: str, request: ScanRequest) -> pa.Table:
        """Read rows to the end, within the limits of the query."""
        schema, batches = self.handle(table_key).batches(request)
        return pa.Table.from_batches(self.guard.watched(batches), schema=schema)

    def columns(self, table_key: str, names: tuple[str, ...], row_filter: Filter) -> list[pa.Array]:
        """Read columns of the rows that pass a filter, in any order of the rows."""
        request = ScanRequest(columns=names, row_filter=row_filter)
        schema, batches = self.handle(table_key).batches(request)
        found = self.guard.watched(batches)
        if len(found) == 1:
            # A look-up of one row would spend most of its time on building a table.
            return list(found[0].columns)
        table = pa.Table.from_batches(found, schema=schema)
        return [one_array(column) for column in table.columns]

    def fetch(self, table_key: str, row_ids: RowIds, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns for row ids, which may repeat; null where the id is `NULL`."""
        if not columns:
            return {}
        if len(row_ids) and row_ids[0] != NULL and is_ascending(row_ids):
            return self._distinct(table_key, row_ids, columns)
        cached = self._cached_at(table_key, row_ids, columns)
        if cached is not None:
            return cached
        wanted, inverse = distinct_ids(row_ids)
        has_null = len(wanted) > 0 and wanted[0] == NULL
        present = wanted[1:] if has_null else wanted
        values = self._distinct(table_key, present, columns)
        positions = inverse - 1 if has_null else inverse
        self._claim_repeated(values.values(), positions)
        picks = pa.array(positions, mask=positions < 0) if has_null else pa.array(positions)
        return {name: column.take(picks) for name, column in values.items()}

    def _cached_at(
        self, table_key: str, row_ids: RowIds, columns: Sequence[str]
    ) -> dict[str, pa.Array] | None:
        """Return columns for row ids in any order when all of them are in memory."""
        found = self._residents(table_key, row_ids, columns)
        if len(found) < len(set(columns)):
            return None
        places = {name: resident.place(row_ids) for name, resident in found.items()}
        if any(place is None for place in places.values()):
            return None
        for name, resident in found.items():
            if (place := places[name]) is not None:
                self._claim_repeated([resident.values], place.base)
                if resident.added is not None and place.added is not None:
                    self._claim_repeated([resident.added], place.added)
        return {name: resident.at(row_ids) for name, resident in found.items()}

    def _claim_repeated(self, columns: Iterable[pa.Array], positions: RowIds) -> None:
        """Raise when values at positions that repeat take too much memory.

        Each row of a result has its own copy: a long text that stands in every row is many times
        what is stored.
        """
        rows, given = len(positions), tuple(columns)
        if self.guard.fits(rows * sum(column.nbytes for column in given)):
            return
        needed = sum(_repeated_bytes(column, positions) for column in given)
        self.guard.claim_bytes("reading repeated values", rows=rows, needed=needed)

    def prefetch(self, table_key: str, row_ids: RowIds, columns: Sequence[str]) -> None:
        """Read columns of rows at once and hold them, so that fetching them costs no I/O."""
        uncached = [
            name for name in dict.fromkeys(columns) if self._resident(table_key, name) is None
        ]
        if not uncached:
            return
        wanted, _ = distinct_ids(row_ids)
        present = wanted[1:] if len(wanted) and wanted[0] == NULL else wanted
        missing = [name for name in uncached if not self._holds(table_key, present, name)]
        if missing and len(present):
            found = self._distinct(table_key, present, missing)
            self._held.setdefault(table_key, []).append(_Held(present, found, is_whole=False))

    def _holds(self, table_key: str, row_ids: RowIds, column: str) -> bool:
        return any(
            column in held.columns and held.positions(row_ids) is not None
            for held in self._held.get(table_key, ())
        )

    def remember(self, table_key: str, table: pa.Table, *, is_whole: bool) -> RowIds:
        """Hold the columns of a scan with `_rowid` for later fetches; return its row ids."""
        row_ids: RowIds = table[ROW_ID].to_numpy().astype(np.int64)
        columns = {name: one_array(table[name]) for name in table.column_names if name != ROW_ID}
        if not is_ascending(row_ids):
            order = np.argsort(row_ids, kind="stable")
            picks = pa.array(order)
            row_ids = row_ids[order]
            columns = {name: column.take(picks) for name, column in columns.items()}
        held = _Held(row_ids, columns, is_whole)
        self._held.setdefault(table_key, []).append(held)
        if is_whole:
            self._keep(table_key, row_ids, columns)
        return row_ids

    def is_cached(self, table_key: str, columns: Sequence[str]) -> bool:
        """Whether all of these columns are in memory."""
        return all(self._resident(table_key, name) is not None for name in columns)

    def all_rows(self, table_key: str) -> RowIds:
        """Return the row ids of all rows, ascending."""
        entry = self.snapshot.entry(table_key)
        cached_rows = self.cache.row_positions(entry)
        if cached_rows is not None:
            return cached_rows.row_ids
        layer = self._layer(table_key, "rows")
        base = None if layer is None else self.cache.rows_at(layer.base)
        if layer is not None and base is not None:
            row_ids = layer.folded_rows(base.row_ids)
        else:
            found = self.scan(table_key, ScanRequest(columns=(), with_row_id=True))[ROW_ID]
            row_ids = np.sort(np.asarray(found.to_numpy(), np.int64))
        self._keep(table_key, row_ids, {})
        return row_ids

    def codes(self, table_key: str, row_ids: RowIds, column: str) -> Coded | None:
        """Return the codes of a column for rows in any order; None when it is not cached."""
        entry = self.snapshot.entry(table_key)
        self._fold(table_key, [column])
        cached_rows, found = self.cache.row_positions(entry), self.cache.codes(entry, column)
        if cached_rows is None or found is None:
            return None
        if row_ids is cached_rows.row_ids:
            return found
        positions = cached_rows.positions(row_ids)
        if positions is None:
            return None
        codes = found.codes[positions]
        is_null = positions == NULL
        return Coded(np.where(is_null, NULL, codes) if is_null.any() else codes, found.values)

    def find_text(self, table_key: str, column: str, text: str) -> RowIds | None:
        """Return the rows that have a text, ascending; None when the column is not in memory."""
        find = self._finder(table_key, column)
        return None if find is None else find(text)

    def find_key(self, table_key: str, key_id: str) -> RowIds | None:
        """Return the row of an id; None when ids are not in memory."""
        return self.find_text(table_key, ID, key_id)

    def _finder(self, table_key: str, column: str) -> Callable[[str], RowIds] | None:
        """Return what looks up texts of a column in memory; reads it if it is used often."""
        entry = self.snapshot.entry(table_key)
        lookup = self.cache.text_lookup(entry, column)
        if lookup is not None:
            return lookup.find
        layer = self._layer(table_key, "lookup", column)
        base = None if layer is None else self.cache.lookup_at(layer.base, column)
        if layer is not None and base is not None:
            self._added_texts(table_key, layer, column)
            read = self._added_reader(table_key, layer)
            return LayeredLookup(base, layer, column, read).find
        if not self.cache.is_lookup_due(entry, column):
            return None
        version = self._version(table_key)
        lookup = self.cache.lookup_from_file(entry, column, version)
        if lookup is None:
            row_ids, columns = self.whole(table_key, [column])
            lookup = build_text_lookup(columns[column], row_ids)
            self.cache.keep_lookup(entry, column, lookup, version)
        return lookup.find

    def row_ids_of(self, table_key: str, ids: pa.Array) -> RowIds:
        """Return the row id of each id text, `NULL` where there is no such row."""
        if len(ids) <= RESIDENT_IDS_MAX:
            find = self._finder(table_key, ID)
            if find is not None:
                found = (find(text) for text in ids.to_pylist())
                return np.array([rows[0] if len(rows) else NULL for rows in found], np.int64)
        distinct = pc.unique(ids)
        share = len(distinct) * TAKE_SHARE_MAX
        if len(distinct) > LOOKUP_MAX or share > self.row_count(table_key):
            row_ids, columns = self.whole(table_key, [ID])
            known = columns[ID]
        else:
            row_filter = OneOf(ID, tuple(distinct.to_pylist()))
            table = self._matching(table_key, [ID], row_filter)
            known, row_ids = one_array(table[ID]), table[ROW_ID].to_numpy().astype(np.int64)
        positions = pc.fill_null(pc.index_in(ids, value_set=known), NULL)
        positions = positions.to_numpy(zero_copy_only=False)
        padded = np.append(row_ids, NULL)
        return np.asarray(padded[positions], np.int64)

    def whole(self, table_key: str, columns: Sequence[str]) -> tuple[RowIds, dict[str, pa.Array]]:
        """Return columns of all rows, by ascending row id."""
        entry = self.snapshot.entry(table_key)
        self._fold(table_key, columns)
        cached_rows = self.cache.row_positions(entry)
        cached = {name: self.cache.column(entry, name) for name in columns}
        if cached_rows is not None and all(column is not None for column in cached.values()):
            return cached_rows.row_ids, cached
        held = self._whole(table_key, columns)
        return held.row_ids, held.columns

    def _from_files(self, table_key: str, names: Sequence[str]) -> _Held | None:
        """Map whole columns that another process has stored; None when one is missing."""
        entry = self.snapshot.entry(table_key)
        if not self.cache.keep_from_files(entry, names, self._version(table_key)):
            return None
        found = {name: self.cache.column_at(entry.at, name) for name in names}
        present = {name: both for name, both in found.items() if both is not None}
        if not present or len(present) < len(found):
            return None
        rows = next(iter(present.values()))[0].row_ids
        return _Held(rows, {name: both[1] for name, both in present.items()}, is_whole=True)

    def _distinct(
        self, table_key: str, row_ids: RowIds, columns: Sequence[str]
    ) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        missing = list(dict.fromkeys(columns))
        for held in self._held.get(table_key, ()):
            usable = [name for name in missing if name in held.columns]
            columns_there = held.at(row_ids, usable) if usable else None
            if columns_there is not None:
                found |= columns_there
                missing = [name for name in missing if name not in columns_there]
        if missing and len(row_ids):
            cached = self._from_memory(table_key, row_ids, missing)
            found |= cached
            missing = [name for name in missing if name not in cached]
        if missing:
            found |= self._read(table_key, row_ids, missing)
        return found

    def _from_memory(
        self, table_key: str, row_ids: RowIds, names: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Return cached columns, after reading those that have been used often enough."""
        entry = self.snapshot.entry(table_key)
        found = self._residents(table_key, row_ids, names)
        absent = [name for name in names if name not in found]
        absent = [name for name in absent if not _is_nested(self.handle(table_key), name)]
        if absent and self.cache.is_due(entry, absent):
            # Reading a whole column caches it.
            self._whole(table_key, absent)
            found |= self._residents(table_key, row_ids, absent)
        return {
            name: resident.at(row_ids)
            for name, resident in found.items()
            if resident.place(row_ids) is not None
        }

    # -- columns in memory, of this version or of another one with a layer over it -----------------

    def _residents(
        self, table_key: str, row_ids: RowIds, names: Sequence[str]
    ) -> dict[str, Resident]:
        """Return the columns in memory; for many rows they are folded into one array first."""
        if len(row_ids) * TAKE_SHARE_MAX > self.row_count(table_key):
            self._fold(table_key, names)
        found = {name: self._resident(table_key, name) for name in names}
        return {name: resident for name, resident in found.items() if resident is not None}

    def _resident(self, table_key: str, name: str) -> Resident | None:
        at = self.snapshot.entry(table_key).at
        own = self.cache.column_at(at, name)
        if own is not None:
            return Resident(*own, self._found_rows)
        layer = self._layer(table_key, "values", name)
        base = None if layer is None else self.cache.column_at(layer.base, name)
        if layer is None or base is None:
            return None
        added = self._added_column(table_key, layer, name)
        return Resident(*base, self._found_rows, layer, added)

    def _fold(self, table_key: str, names: Sequence[str]) -> None:
        """Make columns of this version from those of another one, if these are in memory."""
        row_ids: RowIds | None = None
        columns: dict[str, pa.Array] = {}
        for name in names:
            resident = self._resident(table_key, name)
            if resident is None or resident.layer is None or resident.added is None:
                continue
            rows = resident.rows.row_ids
            if row_ids is None:
                row_ids = resident.layer.folded_rows(rows)
            columns[name] = resident.layer.fold_columns(rows)(resident.values, resident.added)
        if row_ids is not None:
            self._keep(table_key, row_ids, columns)

    def _keep(self, table_key: str, row_ids: RowIds, columns: Mapping[str, pa.Array]) -> None:
        entry = self.snapshot.entry(table_key)
        self.cache.keep(entry, row_ids, columns, self._version(table_key))

    def _version(self, table_key: str) -> Version:
        state = self.deltas.state_of(self.handle(table_key))
        return Version(state, self.snapshot.catalog, self.snapshot.state.head.schema_hash)

    def _layer(self, table_key: str, form: Form, name: str = "") -> Layer | None:
        """Return the rows in which this version differs from one of which a column is cached."""
        entry = self.snapshot.entry(table_key)
        for at, version in self.cache.bases(entry, form, name):
            if version.catalog is not self.snapshot.catalog:
                continue
            known = self.cache.layer(entry.at, at)
            if known is None:
                known = self._new_layer(table_key, version)
                self.cache.keep_layer(entry.at, at, known)
                self._fold_later(table_key, known)
            if isinstance(known, Layer):
                return known
        return None

    def _new_layer(self, table_key: str, base: Version) -> Layer | NoLayer:
        handle = self.handle(table_key)
        state = self.deltas.state_of(handle)
        latest = self.cache.latest_layer(handle.at, base.state.at)
        if latest is not None and latest.rows <= ROWS_MAX:
            step = self.deltas.between(latest.state, state, handle, self._open_version)
            if step is not None:
                return latest.then(
                    step, lambda name: self.deltas.columns(step, handle, (name,))[name]
                )
        delta = self.deltas.between(base.state, state, handle, self._open_version)
        if delta is None:
            return NoLayer()
        return Layer.of(delta, lambda name: self.deltas.columns(delta, handle, (name,))[name])

    def _fold_later(self, table_key: str, layer: Layer | NoLayer) -> None:
        """Make columns of this version in the background, once many rows differ from the base."""
        if isinstance(layer, Layer) and layer.rows > FOLD_ROWS and self.cache.may_fold(layer):
            reader = TableReader(self.snapshot, self.guard, self.cache, self.deltas)
            self.cache.background.start(lambda: reader.fold(table_key, layer))

    def prepare(self, table_key: str) -> None:
        """Lay this version over the columns in memory, so that the next query need not do it."""
        for form, name in self.cache.forms_at(self.snapshot.entry(table_key).location):
            layer = self._layer(table_key, form, name)
            if layer is None:
                continue
            if form == "lookup":
                self._added_texts(table_key, layer, name)
            else:
                self._added_column(table_key, layer, name)

    def fold(self, table_key: str, layer: Layer) -> None:
        """Make columns and look-ups of this version of all that are cached of a layer's base."""
        values, lookups = self.cache.forms_of(layer.base)
        self._fold(table_key, values)
        entry = self.snapshot.entry(table_key)
        for name in lookups:
            base = self.cache.lookup_at(layer.base, name)
            if base is not None and self.cache.text_lookup(entry, name) is None:
                read = self._added_reader(table_key, layer)
                lookup = LayeredLookup(base, layer, name, read).folded()
                self.cache.keep_lookup(entry, name, lookup, self._version(table_key))

    def _open_version(self, at: DatasetVersion) -> DatasetHandle:
        datasets = self.snapshot.datasets
        return datasets.open(at.location, branch=at.branch, version=at.version)

    def _added_column(self, table_key: str, layer: Layer, name: str) -> pa.Array:
        """Return a column of the added rows of a layer; what is read is counted."""
        is_new = not layer.has_column(name)
        found = layer.column(name, self._added_reader(table_key, layer))
        if is_new:
            self.cache.count_layer(self.snapshot.entry(table_key).at, layer)
        return found

    def _added_texts(self, table_key: str, layer: Layer, name: str) -> None:
        """Arrange the added rows of a layer by their texts in a column."""
        if not layer.has_rows_of(name):
            layer.rows_of(name, self._added_reader(table_key, layer))
            self.cache.count_layer(self.snapshot.entry(table_key).at, layer)

    def _added_reader(self, table_key: str, layer: Layer) -> ReadColumn:
        def read(name: str) -> pa.Array:
            table = self.handle(table_key).take(layer.added.tolist(), [name])
            return one_array(table[name])

        return read

    def _read(self, table_key: str, row_ids: RowIds, columns: list[str]) -> dict[str, pa.Array]:
        if not len(row_ids):
            schema = self.handle(table_key).schema
            return {name: pa.array([], schema.field(name).type) for name in columns}
        if len(row_ids) * TAKE_SHARE_MAX > self.row_count(table_key):
            found = self._whole(table_key, columns).at(row_ids, columns)
            if found is not None:
                return found
        self.guard.check()
        table = self.handle(table_key).take(row_ids.tolist(), columns)
        return {name: one_array(table[name]) for name in columns}

    def _whole(self, table_key: str, columns: Sequence[str]) -> _Held:
        wanted = frozenset(columns)
        for held in self._held.get(table_key, ()):
            if held.is_whole and wanted <= held.columns.keys():
                return held
        filed = self._from_files(table_key, columns)
        if filed is not None:
            self._held.setdefault(table_key, []).append(filed)
            return filed
        table = self._matching(table_key, columns, None)
        self.remember(table_key, table, is_whole=True)
        return self._held[table_key][-1]

    def _matching(
        self, table_key: str, columns: Iterable[str], row_filter: Filter | None
    ) -> pa.Table:
        request = ScanRequest(columns=tuple(columns), row_filter=row_filter, with_row_id=True)
        return self.scan(table_key, request)


def _repeated_bytes(column: pa.Array, positions: RowIds) -> int:
    """Return how many bytes the values at some positions take, each as often as it is named."""
    width = _OFFSET_TYPES.get(column.type)
    if width is None or not len(column):
        return int(column.nbytes) * len(positions) // max(len(column), 1)
    offsets = np.frombuffer(column.buffers()[1], width)[column.offset :]
    present = positions[positions >= 0]
    return int((offsets[present + 1] - offsets[present]).sum(dtype=np.int64))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _is_nested(handle: DatasetHandle, name: str) -> bool:
    return bool(pa.types.is_nested(handle.schema.field(name).type))
