"""What a load reports to its caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.manifest import GraphCommit


@dataclass(frozen=True)
class LoadCounts:
    """How many records of one type were read (`loaded`), and what they changed."""

    loaded: int
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    rejected: int = 0
    deleted: int = 0
    """Stored rows that were removed: in an overwrite all that were there before."""
    superseded: int = 0
    """Records that another record of the same id has replaced."""
    nulled: Mapping[str, int] = field(default_factory=dict)
    """How many stored values became null, by property."""
    warnings: tuple[str, ...] = ()

    def to_json(self, name: str) -> dict[str, object]:
        """Return the counters of a type, and its warnings if there are any."""
        return {
            "name": name,
            "entities_loaded": self.loaded,
            "inserted": self.inserted,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "deleted": self.deleted,
            "rejected": self.rejected,
            "superseded": self.superseded,
            "nulled": dict(sorted(self.nulled.items())),
            "warnings": list(self.warnings),
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


@dataclass(frozen=True, repr=False)
class LoadResult(Displayed):
    """What a load has done; types are sorted by name."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: str
    node_counts: Mapping[str, LoadCounts]
    edge_counts: Mapping[str, LoadCounts]
    commit: GraphCommit | None
    actor_id: str | None
    engine: str = "local"
    engine_reason: str = ""
    """Why that engine did the work."""
    spark_app_id: str | None = None
    durability: str = "full"
    bytes_written: int = 0
    unreadable: int = 0
    """Records that were rejected and have no type."""
    cascaded: Mapping[str, int] | None = None
    """How many stored edges of each type were removed with their nodes; None without `cascade`."""
    is_dry_run: bool = False
    """Whether nothing was written, and the counts say what a load would do."""
    seconds: Seconds = field(default_factory=Seconds)

    def _display(self) -> Display:
        counters = ("inserted", "updated", "unchanged", "deleted", "rejected")
        counts = [*self.node_counts.items(), *self.edge_counts.items()]
        rows = [
            (name, one.loaded, *(getattr(one, counter) for counter in counters))
            for name, one in counts
        ]
        done = "no commit" if self.commit is None else f"commit {self.commit.graph_commit_id}"
        what = "dry run of a load into" if self.is_dry_run else "load into"
        title = f"{what} {self.branch} ({self.mode}): {done}"
        return Display(title, ("type", "records", *counters), rows)

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
        """How many rows equal the stored ones."""
        return sum(counts.unchanged for counts in self._counts())

    @property
    def rejected(self) -> int:
        """How many records were rejected."""
        return self.unreadable + sum(counts.rejected for counts in self._counts())

    @property
    def deleted(self) -> int:
        """How many stored rows were removed, those of `cascaded` not counted."""
        return sum(counts.deleted for counts in self._counts())

    @property
    def superseded(self) -> int:
        """How many records another record of the same id has replaced."""
        return sum(counts.superseded for counts in self._counts())

    @property
    def nulled(self) -> int:
        """How many stored values became null."""
        return sum(sum(counts.nulled.values()) for counts in self._counts())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the caller should know, each with the type that it is about."""
        named = (*self.node_counts.items(), *self.edge_counts.items())
        return tuple(f"{name}: {text}" for name, counts in named for text in counts.warnings)

    def _counts(self) -> tuple[LoadCounts, ...]:
        return (*self.node_counts.values(), *self.edge_counts.values())

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON."""
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
            "engine_reason": self.engine_reason,
            "durability": self.durability,
            "inserted": self.inserted,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "deleted": self.deleted,
            "rejected": self.rejected,
            "superseded": self.superseded,
            "nulled": self.nulled,
            "warnings": list(self.warnings),
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
