"""Derived values in memory: bounded, shared between threads, each computed once at a time.

`BoundedCache` holds the most recently used values within a total size. `SingleFlight` lets one
thread compute a value while the others that need the same one wait for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

RECENT_VERSIONS_MAX: Final = 2
"""Of one lineage of a dataset, how many versions have derived values in memory. A graph that is
written all the time would fill every cache with versions that are not read again."""

_Value = TypeVar("_Value")


class BoundedCache(Generic[_Value]):
    """The most recently used values within a total size. Safe to share between threads.

    A value that takes more than one part in `shares_min` of the total size is never stored: it
    would evict too many others.
    """

    def __init__(
        self, size_max: int, *, entries_max: int | None = None, shares_min: int = 1
    ) -> None:
        self._size_max = size_max
        self._entries_max = entries_max
        self._shares_min = shares_min
        self._lock = threading.Lock()
        self._items: OrderedDict[Hashable, tuple[_Value, int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def size(self) -> int:
        """The sum of the sizes of all stored values."""
        return self._size

    def get(self, key: Hashable) -> _Value | None:
        """Return a value and make it the most recent one."""
        with self._lock:
            item = self._items.get(key)
            if item is None:
                return None
            self._items.move_to_end(key)
            return item[0]

    def put(self, key: Hashable, value: _Value, size: int) -> None:
        """Store a value, evicting the least recently used ones where the bounds require it."""
        with self._lock:
            self._drop(key)
            if size * self._shares_min > self._size_max:
                return
            self._items[key] = (value, size)
            self._size += size
            while self._is_over():
                self._drop(next(iter(self._items)))

    def drop(self, key: Hashable) -> None:
        """Remove a value, if it is stored."""
        with self._lock:
            self._drop(key)

    def keep_recent(
        self, groups_max: int, group_of: Callable[[Hashable, _Value], Hashable | None]
    ) -> None:
        """Remove all groups but the most recently used; what has no group (None) stays."""
        with self._lock:
            groups = {key: group_of(key, value) for key, (value, _) in self._items.items()}
            found = dict.fromkeys(each for each in reversed(groups.values()) if each is not None)
            dropped = set(list(found)[groups_max:])
            for key, group in groups.items():
                if group in dropped:
                    self._drop(key)

    def values(self) -> list[_Value]:
        """Return all values, most recently used first."""
        with self._lock:
            return [value for value, _ in reversed(self._items.values())]

    def recent_keys(self) -> list[Hashable]:
        """Return all keys, most recently used first."""
        with self._lock:
            return list(reversed(self._items))

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._items.clear()
            self._size = 0

    def _is_over(self) -> bool:
        if self._size > self._size_max:
            return True
        return self._entries_max is not None and len(self._items) > self._entries_max

    def _drop(self, key: Hashable) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self._size -= item[1]


class BoundedCounter:
    """Sums by key, for the most recently used keys. Safe to share between threads."""

    def __init__(self, keys_max: int) -> None:
        self._lock = threading.Lock()
        self._sums: BoundedCache[float] = BoundedCache(keys_max)

    def of(self, key: Hashable) -> float:
        """Return the sum of a key; 0 when it is not known."""
        return self._sums.get(key) or 0

    def add(self, key: Hashable, amount: float = 1) -> float:
        """Add to the sum of a key and return it."""
        with self._lock:
            total = self.of(key) + amount
            self._sums.put(key, total, 1)
            return total


class SingleFlight:
    """Lets one thread at a time work on a key."""

    _POLL_S: Final = 0.05

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._busy: set[Hashable] = set()

    @contextmanager
    def alone(self, key: Hashable, check: Callable[[], None]) -> Iterator[None]:
        """Enter once no other thread works on the key; `check` may raise to end the wait."""
        with self._lock:
            while key in self._busy:
                self._lock.wait(self._POLL_S)
                check()
            self._busy.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(key)
                self._lock.notify_all()
