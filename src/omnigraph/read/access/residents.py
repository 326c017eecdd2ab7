"""Text columns that stay in memory because they are asked for again and again.

1. A column becomes resident when it has been looked up several times in one published version;
   a new version starts again. Residents are derived: losing one costs time only.
2. A look-up compares hashes first and the texts themselves after: it is exact.
3. Memory is bounded by bytes, the least recently used column goes first, and one that is too large
   by itself is never read for this.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.access.kept_columns import key_memory
from omnigraph.read.access.tables import TableReader
from omnigraph.read.rows import RowIds
from omnigraph.search.cache import BoundedCache

LOOKUPS_MIN: Final = 4
"""Look-ups of one column before it is read as a whole."""
_LOOKUPS_PER_READ: Final = 256
_ROWS_MAX: Final = 4_000_000
_COUNTERS_MAX: Final = 1_024
_HASHED_BYTES_MAX: Final = 64
"""Longer texts are hashed by their beginning and their length."""
_FNV_OFFSET: Final = 14_695_981_039_346_656_037
_FNV_PRIME: Final = 1_099_511_628_211
_WORD: Final = (1 << 64) - 1

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class ResidentColumn:
    """One text column: its rows in the order of their hashes."""

    hashes: Hashes
    texts: pa.Array
    row_ids: RowIds

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        return int(self.hashes.nbytes + self.texts.nbytes + self.row_ids.nbytes)

    def find(self, text: str) -> RowIds:
        """Return the rows that have this text, ascending."""
        wanted = np.uint64(text_hash(text))
        first = int(np.searchsorted(self.hashes, wanted, side="left"))
        last = int(np.searchsorted(self.hashes, wanted, side="right"))
        same = self.texts.slice(first, last - first).to_pylist()
        hits = [first + place for place, found in enumerate(same) if found == text]
        return np.sort(self.row_ids[hits])


def build_resident(texts: pa.Array, row_ids: RowIds) -> ResidentColumn:
    """Arrange a column for look-ups; rows without text are left out."""
    present = texts.is_valid().to_numpy(zero_copy_only=False)
    if not present.all():
        texts, row_ids = texts.drop_null(), row_ids[present]
    hashes = text_hashes(texts)
    order = np.argsort(hashes, kind="stable")
    return ResidentColumn(hashes[order], texts.take(pa.array(order)), row_ids[order])


def text_hash(text: str) -> int:
    """Hash one text: FNV-1a over its first bytes, then its length.

    >>> text_hash("a") == int(text_hashes(pa.array(["a"]))[0])
    True
    """
    encoded = text.encode()
    value = _FNV_OFFSET
    for byte in encoded[:_HASHED_BYTES_MAX]:
        value = ((value ^ byte) * _FNV_PRIME) & _WORD
    return value ^ len(encoded)


def text_hashes(texts: pa.Array) -> Hashes:
    """Hash the texts of a column without nulls, all of them byte by byte at once."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    letters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    hashes = np.full(len(texts), _FNV_OFFSET, np.uint64)
    for place in range(min(int(lengths.max(initial=0)), _HASHED_BYTES_MAX)):
        rows = np.flatnonzero(lengths > place)
        mixed = hashes[rows] ^ letters[starts[rows] + place].astype(np.uint64)
        hashes[rows] = mixed * np.uint64(_FNV_PRIME)
    return hashes ^ lengths.astype(np.uint64)


class ResidentColumns:
    """The resident columns of one graph. Safe to share between threads."""

    def __init__(self, *, bytes_max: int | None = None, lookups_min: int = LOOKUPS_MIN) -> None:
        self._bytes_max = key_memory() if bytes_max is None else bytes_max
        self._lookups_min = lookups_min
        self._kept: BoundedCache[ResidentColumn] = BoundedCache(self._bytes_max)
        self._asked: BoundedCache[int] = BoundedCache(_COUNTERS_MAX)
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        """Whether any memory is set aside for columns."""
        return self._bytes_max > 0

    def find(self, tables: TableReader, table_key: str, column: str, text: str) -> RowIds | None:
        """Return the rows that have this text, or None when the column is not resident."""
        entry = tables.snapshot.entry(table_key)
        key = (entry.at, column)
        kept = self._kept.get(key)
        if kept is None:
            if not self._is_due(key, entry.row_count):
                return None
            kept = self._read(tables, table_key, column, key)
        return kept.find(text)

    def _is_due(self, key: Hashable, rows: int) -> bool:
        """Count a look-up, and say whether it is one too many."""
        if not self._bytes_max or rows > _ROWS_MAX:
            return False
        with self._lock:
            asked = (self._asked.get(key) or 0) + 1
            self._asked.put(key, asked, 1)
        # Seldom, not each time: a column that cannot stay is not read again and again.
        return asked % _LOOKUPS_PER_READ == self._lookups_min

    def _read(
        self, tables: TableReader, table_key: str, column: str, key: Hashable
    ) -> ResidentColumn:
        row_ids, columns = tables.whole(table_key, [column])
        built = build_resident(columns[column], row_ids)
        if built.nbytes <= self._bytes_max:
            self._kept.put(key, built, built.nbytes)
        return built
