"""Commits that are staged again when another writer was faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import DatasetExistsError, StaleBaseError
from omnigraph.store.records import CommittedRange, StagedTransaction

LOST_RACES: Final = (DatasetExistsError, StaleBaseError)


def commit_retried(
    datasets: DatasetStore,
    stage: Callable[[], StagedTransaction | None],
    *,
    attempts_max: int,
    exact: bool = True,
    retried: tuple[type[Exception], ...] = LOST_RACES,
) -> CommittedRange | None:
    """Commit what `stage` returns, staged again after each lost race; None: nothing to commit."""
    for attempt in range(1, attempts_max + 1):
        try:
            staged = stage()
            return None if staged is None else datasets.commit_staged(staged, exact=exact)
        except retried:
            if attempt == attempts_max:
                raise
    raise AssertionError("the last attempt returns or raises")
