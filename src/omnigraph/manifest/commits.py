"""Commit records and the graph that they form."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.manifest.rows import GRAPH_COMMIT, ManifestRow
from omnigraph.names import MAIN
from omnigraph.texts import on_one_line

MAINTENANCE_OPERATIONS: Final = frozenset({"optimize", "ensure_indices", "recovery", "repair"})
"""Operations that change no content that a caller had seen."""

ACTING_COMMIT_START: Final = '{"actor_id":"'
"""How the stored form of a commit begins exactly when it has an actor."""


@dataclass(frozen=True, repr=False)
class GraphCommit(Displayed):
    """One commit of the graph.

    `manifest_branch` is the branch's incarnation, None on main. `manifest_version` is the version
    of `__manifest` in which the record appeared; the stored row does not contain it. `created_at`
    counts microseconds.
    """

    graph_commit_id: str
    manifest_branch: str | None
    manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    operation: str
    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def graph_branch(self) -> str | None:
        """The public name of the branch; None on main."""
        return None if self.manifest_branch is None else self.manifest_branch.rpartition(".")[0]

    @property
    def is_maintenance(self) -> bool:
        """Whether the commit left the content as it was."""
        return self.operation in MAINTENANCE_OPERATIONS

    def __repr__(self) -> str:
        """Return one line: commits are shown in lists. `print` shows the table."""
        by = f" by {self.actor_id}" if self.actor_id else ""
        place = self.graph_branch or MAIN
        return on_one_line(f"<{self._display().title}, on {place}{by}, {self._made}>")

    def __str__(self) -> str:
        return self._display().text()

    @property
    def _made(self) -> str:
        return datetime.fromtimestamp(self.created_at / 1e6, UTC).isoformat(" ", "seconds")

    def _display(self) -> Display:
        made = self._made
        said = f": {self.message}" if self.message else ""
        facts = {
            "branch": self.graph_branch or MAIN,
            "made": made,
            "by": self.actor_id,
            "parent": self.parent_commit_id,
            "merged": self.merged_parent_commit_id,
            **self.properties,
        }
        rows = [(name, value) for name, value in facts.items() if value is not None]
        return Display(f"commit {self.graph_commit_id} ({self.operation}){said}", ("", ""), rows)

    def to_json(self) -> dict[str, object]:
        """Return the form in which results show a commit."""
        return {
            "graph_commit_id": self.graph_commit_id,
            "graph_branch": self.graph_branch,
            "graph_manifest_version": self.manifest_version,
            "parent_commit_id": self.parent_commit_id,
            "merged_parent_commit_id": self.merged_parent_commit_id,
            "actor_id": self.actor_id,
            "created_at": self.created_at,
        }

    def row(self) -> ManifestRow:
        """Return the `graph_commit` row."""
        metadata: dict[str, Any] = {
            "actor_id": self.actor_id,
            "manifest_branch": self.manifest_branch,
            "parent_commit_id": self.parent_commit_id,
            "merged_parent_commit_id": self.merged_parent_commit_id,
            "created_at": self.created_at,
            "operation": self.operation,
        }
        if self.message is not None:
            metadata["message"] = self.message
        if self.properties:
            metadata["properties"] = dict(self.properties)
        return ManifestRow(self.graph_commit_id, GRAPH_COMMIT, metadata)

    @classmethod
    def from_row(
        cls, commit_id: str, metadata: Mapping[str, Any], manifest_version: int
    ) -> GraphCommit:
        """Read a stored record; `manifest_version` is where its row was created."""
        return cls(
            graph_commit_id=commit_id,
            manifest_branch=metadata["manifest_branch"],
            manifest_version=manifest_version,
            parent_commit_id=metadata["parent_commit_id"],
            merged_parent_commit_id=metadata["merged_parent_commit_id"],
            actor_id=metadata["actor_id"],
            created_at=metadata["created_at"],
            operation=metadata["operation"],
            message=metadata.get("message"),
            properties=metadata.get("properties", {}),
        )


def distances(head: str, commits: Mapping[str, GraphCommit]) -> dict[str, int]:
    """Return the shortest distance from a head to each ancestor, over both kinds of parents.

    The search ends at a parent without a record.
    """
    found = {head: 0}
    queue = deque([head])
    while queue:
        commit = commits.get(queue.popleft())
        if commit is None:
            continue
        for parent in (commit.parent_commit_id, commit.merged_parent_commit_id):
            if parent is not None and parent in commits and parent not in found:
                found[parent] = found[commit.graph_commit_id] + 1
                queue.append(parent)
    return found


def merge_base(
    source_head: str, target_head: str, commits: Iterable[GraphCommit]
) -> GraphCommit | None:
    """Find the one common ancestor that a merge starts from.

    The smallest sum of distances wins, then the larger manifest version, then the larger id.
    """
    by_id = {commit.graph_commit_id: commit for commit in commits}
    from_source = distances(source_head, by_id)
    from_target = distances(target_head, by_id)
    shared = [by_id[commit] for commit in from_source.keys() & from_target.keys() & by_id.keys()]
    if not shared:
        return None
    return min(
        shared,
        key=lambda c: (
            from_source[c.graph_commit_id] + from_target[c.graph_commit_id],
            -c.manifest_version,
            _descending(c.graph_commit_id),
        ),
    )


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in text)
