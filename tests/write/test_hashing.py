"""Hashes of texts, and the index over them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.write.load.check.hashing import (
    NO_HASH,
    HashIndex,
    HashPairs,
    HashScheme,
    distinct_hashes,
    is_among,
    repeated_hashes,
)

TEXTS = st.lists(st.text(max_size=40) | st.sampled_from(["", "a", "ab", "x" * 200, "x" * 201]))


@given(TEXTS, st.integers(0, 3))
def test_equal_texts_and_only_those_have_equal_pairs(texts: list[str], start: int) -> None:
    column = pa.array(["", "é", *texts], pa.utf8()).slice(min(start, 2))
    hasher = HashScheme("seed")
    pairs = hasher.pairs(column)
    found = list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    values = column.to_pylist()
    assert len(set(found)) == len(set(values))
    large = hasher.pairs(column.cast(pa.large_utf8()))
    assert large.first.tolist() == pairs.first.tolist() == hasher.texts(column).tolist()


@given(TEXTS, st.sampled_from([0, 1, 3]))
def test_few_bits_make_first_numbers_collide_and_pairs_still_tell_texts_apart(
    texts: list[str], bits: int
) -> None:
    pairs = HashScheme("seed", bits).pairs(pa.array(texts, pa.utf8()))
    assert len(set(pairs.first.tolist())) <= 1 << bits
    assert NO_HASH not in pairs.first
    assert len(set(pairs.second.tolist())) == len(set(texts))


@given(TEXTS)
def test_a_hash_does_not_depend_on_the_other_texts_of_its_column(texts: list[str]) -> None:
    scheme = HashScheme("seed")
    alone = [scheme.texts(pa.array([text]))[0] for text in texts]
    assert scheme.texts(pa.array(texts, pa.utf8())).tolist() == alone


def test_another_seed_gives_other_hashes() -> None:
    column = pa.array(["a", "b"])
    one, other = HashScheme("one").pairs(column), HashScheme("other").pairs(column)
    assert not np.intersect1d(one.first, other.first).size


def test_a_tuple_with_a_null_has_no_hash_and_members_keep_their_places() -> None:
    first, second = pa.array(["a", "b", None, "ab"]), pa.array(["b", "a", "x", ""])
    hashes, is_whole = HashScheme("seed").tuples([first, second])
    assert is_whole.tolist() == [True, True, False, True]
    assert hashes[2] == NO_HASH
    assert len(set(hashes.tolist())) == 4
    assert repeated_hashes(np.concatenate([hashes, hashes])).tolist() == sorted(
        set(hashes.tolist()) - {0}
    )


@given(st.lists(st.integers(0, 9) | st.integers(0, 2**64 - 1)))
def test_each_hash_comes_once_in_order(hashes: list[int]) -> None:
    assert distinct_hashes(np.array(hashes, np.uint64)).tolist() == sorted(set(hashes))


@given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 40)), st.integers(1, 64))
def test_an_index_finds_exactly_what_it_knows(
    known: list[int], wanted: list[int], step: int
) -> None:
    # Few distinct first numbers, at both ends of the range: buckets and their neighbours collide.
    def pairs(numbers: list[int]) -> HashPairs:
        values = np.array(numbers, np.uint64)
        first = np.where(values % 3 == 0, np.uint64(2**64 - 1) - values // 3, values * step // 2)
        return HashPairs(first.astype(np.uint64), values)

    places = HashIndex(pairs(known)).places(pairs(wanted))
    for number, place in zip(wanted, places.tolist(), strict=True):
        assert (place >= 0) == (number in known)
        assert place < 0 or known[place] == number


def test_an_index_over_numbers_that_begin_alike_takes_few_steps() -> None:
    first = (np.arange(1_000, dtype=np.uint64) << np.uint64(40)) + np.uint64(7 << 56)
    index = HashIndex(HashPairs(first, first))
    begins = index._begins
    assert np.diff(begins).max() <= 2
    assert index.places(HashPairs(first, first)).tolist() == list(range(1_000))


def test_values_are_found_among_sorted_ones() -> None:
    ordered = np.array([3, 7], np.uint64)
    assert is_among(np.array([7, 8, 0], np.uint64), ordered).tolist() == [True, False, False]
    assert is_among(np.array([7], np.uint64), ordered[:0]).tolist() == [False]
