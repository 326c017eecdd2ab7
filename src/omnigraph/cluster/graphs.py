"""The graphs of a cluster, through the public face of the engine.

Each change is one atomic operation of the engine. What commands decide from is a `Look`.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from omnigraph.cluster.digests import content_digest
from omnigraph.cluster.stored.root import StorageRoot, graph_path
from omnigraph.errors import ConflictError, NotFoundError, OmnigraphError
from omnigraph.graph import Graph, OpenMode, apply_schema_by_cluster, is_exporting
from omnigraph.schema import MigrationPlan

RootState: TypeAlias = Literal["absent", "unfinished", "open", "broken"]


class OtherBranchesError(ConflictError):
    """A schema change needs a graph with no branch but `main`; nothing was changed."""

    code = "OG-CLUSTER-BRANCHES"
    hint = "`omnigraph branch list URI` shows them"
    branches: tuple[str, ...]

    def _message(self) -> str:
        names = ", ".join(self.branches)
        return f"the graph has branches besides main: {names}; merge or delete them, then apply"


class LinkedRootError(ConflictError):
    """The root of a graph is a symbolic link, which no command follows to delete; it stays."""

    code = "OG-CLUSTER-LINK"
    hint = "`ls -l` shows where the link leads"
    template = "{uri} is a symbolic link; nothing was deleted: delete its data and the link by hand"
    uri: str


@dataclass(frozen=True)
class Look:
    """What lies at the root of a graph.

    | state | meaning |
    |---|---|
    | `absent` | nothing |
    | `unfinished` | files without a manifest: a graph that was never finished, or damage |
    | `open` | a graph, with its manifest version and schema |
    | `broken` | something that does not open |
    """

    state: RootState
    manifest_version: int | None = None
    source: str = ""
    message: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a graph opens there."""
        return self.state == "open"

    @property
    def schema_digest(self) -> str | None:
        """The digest of the live schema text."""
        return content_digest(self.source.encode()) if self.is_open else None

    def has_schema(self, digest: str | None) -> bool:
        """Whether the live schema text is that of a file with a digest.

        The engine stores a text without the byte order mark that its file may have had.
        """
        if digest is None or not self.is_open:
            return False
        data = self.source.encode()
        return digest in (content_digest(data), content_digest(BOM_UTF8 + data))


class Graphs(Protocol):
    """What commands do with graphs."""

    def look(self, graph_id: str) -> Look:
        """Return what lies at the root of a graph; changes nothing."""
        ...

    def preview(self, graph_id: str, source: str) -> MigrationPlan:
        """Plan the way from the live schema to another one; changes nothing."""
        ...

    def schema_digest_at(self, graph_id: str, manifest_version: int) -> str | None:
        """Return the digest of the schema of an older version; none if it is no longer known."""
        ...

    def create(self, graph_id: str, source: str, *, actor: str | None) -> int:
        """Make a graph; return its manifest version."""
        ...

    def migrate(
        self, graph_id: str, source: str, *, actor: str | None, begin: Callable[[int], None]
    ) -> int | None:
        """Make a schema the live one; return the new manifest version.

        `begin` is called with the present version after everything that can be refused was
        looked at, and before anything is changed. None is returned, and `begin` is not called, if
        the schemas differ in nothing but comments and format.
        """
        ...

    def is_exporting(self, graph_id: str) -> bool:
        """Whether this process is exporting the graph."""
        ...

    def delete(self, graph_id: str) -> None:
        """Remove everything at the root of a graph, also what an earlier try has left."""
        ...


class EngineGraphs:
    """The graphs under a storage root."""

    def __init__(self, root: StorageRoot) -> None:
        self._root = root

    def look(self, graph_id: str) -> Look:
        """Return what lies at the root of a graph; changes nothing."""
        try:
            with self._open(graph_id, OpenMode.READ_ONLY) as graph:
                return Look("open", graph.snapshot().manifest_version, graph.schema.source())
        except NotFoundError as problem:
            return self._without_manifest(graph_id, str(problem))
        except OmnigraphError as problem:
            return Look("broken", message=str(problem))

    def preview(self, graph_id: str, source: str) -> MigrationPlan:
        """Plan the way from the live schema to another one; changes nothing."""
        with self._open(graph_id, OpenMode.READ_ONLY) as graph:
            return graph.schema.plan(source).plan

    def schema_digest_at(self, graph_id: str, manifest_version: int) -> str | None:
        """Return the digest of the schema of an older version; none if it is no longer known."""
        try:
            with self._open(graph_id, OpenMode.READ_ONLY) as graph:
                source = graph.snapshot_at_version(manifest_version).schema.source
        except OmnigraphError:
            return None
        return content_digest(source.encode())

    def create(self, graph_id: str, source: str, *, actor: str | None) -> int:
        """Make a graph; return its manifest version."""
        uri = self._root.graph_uri(graph_id)
        with Graph.init(
            uri,
            source,
            actor_id=actor,
            by_cluster=True,
            storage_options=self._root.storage_options,
        ) as graph:
            return graph.snapshot().manifest_version

    def migrate(
        self, graph_id: str, source: str, *, actor: str | None, begin: Callable[[int], None]
    ) -> int | None:
        """Make a schema the live one; return the new manifest version."""
        with self._open(graph_id, OpenMode.READ_WRITE) as graph:
            plan = graph.schema.plan(source).plan
            plan.raise_if_unsupported()
            if not plan.steps:
                return None
            others = tuple(name for name in graph.branches.list() if name != graph.branch)
            if others:
                raise OtherBranchesError(others)
            begin(graph.snapshot().manifest_version)
            applied = apply_schema_by_cluster(graph.schema, source, actor_id=actor)
            return applied.graph_manifest_version

    def is_exporting(self, graph_id: str) -> bool:
        """Whether this process is exporting the graph."""
        return is_exporting(self._root.graph_uri(graph_id))

    def delete(self, graph_id: str) -> None:
        """Remove everything at the root of a graph, also what an earlier try has left."""
        uri = self._root.graph_uri(graph_id)
        if self._root.root.is_local and Path(uri).is_symlink():
            # What it points to may be another graph, or belong to another cluster.
            raise LinkedRootError(uri)
        self._root.objects.delete_prefix(graph_path(graph_id))

    def _open(self, graph_id: str, mode: OpenMode) -> Graph:
        return Graph.open(
            self._root.graph_uri(graph_id), mode=mode, storage_options=self._root.storage_options
        )

    def _without_manifest(self, graph_id: str, message: str) -> Look:
        try:
            is_empty = not self._root.objects.list(graph_path(graph_id))
        except OmnigraphError as problem:
            return Look("broken", message=str(problem))
        return Look("absent" if is_empty else "unfinished", message=message)
