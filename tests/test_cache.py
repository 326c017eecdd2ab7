"""Bounded caches and single flights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.cache import BoundedCache, BoundedCounter, SingleFlight


def test_a_failed_maker_lets_the_next_one_try() -> None:
    flights = SingleFlight()
    with pytest.raises(ValueError, match="no"), flights.alone("key", lambda: None):
        raise ValueError("no")
    with flights.alone("key", lambda: None):
        pass


def test_waiting_for_a_maker_can_be_cancelled() -> None:
    flights = SingleFlight()

    def stop() -> None:
        raise TimeoutError

    with (
        flights.alone("key", lambda: None),
        pytest.raises(TimeoutError),
        flights.alone("key", stop),
    ):
        pass


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=40), st.integers(0, 20))
def test_the_least_recently_used_go_first(puts: list[tuple[int, int]], bound: int) -> None:
    cache: BoundedCache[int] = BoundedCache(bound)
    model: dict[int, int] = {}
    for key, size in puts:
        cache.put(key, size, size)
        model.pop(key, None)
        if size <= bound:
            model[key] = size
        while sum(model.values()) > bound:
            del model[next(iter(model))]
        assert cache.size == sum(model.values()) <= bound
        assert sorted(cache.values()) == sorted(model.values())
        oldest = next(iter(model), None)
        if oldest is not None:
            assert cache.get(oldest) == model[oldest]
            model[oldest] = model.pop(oldest)


def test_a_value_above_its_share_is_not_stored() -> None:
    cache: BoundedCache[str] = BoundedCache(40, shares_min=4)
    cache.put("small", "a", 10)
    cache.put("large", "b", 11)
    assert (cache.get("small"), cache.get("large"), cache.size) == ("a", None, 10)


def test_the_number_of_values_is_bounded() -> None:
    cache: BoundedCache[int] = BoundedCache(80, entries_max=2)
    for number in (1, 2):
        cache.put(number, number, 1)
    assert cache.get(1) == 1
    cache.put(3, 3, 1)
    assert (len(cache), cache.get(1), cache.get(2), cache.get(3)) == (2, 1, None, 3)


def test_clearing_forgets_values_and_sizes() -> None:
    cache: BoundedCache[int] = BoundedCache(80)
    for _ in range(3):
        for number in range(20):
            cache.put(number, number, 10)
        assert (len(cache), cache.size) == (8, 80)
        cache.clear()
        assert (len(cache), cache.size) == (0, 0)


def test_threads_share_one_cache() -> None:
    cache: BoundedCache[int] = BoundedCache(80, entries_max=5)

    def put_and_get(number: int) -> int | None:
        cache.put(number, number**2, 10)
        return cache.get(number)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: put_and_get(n % 10), range(2_000)))
    assert {n: one for n, one in enumerate(found) if one not in (None, (n % 10) ** 2)} == {}
    assert len(cache) == 5


def test_a_counter_knows_the_most_recent_keys() -> None:
    counter = BoundedCounter(keys_max=2)
    assert [counter.add(key) for key in "aabacb"] == [1, 2, 1, 3, 1, 1]


def test_only_recent_groups_are_kept() -> None:
    cache: BoundedCache[int] = BoundedCache(100)
    for key in ("a1", "a2", "b1", "c1", "-"):
        cache.put(key, 0, 1)
    cache.get("a1")
    cache.keep_recent(2, lambda key, _: None if key == "-" else str(key)[0])
    assert [key for key in ("a1", "a2", "b1", "c1", "-") if cache.get(key) is not None] == [
        "a1",
        "a2",
        "c1",
        "-",
    ]
    assert cache.size == 4
