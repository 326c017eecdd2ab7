"""Text columns as 64-bit numbers: what loads remember of ids, unique tuples and ends of edges.

1. Equal texts have equal numbers under equal schemes, in every process.
2. Different texts may share one number. So a number only finds candidates, and the caller compares
   their texts. Two independent numbers, a *pair*, identify their text: two texts share a pair with
   a chance of 2**-128.
3. Every operation has a seed of its own, so that no input can be made to collide.
4. Cost: a few nanoseconds per eight bytes of text, without a Python step per row, except for texts
   above `_VECTOR_BYTES_MAX`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.schema.values.ids import spell
from omnigraph.write.stage.columns import Integers, Mask, flat, to_mask

Hashes = npt.NDArray[np.uint64]

NO_HASH: Final = np.uint64(0)
"""Stands for "no value"; no value has it."""

_BITS: Final = 64
_VECTOR_BYTES_MAX: Final = 128
_WORD: Final = 8
_BLOCK_ROWS: Final = 1 << 16
"""Rows that are worked on together, so that their words stay in the processor's cache."""
_BUCKET_BITS_MAX: Final = 28
PREFILTERED_MAX: Final = 1 << 19
"""With more known pairs a pre-filter has too many marks to be worth its cost."""
_LAST_SHIFT: Final = np.uint64(31)


@dataclass(frozen=True, eq=False)
class HashPairs:
    """Two independent hashes of each of some texts."""

    first: Hashes
    second: Hashes

    def __len__(self) -> int:
        return len(self.first)

    def filter(self, mask: Mask) -> HashPairs:
        """Keep some."""
        return HashPairs(self.first[mask], self.second[mask])


@dataclass(frozen=True)
class HashScheme:
    """How one operation hashes; it can be pickled.

    With fewer `bits` than 64 only the upper ones are used: many collisions, for tests.
    """

    seed: int | str = 0
    bits: int = _BITS

    def texts(self, column: pa.Array) -> Hashes:
        """Return one number for every text of a column without nulls."""
        (first,) = self._lanes(column, 1)
        return self._cut(first)

    def pairs(self, column: pa.Array) -> HashPairs:
        """Return two numbers for every text of a column without nulls; `texts` has the first."""
        first, second = self._lanes(column, 2)
        return HashPairs(self._cut(first), second)

    def contents(self, values: Sequence[bytes | None]) -> HashPairs:
        """Return two numbers for each of some contents; null has those of no bytes."""
        key = _seeds(self.seed).key
        digests = (
            hashlib.blake2b(value or b"", digest_size=2 * _WORD, key=key).digest()
            for value in values
        )
        found = np.frombuffer(b"".join(digests), np.uint64).reshape(len(values), 2)
        return HashPairs(self._cut(found[:, 0].copy()), found[:, 1].copy())

    def together(self, parts: Sequence[HashPairs], count: int) -> HashPairs:
        """Return one pair for several of each row, which depends on their order.

        Both numbers of a part may be the same: the two of the result are independent.
        """
        lanes = [self._start(lane, count) for lane in (0, 1)]
        for part in parts:
            for lane, hashes in enumerate((part.first, part.second)):
                lanes[lane] = self._mixed_in(lanes[lane], hashes, lane)
        return self._finished_pairs(lanes)

    def _start(self, lane: int, count: int) -> Hashes:
        return np.full(count, _seeds(self.seed).starts[lane])

    def _mixed_in(self, hashes: Hashes, words: Hashes, lane: int) -> Hashes:
        return _mixed(hashes, words, _seeds(self.seed).factors[lane])

    def _finished_pairs(self, lanes: Sequence[Hashes]) -> HashPairs:
        factors = _seeds(self.seed).factors
        first, second = (_finished(lanes[lane], factors[1 - lane]) for lane in (0, 1))
        return HashPairs(self._cut(first), second)

    def endings(self, column: pa.Array) -> Hashes:
        """Return one number for the length and the last word of every text.

        Quicker than `texts`, and little more than a guess: texts that end alike share a number.
        """
        numbers = np.empty(len(column), np.uint64)
        for start in range(0, len(column), _BLOCK_ROWS):
            block = column.slice(start, _BLOCK_ROWS)
            numbers[start : start + len(block)] = _endings(block, _seeds(self.seed))
        return numbers

    def tuples(self, columns: Sequence[pa.Array]) -> tuple[Hashes, Mask]:
        """Hash tuples by the spelling of their members; the mask marks those without a null.

        The others have `NO_HASH`.
        """
        total = np.zeros(len(columns[0]), np.uint64)
        is_whole = np.ones(len(total), np.bool_)
        for column in columns:
            if column.null_count:
                is_whole &= to_mask(column.is_valid())
            total *= _seeds(self.seed).factors[0]
            total ^= total >> _LAST_SHIFT
            (first,) = self._lanes(spell(flat(column)).fill_null(""), 1)
            total += first
        total = self._cut(total)
        total[~is_whole] = NO_HASH
        return total, is_whole

    def _lanes(self, column: pa.Array, count: int) -> list[Hashes]:
        lanes = [np.empty(len(column), np.uint64) for _ in range(count)]
        for start in range(0, len(column), _BLOCK_ROWS):
            block = column.slice(start, _BLOCK_ROWS)
            for lane, hashes in zip(lanes, _hashed(block, _seeds(self.seed), count), strict=True):
                lane[start : start + len(block)] = hashes
        return lanes

    def _cut(self, hashes: Hashes) -> Hashes:
        if self.bits < _BITS:
            hashes = hashes & ~np.uint64((1 << (_BITS - self.bits)) - 1)
        hashes[hashes == NO_HASH] = np.uint64(1)
        return hashes


@dataclass(frozen=True, eq=False)
class _Seeds:
    """What a scheme starts from, for both numbers of a pair."""

    key: bytes
    starts: Hashes
    factors: Hashes


@lru_cache(maxsize=16)
def _seeds(seed: int | str) -> _Seeds:
    key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
    numbers = np.frombuffer(key, np.uint64).copy()
    # Multipliers have to be odd, or bits are lost.
    return _Seeds(key, numbers[:2], numbers[2:] | np.uint64(1))


def _hashed(column: pa.Array, seeds: _Seeds, count: int) -> list[Hashes]:
    """Return one number or two for every text."""
    lanes = range(count)
    starts, lengths, text = _text_of(column)
    words = np.ndarray((len(text) - _WORD + 1,), "<u8", text, strides=(1,))
    sizes = lengths.astype(np.uint64)
    hashes = [seeds.starts[lane] + sizes for lane in lanes]
    is_long = lengths > _VECTOR_BYTES_MAX
    lengths_now = np.where(is_long, 0, lengths)
    for offset in range(0, int(lengths_now.max(initial=0)), _WORD):
        left = lengths_now - offset
        # Texts that have ended are skipped: the bytes behind them belong to the next text.
        if (left <= 0).any():
            rows = np.flatnonzero(left > 0)
            word = words[starts[rows] + offset] & _MASKS[np.minimum(left[rows], _WORD)]
            for lane in lanes:
                hashes[lane][rows] = _mixed(hashes[lane][rows], word, seeds.factors[lane])
        else:
            word = words[starts + offset] & _MASKS[np.minimum(left, _WORD)]
            hashes = [_mixed(hashes[lane], word, seeds.factors[lane]) for lane in lanes]
    for row in np.flatnonzero(is_long).tolist():
        piece = text[starts[row] : starts[row] + lengths[row]].tobytes()
        digest = hashlib.blake2b(piece, digest_size=16, key=seeds.key).digest()
        numbers = np.frombuffer(digest, np.uint64)
        for lane in lanes:
            hashes[lane][row] = numbers[lane]
    return [_finished(hashes[lane], seeds.factors[1 - lane]) for lane in lanes]


def _endings(column: pa.Array, seeds: _Seeds) -> Hashes:
    starts, lengths, text = _text_of(column)
    words = np.ndarray((len(text) - _WORD + 1,), "<u8", text, strides=(1,))
    last = words[starts + np.maximum(lengths - _WORD, 0)] & _MASKS[np.minimum(lengths, _WORD)]
    sized = seeds.starts[0] + lengths.astype(np.uint64)
    return _finished(_mixed(sized, last, seeds.factors[0]), seeds.factors[1])


_MASKS: Final[Hashes] = np.array(
    [(1 << (_WORD * count)) - 1 for count in range(_WORD)] + [2**64 - 1], np.uint64
)


def _text_of(column: pa.Array) -> tuple[Integers, Integers, npt.NDArray[np.uint8]]:
    """Return where each text starts, how long it is, and the bytes with a margin of one word."""
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    _, offset_buffer, data_buffer = column.buffers()
    every = np.frombuffer(offset_buffer, width)
    offsets: Integers = every[column.offset : column.offset + len(column) + 1].astype(np.int64)
    low, high = int(offsets[0]), int(offsets[-1])
    text = np.zeros(high - low + _WORD, np.uint8)
    if high > low:
        text[: high - low] = np.frombuffer(data_buffer, np.uint8)[low:high]
    lengths: Integers = offsets[1:] - offsets[:-1]
    return offsets[:-1] - low, lengths, text


def _mixed(hashes: Hashes, words: Hashes, factor: np.uint64) -> Hashes:
    mixed = (hashes ^ words) * factor
    mixed ^= mixed >> _LAST_SHIFT
    return mixed


def _finished(hashes: Hashes, factor: np.uint64) -> Hashes:
    hashes ^= hashes >> np.uint64(33)
    hashes *= factor
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(0x94D049BB133111EB)
    hashes ^= hashes >> np.uint64(32)
    return hashes


class HashIndex:
    """Finds pairs among known ones; costs about 26 bytes per known pair.

    The known pairs are sorted by their first number. Its leading bits, counted from the smallest
    one, lead to a slot; from there the search takes a step or two. Counting from the smallest one
    keeps that true when all pairs share their leading bits, as those of one bucket do.
    """

    def __init__(self, known: HashPairs) -> None:
        is_short = len(known) < 1 << 31
        # No local variable for the wide array, so that it is freed immediately.
        self._order = np.argsort(known.first).astype(np.int32 if is_short else np.int64, copy=False)
        order = self._order
        self._first = known.first[order]
        self._second = known.second[order]
        bits = min(max(len(order), 2).bit_length(), _BUCKET_BITS_MAX)
        ends = (int(self._first[0]), int(self._first[-1])) if len(order) else (0, 0)
        self._low = np.uint64(ends[0])
        self._shift = np.uint64(max(0, (ends[1] - ends[0]).bit_length() - bits))
        slots = ((self._first - self._low) >> self._shift).astype(np.int64)
        # The last slot is for numbers above all known ones: it is empty.
        self._slots = np.uint64(slots[-1] + 1 if len(order) else 0)
        self._begins = np.zeros(int(self._slots) + 1, np.int32 if is_short else np.int64)
        np.cumsum(np.bincount(slots), out=self._begins[1:], dtype=self._begins.dtype)

    def __len__(self) -> int:
        return len(self._first)

    @cached_property
    def prefilter(self) -> HashPrefilter | None:
        """A filter that rejects most unknown pairs; None where there are too many known ones."""
        return HashPrefilter(self._first) if len(self) <= PREFILTERED_MAX else None

    def places(self, wanted: HashPairs) -> Integers:
        """Return the position of every wanted pair among the known ones, -1 where there is none.

        Of several equal known pairs any one is returned.
        """
        places = np.full(len(wanted), -1, np.int64)
        if not len(self):
            return places
        for start in range(0, len(wanted), _BLOCK_ROWS):
            own = slice(start, start + _BLOCK_ROWS)
            places[own] = self._block(wanted.first[own], wanted.second[own])
        return places

    def _block(self, first: Hashes, second: Hashes) -> Integers:
        found = np.full(len(first), -1, np.int64)
        slots = np.minimum((first - self._low) >> self._shift, self._slots)
        at = self._begins[slots.astype(np.int64)].astype(np.int64)
        rows = np.arange(len(first))
        while True:
            is_inside = at < len(self._first)
            rows, at = rows[is_inside], at[is_inside]
            if not len(rows):
                return found
            seen = self._first[at]
            is_hit = (seen == first[rows]) & (self._second[at] == second[rows])
            found[rows[is_hit]] = self._order[at[is_hit]]
            goes_on = (seen <= first[rows]) & ~is_hit
            rows, at = rows[goes_on], at[goes_on] + 1


class HashPrefilter:
    """Tells most hashes that are not among some known ones, at a fifth of the cost of an index.

    It has a mark for each value of the leading bits, eight times as many as known hashes; each of
    these sets one.
    """

    def __init__(self, known: Hashes) -> None:
        bits = max(len(known), 1).bit_length() + 3
        self._shift = np.uint64(_BITS - bits)
        self._marks = np.zeros(1 << bits, np.bool_)
        self._marks[known >> self._shift] = True

    def may_have(self, wanted: Hashes) -> Mask:
        """Return which hashes may be known; all known ones are among them."""
        found: Mask = self._marks[wanted >> self._shift]
        return found


def repeated_hashes(hashes: Hashes) -> Hashes:
    """Return the values that occur more than once, sorted; `NO_HASH` does not count."""
    ordered = np.sort(hashes)
    distinct = distinct_hashes(ordered[1:][ordered[1:] == ordered[:-1]])
    found: Hashes = distinct[distinct != NO_HASH]
    return found


def distinct_hashes(hashes: Hashes) -> Hashes:
    """Return each value once, sorted.

    `np.unique` puts whole numbers into a hash table first, which takes twenty times as long.

    >>> distinct_hashes(np.array([7, 3, 7], np.uint64)).tolist()
    [3, 7]
    """
    ordered = np.sort(hashes)
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def is_among(hashes: Hashes, ordered: Hashes) -> Mask:
    """Return which values are in a sorted array."""
    if not len(ordered):
        return np.zeros(len(hashes), np.bool_)
    places = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
    found: Mask = ordered[places] == hashes
    return found
