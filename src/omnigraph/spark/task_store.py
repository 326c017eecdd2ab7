"""The graph's storage inside of a task, opened once per worker and operation.

Lance does not survive a fork, and workers are forked: nothing here runs before a task does. Workers
outlive operations, and a store remembers versions that it has opened: a graph that was removed and
made again at the same place must not be read through them, so no two operations share a store.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from omnigraph.store.connect import Store, StoreSettings, open_store

if TYPE_CHECKING:
    from omnigraph.spark.side_files import SideFiles

_STORES_MAX: Final = 2


def task_store(files: SideFiles) -> Store:
    """Open the storage of an operation."""
    return _opened(files.operation_id, pickle.dumps(files.settings))


@lru_cache(maxsize=_STORES_MAX)
def _opened(operation_id: str, payload: bytes) -> Store:
    del operation_id
    # Made by the call above; settings themselves cannot be compared by the cache.
    settings: StoreSettings = pickle.loads(payload)  # noqa: S301 - see above
    return open_store(settings)
