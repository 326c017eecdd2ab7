"""What the audit row of a settled operation says about each table: from which version to which."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.manifest import GraphCommit
from omnigraph.manifest.state import ManifestState
from omnigraph.recovery.audit import TableOutcome
from omnigraph.recovery.classify import TableFacts
from omnigraph.recovery.intent import PlannedTable


def intended(tables: Sequence[PlannedTable]) -> tuple[TableOutcome, ...]:
    """Return what a write meant to do, for one whose commit is published."""
    return tuple(
        TableOutcome(table.table_key, table.expected_version, table.post_commit_pin)
        for table in tables
    )


def rolled_forward(tables: Sequence[TableFacts]) -> tuple[TableOutcome, ...]:
    """Return which versions were published."""
    return tuple(
        TableOutcome(seen.table.table_key, seen.pinned, seen.head or seen.pinned) for seen in tables
    )


def rolled_back(tables: Sequence[TableFacts]) -> tuple[TableOutcome, ...]:
    """Return the heads that were found and the versions that the tables were restored to.

    A table has its accepted key: a type that was about to be renamed keeps its name.
    """
    return tuple(
        TableOutcome(
            seen.table.accepted_key, seen.pinned if seen.head is None else seen.head, seen.pinned
        )
        for seen in tables
    )


def rolled_back_by(
    commit: GraphCommit, tables: Sequence[PlannedTable], state: ManifestState
) -> tuple[TableOutcome, ...]:
    """Return the same for a roll back whose commit is published, from what it replaced."""
    histories = state.entry_history()
    found = []
    for table in tables:
        published = [
            (version, entry)
            for version, entry in histories.get(table.accepted_key, ())
            if entry is not None and version <= commit.manifest_version
        ]
        before = [entry for version, entry in published if version < commit.manifest_version]
        after = [entry for version, entry in published if version == commit.manifest_version]
        if before and after:
            found_at, restored_to = after[0].table_version - 1, before[-1].table_version
        else:
            # A fork or a new dataset of the write: none of its versions was ever published.
            found_at = restored_to = table.expected_version
        found.append(TableOutcome(table.accepted_key, found_at, restored_to))
    return tuple(found)
