"""Exports of this process that are under way, by the root of their graph.

A graph must not be deleted under one: the export would end in the middle with files that are gone.
Exports of other processes are not known here; they fail with a dataset that is not there.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

_T = TypeVar("_T")

_guard: Final = threading.Lock()
_running: Final[Counter[str]] = Counter()


def is_exporting(root: str) -> bool:
    """Whether an export of a graph is under way in this process."""
    with _guard:
        return _running[root] > 0


@contextmanager
def exporting(root: str) -> Iterator[None]:
    """Count an export of a graph as running for the length of the block."""
    with _guard:
        _running[root] += 1
    try:
        yield
    finally:
        with _guard:
            _running[root] -= 1


def tracked(root: str, items: Iterator[_T]) -> Iterator[_T]:
    """Yield what an export yields; it runs from the first item until it is exhausted or closed."""
    with exporting(root):
        yield from items
