"""The cache keeps recent values within its bounds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph.query.cache import TextCache


class Counted:
    """Computes squares and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def square(self, cache: TextCache[int], number: int, text_bytes: int = 1) -> int:
        return cache.get_or_compute(number, text_bytes, lambda: self._compute(number))

    def _compute(self, number: int) -> int:
        self.calls += 1
        return number * number


def test_a_kept_value_is_not_computed_again() -> None:
    cache, counted = TextCache[int](), Counted()
    assert [counted.square(cache, 3) for _ in range(3)] == [9, 9, 9]
    assert counted.calls == 1


def test_the_least_recently_used_value_leaves_first() -> None:
    cache, counted = TextCache[int](entries_max=2), Counted()
    for number in (1, 2, 1, 3):
        counted.square(cache, number)
    assert (len(cache), counted.calls) == (2, 3)
    counted.square(cache, 1)
    assert counted.calls == 3
    counted.square(cache, 2)
    assert counted.calls == 4


def test_the_bytes_of_all_texts_are_bounded() -> None:
    cache, counted = TextCache[int](text_bytes_max=80), Counted()
    for number in range(20):
        counted.square(cache, number, text_bytes=10)
    assert len(cache) == 8


def test_a_text_that_would_push_out_the_others_is_not_kept() -> None:
    cache, counted = TextCache[int](text_bytes_max=80), Counted()
    counted.square(cache, 1, text_bytes=11)
    assert len(cache) == 0
    counted.square(cache, 1, text_bytes=10)
    assert len(cache) == 1


def test_a_failure_is_not_kept() -> None:
    cache = TextCache[int]()

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get_or_compute("key", 1, fail)
    assert len(cache) == 0
    assert cache.get_or_compute("key", 1, lambda: 5) == 5


def test_clearing_forgets_values_and_bytes() -> None:
    cache, counted = TextCache[int](text_bytes_max=80), Counted()
    for _ in range(3):
        for number in range(8):
            counted.square(cache, number, text_bytes=10)
        assert len(cache) == 8
        cache.clear()
        assert len(cache) == 0


def test_threads_share_one_cache() -> None:
    cache, counted = TextCache[int](entries_max=5), Counted()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: counted.square(cache, n % 10), range(2_000)))
    assert found == [(n % 10) ** 2 for n in range(2_000)]
    assert len(cache) == 5
