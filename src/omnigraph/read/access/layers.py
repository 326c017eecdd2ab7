"""One version of a dataset over another one whose columns are in memory.

1. A *layer* holds the rows in which the two versions differ. A value comes from the layer when its
   row is one of those that were added, else from the column of the base.
2. Layers are found by the files of both versions (`omnigraph.search.table_delta`), so they serve
   later versions, earlier ones and those of other branches. Both versions have the same schema:
   after a change of it the same name may stand for another column.
3. A query over all rows needs one array. It folds the layer into a column of its own version, which
   is the base of later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.read.access.text_lookup import TextLookup, build_text_lookup
from omnigraph.read.row_table import NULL, Mask, RowIds, is_ascending
from omnigraph.search.table_delta import TableDelta
from omnigraph.search.table_state import TableState
from omnigraph.store.records import DatasetVersion

_TEXT_BYTES: Final = 200
"""What a text takes with its list of rows."""

ReadColumn: TypeAlias = Callable[[str], pa.Array]
"""Reads a column of added rows."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The rows in which a version differs from a base."""

    base: DatasetVersion
    state: TableState
    removed: RowIds
    """Rows of the base that the version has not, or has in another form; ascending."""
    added: RowIds
    """Rows of the version that the base has not, or has in another form; ascending."""
    _read: ReadColumn | None = None
    """Reads columns of the added rows; None where they were added in several steps."""
    _columns: dict[str, pa.Array] = field(default_factory=dict)
    _rows_of: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, delta: TableDelta, read: ReadColumn) -> Layer:
        """Make the layer of a difference; `read` reads columns of the added rows."""
        removed, added = delta.removed.astype(np.int64), delta.added.astype(np.int64)
        return cls(delta.base.at, delta.state, removed, added, read)

    def then(self, delta: TableDelta, read: ReadColumn) -> Layer:
        """Return the layer of a later version; `read` reads columns of what was added since."""
        gone, came = delta.removed.astype(np.int64), delta.added.astype(np.int64)
        keep = ~_is_among(self.added, gone)
        joined = np.concatenate([self.added[keep], came])
        order = None if is_ascending(joined) else np.argsort(joined, kind="stable")

        def merged(column: pa.Array, more: pa.Array) -> pa.Array:
            kept = column if keep.all() else column.filter(pa.array(keep))
            both = pa.concat_arrays([kept, more.cast(kept.type)])
            return both if order is None else both.take(pa.array(order))

        return Layer(
            self.base,
            delta.state,
            np.union1d(self.removed, gone[~_is_among(gone, self.added)]),
            joined if order is None else joined[order],
            None,
            # A copy: other threads may add columns meanwhile.
            {name: merged(column, read(name)) for name, column in dict(self._columns).items()},
        )

    @property
    def rows(self) -> int:
        """How many rows differ."""
        return len(self.removed) + len(self.added)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of the columns read so far."""
        columns = sum(int(column.nbytes) for column in list(self._columns.values()))
        texts = _TEXT_BYTES * sum(map(len, list(self._rows_of.values())))
        return self.removed.nbytes + self.added.nbytes + columns + texts

    def has_column(self, name: str) -> bool:
        """Whether a column of the added rows is in memory."""
        return name in self._columns

    def has_rows_of(self, name: str) -> bool:
        """Whether the added rows are arranged by their texts in a column."""
        return name in self._rows_of

    def column(self, name: str, read: ReadColumn) -> pa.Array:
        """Return a column of the added rows; `read` reads it where that has to be done row by row.

        Once made, a column is never changed, so threads that make it twice do no harm.
        """
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = (self._read or read)(name)
        return found

    def find(self, name: str, text: str, read: ReadColumn) -> RowIds:
        """Return the added rows that have a text, ascending."""
        return np.array(self.rows_of(name, read).get(text, ()), np.int64)

    def rows_of(self, name: str, read: ReadColumn) -> dict[str, list[int]]:
        """Return the added rows by the text that they have in a column."""
        found = self._rows_of.get(name)
        if found is None:
            found = {}
            texts = self.column(name, read).to_pylist()
            for text, row_id in zip(texts, self.added.tolist(), strict=True):
                found.setdefault(text, []).append(row_id)
            self._rows_of[name] = found
        return found

    def is_removed(self, row_ids: RowIds) -> Mask:
        """Return which rows the base has and this version has not, or has otherwise."""
        return _is_among(row_ids, self.removed)

    def folded_rows(self, base: RowIds) -> RowIds:
        """Return all rows of the version, ascending, from those of the base."""
        kept = base[~self.is_removed(base)] if len(self.removed) else base
        order = self._order(kept)
        joined = np.concatenate([kept, self.added])
        return joined if order is None else joined[order]

    def fold_columns(self, base: RowIds) -> Callable[[pa.Array, pa.Array], pa.Array]:
        """Return how a column of the base becomes one of the version."""
        keep = ~self.is_removed(base)
        is_whole = bool(keep.all())
        order = self._order(base if is_whole else base[keep])

        def folded(values: pa.Array, added: pa.Array) -> pa.Array:
            kept = values if is_whole else values.filter(pa.array(keep))
            joined = pa.concat_arrays([kept, added.cast(kept.type)])
            return joined if order is None else joined.take(pa.array(order))

        return folded

    def _order(self, kept: RowIds) -> RowIds | None:
        joined = np.concatenate([kept, self.added])
        return None if is_ascending(joined) else np.argsort(joined, kind="stable")


def _is_among(values: RowIds, ascending: RowIds) -> Mask:
    if not len(ascending):
        return np.zeros(len(values), np.bool_)
    if len(values) > len(ascending) and is_ascending(values):
        found = np.zeros(len(values), np.bool_)
        places = np.searchsorted(values, ascending)
        places[places == len(values)] = 0
        found[places[values[places] == ascending]] = True
        return found
    places = np.searchsorted(ascending, values)
    places[places == len(ascending)] = 0
    return np.asarray(ascending[places] == values)


@dataclass(frozen=True, eq=False)
class RowPositions:
    """The row ids of one dataset version, ascending: the position of each row in cached columns."""

    row_ids: RowIds

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.row_ids)

    @cached_property
    def _is_dense(self) -> bool:
        return self.count > 0 and int(self.row_ids[-1] - self.row_ids[0]) == self.count - 1

    def positions(self, row_ids: RowIds) -> RowIds | None:
        """Return where rows are, in any order and `NULL` for `NULL`; None if one is unknown."""
        if row_ids is self.row_ids or not len(row_ids):
            return np.arange(len(row_ids), dtype=np.int64)
        if not self.count:
            return None
        if len(row_ids) == 1:
            return self._position(row_ids)
        is_null = row_ids == NULL
        has_null = bool(is_null.any())
        if self._is_dense:
            found = row_ids - self.row_ids[0]
            is_known = (found >= 0) & (found < self.count)
        else:
            found = np.searchsorted(self.row_ids, row_ids)
            found[found == self.count] = 0
            is_known = self.row_ids[found] == row_ids
        if has_null:
            found = np.where(is_null, NULL, found)
            is_known |= is_null
        return found if bool(is_known.all()) else None

    def _position(self, row_ids: RowIds) -> RowIds | None:
        """Return where one row is: less work than for many, and the most common case."""
        if row_ids[0] == NULL:
            return row_ids
        found = self.row_ids.searchsorted(row_ids)
        at = int(found[0])
        return found if at < self.count and self.row_ids[at] == row_ids[0] else None


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the values of some rows are: in the columns of a base, and in a layer over it."""

    base: RowIds
    """Positions in the columns of the base, `NULL` for `NULL`."""
    added: RowIds | None = None
    """Positions in the columns of the layer."""
    order: RowIds | None = None
    """Positions of the rows among the values of the base and of the layer behind them."""

    def take(self, column: pa.Array, added: pa.Array | None) -> pa.Array:
        """Return the values of a column; `added` is that of the layer."""
        values = _taken(column, self.base)
        if added is None or self.added is None:
            return values
        joined = pa.concat_arrays([values, added.take(pa.array(self.added)).cast(column.type)])
        return joined.take(pa.array(self.order))


def placement(rows: RowPositions, layer: Layer | None, row_ids: RowIds) -> Placement | None:
    """Find rows in any order, `NULL` included; None if one of them is unknown."""
    if layer is None or not len(layer.added):
        positions = rows.positions(row_ids)
        return None if positions is None else Placement(positions)
    places = np.searchsorted(layer.added, row_ids)
    places[places == len(layer.added)] = 0
    is_added = layer.added[places] == row_ids
    if not is_added.any():
        positions = rows.positions(row_ids)
        return None if positions is None else Placement(positions)
    is_base = ~is_added
    positions = rows.positions(row_ids[is_base])
    if positions is None:
        return None
    order = np.empty(len(row_ids), np.int64)
    order[is_base] = np.arange(len(positions))
    order[is_added] = np.arange(len(row_ids) - len(positions)) + len(positions)
    return Placement(positions, places[is_added], order)


def _taken(column: pa.Array, positions: RowIds) -> pa.Array:
    if len(positions) == 1 and positions[0] != NULL:
        # Much quicker than `take`. Joined with nothing it is a copy: it does not hold the column.
        at = int(positions[0])
        return pa.concat_arrays([column.slice(at, 1), column.slice(0, 0)])
    is_null = positions == NULL
    picks = pa.array(positions, mask=is_null) if is_null.any() else pa.array(positions)
    return column.take(picks)


class FoundRows:
    """Where rows are, found once for all columns that a query fetches of them."""

    def __init__(self) -> None:
        self._asked: RowIds | None = None
        self._found: list[tuple[RowPositions, Layer | None, Placement | None]] = []

    def of(self, rows: RowPositions, layer: Layer | None, row_ids: RowIds) -> Placement | None:
        """Return where rows are; those of the last call cost nothing."""
        if row_ids is not self._asked:
            self._asked, self._found = row_ids, []
        for known_rows, known_layer, known in self._found:
            if known_rows is rows and known_layer is layer:
                return known
        found = placement(rows, layer, row_ids)
        self._found.append((rows, layer, found))
        return found


@dataclass(frozen=True, eq=False)
class Resident:
    """A column in memory, of the version that is read or of another one with a layer over it."""

    rows: RowPositions
    values: pa.Array
    found_rows: FoundRows
    layer: Layer | None = None
    added: pa.Array | None = None

    def place(self, row_ids: RowIds) -> Placement | None:
        """Return where rows are; None if one is unknown."""
        return self.found_rows.of(self.rows, self.layer, row_ids)

    def at(self, row_ids: RowIds) -> pa.Array:
        """Return the values of rows, all of which must be known."""
        place = self.place(row_ids)
        if place is None:
            raise LookupError("a row is not in memory")
        if self.layer is None and row_ids is self.rows.row_ids:
            return self.values
        return place.take(self.values, self.added)


@dataclass(frozen=True, eq=False)
class LayeredLookup:
    """The look-up form of a column of another version, with a layer over it."""

    base: TextLookup
    layer: Layer
    column: str
    read: ReadColumn

    def find(self, text: str) -> RowIds:
        """Return the rows that have a text, ascending."""
        found = self.base.find(text)
        if len(found) and len(self.layer.removed):
            found = found[~self.layer.is_removed(found)]
        more = self.layer.find(self.column, text, self.read)
        if not len(more):
            return found
        return more if not len(found) else np.sort(np.concatenate([found, more]))

    def folded(self) -> TextLookup:
        """Return the look-up form of the version itself."""
        keep = ~self.layer.is_removed(self.base.row_ids)
        kept = self.base.texts if keep.all() else self.base.texts.filter(pa.array(keep))
        texts = self.layer.column(self.column, self.read)
        return build_text_lookup(
            pa.concat_arrays([kept, texts.cast(kept.type)]),
            np.concatenate([self.base.row_ids[keep], self.layer.added]),
        )
