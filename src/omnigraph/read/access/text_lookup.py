"""A text column arranged for look-ups: its rows in the order of their hashes.

A look-up compares hashes first and the texts themselves afterwards, so it is exact.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.read.row_table import RowIds

_HASHED_BYTES_MAX: Final = 64
"""Longer texts are hashed by their beginning and their length."""
_FNV_OFFSET: Final = 14_695_981_039_346_656_037
_FNV_PRIME: Final = 1_099_511_628_211
_WORD: Final = (1 << 64) - 1

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class TextLookup:
    """One text column, sorted by hash."""

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
        first = int(self.hashes.searchsorted(wanted, side="left"))
        last = first + 1
        if last < len(self.hashes) and self.hashes[last] == wanted:
            last = int(self.hashes.searchsorted(wanted, side="right"))
        same = self.texts.slice(first, last - first).to_pylist()
        hits = [first + position for position, found in enumerate(same) if found == text]
        return np.sort(self.row_ids[hits]) if len(hits) != 1 else self.row_ids[hits]


def build_text_lookup(texts: pa.Array, row_ids: RowIds) -> TextLookup:
    """Arrange a column for look-ups; rows without a text are left out."""
    present = texts.is_valid().to_numpy(zero_copy_only=False)
    if not present.all():
        texts, row_ids = texts.drop_null(), row_ids[present]
    hashes = text_hashes(texts)
    order = np.argsort(hashes, kind="stable")
    return TextLookup(hashes[order], texts.take(pa.array(order)), row_ids[order])


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
    for position in range(min(int(lengths.max(initial=0)), _HASHED_BYTES_MAX)):
        rows = np.flatnonzero(lengths > position)
        mixed = hashes[rows] ^ letters[starts[rows] + position].astype(np.uint64)
        hashes[rows] = mixed * np.uint64(_FNV_PRIME)
    return hashes ^ lengths.astype(np.uint64)
