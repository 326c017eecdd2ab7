"""A bounded cache of values that are computed from texts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final, Generic, TypeVar

Value = TypeVar("Value")

CACHE_ENTRIES_MAX: Final = 512
CACHE_TEXT_BYTES_MAX: Final = 2 * 1024 * 1024
"""A tree takes some twenty times the memory of its text."""


class TextCache(Generic[Value]):
    """Keeps the most recently used values; safe to share between threads.

    Two threads that miss at the same time both compute; the values are equal, so either may stay.
    A text larger than an eighth of the bound is never stored: it would evict everything else.
    """

    def __init__(
        self,
        *,
        entries_max: int = CACHE_ENTRIES_MAX,
        text_bytes_max: int = CACHE_TEXT_BYTES_MAX,
    ) -> None:
        self._entries_max = entries_max
        self._bytes_max = text_bytes_max
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get_or_compute(self, key: Hashable, text_bytes: int, compute: Callable[[], Value]) -> Value:
        """Return the value stored under `key`, else compute and store it.

        `text_bytes` is what the entry counts against the bound. An exception of `compute` passes
        through and nothing is stored.
        """
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                return found[0]
        value = compute()
        if text_bytes * 8 <= self._bytes_max:
            self._store(key, value, text_bytes)
        return value

    def _store(self, key: Hashable, value: Value, text_bytes: int) -> None:
        with self._lock:
            replaced = self._entries.pop(key, None)
            if replaced is not None:
                self._bytes -= replaced[1]
            self._entries[key] = (value, text_bytes)
            self._bytes += text_bytes
            while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)
