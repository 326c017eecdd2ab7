"""Columns that stay in memory between queries, by published version of their dataset.

1. A published version never changes, so a cached column of it is valid for ever. Another version
   uses it through a layer of the rows that differ (`omnigraph.read.access.layers`). Of one lineage
   only the `RECENT_VERSIONS_MAX` versions that were used last keep their columns; using a layer
   uses its base.
2. A column is cached in up to three forms: its values, their codes for grouping, and a
   `TextLookup` for `property = text`. Values are cached when a query has read all of them anyway.
   Values and look-ups are also read as a whole once a column has been used several times, in one
   version or in several of a lineage.
3. Vectors, lists and blobs are never cached.
4. Memory is bounded by bytes, least recently used first: a third of it is for look-ups, the rest
   for values and codes, none of which may take more than a quarter of that rest.
5. Layers take memory of the same bound. One of many rows is folded into columns of its own version
   in the background.
6. Where a folder for them is named, large columns and look-ups are mapped from files, which other
   processes map too (`omnigraph.read.access.column_files`).
7. Everything here is derived: losing it costs time only.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from omnigraph.cache import RECENT_VERSIONS_MAX, BoundedCache, BoundedCounter
from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.manifest.rows import Entry
from omnigraph.read.access.column_files import ColumnFiles
from omnigraph.read.access.layers import Layer, RowPositions
from omnigraph.read.access.text_lookup import TextLookup
from omnigraph.read.access.value_codes import Coded, coded
from omnigraph.read.row_table import RowIds
from omnigraph.schema import Catalog
from omnigraph.search.table_state import TableState
from omnigraph.store.background import Background, InThreads
from omnigraph.store.records import DatasetVersion

_V = TypeVar("_V")

Form: TypeAlias = Literal["rows", "values", "codes", "lookup"]

MEMORY_MIB: Final = "OMNIGRAPH_READ_COLUMNS_MIB"
MEMORY_MIB_DEFAULT: Final = 768
USES_MIN: Final = 4
"""Uses of one column before it is read as a whole."""
_USES_PER_READ: Final = 256
_ROWS_MAX: Final = 16_000_000
_LOOKUP_ROWS_MAX: Final = 4_000_000
_COUNTERS_MAX: Final = 4_096
_LOOKUP_SHARE: Final = 3
_LAYER_SHARE: Final = 16
_FILES_SHARE: Final = 2
"""Files of a folder may take so many times the memory: processes may read different columns."""
_LAYERS_MAX: Final = 1_024
_LAYER_BYTES: Final = 256
"""What a layer takes apart from its rows, and what it holds about each fragment."""
_LAYERS_PER_FOLD: Final = 64
_VERSION_FRAGMENTS_MAX: Final = 1 << 17
"""How many fragments all known versions may have together; one takes a few hundred bytes."""
_COLUMN_SHARES_MIN: Final = 4
_BYTES_PER_MIB: Final = 1 << 20


class ReadMemoryError(InvalidInputError):
    """The environment variable for the memory of cached columns is not a whole number."""

    code = "OG-READ-MEMORY"
    hint = "unset it, or give a number such as 1024"
    template = f"{MEMORY_MIB} must be a whole number of MiB, and is '{{value}}'"
    value: str


def column_memory(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many bytes the cached columns of one graph may take; an empty value is no value.

    >>> column_memory({MEMORY_MIB: "2"})
    2097152
    """
    text = environment.get(MEMORY_MIB, "").strip()
    if not text:
        return MEMORY_MIB_DEFAULT * _BYTES_PER_MIB
    if not text.isascii() or not text.isdigit():
        raise ReadMemoryError(text)
    return int(text) * _BYTES_PER_MIB


@dataclass(frozen=True, eq=False)
class Version:
    """What a version of which something is cached is made of."""

    state: TableState
    catalog: Catalog
    schema_hash: str = ""

    def parts(self, form: Form, column: str = "") -> tuple[str, ...]:
        """Return what something that is cached of a column was made from."""
        at = self.state.at
        made_from = (self.state.key, str(at.branch), str(at.version), self.schema_hash)
        return (*made_from, form, column)


class NoLayer:
    """There can be no layer of a version over another one."""


class _Key(NamedTuple):
    """What a cached value was made from."""

    at: DatasetVersion
    form: Form
    column: str = ""


class ColumnCache:
    """The cached columns of one graph. Safe to share between threads."""

    def __init__(
        self,
        *,
        bytes_max: int | None = None,
        uses_min: int = USES_MIN,
        background: Background | None = None,
        files: ColumnFiles | None = None,
    ) -> None:
        total = column_memory() if bytes_max is None else bytes_max
        self._files = files or ColumnFiles.of(os.environ, _FILES_SHARE * total)
        self._uses_min = uses_min
        self._lookup_bytes_max = total // _LOOKUP_SHARE
        layer_bytes_max = total // _LAYER_SHARE
        self._column_bytes_max = total - self._lookup_bytes_max - layer_bytes_max
        self._columns: BoundedCache[pa.Array | RowPositions | Coded] = BoundedCache(
            self._column_bytes_max, shares_min=_COLUMN_SHARES_MIN
        )
        self._lookups: BoundedCache[TextLookup] = BoundedCache(self._lookup_bytes_max)
        self._layers: BoundedCache[Layer | NoLayer] = BoundedCache(
            layer_bytes_max, entries_max=_LAYERS_MAX
        )
        self._latest: BoundedCache[DatasetVersion] = BoundedCache(_LAYERS_MAX)
        self._versions: BoundedCache[Version] = BoundedCache(_VERSION_FRAGMENTS_MAX)
        self._uses = BoundedCounter(_COUNTERS_MAX)
        self._folds = BoundedCounter(_COUNTERS_MAX)
        self.background = background or InThreads(1, "omnigraph-columns")

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is cached."""
        return self._columns.size + self._lookups.size + self._layers.size

    @property
    def has_lookups(self) -> bool:
        """Whether there is any memory for look-ups."""
        return self._lookup_bytes_max > 0

    def forget(self) -> None:
        """Drop everything from memory, and let threads end; files stay."""
        self.background.end_threads()
        self._columns.clear()
        self._lookups.clear()
        self._layers.clear()
        self._latest.clear()
        self._versions.clear()

    def row_positions(self, entry: Entry) -> RowPositions | None:
        """Return the row ids of a dataset version if they are cached."""
        found = self._columns.get(_Key(entry.at, "rows"))
        return found if isinstance(found, RowPositions) else None

    def column(self, entry: Entry, name: str) -> pa.Array | None:
        """Return a column by ascending row id if it is cached."""
        return self._columns.get(_Key(entry.at, "values", name))

    def codes(self, entry: Entry, name: str) -> Coded | None:
        """Return the codes of a cached column, for grouping; None when it is not cached."""
        key = _Key(entry.at, "codes", name)
        found = self._columns.get(key)
        if isinstance(found, Coded):
            return found
        column = self.column(entry, name)
        if column is None:
            return None
        made = coded(column)
        self._columns.put(key, made, made.codes.nbytes + made.values.nbytes)
        return made

    def text_lookup(self, entry: Entry, name: str) -> TextLookup | None:
        """Return the look-up form of a text column if it is cached."""
        return self._lookups.get(_Key(entry.at, "lookup", name))

    def is_due(self, entry: Entry, names: Sequence[str]) -> bool:
        """Count a fetch of some columns; return whether to read all of them as a whole now."""
        if not self._column_bytes_max or entry.row_count > _ROWS_MAX:
            return False
        lineage = entry.at.lineage
        return self._is_read_due(min([self._uses.add((lineage, name)) for name in names]))

    def is_lookup_due(self, entry: Entry, name: str) -> bool:
        """Count a look-up in a column; return whether to read it as a whole now."""
        if not self.has_lookups or entry.row_count > _LOOKUP_ROWS_MAX:
            return False
        return self._is_read_due(self._uses.add((entry.at.lineage, name, "lookup")))

    def _is_read_due(self, uses: float) -> bool:
        # Repeated rarely: a column that is too large to be cached must not be read at every use.
        return uses % _USES_PER_READ == self._uses_min

    def keep(
        self,
        entry: Entry,
        row_ids: RowIds,
        columns: Mapping[str, pa.Array],
        version: Version | None = None,
    ) -> None:
        """Cache whole columns of a dataset version, given by ascending row id.

        With `version` they can be the base of layers.
        """
        at = entry.at
        if self.row_positions(entry) is None:
            # All queries share it from now on, so it must not change.
            row_ids.setflags(write=False)
            row_ids = self._shared_rows(row_ids, version)
            self._columns.put(_Key(at, "rows"), RowPositions(row_ids), row_ids.nbytes)
        for name, column in columns.items():
            if not pa.types.is_nested(column.type) and self.column(entry, name) is None:
                values = self._shared(version, "values", name, {"values": column})["values"]
                self._columns.put(_Key(at, "values", name), values, values.nbytes)
        self._note(at, version)
        _keep_recent(self._columns, at)

    def keep_from_files(self, entry: Entry, names: Sequence[str], version: Version) -> bool:
        """Cache whole columns that other processes have stored; return whether all are there."""
        if self._files is None:
            return False
        rows = self._files.load(version.parts("rows"))
        found = {name: self._files.load(version.parts("values", name)) for name in names}
        if rows is None or any(arrays is None for arrays in found.values()):
            return False
        columns = {name: arrays["values"] for name, arrays in found.items() if arrays is not None}
        self.keep(entry, rows["row_ids"].to_numpy(), columns, version)
        return all(self.column(entry, name) is not None for name in names)

    def lookup_from_file(self, entry: Entry, name: str, version: Version) -> TextLookup | None:
        """Cache the look-up form of a column that another process has stored, and return it."""
        if self._files is None:
            return None
        found = self._files.load(version.parts("lookup", name))
        if found is None:
            return None
        lookup = _lookup(found)
        self.keep_lookup(entry, name, lookup, version)
        return lookup

    def _shared(
        self, version: Version | None, form: Form, name: str, arrays: Mapping[str, pa.Array]
    ) -> Mapping[str, pa.Array]:
        """Return arrays from a file that processes share, if there is a folder for them."""
        if self._files is None or version is None:
            return arrays
        return self._files.shared(version.parts(form, name), arrays)

    def _shared_rows(self, row_ids: RowIds, version: Version | None) -> RowIds:
        if self._files is None:
            return row_ids
        arrays = self._shared(version, "rows", "", {"row_ids": pa.array(row_ids)})
        found: RowIds = arrays["row_ids"].to_numpy()
        return found

    def keep_lookup(
        self, entry: Entry, name: str, lookup: TextLookup, version: Version | None = None
    ) -> None:
        """Cache the look-up form of a text column."""
        if self._files is not None:
            lookup = _lookup(self._shared(version, "lookup", name, _arrays(lookup)))
        self._lookups.put(_Key(entry.at, "lookup", name), lookup, lookup.nbytes)
        self._note(entry.at, version)
        _keep_recent(self._lookups, entry.at)

    def _note(self, at: DatasetVersion, version: Version | None) -> None:
        if version is not None:
            self._versions.put(at, version, 1 + len(version.state.fragments))

    # -- layers ------------------------------------------------------------------------------------

    def bases(
        self, entry: Entry, form: Form, name: str = ""
    ) -> list[tuple[DatasetVersion, Version]]:
        """Return the other versions of which a column is cached, the most similar first."""
        cache: BoundedCache[Any] = self._lookups if form == "lookup" else self._columns
        at = entry.at
        found = [
            key.at
            for key in cache.recent_keys()
            if isinstance(key, _Key)
            and key.form == form
            and key.column == name
            and key.at.location == at.location
            and key.at != at
        ]

        def distance(one: DatasetVersion) -> tuple[bool, int]:
            return one.lineage != at.lineage, abs(one.version - at.version)

        versions = [(one, self._versions.get(one)) for one in sorted(found, key=distance)]
        return [(one, version) for one, version in versions if version is not None]

    def layer(self, at: DatasetVersion, base: DatasetVersion) -> Layer | NoLayer | None:
        """Return the layer of a version over another one; None when it was not looked for."""
        return self._layers.get((at, base))

    def keep_layer(self, at: DatasetVersion, base: DatasetVersion, layer: Layer | NoLayer) -> None:
        """Cache a layer, or that there is none."""
        self._put_layer(at, base, layer)
        if isinstance(layer, Layer):
            self._latest.put((base, at.lineage), at, 1)

    def count_layer(self, at: DatasetVersion, layer: Layer) -> None:
        """Count the memory of a layer again, after a column of it was read."""
        self._put_layer(at, layer.base, layer)

    def _put_layer(self, at: DatasetVersion, base: DatasetVersion, layer: Layer | NoLayer) -> None:
        size = _LAYER_BYTES
        if isinstance(layer, Layer):
            size += layer.nbytes + _LAYER_BYTES * len(layer.state.fragments)
        self._layers.put((at, base), layer, size)

    def latest_layer(self, at: DatasetVersion, base: DatasetVersion) -> Layer | None:
        """Return the layer over a base that was made last for an earlier version of a lineage."""
        latest = self._latest.get((base, at.lineage))
        if latest is None or latest.version > at.version:
            return None
        found = self._layers.get((latest, base))
        return found if isinstance(found, Layer) else None

    def may_fold(self, layer: Layer) -> bool:
        """Whether layers over this base should be folded now: at first, and rarely once more."""
        return self._folds.add(layer.base) % _LAYERS_PER_FOLD == 1

    def forms_at(self, location: str) -> set[tuple[Form, str]]:
        """Return of which columns of a dataset something is cached, in any version."""
        keys = [*self._columns.recent_keys(), *self._lookups.recent_keys()]
        own = (key for key in keys if isinstance(key, _Key) and key.at.location == location)
        return {(key.form, key.column) for key in own if key.form in ("values", "lookup")}

    def forms_of(self, at: DatasetVersion) -> tuple[list[str], list[str]]:
        """Return of which columns of a version the values and the look-up form are cached."""
        keys = [*self._columns.recent_keys(), *self._lookups.recent_keys()]
        own = [key for key in keys if isinstance(key, _Key) and key.at == at]
        values = [key.column for key in own if key.form == "values"]
        return values, [key.column for key in own if key.form == "lookup"]

    def column_at(self, at: DatasetVersion, name: str) -> tuple[RowPositions, pa.Array] | None:
        """Return a column of any version with its rows, if both are cached."""
        rows = self._columns.get(_Key(at, "rows"))
        column = self._columns.get(_Key(at, "values", name))
        if not isinstance(rows, RowPositions) or column is None:
            return None
        return rows, column

    def rows_at(self, at: DatasetVersion) -> RowPositions | None:
        """Return the row ids of any version if they are cached."""
        rows = self._columns.get(_Key(at, "rows"))
        return rows if isinstance(rows, RowPositions) else None

    def lookup_at(self, at: DatasetVersion, name: str) -> TextLookup | None:
        """Return the look-up form of a column of any version if it is cached."""
        return self._lookups.get(_Key(at, "lookup", name))


def _arrays(lookup: TextLookup) -> dict[str, pa.Array]:
    return {
        "hashes": pa.array(lookup.hashes),
        "texts": lookup.texts,
        "row_ids": pa.array(lookup.row_ids),
    }


def _lookup(arrays: Mapping[str, pa.Array]) -> TextLookup:
    hashes, row_ids = arrays["hashes"].to_numpy(), arrays["row_ids"].to_numpy()
    return TextLookup(hashes, arrays["texts"], row_ids)


def _keep_recent(cache: BoundedCache[_V], version: DatasetVersion) -> None:
    """Drop what was made from versions of the same lineage that are no longer used."""

    def group_of(key: Hashable, _: object) -> DatasetVersion | None:
        if isinstance(key, _Key) and key.at.lineage == version.lineage:
            return key.at
        return None

    cache.keep_recent(RECENT_VERSIONS_MAX, group_of)
