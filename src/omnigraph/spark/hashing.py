"""64-bit hashes of text columns, computed on whole columns.

1. Equal texts have equal hashes, in every process: a hash depends on the bytes and the scheme
   alone.
2. Different texts may have equal hashes. Nothing is decided by equal hashes alone: they find
   candidates, and whoever finds some compares the texts. Different hashes prove different texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.schema.values.ids import spell

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_WORD: Final = 8
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_FINISH: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF: Final = np.uint64(32)
_TAIL: Final = np.uint64(29)
_BITS: Final = 64


@dataclass(frozen=True)
class HashScheme:
    """How one operation hashes: `seed` is its own, so that nobody can prepare collisions.

    With fewer `bits` than 64 only the upper ones are used: many collisions, for tests.
    """

    seed: int = 0
    bits: int = _BITS

    def texts(self, column: pa.Array) -> Hashes:
        """Hash every text of a column without nulls."""
        offsets, data = _buffers(column)
        return self._cut(_hashed(offsets, data, np.uint64(self.seed)))

    def ends(self, column: pa.Array) -> Hashes:
        """Hash the length and the last word of every text: quick, and little more than a guess.

        Texts that end alike share a hash.
        """
        offsets, data = _buffers(column)
        lengths = np.diff(offsets)
        words = _words(data)
        is_short = lengths < _WORD
        if is_short.any():
            at = np.where(is_short, offsets[:-1], offsets[1:] - _WORD)
            taken = words[at] & _masks(lengths)
        else:
            taken = words[offsets[1:] - _WORD]
        mixed = (taken ^ (lengths.astype(np.uint64) + np.uint64(self.seed))) * _MIX
        mixed ^= mixed >> _HALF
        return mixed * _FINISH

    def tuples(self, columns: Sequence[pa.Array]) -> tuple[Hashes, Mask]:
        """Hash tuples by the spelling of their members; the mask says which lack no member."""
        count = len(columns[0])
        valid = np.ones(count, np.bool_)
        mixed = np.full(count, np.uint64(self.seed), np.uint64)
        for column in columns:
            if column.null_count:
                valid &= column.is_valid().to_numpy(zero_copy_only=False)
            texts = spell(column).fill_null("")
            offsets, data = _buffers(texts)
            mixed = _mixed(mixed, _hashed(offsets, data, np.uint64(self.seed)))
        return self._cut(mixed), valid

    def _cut(self, hashes: Hashes) -> Hashes:
        if self.bits >= _BITS:
            return hashes
        return hashes & ~np.uint64((1 << (_BITS - self.bits)) - 1)


def _buffers(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the offsets of all texts, from zero, and their bytes with room for one more word."""
    count = len(column)
    if not count:
        return np.zeros(1, np.int64), np.zeros(_WORD, np.uint8)
    _, places, texts = column.buffers()
    width = "<i8" if pa.types.is_large_string(column.type) else "<i4"
    stored = np.frombuffer(places, width)[column.offset : column.offset + count + 1]
    offsets: npt.NDArray[np.int64] = stored.astype(np.int64)
    first, end = int(offsets[0]), int(offsets[-1])
    data = np.zeros(end - first + _WORD, np.uint8)
    if end > first:
        data[: end - first] = np.frombuffer(texts, np.uint8)[first:end]
    return offsets - first, data


def _hashed(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], seed: np.uint64) -> Hashes:
    lengths = np.diff(offsets)
    starts = offsets[:-1]
    words = _words(data)
    hashes = lengths.astype(np.uint64) * _FINISH + seed
    longest, shortest = (int(lengths.max()), int(lengths.min())) if len(lengths) else (0, 0)
    for at in range(0, longest, _WORD):
        if shortest > at:
            hashes = _mixed(hashes, words[starts + at] & _masks(lengths - at))
        else:
            rows = np.flatnonzero(lengths > at)
            taken = words[starts[rows] + at] & _masks(lengths[rows] - at)
            hashes[rows] = _mixed(hashes[rows], taken)
    hashes *= _FINISH
    hashes ^= hashes >> _TAIL
    return hashes


def _words(data: npt.NDArray[np.uint8]) -> Hashes:
    """Show every place of the bytes as the start of one word of eight."""
    return np.lib.stride_tricks.as_strided(
        data[:_WORD].view(np.uint64), shape=(len(data) - _WORD + 1,), strides=(1,)
    )


def _masks(left: npt.NDArray[np.int64]) -> Hashes:
    """Keep the bytes of the text out of a word of which `left` are left."""
    return _MASKS[np.minimum(left, _WORD)]


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    mixed = (hashes ^ words) * _MIX
    mixed ^= mixed >> _HALF
    return mixed


_MASKS: Final[Hashes] = np.array(
    [(1 << (8 * count)) - 1 for count in range(_WORD + 1)], dtype=np.uint64
)
"""Little-endian: the first bytes of a word are its lowest."""
