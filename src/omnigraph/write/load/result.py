"""What a caller asks of a load, and what it hears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from omnigraph.errors import InvalidInputError
from omnigraph.manifest import GraphCommit
from omnigraph.manifest.layout import Incarnation
from omnigraph.names import BranchName
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.write.load.rows.spool import MEMORY_MAX
from omnigraph.write.stage.delta import WriteMode


class LoadOptionsError(InvalidInputError):
    """Options of a load do not go together."""

    code = "OG-LOAD-OPTIONS"
    hint = "`omnigraph load --help` lists the options"


class OnError(StrEnum):
    """What happens when rows break rules."""

    FAIL = "fail"
    """Nothing is loaded."""
    QUARANTINE = "quarantine"
    """They are left out, and written to a directory."""


class OnDuplicate(StrEnum):
    """What happens in a merge when several rows have one id."""

    ERROR = "error"
    LAST = "last"
    """The last one wins."""


@dataclass(frozen=True)
class LoadOptions:
    """How and where to load."""

    mode: WriteMode
    target: Incarnation | BranchName
    """A life of a branch, or a name that is looked up, or created with `from_branch`."""
    from_branch: BranchName | None = None
    actor_id: str | None = None
    expected_head: str | None = None
    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    """What the commit remembers beside its message."""
    conversion: ConversionMode = ConversionMode.STRICT
    on_error: OnError = OnError.FAIL
    quarantine: Path | None = None
    """Where rows go that are left out."""
    max_errors: int | None = None
    """A load with more bad rows fails, whatever `on_error` says."""
    on_duplicate: OnDuplicate = OnDuplicate.ERROR
    cascade: bool = False
    """Whether stored edges go with the nodes that an overwrite takes away."""
    is_dry_run: bool = False
    """Whether everything is checked and counted, and nothing written."""
    external_blob_bases: tuple[str, ...] = ()
    persists_topology: bool = False
    """Whether a first load of edges leaves their adjacency behind, which takes memory for each."""
    memory_max: int = MEMORY_MAX
    """What a load keeps in memory, in bytes; the rest waits in files."""

    def check(self) -> None:
        """Refuse options that do not go together."""
        if (self.on_error is OnError.QUARANTINE) != (self.quarantine is not None):
            raise LoadOptionsError(
                "`on_error='quarantine'` and a quarantine directory go together: give both or none"
            )
        if self.on_duplicate is OnDuplicate.LAST and self.mode is not WriteMode.MERGE:
            raise LoadOptionsError("`on_duplicate='last'` is for mode `merge`")
        if self.cascade and self.mode is not WriteMode.OVERWRITE:
            raise LoadOptionsError("`cascade` is for mode `overwrite`: other modes remove no nodes")
        if self.max_errors is not None and self.max_errors < 0:
            raise LoadOptionsError(f"max_errors is {self.max_errors}; expected 0 or more")


@dataclass(frozen=True)
class TypeCounts:
    """What has become of the records of one type; `loaded` counts those that were read."""

    loaded: int
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    rejected: int = 0

    def to_json(self, name: str) -> dict[str, object]:
        """Return the counters of a type."""
        return {
            "name": name,
            "entities_loaded": self.loaded,
            "inserted": self.inserted,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "rejected": self.rejected,
        }


@dataclass(frozen=True)
class Seconds:
    """Where the time of a load went."""

    read: float = 0.0
    validate: float = 0.0
    write: float = 0.0
    commit: float = 0.0

    def to_json(self) -> dict[str, float]:
        """Return the seconds by phase."""
        return {name: round(value, 6) for name, value in vars(self).items()}


@dataclass(frozen=True)
class LoadResult:
    """What a load has done; types are sorted by name."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: str
    node_counts: Mapping[str, TypeCounts]
    edge_counts: Mapping[str, TypeCounts]
    commit: GraphCommit | None
    actor_id: str | None
    engine: str = "local"
    spark_app_id: str | None = None
    durability: str = "full"
    bytes_written: int = 0
    unreadable: int = 0
    """Records that were rejected and have no type."""
    cascaded: Mapping[str, int] | None = None
    """How many stored edges of each type went with their nodes; None if that was not asked for."""
    is_dry_run: bool = False
    """Whether this is what a load would do, and nothing was written."""
    seconds: Seconds = field(default_factory=Seconds)

    @property
    def nodes(self) -> tuple[tuple[str, int], ...]:
        """How many records of each node type were read."""
        return tuple((name, counts.loaded) for name, counts in self.node_counts.items())

    @property
    def edges(self) -> tuple[tuple[str, int], ...]:
        """How many records of each edge type were read."""
        return tuple((name, counts.loaded) for name, counts in self.edge_counts.items())

    @property
    def total_entities(self) -> int:
        """How many records were read."""
        return sum(count for _, count in self.nodes + self.edges)

    @property
    def inserted(self) -> int:
        """How many rows are new."""
        return sum(counts.inserted for counts in self._counts())

    @property
    def updated(self) -> int:
        """How many stored rows were replaced by different ones."""
        return sum(counts.updated for counts in self._counts())

    @property
    def unchanged(self) -> int:
        """How many rows were stored already as they are."""
        return sum(counts.unchanged for counts in self._counts())

    @property
    def rejected(self) -> int:
        """How many records were left out."""
        return self.unreadable + sum(counts.rejected for counts in self._counts())

    def _counts(self) -> tuple[TypeCounts, ...]:
        return (*self.node_counts.values(), *self.edge_counts.values())

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        shape: dict[str, object] = {
            "branch": self.branch,
            "base_branch": self.base_branch,
            "branch_created": self.branch_created,
            "mode": self.mode,
            "nodes": [counts.to_json(name) for name, counts in self.node_counts.items()],
            "edges": [counts.to_json(name) for name, counts in self.edge_counts.items()],
            "total_entities": self.total_entities,
            "commit": None if self.commit is None else self.commit.to_json(),
            "engine": self.engine,
            "durability": self.durability,
            "inserted": self.inserted,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "rejected": self.rejected,
            "bytes_written": self.bytes_written,
            "seconds": self.seconds.to_json(),
        }
        if self.cascaded is not None:
            removed = sorted(self.cascaded.items())
            shape["cascaded"] = [{"name": name, "removed": count} for name, count in removed]
        if self.is_dry_run:
            shape["dry_run"] = True
        if self.spark_app_id is not None:
            shape["spark_app_id"] = self.spark_app_id
        if self.actor_id is not None:
            shape["actor_id"] = self.actor_id
        return shape
