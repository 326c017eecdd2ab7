"""Who reads, checks and stages the rows of a load: this process, or tasks elsewhere.

1. `read` reads the whole input once. Nothing that it writes is visible before the commit, so it may
   run anywhere and fail at any point.
2. A proof needs no rows and is exact; without one, `gather` brings the columns that the rules
   across rows look at into this process, and the same rules decide for every kind of worker.
3. `stage` may be called several times, each time for a newer snapshot.
4. After the commit, `leave_topologies` prepares traversals; a load does not depend on it.
"""

from __future__ import annotations

from typing import Protocol

from omnigraph.dataclass import dataclass
from omnigraph.manifest import Snapshot
from omnigraph.names import TableKey
from omnigraph.store import Store
from omnigraph.write.load.input.interfaces import LoadInput, LoadSource
from omnigraph.write.load.stage import StagedTable, stage_type
from omnigraph.write.load.state import LoadState
from omnigraph.write.load.topology import persist_topologies
from omnigraph.write.stage.stored_rows import StoredRows


class LoadedRows(Protocol):
    """The rows of one load, after its input has been read."""

    def prove(self, snapshot: Snapshot) -> frozenset[str] | None:
        """Prove that the rows break no rule across rows on a snapshot.

        Return the tables that the proof rests on and the load does not write, or None if there is
        no proof and the rules have to be run.
        """
        ...

    def gather(self, snapshot: Snapshot) -> None:
        """Make sure that `LoadState.intake.types` has what the rules across rows look at."""
        ...

    def stage(self, snapshot: Snapshot) -> dict[str, StagedTable]:
        """Make one transaction per table, of the rows that were not rejected."""
        ...

    @property
    def leaves_topologies(self) -> bool:
        """Whether `leave_topologies` is worth calling."""
        ...

    def leave_topologies(self, snapshot: Snapshot, store: Store) -> None:
        """Store topologies of the committed edges; never fails a load."""
        ...


class LoadWorkers(Protocol):
    """Does the heavy part of one load."""

    @property
    def name(self) -> str:
        """The engine, as results call it."""
        ...

    @property
    def application_id(self) -> str | None:
        """What the engine calls itself, where it is another process."""
        ...

    @property
    def source(self) -> LoadInput:
        """What is read."""
        ...

    def read(self, load: LoadState, snapshot: Snapshot) -> LoadedRows:
        """Read everything; counts and problems go to `load.intake`."""
        ...


@dataclass(frozen=True)
class LocalLoadWorkers:
    """Works in this process."""

    source: LoadSource
    name: str = "local"
    application_id: None = None

    def read(self, load: LoadState, snapshot: Snapshot) -> LocalRows:  # noqa: ARG002 - the intake has it
        """Read everything into the intake."""
        self.source.read(load.catalog, load.intake)
        return LocalRows(load)


@dataclass(frozen=True)
class LocalRows:
    """Rows that are in the intake of the load."""

    load: LoadState

    def prove(self, snapshot: Snapshot) -> None:
        """Prove nothing: the rules are run instead."""

    def gather(self, snapshot: Snapshot) -> None:
        """Do nothing: everything is there."""

    def stage(self, snapshot: Snapshot) -> dict[str, StagedTable]:
        """Make one transaction per table, nodes first."""
        stored = StoredRows(snapshot)
        types = sorted(self.load.types.items(), key=lambda item: _nodes_first(item[0]))
        bases, options = self.load.bases, self.load.options
        return {key: stage_type(loaded, stored, bases, options) for key, loaded in types}

    @property
    def leaves_topologies(self) -> bool:
        """Whether they were asked for."""
        return self.load.options.persists_topology

    def leave_topologies(self, snapshot: Snapshot, store: Store) -> None:
        """Store the topologies of edges whose tables are all new."""
        persist_topologies(self.load.intake.types, self.load.staged, snapshot, store)


def _nodes_first(table_key: str) -> tuple[bool, str]:
    return TableKey(table_key).is_edge, table_key
