"""The storage root of a cluster: a directory, or a prefix of a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from omnigraph.cluster.diagnostics import DiagnosedError, error
from omnigraph.errors import OmnigraphError
from omnigraph.store import ObjectStore, StoreSettings, open_objects
from omnigraph.store.durability import flusher_for
from omnigraph.store.uri import Root, parse_root

FOLDER: Final = "__cluster"


@dataclass(frozen=True)
class StorageRoot:
    """The objects of one cluster, and how their places are shown."""

    root: Root
    objects: ObjectStore
    storage_options: Mapping[str, str] | None = field(default=None, repr=False, compare=False)
    """Settings of the storage, for the graphs too; those of the environment are the default."""

    @property
    def uri(self) -> str:
        """The root as it is shown: an absolute path, or a URI."""
        return self.root.uri

    def shown(self, path: str) -> str:
        """Return the full name of an object."""
        return self.root.join(path)

    def graph_uri(self, graph_id: str) -> str:
        """Return the root of a graph."""
        return self.root.join(graph_path(graph_id))


def graph_path(graph_id: str) -> str:
    """Return where a graph lies under the root.

    >>> graph_path("papers")
    'graphs/papers.omni'
    """
    return f"graphs/{graph_id}.omni"


def open_root(storage: str, storage_options: Mapping[str, str] | None = None) -> StorageRoot:
    """Open a storage root; creates nothing."""
    try:
        root = parse_root(storage)
        flusher = flusher_for(root.local_path() if root.is_local else None, "full")
        settings = StoreSettings(root, dict(storage_options or {}))
        return StorageRoot(root, open_objects(settings, flusher), storage_options)
    except OmnigraphError as problem:
        raise DiagnosedError(error("storage_root_invalid", storage, str(problem))) from problem
