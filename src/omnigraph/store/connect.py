"""Opens the two stores of one root.

Nothing of Lance or of a cloud client is imported before a store of that kind is asked for: both
are heavy, and Lance does not survive a fork.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.names import ArgumentError
from omnigraph.store.background import Background, InThreads
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.digests import Ledger
from omnigraph.store.durability import DiskFlusher, Durability, NoFlusher, flusher_for
from omnigraph.store.objects.local import LocalObjectStore
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.uri import Root, parse_root


@dataclass(frozen=True)
class StoreSettings:
    """How to reach a graph's storage: picklable, so that workers can open it too."""

    root: Root
    # Options hold credentials, and settings are shown in plans and stack traces.
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    durability: Durability = "full"
    checksums: bool = True
    """Whether files that are written get a checksum."""


@dataclass(frozen=True)
class Store:
    """Everything under one root: small objects and datasets."""

    settings: StoreSettings
    objects: ObjectStore
    datasets: DatasetStore
    flusher: DiskFlusher | NoFlusher
    background: Background
    ledger: Ledger
    """The files that `datasets` has made part of the graph, until their sums are stored."""


def connect(
    root: str | Root,
    *,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability = "full",
    checksums: bool = True,
) -> Store:
    """Open the storage at a root.

    ```python
    store = connect("s3://lake/brain.omni")
    people = store.datasets.open("nodes/00ff").scan().read_all()
    ```
    """
    for name, value in (storage_options or {}).items():
        if not isinstance(value, str):
            raise ArgumentError(
                f"storage option {name}", "a text", f"of type {type(value).__name__}"
            )
    settings = StoreSettings(
        parse_root(root) if isinstance(root, str) else root,
        dict(storage_options or {}),
        durability,
        checksums,
    )
    return open_store(settings)


def open_store(settings: StoreSettings) -> Store:
    """Open the storage that settings describe; a worker calls this with the driver's settings."""
    local = settings.root.local_path() if settings.root.is_local else None
    flusher = flusher_for(local, settings.durability)
    objects = open_objects(settings, flusher)
    ledger = Ledger(is_kept=settings.checksums)
    datasets = _open_datasets(settings, objects, flusher, ledger)
    return Store(settings, objects, datasets, flusher, InThreads(), ledger)


def open_objects(
    settings: StoreSettings, flusher: DiskFlusher | NoFlusher | None = None
) -> ObjectStore:
    """Open the objects alone, without loading Lance."""
    if settings.root.is_local:
        return LocalObjectStore(settings.root, flusher)
    from omnigraph.store.objects.cloud import CloudObjectStore  # noqa: PLC0415 - heavy, optional

    return CloudObjectStore(settings.root, settings.storage_options)


def _open_datasets(
    settings: StoreSettings,
    objects: ObjectStore,
    flusher: DiskFlusher | NoFlusher,
    ledger: Ledger,
) -> DatasetStore:
    from omnigraph.store.lance.store import LanceStore  # noqa: PLC0415 - heavy, not fork-safe

    return LanceStore(
        settings.root,
        objects,
        storage_options=settings.storage_options,
        flusher=flusher,
        ledger=ledger,
    )
