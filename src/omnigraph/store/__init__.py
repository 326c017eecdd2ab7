"""Datasets and objects behind two small protocols; the only home of Lance and cloud clients.

Importing this package loads neither: see `omnigraph.store.connect`.
"""

from omnigraph.store.connect import Store, StoreSettings, connect, open_objects, open_store
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.objects.protocol import ObjectStore

__all__ = [
    "DatasetHandle",
    "DatasetStore",
    "ObjectStore",
    "Store",
    "StoreSettings",
    "connect",
    "open_objects",
    "open_store",
]
