"""What the parts of one open graph share.

A `Session` is a frozen record. The only thing that changes is the branch that the handle is bound
to, which its `Binding` holds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.graph.authorize import UNGATED, WriteGate
from omnigraph.graph.late import (
    background_work,
    commit_terms,
    committers,
    lineage_record,
    lineage_transport,
    optimizing,
    row_embedder,
    staging_records,
    write_side,
)
from omnigraph.graph.schema_hold import SchemaHold
from omnigraph.manifest import (
    AnyTarget,
    GraphCommit,
    OpenMode,
    ReadTarget,
    Repository,
    Snapshot,
)
from omnigraph.manifest.layout import MAIN_INCARNATION, Incarnation
from omnigraph.manifest.state import ManifestState
from omnigraph.names import MAIN, ArgumentError, BranchName, choice, is_ulid
from omnigraph.policy import Action
from omnigraph.read.access import column_files
from omnigraph.read.reader import Reader
from omnigraph.recovery import Recovery
from omnigraph.schema import Catalog
from omnigraph.search.embedding.client import LazyEmbeddingClient
from omnigraph.search.embedding.config import EmbeddingConfig
from omnigraph.search.embedding.table import EmbeddingsTable
from omnigraph.search.topology.cache import Topologies
from omnigraph.search.topology.store import TopologyStore
from omnigraph.store.blob_bases import blob_bases
from omnigraph.texts import shown

LIVE_EVENTS: Final = "OMNIGRAPH_LINEAGE"
"""Names where events of lineage go; without it nothing of lineage is loaded for a read."""


class ReadOnlyGraphError(InvalidInputError):
    """The graph was opened for reading only."""

    code = "OG-READ-ONLY"
    hint = "open it with mode=OpenMode.READ_WRITE"
    template = "{operation} needs a graph that was opened for writing"
    operation: str


class ForeignSnapshotError(InvalidInputError):
    """A snapshot came from another handle, which may be one of another graph."""

    code = "OG-FOREIGN-SNAPSHOT"
    hint = "take the snapshot from this handle, or name it by a `ReadTarget`"
    template = "the snapshot of manifest version {manifest_version} was taken from another handle"
    manifest_version: int


class GraphClosedError(InvalidInputError):
    """A graph was used after it had been closed."""

    code = "OG-GRAPH-CLOSED"
    hint = "open it again: `Graph.open(uri)`; a `with` block closes the graph at its end"
    template = "the graph {root} is closed"
    root: str


class Binding:
    """The branch that a handle is bound to. Safe to share between threads."""

    def __init__(self, incarnation: Incarnation) -> None:
        self._guard = threading.Lock()
        self._incarnation = incarnation

    def get(self) -> Incarnation:
        """Return the bound branch."""
        with self._guard:
            return self._incarnation

    def set(self, incarnation: Incarnation) -> None:
        """Bind the handle to another branch."""
        with self._guard:
            self._incarnation = incarnation


class LateWriteSide:
    """The write side of an open graph: most handles only read. Safe to share between threads."""

    def __init__(self, make: Callable[[], write_side.WriteSide]) -> None:
        self._guard = threading.Lock()
        self._make = make
        self._made: write_side.WriteSide | None = None

    def get(self) -> write_side.WriteSide:
        """Return the write side; the first call makes it."""
        with self._guard:
            if self._made is None:
                self._made = self._make()
            return self._made

    def made(self) -> write_side.WriteSide | None:
        """Return the write side if a call has made it."""
        with self._guard:
            return self._made


@dataclass(frozen=True)
class Session:
    """An open graph, bound to one of its branches."""

    repository: Repository
    mode: OpenMode
    binding: Binding
    recovery: Recovery
    writing: LateWriteSide
    topologies: Topologies
    embeddings: LazyEmbeddingClient
    reader: Reader
    gate: WriteGate
    external_blob_bases: tuple[str, ...] = ()
    """From below which every write of the handle may read external blobs."""
    hold: SchemaHold | None = None
    terms: commit_terms.CommitTerms | None = None
    """What commits of loads and merges through this handle depend on."""
    closed: threading.Event = field(default_factory=threading.Event)
    """Set once the graph is closed; shared by all handles of one open graph."""
    live: lineage_transport.LiveEvents | None = None
    """Sends the lineage of commits, if the environment asks for it."""
    job_namespace: str = "python"
    job_name: str | None = None
    """What the lineage of commits calls the jobs of this handle; by default by the operation."""

    @property
    def committer(self) -> committers.Committer:
        """What commits the writes of this handle."""
        committer = self.writing.get().committer
        return committer if self.hold is None else committer.held_to(self.hold)

    @property
    def maintenance(self) -> optimizing.Maintenance:
        """What compacts and indexes tables."""
        return self.writing.get().maintenance

    @property
    def background(self) -> background_work.BackgroundMaintenance:
        """What follows the writes of all handles of the open graph."""
        return self.writing.get().background

    @property
    def staging(self) -> staging_records.StagingRecords:
        """The records of files that writes have staged."""
        return self.writing.get().staging

    @property
    def is_writable(self) -> bool:
        """Whether the graph was opened for writing."""
        return self.mode is OpenMode.READ_WRITE

    @property
    def is_on_disk(self) -> bool:
        """Whether the graph is on a disk of this machine: looking for a commit is no request."""
        return self.repository.store.settings.root.is_local

    def require_writable(self, operation: str) -> None:
        """Raise unless the graph was opened for writing."""
        if not self.is_writable:
            raise ReadOnlyGraphError(operation)

    def authorize(
        self,
        action: Action,
        *,
        branch: str | None = None,
        target_branch: str | None = None,
        actor_id: str | None = None,
    ) -> str | None:
        """Return the actor that a write is recorded for, or raise unless it may be done."""
        return self.gate.authorize(
            action, branch=branch, target_branch=target_branch, actor_id=actor_id
        )

    def branch_of(self, branch: str | None) -> str:
        """Return the checked name of a branch, by default of the bound one; reads no storage."""
        return str(self.binding.get().branch if branch is None else BranchName.parse(branch))

    def resolve(self, branch: str) -> Incarnation:
        """Return the live branch of a name."""
        return self.repository.branches.resolve(BranchName.parse(branch))

    def incarnation_of(self, branch: str | None) -> Incarnation:
        """Return the live branch of a name, by default the bound one."""
        return self.binding.get() if branch is None else self.resolve(branch)

    def state_of(self, branch: str | None) -> ManifestState:
        """Return the newest manifest state of a branch, by default of the bound one."""
        return self.repository.reader.latest(self.incarnation_of(branch))

    def snapshot(self, branch: str | None = None) -> Snapshot:
        """Return the newest snapshot of a branch, by default of the bound one."""
        return self._held(self.repository.history.snapshot(self.incarnation_of(branch)))

    def target_of(self, target: AnyTarget) -> ReadTarget | Snapshot:
        """Return what a target means: a text is a branch, tag or commit, with a colon a moment."""
        if isinstance(target, datetime):
            return ReadTarget.at(target)
        if isinstance(target, GraphCommit):
            return ReadTarget.commit(target.graph_commit_id)
        if isinstance(target, str):
            # No branch, tag or commit has a colon in its name.
            return ReadTarget.at(target) if ":" in target else self._named(target)
        given: object = target
        if isinstance(given, ReadTarget | Snapshot):
            return given
        expected = "a branch, tag or commit, a `datetime` with a time zone, or a `ReadTarget`"
        raise ArgumentError.of("target", expected, given)

    def _named(self, name: str) -> ReadTarget:
        branch = ReadTarget.branch(name)
        if name == MAIN:
            return branch
        is_tag = name in self.repository.reader.latest(MAIN_INCARNATION).tags
        if not is_tag and not is_ulid(name):
            return branch
        live = self.repository.branches.incarnations()
        if name in {str(incarnation.branch) for incarnation in live}:
            return branch
        return ReadTarget.tag(name) if is_tag else ReadTarget.commit(name)

    def snapshot_of(self, target: AnyTarget | None) -> Snapshot:
        """Return the snapshot of a target, by default the newest one of the bound branch."""
        if target is None:
            return self.snapshot()
        target = self.target_of(target)
        if isinstance(target, ReadTarget):
            found = self.repository.history.snapshot_of(target, self.binding.get())
            return self._held(found) if target.kind == "branch" else found
        if target.datasets is not self.repository.store.datasets:
            raise ForeignSnapshotError(target.manifest_version)
        return target

    def _held(self, snapshot: Snapshot) -> Snapshot:
        """Return the newest snapshot of `main` with the schema that the handle is held to.

        Other branches have schemas of their own.
        """
        if self.hold is None or not snapshot.incarnation.is_main:
            return snapshot
        return self.hold.newest(snapshot)

    def job(self, asked: str | lineage_record.Job | None, operation: str) -> lineage_record.Job:
        """Return the job that a write is recorded for."""
        own = lineage_record.Job(self.job_namespace, self.job_name or operation)
        return lineage_record.job_of(asked, own)

    def blob_bases(self, given: Iterable[str]) -> tuple[str, ...]:
        """Return from below which one write may read external blobs."""
        return blob_bases((*self.external_blob_bases, *given))

    def catalog(self) -> Catalog:
        """Return what the accepted schema of the bound branch declares."""
        return self.snapshot().catalog

    @property
    def embeddings_table(self) -> EmbeddingsTable:
        """The table of vectors that were made from texts."""
        return EmbeddingsTable(self.repository.store.datasets)

    def embedder(self, embed: str, *, is_asked_for: bool = False) -> row_embedder.RowEmbedder:
        """Return what fills the vectors of one write."""
        mode = choice(row_embedder.EmbedMode, embed, "embed mode")
        return row_embedder.RowEmbedder(
            self.embeddings, self.embeddings_table, mode, is_asked_for=is_asked_for
        )

    def finish(self) -> None:
        """Do the maintenance that the writes have left, and wait until their events are sent."""
        written = self.writing.made()
        if written is None:
            self.repository.checksums.record()
        else:
            written.background.close()
        if self.live is not None:
            self.live.flush()

    def forget(self) -> None:
        """Drop what is in memory to answer faster, and let threads end.

        A closed graph is often still referred to: a `with` block leaves its variable behind.
        """
        self.reader.forget()
        store = self.repository.store
        store.datasets.forget_all()
        store.background.end_threads()
        store.flusher.end_threads()


class Part:
    """A part of one open graph."""

    def __init__(self, session: Session) -> None:
        self._opened = session

    @property
    def _session(self) -> Session:
        """The open graph; raises once it is closed."""
        if self._opened.closed.is_set():
            raise GraphClosedError(self._opened.repository.root)
        return self._opened

    def __repr__(self) -> str:
        state = " closed" if self._opened.closed.is_set() else ""
        root, branch = shown(self._opened.repository.root), self._opened.binding.get().branch
        return f"<{type(self).__name__} of {root} branch={branch}{state}>"


def share_columns(folder: Path) -> None:
    """Let the graphs of this process map columns from a folder, unless the environment names one.

    It takes effect for graphs that are opened later.
    """
    os.environ.setdefault(column_files.FOLDER, str(folder))


def start_session(
    repository: Repository,
    recovery: Recovery,
    *,
    mode: OpenMode,
    incarnation: Incarnation,
    gate: WriteGate = UNGATED,
    auto_optimize: bool = True,
    embedding: EmbeddingConfig | None = None,
    external_blob_bases: tuple[str, ...] = (),
) -> Session:
    """Put the parts of an open graph together; touches no storage."""
    live = lineage_transport.live_events() if os.environ.get(LIVE_EVENTS) else None

    def make() -> write_side.WriteSide:
        return write_side.make_write_side(
            repository, recovery, reader, live=live, auto_optimize=auto_optimize
        )

    is_writable = mode is OpenMode.READ_WRITE
    topologies = Topologies(TopologyStore(repository.store, is_writable=is_writable))
    embeddings = LazyEmbeddingClient(repository.clock, config=embedding, environ=os.environ)
    reader = Reader(
        topologies,
        repository.clock,
        embeddings=embeddings,
        recorded=EmbeddingsTable(repository.store.datasets),
    )
    return Session(
        repository=repository,
        mode=mode,
        binding=Binding(incarnation),
        recovery=recovery,
        writing=LateWriteSide(make),
        topologies=topologies,
        embeddings=embeddings,
        reader=reader,
        gate=gate,
        external_blob_bases=external_blob_bases,
        live=live,
    )
