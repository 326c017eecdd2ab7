"""A made-up social network of a chosen size, the same in every run.

People know people and work at companies. How many others somebody knows, and is known by, follows a
power law with a mean of ten; no two friendships are equal and nobody befriends himself; about one
in fifty knows nobody and one in twenty has no work. Rows come in no order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SIZES = {"XS": (10_000, 100_000), "S": (100_000, 1_000_000), "M": (1_000_000, 10_000_000)}
"""People and friendships."""
COMPANIES = 1_000
CITIES = 50
VECTOR_LENGTH = 64
_SEED = 20_260_101
_EXPONENT = 1.5
_WEIGHT_MAX = 500.0
_QUERY_KEYS = 50


@dataclass(frozen=True)
class Social:
    """The rows of every type, with the ids that queries start from."""

    person: pa.Table
    company: pa.Table
    knows: pa.Table
    works_at: pa.Table
    keys: tuple[str, ...]


def social(size: str, *, with_vectors: bool = False) -> Social:
    """Make the network."""
    people, friendships = SIZES[size]
    random = np.random.default_rng(_SEED)
    ids = _names("p", people)
    start, end = _friendships(random, people, friendships)
    knows = _edges("k", ids.take(pa.array(start)), ids.take(pa.array(end)), random)
    person = _people(random, ids, with_vectors=with_vectors)
    company_ids = _names("c", COMPANIES)
    trades = pa.array(["tech", "food", "auto", "bank", "arts"])
    company = pa.table(
        {"id": company_ids, "industry": trades.take(pa.array(random.integers(0, 5, COMPANIES)))}
    )
    workers = random.permutation(people)[: people * 95 // 100]
    employers = random.integers(0, COMPANIES, len(workers))
    works_at = _edges(
        "w", ids.take(pa.array(workers)), company_ids.take(pa.array(employers)), random
    )
    popular = np.flatnonzero(np.bincount(start, minlength=people))
    keys = ids.take(pa.array(random.choice(popular, _QUERY_KEYS, replace=False))).to_pylist()
    return Social(person, company, knows, works_at, tuple(keys))


def _friendships(
    random: np.random.Generator, people: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    weights = np.minimum((1 - random.random(people)) ** (-1 / _EXPONENT), _WEIGHT_MAX)
    share = np.cumsum(weights) / weights.sum()
    pairs = np.empty(0, np.int64)
    while len(pairs) < count:
        missing = (count - len(pairs)) * 11 // 10 + 1_000
        start, end = (
            np.minimum(np.searchsorted(share, random.random(missing)), people - 1) for _ in "ab"
        )
        apart = start != end
        pairs = np.union1d(pairs, start[apart] * np.int64(people) + end[apart])
    pairs = random.permutation(pairs)[:count]
    return pairs // people, pairs % people


def _people(random: np.random.Generator, ids: pa.Array, *, with_vectors: bool) -> pa.Table:
    count = len(ids)
    cities = pa.array([f"city{number:02d}" for number in range(CITIES)])
    lives_in = np.minimum(random.exponential(CITIES / 4, count).astype(np.int64), CITIES - 1)
    columns = {
        "id": ids,
        "name": _names("Name ", count),
        "age": pa.array(random.integers(18, 90, count), pa.int32()),
        "city": cities.take(pa.array(lives_in)),
    }
    if with_vectors:
        columns["embedding"] = _vectors(random, count)
    return pa.table(columns).take(pa.array(random.permutation(count)))


def _vectors(random: np.random.Generator, count: int) -> pa.Array:
    centres = random.normal(size=(200, VECTOR_LENGTH))
    vectors = centres[random.integers(0, 200, count)]
    vectors = vectors + 0.7 * random.normal(size=(count, VECTOR_LENGTH))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    flat = pa.array(vectors.astype(np.float32).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, VECTOR_LENGTH)


def _edges(
    letter: str, source: pa.Array, target: pa.Array, random: np.random.Generator
) -> pa.Table:
    since = pa.array(random.integers(1990, 2025, len(source)), pa.int32())
    ids = _names(letter, len(source))
    return pa.table({"id": ids, "src": source, "dst": target, "since": since})


def _names(letter: str, count: int) -> pa.Array:
    numbers = pa.array(np.arange(count)).cast(pa.utf8())
    return pa.compute.binary_join_element_wise(letter, numbers, "")
