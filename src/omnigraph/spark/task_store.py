"""The graph's storage inside of a task, opened once per worker and operation.

Lance does not survive a fork, and workers are forked: nothing here runs before a task does. Workers
outlive operations, and a store remembers versions that it has opened: a graph that was removed and
made again at the same place must not be read through them, so no two operations share a store.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from omnigraph.store.connect import Store, StoreSettings, open_store

if TYPE_CHECKING:
    from omnigraph.spark.load.side_files import SideFiles
    from omnigraph.store.datasets import DatasetHandle, DatasetStore
    from omnigraph.store.durability import Durability
    from omnigraph.store.records import DatasetVersion
    from omnigraph.store.uri import Root

_STORES_MAX: Final = 2


def task_store(files: SideFiles) -> Store:
    """Open the storage of an operation."""
    settings = files.settings
    options = tuple(sorted(settings.storage_options.items()))
    return _opened(files.operation_id, settings.root, options, settings.durability)


def opened_version(datasets: DatasetStore, at: DatasetVersion | None) -> DatasetHandle | None:
    """Open one side of a comparison, if there is one."""
    return None if at is None else datasets.open(at.location, branch=at.branch, version=at.version)


@lru_cache(maxsize=_STORES_MAX)
def _opened(
    operation_id: str, root: Root, options: tuple[tuple[str, str], ...], durability: Durability
) -> Store:
    # A mapping cannot be a key of the cache, so the options come as pairs.
    del operation_id
    return open_store(StoreSettings(root, dict(options), durability))
