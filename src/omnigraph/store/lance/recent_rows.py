"""Rows of small new fragments, cached by a column of unique values.

A look-up by value asks an index, and reads every fragment that the index does not cover yet. After
some small writes those fragments are most of its cost: fifty of them take three times as long as
the index.

1. A fragment is named by its number and its files. With other files it is another one, so nothing
   that is remembered is ever wrong.
2. Fragments that are remembered are left out of the scan; Lance reads everything else.
3. Only small fragments are read, several at once, and the number of those remembered is bounded.
   Losing one costs time only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from omnigraph.store.records import ROW_ADDRESS, ROW_ID, DatasetVersion, IndexInfo, ScanRequest

ROWS_MAX: Final = 64
"""Larger fragments are not worth a Python object per row."""
UNREAD_MAX: Final = 8
"""This many fragments are read by every look-up before they are remembered together."""
_FRAGMENTS_MAX: Final = 2_048

RowAddress: TypeAlias = tuple[int, int]
"""Stable row id and address."""
_Name: TypeAlias = tuple[str, str, int, str]


class OpenVersion(Protocol):
    """What is needed of an open version."""

    @property
    def at(self) -> DatasetVersion:
        """Which version this is."""
        ...

    def indexes(self) -> tuple[IndexInfo, ...]:
        """Return the committed indexes."""
        ...

    def fragment_ids(self) -> list[int]:
        """Return the numbers of the fragments."""
        ...

    def files_of(self, fragment_ids: Sequence[int]) -> Iterator[tuple[int, int, str]]:
        """Yield number, rows with deleted ones, and files of each fragment."""
        ...

    def scan(self, request: ScanRequest | None = None) -> pa.RecordBatchReader:
        """Return rows as a stream."""
        ...


class RecentRows:
    """What one store remembers. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached: OrderedDict[_Name, Mapping[str, RowAddress]] = OrderedDict()

    def of(self, handle: OpenVersion, column: str) -> dict[int, Mapping[str, RowAddress]]:
        """Return the rows of remembered fragments of a version, by fragment and value."""
        covered = {
            number
            for index in handle.indexes()
            if index.columns == (column,)
            for segment in index.segments
            for number in segment.fragment_ids
        }
        new = [number for number in handle.fragment_ids() if number not in covered]
        if len(new) < UNREAD_MAX:
            return {}
        names = {
            number: (handle.at.location, column, number, files)
            for number, rows, files in handle.files_of(new)
            if rows <= ROWS_MAX
        }
        with self._lock:
            rows_of = {number: self._cached.get(name) for number, name in names.items()}
        unread = [number for number, rows in rows_of.items() if rows is None]
        if len(unread) >= UNREAD_MAX:
            read = _read(handle, column, unread)
            self._remember({names[number]: rows for number, rows in read.items()})
            rows_of |= read
        return {number: rows for number, rows in rows_of.items() if rows is not None}

    def _remember(self, read: Mapping[_Name, Mapping[str, RowAddress]]) -> None:
        with self._lock:
            self._cached |= read
            while len(self._cached) > _FRAGMENTS_MAX:
                self._cached.popitem(last=False)


def _read(
    handle: OpenVersion, column: str, numbers: Sequence[int]
) -> dict[int, dict[str, RowAddress]]:
    request = ScanRequest(
        columns=(column,), with_row_id=True, with_row_address=True, fragment_ids=tuple(numbers)
    )
    table = handle.scan(request).read_all()
    found: dict[int, dict[str, RowAddress]] = {number: {} for number in numbers}
    columns = (table[name].to_pylist() for name in (column, ROW_ID, ROW_ADDRESS))
    for value, row_id, address in zip(*columns, strict=True):
        found[address >> 32][value] = (row_id, address)
    return found
