"""What a merge has done, or would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from omnigraph.display import Display, Displayed
from omnigraph.manifest import GraphCommit
from omnigraph.merge.conflicts import Conflicts
from omnigraph.schema import MigrationPlan


class MergeKind(StrEnum):
    """The outcome of a merge."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"
    CONFLICTS = "conflicts"
    """A dry run has found conflicts: a merge would be refused."""


@dataclass(frozen=True)
class TypeCounts:
    """Rows of one type that a merge changes in the target."""

    table_key: str
    inserted: int
    updated: int
    deleted: int

    def to_json(self) -> dict[str, object]:
        """Return the counts as programs see them."""
        return {
            "type_key": self.table_key,
            "insert": self.inserted,
            "update": self.updated,
            "delete": self.deleted,
        }


@dataclass(frozen=True)
class DroppedValues:
    """How many values, or rows where `property` is None, a merge drops."""

    table_key: str
    property: str | None
    count: int

    def to_json(self) -> dict[str, object]:
        """Return the counts as programs see them."""
        return {"type_key": self.table_key, "property": self.property, "count": self.count}


@dataclass(frozen=True, repr=False)
class MergeResult(Displayed):
    """What a merge has done, or would do."""

    source: str
    target: str
    outcome: MergeKind
    actor_id: str | None
    commit: GraphCommit | None = None
    counts: tuple[TypeCounts, ...] = ()
    conflicts: Conflicts = field(default_factory=Conflicts)
    resolved: Mapping[str, int] = field(default_factory=dict)
    """How many rows were settled, by rule."""
    schema_changes: MigrationPlan = field(default_factory=MigrationPlan)
    """The steps by which the schema of the target changes."""
    dropped_values: tuple[DroppedValues, ...] = ()
    """What is lost with types and properties that the chosen side has dropped."""
    engine: str = "local"
    """The engine that has compared and written rows."""
    is_dry_run: bool = False

    def _display(self) -> Display:
        what = "dry run of a merge of" if self.is_dry_run else "merge of"
        title = f"{what} {self.source} into {self.target}: {self.outcome}"
        if self.conflicts:
            rows = [(one.kind, one.table_key, one.entity_id) for one in self.conflicts]
            return Display(title, ("conflict", "type", "id"), rows)
        counts = [(one.table_key, one.inserted, one.updated, one.deleted) for one in self.counts]
        return Display(title, ("type", "inserted", "updated", "deleted") if counts else (), counts)

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it; a dry run says what would change and conflicts."""
        shape: dict[str, object] = {
            "source": self.source,
            "target": self.target,
            "outcome": str(self.outcome),
            "actor_id": self.actor_id,
        }
        if self.is_dry_run:
            shape["dry_run"] = True
        if self.schema_changes.steps:
            shape["schema_changes"] = [step.to_json() for step in self.schema_changes.steps]
        if self.dropped_values:
            shape["dropped_values"] = [each.to_json() for each in self.dropped_values]
        if self.is_dry_run:
            shape["counts"] = [each.to_json() for each in self.counts]
            shape["merge_conflicts"] = [found.to_json() for found in self.conflicts]
        return shape
