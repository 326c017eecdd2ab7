"""What one state of a dataset has that another has not, at a cost in proportion to that.

Derived data is made for one state, the *base*. For a later state, or one of another branch, only
the rows are needed that the two do not have in common:

1. A fragment with the same data files holds the same rows under the same row ids. Where its
   deletion file is another one, the rows that it names more are removed.
2. All rows of fragments that the base lacks are added, all rows of fragments that only the base has
   are removed. A row that was rewritten is in both lists, under one row id.
3. A compaction moves rows to new fragments. Where these are large, rows that were not written since
   the base are in neither list: Lance keeps, for every row, the version that wrote it last.
4. Rows are found from manifests and deletion files; columns are read for added rows only. What was
   read of a small fragment stays in memory, for all versions and branches that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.cache import BoundedCache
from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.search.table_state import FragmentState, TableState
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import ROW_ADDRESS, ROW_ID, ROW_UPDATED, DatasetVersion, ScanRequest

RowIds: TypeAlias = npt.NDArray[np.uint64]

ROWS_MAX: Final = 50_000
"""A difference of more rows is not small: what depends on it is made anew."""
COMPARED_ROWS_MAX: Final = 4_096
"""Up to this many rows of replaced fragments are all removed and added; of more, only those that
were written since."""
_MEMORY_MAX_BYTES: Final = 32 << 20
_SHARES_MIN: Final = 8
_STATE_FRAGMENTS_MAX: Final = 1 << 17
"""How many fragments all cached states may have together; one takes a few hundred bytes."""
_WIDE_ROWS_MAX: Final = 256
"""Of up to this many rows all columns are read at once."""
_ENTRY_BYTES: Final = 512
"""What a cached fragment takes in any case."""
_OFFSET_BITS: Final = np.uint64(32)
_NONE: Final = np.empty(0, np.uint64)


@dataclass(frozen=True, eq=False)
class _FragmentColumns:
    """Columns of the live rows of one fragment of one state, in row order."""

    row_ids: RowIds
    columns: dict[str, pa.Array] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        values = sum(int(column.nbytes) for column in self.columns.values())
        return _ENTRY_BYTES + self.row_ids.nbytes + values


@dataclass(frozen=True, eq=False)
class TableDelta:
    """The rows that two states do not have in common."""

    base: TableState
    state: TableState
    removed: RowIds
    """Rows of the base that the state has not, or has in another form; ascending."""
    added: RowIds
    """Rows of the state that the base has not, or has in another form; ascending."""
    fragments: tuple[FragmentState, ...]
    """Where the added rows are; empty when they are few rows of large fragments."""
    is_rewritten: bool = False
    """Whether rows were moved by a compaction, so that finding the difference took long."""

    @property
    def rows(self) -> int:
        """How many rows differ."""
        return len(self.removed) + len(self.added)


@dataclass(frozen=True, eq=False)
class _Sides:
    """The two states that are compared."""

    base: TableState
    state: TableState
    handle: DatasetHandle
    open_version: Callable[[DatasetVersion], DatasetHandle]

    def earlier(self) -> DatasetHandle:
        """Open the version of the base."""
        return self.open_version(self.base.at)

    def delta(
        self,
        removed: list[RowIds],
        added: list[RowIds],
        fragments: tuple[FragmentState, ...],
        *,
        is_rewritten: bool = False,
    ) -> TableDelta | None:
        """Return the difference, unless it is large."""
        gone, came = (np.sort(np.concatenate([_NONE, *parts])) for parts in (removed, added))
        if len(gone) + len(came) > ROWS_MAX:
            return None
        return TableDelta(self.base, self.state, gone, came, fragments, is_rewritten)


class TableDeltas:
    """Finds and reads differences; caches what it read. Safe to share between threads."""

    def __init__(self, *, bytes_max: int = _MEMORY_MAX_BYTES) -> None:
        self._columns: BoundedCache[_FragmentColumns] = BoundedCache(
            bytes_max // 2, shares_min=_SHARES_MIN
        )
        self._dead: BoundedCache[RowIds] = BoundedCache(bytes_max // 2, shares_min=_SHARES_MIN)

        self._states: BoundedCache[TableState] = BoundedCache(_STATE_FRAGMENTS_MAX)

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is cached."""
        return self._columns.size + self._dead.size

    def state_of(self, handle: DatasetHandle) -> TableState:
        """Return the state of an open version; it is read once."""
        known = self._states.get(handle.at)
        if known is None:
            known = TableState.of(handle)
            self._states.put(handle.at, known, 1 + len(known.fragments))
        return known

    def forget(self) -> None:
        """Drop everything from memory."""
        self._columns.clear()
        self._dead.clear()
        self._states.clear()

    def between(
        self,
        base: TableState,
        state: TableState,
        handle: DatasetHandle,
        open_version: Callable[[DatasetVersion], DatasetHandle],
    ) -> TableDelta | None:
        """Return what differs; None when it is much, or can no longer be found.

        `handle` reads `state`. The version of the base is opened if the state lacks files of it.
        """
        if base.at.location != state.at.location:
            return None
        try:
            return self._between(_Sides(base, state, handle, open_version))
        except OmnigraphError:
            # Cleanup has removed the version of the base, or its deletion file.
            return None

    def columns(
        self, delta: TableDelta, handle: DatasetHandle, names: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Return columns of the added rows, in their order."""
        if not len(delta.added):
            return {name: pa.array([], handle.schema.field(name).type) for name in names}
        if not delta.fragments:
            table = handle.take(delta.added.tolist(), list(names))
            return {name: table[name].combine_chunks() for name in names}
        parts = self._fragments(delta, handle, names)
        if len(parts) == 1 and len(delta.added) == 1:
            return {name: parts[0].columns[name] for name in names}
        order = pa.array(np.argsort(np.concatenate([part.row_ids for part in parts])))
        return {
            name: pa.concat_arrays([part.columns[name] for part in parts]).take(order)
            for name in names
        }

    # -- rows --------------------------------------------------------------------------------------

    def _between(self, sides: _Sides) -> TableDelta | None:
        before, after = sides.base.by_data, sides.state.by_data
        gone = tuple(one for name, one in before.items() if name not in after)
        came = tuple(one for name, one in after.items() if name not in before)
        removed: list[RowIds] = []
        for name, old in before.items():
            new = after.get(name)
            if new is None or new.identity == old.identity:
                continue
            lost = self._lost(sides, old, new)
            if lost is None:
                return None
            removed.append(lost)
        if gone:
            return self._replaced(sides, gone, came, removed)
        if _row_count(sides.handle, came) > ROWS_MAX:
            return None
        return sides.delta(removed, self._live(came, sides.handle), came)

    def _lost(self, sides: _Sides, old: FragmentState, new: FragmentState) -> RowIds | None:
        """Return the rows that a fragment has lost; None when it has won some."""
        now = self._deleted(sides.handle, new)
        if old.identity == old.data_identity:
            return now
        then = self._dead.get((sides.base.at.location, old.identity))
        if then is None:
            then = self._deleted(sides.earlier(), old)
        if not np.isin(then, now, assume_unique=True).all():
            return None
        return np.setdiff1d(now, then, assume_unique=True)

    def _replaced(
        self,
        sides: _Sides,
        gone: tuple[FragmentState, ...],
        came: tuple[FragmentState, ...],
        removed: list[RowIds],
    ) -> TableDelta | None:
        """Compare fragments that only the base has with those that only the state has."""
        earlier, base, state = sides.earlier(), sides.base, sides.state
        count = _row_count(earlier, gone) + _row_count(sides.handle, came)
        is_small = count <= COMPARED_ROWS_MAX
        is_later = base.lineage == state.lineage and base.at.version <= state.at.version
        if not is_small and not is_later:
            return None
        old = np.concatenate([_NONE, *self._live(gone, earlier)])
        new = np.concatenate([_NONE, *self._live(came, sides.handle)])
        if is_small:
            return sides.delta([*removed, old], [new], came)
        written = _written_since(sides.handle, came, base.at.version)
        is_new = ~np.isin(new, old, assume_unique=True) | np.isin(new, written, assume_unique=True)
        is_lost = ~np.isin(old, new[~is_new], assume_unique=True)
        return sides.delta([*removed, old[is_lost]], [new[is_new]], (), is_rewritten=True)

    def _live(self, fragments: Iterable[FragmentState], handle: DatasetHandle) -> list[RowIds]:
        return [self._live_rows(one, handle).row_ids for one in fragments]

    def _live_rows(self, fragment: FragmentState, handle: DatasetHandle) -> _FragmentColumns:
        """Return the row ids of a fragment's live rows, in row order, with what is cached."""
        key = _key(fragment, handle)
        known = self._columns.get(key)
        if known is None:
            row_ids: RowIds = handle.row_ids(fragment.fragment_id).to_numpy().astype(np.uint64)
            if fragment.identity != fragment.data_identity:
                dead = self._deleted(handle, fragment)
                row_ids = row_ids[~np.isin(row_ids, dead, assume_unique=True)]
            known = _FragmentColumns(row_ids)
            self._columns.put(key, known, known.nbytes)
        return known

    def _deleted(self, handle: DatasetHandle, fragment: FragmentState) -> RowIds:
        key = (handle.at.location, fragment.identity)
        known = self._dead.get(key)
        if known is None:
            known = handle.deleted_row_ids(fragment.fragment_id)
            self._dead.put(key, known, _ENTRY_BYTES + known.nbytes)
        return known

    # -- columns -----------------------------------------------------------------------------------

    def _fragments(
        self, delta: TableDelta, handle: DatasetHandle, names: Sequence[str]
    ) -> list[_FragmentColumns]:
        """Return the fragments of a difference with some columns; those not cached are read."""
        found = {one.fragment_id: self._live_rows(one, handle) for one in delta.fragments}
        missing = tuple(
            number for number, part in found.items() if not part.columns.keys() >= set(names)
        )
        if missing:
            found |= _written_or_read(handle, missing, found, names)
            for one in delta.fragments:
                if one.fragment_id in missing:
                    part = found[one.fragment_id]
                    self._columns.put(_key(one, handle), part, part.nbytes)
        return list(found.values())


def _row_count(handle: DatasetHandle, fragments: Sequence[FragmentState]) -> int:
    if not fragments:
        return 0
    numbers = {one.fragment_id for one in fragments}
    return sum(one.rows for one in handle.fragments() if one.fragment_id in numbers)


def _written_since(
    handle: DatasetHandle, fragments: Sequence[FragmentState], version: int
) -> RowIds:
    """Return the rows of fragments that were written after a version; reads no stored column."""
    request = ScanRequest(
        columns=(ROW_UPDATED,),
        with_row_id=True,
        fragment_ids=tuple(one.fragment_id for one in fragments),
    )
    table = handle.scan(request).read_all()
    row_ids: RowIds = table[ROW_ID].to_numpy()
    is_later: npt.NDArray[np.bool_] = table[ROW_UPDATED].to_numpy() > version
    return row_ids[is_later]


def _key(fragment: FragmentState, handle: DatasetHandle) -> Hashable:
    # Two branches may have filled a new column of the same number with other values.
    return handle.at.location, fragment.identity, fragment.files, handle.column_ids


def _written_or_read(
    handle: DatasetHandle,
    numbers: tuple[int, ...],
    known: dict[int, _FragmentColumns],
    names: Sequence[str],
) -> dict[int, _FragmentColumns]:
    """Return fragments with some columns: from what this process wrote, else from files."""
    found: dict[int, _FragmentColumns] = {}
    for number in numbers:
        rows = handle.written_rows(number)
        if rows is not None and set(names) <= set(rows.column_names):
            found[number] = _written(handle, number, rows, known[number], names)
    rest = tuple(number for number in numbers if number not in found)
    if rest:
        found |= _read(handle, rest, known, _worthwhile(handle, rest, known, names))
    return found


def _written(
    handle: DatasetHandle,
    number: int,
    rows: pa.Table,
    known: _FragmentColumns,
    names: Sequence[str],
) -> _FragmentColumns:
    if rows.num_rows != len(known.row_ids):
        row_ids = handle.row_ids(number).to_numpy()
        rows = rows.filter(pa.array(np.isin(row_ids, known.row_ids)))
    stored = handle.schema
    columns = {name: _one_array(rows[name].cast(stored.field(name).type)) for name in names}
    return _FragmentColumns(known.row_ids, {**known.columns, **columns})


def _worthwhile(
    handle: DatasetHandle,
    numbers: tuple[int, ...],
    known: dict[int, _FragmentColumns],
    names: Sequence[str],
) -> tuple[str, ...]:
    """Return which columns to read: of few rows all plain ones, because a scan costs more."""
    if sum(len(known[number].row_ids) for number in numbers) > _WIDE_ROWS_MAX:
        return tuple(names)
    plain = (field.name for field in handle.schema if not pa.types.is_nested(field.type))
    return tuple(dict.fromkeys([*names, *plain]))


def _read(
    handle: DatasetHandle,
    numbers: tuple[int, ...],
    known: dict[int, _FragmentColumns],
    names: Sequence[str],
) -> dict[int, _FragmentColumns]:
    """Read columns of some fragments at once; keep those that are known."""
    request = ScanRequest(
        columns=tuple(names),
        with_row_id=True,
        with_row_address=len(numbers) > 1,
        fragment_ids=numbers,
    )
    table = handle.scan(request).read_all().combine_chunks()
    if len(numbers) == 1:
        return {numbers[0]: _part(table, known[numbers[0]], names)}
    owners = table[ROW_ADDRESS].to_numpy() >> _OFFSET_BITS
    return {
        number: _part(table.filter(pa.array(owners == number)), known[number], names)
        for number in numbers
    }


def _part(table: pa.Table, known: _FragmentColumns, names: Sequence[str]) -> _FragmentColumns:
    read = {name: _one_array(table[name]) for name in names}
    row_ids: RowIds = table[ROW_ID].to_numpy().astype(np.uint64)
    kept = known.columns if np.array_equal(row_ids, known.row_ids) else {}
    return _FragmentColumns(row_ids, {**kept, **read})


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
