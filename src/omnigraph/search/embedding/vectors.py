"""Checking vectors, scaling them to unit length, and mock vectors from text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.search.embedding.errors import EmbeddingVectorError
from omnigraph.search.embedding.wire import Numbers
from omnigraph.texts import fnv1a64

Vectors: TypeAlias = NDArray[np.float32]
"""One vector per row."""

_EPSILON: Final = np.finfo(np.float32).eps


def checked_vectors(found: Sequence[Numbers] | Vectors, dimension: int) -> Vectors:
    """Return unit vectors, or raise `EmbeddingVectorError`: length, finite numbers, a direction."""
    for vector in found:
        if len(vector) != dimension:
            raise EmbeddingVectorError(
                f"embedding dimension mismatch: expected {dimension}, got {len(vector)}"
            )
    vectors = _as_floats(found).reshape(len(found), dimension)
    finite = np.isfinite(vectors)
    if not finite.all():
        row, index = np.argwhere(~finite)[0]
        raise EmbeddingVectorError(
            f"embedding component {index} is not finite ({vectors[row, index]})"
        )
    norms = _norms(vectors)
    if (norms <= _EPSILON).any():
        raise EmbeddingVectorError("embedding has zero norm (no direction)")
    return vectors / norms[:, np.newaxis]


def mock_vectors(texts: Sequence[str], dimension: int) -> Vectors:
    """Return mock vectors: the same text always gives the same one.

    >>> [f"{number:.6f}" for number in mock_vectors(["alpha"], 4)[0]]
    ['-0.542049', '-0.471799', '0.160905', '0.676534']
    """
    state = np.array([int(fnv1a64(text), 16) for text in texts], dtype=np.uint64)
    vectors = np.empty((len(texts), dimension), dtype=np.float32)
    for index in range(dimension):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        share = (state.astype(np.float64) / 2.0**64).astype(np.float32)
        vectors[:, index] = share * np.float32(2) - np.float32(1)
    norms = _norms(vectors)
    norms[norms <= _EPSILON] = 1
    return vectors / norms[:, np.newaxis]


def _as_floats(found: Sequence[Numbers] | Vectors) -> Vectors:
    if not isinstance(found, np.ndarray):
        for vector in found:
            _require_numbers(vector)
    # A number too large for 32 bits becomes infinite and is rejected as such.
    with np.errstate(over="ignore"):
        return np.asarray(found, dtype=np.float64).astype(np.float32)


def _require_numbers(vector: Numbers) -> None:
    for index, value in enumerate(vector):
        if type(value) not in (int, float):
            raise EmbeddingVectorError(f"embedding component {index} is not a number ({value!r})")


def _norms(vectors: Vectors) -> NDArray[np.float32]:
    squares = np.square(vectors.astype(np.float64)).sum(axis=1)
    norms: NDArray[np.float32] = np.sqrt(squares.astype(np.float32))
    return norms
