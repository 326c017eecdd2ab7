"""A bounded cache for results that depend on nothing but a text."""

from __future__ import annotations

from typing import Final, TypeVar

from omnigraph.cache import BoundedCache

Value = TypeVar("Value")

CACHE_ENTRIES_MAX: Final = 512
CACHE_TEXT_BYTES_MAX: Final = 2 * 1024 * 1024
"""A tree takes some twenty times the memory of its text."""
_SHARES_MIN: Final = 8


class TextCache(BoundedCache[Value]):
    """The most recently used values; an entry counts with the bytes of its text."""

    def __init__(
        self,
        *,
        entries_max: int = CACHE_ENTRIES_MAX,
        text_bytes_max: int = CACHE_TEXT_BYTES_MAX,
    ) -> None:
        super().__init__(text_bytes_max, entries_max=entries_max, shares_min=_SHARES_MIN)
