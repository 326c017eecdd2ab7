"""Freed memory goes back to the operating system while a large load runs.

1. The GNU C library raises the size from which a block has a mapping of its own (up to 32 MiB) each
   time that a larger block is freed. Below that size, what a thread frees stays in the heap of the
   thread, and `malloc_trim` does not reach the end of such a heap. The writers of Lance work in a
   dozen threads: a load of many types would keep some 30 MiB in each of them.
2. So a load that writes while it reads sets lower limits, and the last one to end sets the highest
   ones that the library itself would reach. Limits that the environment sets stay as they are.
3. Other C libraries have neither function; there only Arrow's pool is asked.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import pyarrow as pa

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""The numbers of two options of `mallopt`."""
_LOW_BYTES: Final = 4 << 20
_HIGH_BYTES: Final = 32 << 20
_SETTINGS: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")

_guard = threading.Lock()
_large_loads = 0


def release_memory() -> None:
    """Return freed memory to the system; takes a few milliseconds."""
    pa.default_memory_pool().release_unused()
    library = _library()
    if library is not None:
        library.malloc_trim(0)


@contextmanager
def returned_memory() -> Iterator[None]:
    """Return freed memory to the system at once, while this or another large load runs."""
    global _large_loads  # noqa: PLW0603 - the limits belong to the process
    with _guard:
        _large_loads += 1
        if _large_loads == 1:
            _limit(_LOW_BYTES, _LOW_BYTES)
    try:
        yield
    finally:
        with _guard:
            _large_loads -= 1
            if not _large_loads:
                release_memory()
                _limit(_HIGH_BYTES, 2 * _HIGH_BYTES)


def _limit(mapped_bytes: int, trimmed_bytes: int) -> None:
    """Map blocks from one size on; trim heaps whose free end has the other size."""
    library = _library()
    if library is not None and not any(name in os.environ for name in _SETTINGS):
        library.mallopt(_MMAP_THRESHOLD, mapped_bytes)
        library.mallopt(_TRIM_THRESHOLD, trimmed_bytes)


@cache
def _library() -> Any:
    """Return the C library, if it is the GNU one."""
    try:
        found = ctypes.CDLL(None)
        found.gnu_get_libc_version  # noqa: B018 - raises where there is none
    except (OSError, AttributeError, TypeError):
        return None
    return found
