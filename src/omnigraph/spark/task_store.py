"""The graph's storage inside of a task, opened once per worker.

Lance does not survive a fork, and workers are forked: nothing here runs before a task does.
"""

from __future__ import annotations

import pickle
from functools import lru_cache

from omnigraph.store.connect import Store, StoreSettings, open_store

_STORES_MAX = 4


def task_store(settings: StoreSettings) -> Store:
    """Open the storage that the driver's settings describe."""
    return _opened(pickle.dumps(settings))


@lru_cache(maxsize=_STORES_MAX)
def _opened(payload: bytes) -> Store:
    # Made by the call above; settings themselves cannot be compared by the cache.
    settings: StoreSettings = pickle.loads(payload)  # noqa: S301 - see above
    return open_store(settings)
