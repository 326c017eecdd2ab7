"""What is asked of a merge or a revert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.lineage import Job
from omnigraph.manifest.layout import Incarnation
from omnigraph.merge.resolve import Decisions
from omnigraph.merge.schemas import SchemaGuard
from omnigraph.merge.vectors import RecordedVectors
from omnigraph.write.commit.terms import CommitTerms


@dataclass(frozen=True, kw_only=True)
class _Request:
    """What merges and reverts have in common: the branch to change, and the actor."""

    target: Incarnation
    actor_id: str | None = None
    decisions: Decisions = field(default_factory=Decisions)
    decision_file: str | None = None
    """The text of a file of decisions; its rows are read under the merged schema."""
    recorded_vectors: RecordedVectors | None = None
    """Which vectors were made from texts; None where none was."""
    schema_guard: SchemaGuard | None = None
    """Called before a merge that changes the schema of the target reads a row."""
    dry_run: bool = False
    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    retries: int = 0
    """How often the merge is computed again when it lost a race on the target."""
    external_blob_bases: tuple[str, ...] = ()
    """Addresses below which external blobs may be read, when their rows are copied."""
    terms: CommitTerms | None = None
    """What the commit depends on, in addition to its rows."""
    job: Job = field(default=Job("python", "merge"))


@dataclass(frozen=True, kw_only=True)
class MergeRequest(_Request):
    """Which branch to merge into the target."""

    source: Incarnation


@dataclass(frozen=True, kw_only=True)
class RevertRequest(_Request):
    """Which commit to undo on the target."""

    commit_id: str
