"""Keeps derived values in memory: bounded, shared between threads, each made once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_Value = TypeVar("_Value")


@dataclass(frozen=True, eq=False)
class _Kept(Generic[_Value]):
    value: _Value
    size: int


class BoundedCache(Generic[_Value]):
    """Least-recently-used values within a total size."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._lock = threading.Lock()
        self._items: OrderedDict[Hashable, _Kept[_Value]] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """The sum of the sizes of what is kept."""
        return self._size

    def get(self, key: Hashable) -> _Value | None:
        """Return a value and make it the most recent one."""
        with self._lock:
            item = self._items.get(key)
            if item is None:
                return None
            self._items.move_to_end(key)
            return item.value

    def put(self, key: Hashable, value: _Value, size: int) -> None:
        """Keep a value, dropping old ones to make room."""
        with self._lock:
            self._drop(key)
            if size > self._size_max:
                return
            self._items[key] = _Kept(value, size)
            self._size += size
            while self._size > self._size_max:
                self._drop(next(iter(self._items)))

    def drop(self, key: Hashable) -> None:
        """Forget a value, if it is kept."""
        with self._lock:
            self._drop(key)

    def values(self) -> list[_Value]:
        """Return what is kept, most recently used first."""
        with self._lock:
            return [item.value for item in reversed(self._items.values())]

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._items.clear()
            self._size = 0

    def _drop(self, key: Hashable) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self._size -= item.size


class SingleFlight:
    """Lets one thread at a time work on a key."""

    _POLL_S: Final = 0.05

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._busy: set[Hashable] = set()

    def alone(self, key: Hashable, check: Callable[[], None]) -> Flight:
        """Return a context that begins once nobody else is in it; `check` may end the wait."""
        return Flight(self, key, check)

    def enter(self, key: Hashable, check: Callable[[], None]) -> None:
        """Wait for the key."""
        with self._lock:
            while key in self._busy:
                self._lock.wait(self._POLL_S)
                check()
            self._busy.add(key)

    def leave(self, key: Hashable) -> None:
        """Let the next one in."""
        with self._lock:
            self._busy.discard(key)
            self._lock.notify_all()


class Flight:
    """One thread's time with a key."""

    def __init__(self, flights: SingleFlight, key: Hashable, check: Callable[[], None]) -> None:
        self._flights, self._key, self._check = flights, key, check

    def __enter__(self) -> None:
        self._flights.enter(self._key, self._check)

    def __exit__(self, *_: object) -> None:
        self._flights.leave(self._key)
