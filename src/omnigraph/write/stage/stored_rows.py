"""Finding stored rows: by an index for a few values, by one pass over the column for many.

1. Only the columns that were asked for are read.
2. A few values become a filter, which an index answers where there is one. Many are joined with a
   scan of the column: probing an index a hundred thousand times costs more than reading it all.
3. Rows that do not match are dropped slab by slab: memory follows the number of hits and one slab.
4. An empty table is not opened.
5. The result for a few ids is cached. Ids that will be looked up later can be named before
   (`expect`): one probe then answers for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.manifest import Entry
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.filters import OneOf
from omnigraph.store.records import ROW_ADDRESS, ROW_ID, ScanRequest
from omnigraph.write.stage.columns import Column, Mask, flat, is_in, places_in, slabs

PROBES_MAX: Final = 2_048
"""At most so many values become a filter."""
_PROBES_ALWAYS: Final = 64
_ROWS_PER_PROBE: Final = 100

_Row: TypeAlias = tuple[int, int]
"""Stable row id and address."""


@dataclass(frozen=True)
class Located:
    """For each of some ids: whether it is stored, and as which row. Zero where it is not."""

    found: Mask
    row_ids: npt.NDArray[np.uint64]
    addresses: npt.NDArray[np.uint64]

    @property
    def count(self) -> int:
        """How many are stored."""
        return int(np.count_nonzero(self.found))


class PublishedTables(Protocol):
    """Some tables at their published versions: a snapshot, or the part of one that a task got."""

    def entry(self, table_key: str) -> Entry:
        """Return the published entry of a table."""
        ...

    def open(self, table_key: str) -> DatasetHandle:
        """Open a table at its published version."""
        ...


class StoredRows:
    """Looks up the rows of one snapshot."""

    def __init__(self, snapshot: PublishedTables) -> None:
        self.snapshot = snapshot
        self._known: dict[str, dict[str, _Row | None]] = {}
        self._expected: dict[str, set[str]] = {}

    def expect(self, table_key: str, ids: Column) -> None:
        """Look up a few ids together with the next ones that are asked for."""
        if len(ids) <= _PROBES_ALWAYS:
            self._expected.setdefault(table_key, set()).update(flat(ids).to_pylist())

    def entry(self, table_key: str) -> Entry:
        """Return the published entry of a table."""
        return self.snapshot.entry(table_key)

    def row_count(self, table_key: str) -> int:
        """How many rows a table has, from the manifest alone."""
        return self.entry(table_key).row_count

    def contains(self, table_key: str, ids: Column) -> Mask:
        """Return which ids are stored."""
        if not len(ids) or not self.row_count(table_key):
            return np.zeros(len(ids), np.bool_)
        if len(ids) <= _PROBES_ALWAYS:
            rows = self._rows_of(table_key, ids)
            return np.array([row is not None for row in rows], np.bool_)
        return is_in(ids, self.where(table_key, "id", ids, columns=("id",))["id"])

    def locate(self, table_key: str, ids: Column) -> Located:
        """Find rows by id; `ids` are distinct."""
        located = Located(
            np.zeros(len(ids), np.bool_),
            np.zeros(len(ids), np.uint64),
            np.zeros(len(ids), np.uint64),
        )
        if not len(ids) or not self.row_count(table_key):
            return located
        if len(ids) <= _PROBES_ALWAYS:
            for number, row in enumerate(self._rows_of(table_key, ids)):
                if row is not None:
                    located.found[number] = True
                    located.row_ids[number], located.addresses[number] = row
            return located
        if self._few(len(ids), table_key):
            hits = self.where(table_key, "id", ids, columns=("id",), with_rows=True)
            _enter(located, hits, places_in(hits["id"], ids))
            return located
        request = ScanRequest(columns=("id",), with_row_id=True, with_row_address=True)
        reader = self.snapshot.open(table_key).scan(request)
        for slab in slabs(reader, reader.schema):
            _enter(located, slab, places_in(slab["id"], ids))
        return located

    def where(
        self,
        table_key: str,
        column: str,
        values: Column,
        *,
        columns: tuple[str, ...],
        with_rows: bool = False,
    ) -> pa.Table:
        """Read the rows whose `column` has one of the values; null is none of them.

        `with_rows` adds stable row ids and addresses.
        """
        handle = self.snapshot.open(table_key)
        distinct = pc.unique(flat(values)).drop_null()
        if self._few(len(distinct), table_key):
            request = probe(column, distinct, columns=columns, with_rows=with_rows)
            return handle.scan(request).read_all()
        return _joined(handle, column, distinct, columns=columns, with_rows=with_rows)

    def scan(
        self, table_key: str, columns: tuple[str, ...], *, with_addresses: bool = False
    ) -> Iterator[pa.Table]:
        """Read columns of the whole table, slab by slab."""
        if not self.row_count(table_key):
            return
        request = ScanRequest(columns=columns, with_row_address=with_addresses)
        reader = self.snapshot.open(table_key).scan(request)
        yield from slabs(reader, reader.schema)

    def _rows_of(self, table_key: str, ids: Column) -> list[_Row | None]:
        """Return row id and address of each of a few ids; None for an id that is not stored."""
        wanted = flat(ids).to_pylist()
        known = self._known.setdefault(table_key, {})
        if not known.keys() >= set(wanted):
            expected = self._expected.pop(table_key, set())
            asked = list(({*wanted} | expected) - known.keys() - {None})
            if len(asked) > PROBES_MAX:
                asked = list({*wanted} - known.keys() - {None})
            known |= dict.fromkeys({*asked, *wanted} - known.keys())
            if asked:
                found = self.snapshot.open(table_key).find("id", asked)
                columns = (found[name].to_pylist() for name in ("id", ROW_ID, ROW_ADDRESS))
                known |= {name: (row, at) for name, row, at in zip(*columns, strict=True)}
        return [known[name] for name in wanted]

    def _few(self, count: int, table_key: str) -> bool:
        if count <= _PROBES_ALWAYS:
            return True
        return count <= PROBES_MAX and count * _ROWS_PER_PROBE <= self.row_count(table_key)


def probe(
    column: str, values: pa.Array, *, columns: tuple[str, ...], with_rows: bool = False
) -> ScanRequest:
    """Ask for the rows that have one of a few values; literals have the column's exact type."""
    return ScanRequest(
        columns=columns,
        row_filter=OneOf(column, tuple(values)),
        with_row_id=with_rows,
        with_row_address=with_rows,
    )


def _enter(located: Located, rows: pa.Table, numbers: pa.Array) -> None:
    """Enter rows under the numbers of their ids; rows without a number are not looked for."""
    hits = np.flatnonzero(numbers.is_valid().to_numpy(zero_copy_only=False))
    at = numbers.drop_null().to_numpy()
    located.found[at] = True
    located.row_ids[at] = flat(rows[ROW_ID]).to_numpy()[hits]
    located.addresses[at] = flat(rows[ROW_ADDRESS]).to_numpy()[hits]


def _joined(
    handle: DatasetHandle,
    column: str,
    values: pa.Array,
    *,
    columns: tuple[str, ...],
    with_rows: bool,
) -> pa.Table:
    asked = columns if column in columns else (*columns, column)
    request = ScanRequest(columns=asked, with_row_id=with_rows, with_row_address=with_rows)
    reader = handle.scan(request)
    found = [
        slab.filter(pa.array(is_in(slab[column], values))) for slab in slabs(reader, reader.schema)
    ]
    table = pa.concat_tables(found) if found else reader.schema.empty_table()
    return table if column in columns else table.drop_columns([column])
