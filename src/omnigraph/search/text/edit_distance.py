"""Edit distance of words: letters inserted, dropped or replaced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omnigraph.search.topology.csr import Mask

_PADDING = np.uint32(0xFFFFFFFF)


def within_edits(words: Sequence[str], wanted: str, edits: int) -> Mask:
    """Return for each word whether at most `edits` edits turn it into `wanted`.

    The table of distances is filled letter by letter, for all words at once.

    >>> within_edits(["vision", "mission", ""], "visoin", 2).tolist()
    [True, False, False]
    """
    letters, lengths = _letters(words)
    count, longest = letters.shape
    # distances[:, n]: from the first n letters of each word to the letters of `wanted` so far.
    distances = np.tile(np.arange(longest + 1, dtype=np.int32), (count, 1))
    for row, letter in enumerate(wanted, start=1):
        before = distances
        distances = np.empty_like(before)
        distances[:, 0] = row
        replaced = before[:, :-1] + (letters != np.uint32(ord(letter)))
        dropped = before[:, 1:] + 1
        shorter = np.minimum(replaced, dropped)
        for at in range(longest):
            distances[:, at + 1] = np.minimum(shorter[:, at], distances[:, at] + 1)
    mask: Mask = distances[np.arange(count), lengths] <= edits
    return mask


def _letters(words: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    lengths = np.array([len(word) for word in words], np.int64)
    letters = np.full((len(words), int(lengths.max(initial=0))), _PADDING, np.uint32)
    for row, word in enumerate(words):
        letters[row, : len(word)] = [ord(letter) for letter in word]
    return letters, lengths
