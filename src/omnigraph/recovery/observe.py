"""What storage says about an intent record, gathered under the lock of its branch."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from omnigraph.manifest import Entry, Repository
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.state import ManifestState
from omnigraph.recovery.classify import Facts, TableFacts
from omnigraph.recovery.intent import INTENT_VERSION, Intent, PlannedTable
from omnigraph.store.errors import (
    CorruptObjectError,
    DatasetNotFoundError,
    DatasetVersionNotFoundError,
)

UNREADABLE: Final = "unreadable"
"""Stands for the transaction id of a version that cannot be read."""


def completed(repository: Repository, intent: Intent) -> Intent:
    """Return a record of version 1 with what later ones carry, as far as the manifest has it.

    A table that is no longer published as the write found it gets no entry, so nothing of the
    record is rolled forward.
    """
    if intent.schema_version >= INTENT_VERSION:
        return intent
    live = {str(each.branch): each for each in repository.branches.incarnations()}
    incarnation = live.get(intent.branch)
    if incarnation is None:
        return intent
    state = repository.reader.latest(incarnation)
    tables = tuple(_completed_table(repository, state, table) for table in intent.tables)
    return replace(intent, branch_incarnation=incarnation.text, tables=tables)


def _completed_table(
    repository: Repository, state: ManifestState, table: PlannedTable
) -> PlannedTable:
    entry = published_on_lineage(state, table)
    if table.entry is not None or entry is None or entry.table_version != table.expected_version:
        return table
    datasets = repository.store.datasets
    lineage = {"branch": table.table_branch}
    head = datasets.head_version(table.table_path, **lineage)
    row_count = datasets.open(table.table_path, **lineage, version=head).count()
    return replace(table, entry=entry, row_count=row_count, owner_branch=entry.owner_branch)


def observe(repository: Repository, intent: Intent) -> Facts:
    """Read the manifest and every table of a record anew."""
    incarnation = Incarnation(intent.branch_incarnation)
    if not repository.branches.is_alive(incarnation):
        return Facts(
            is_published=False,
            is_voided=False,
            is_branch_alive=False,
            are_expectations_met=False,
        )
    state = repository.reader.latest(incarnation)
    return Facts(
        is_published=state.is_published(intent.commit.graph_commit_id),
        is_voided=state.is_voided(intent.commit.graph_commit_id),
        is_branch_alive=True,
        are_expectations_met=intent.requirements.unmet(state) is None,
        tables=tuple(_observe_table(repository, state, table) for table in intent.tables),
    )


def published_on_lineage(state: ManifestState, table: PlannedTable) -> Entry | None:
    """Return the published entry of a table if it lies on the lineage that the record moves."""
    current = state.entries.get(table.accepted_key)
    if current is None:
        return None
    lineage = (current.location, current.table_branch)
    return current if lineage == (table.table_path, table.table_branch) else None


def _observe_table(repository: Repository, state: ManifestState, table: PlannedTable) -> TableFacts:
    pinned = pinned_version(state, table)
    datasets = repository.store.datasets
    try:
        head = datasets.head_version(table.table_path, branch=table.table_branch)
    except DatasetNotFoundError:
        # What was never published may be missing; what is published may not.
        is_lost = published_on_lineage(state, table) is not None
        return TableFacts(table, pinned, 0 if is_lost else None)
    if head <= pinned:
        return TableFacts(table, pinned, head)
    return TableFacts(table, pinned, head, _moved_by(repository, table, pinned + 1, head))


def _moved_by(
    repository: Repository, table: PlannedTable, first: int, last: int
) -> tuple[str, ...]:
    """Return the transaction ids of versions; none can be ours when one is missing or damaged."""
    try:
        moves = repository.store.datasets.transactions(
            table.table_path, branch=table.table_branch, first=first, last=last
        )
    except (CorruptObjectError, DatasetVersionNotFoundError):
        return (UNREADABLE,) * (last - first + 1)
    return tuple(move.uuid for move in moves)


def pinned_version(state: ManifestState, table: PlannedTable) -> int:
    """Return the version of a table above which everything is unpublished."""
    current = published_on_lineage(state, table)
    if current is not None:
        return current.table_version
    if table.fork_of is not None:
        return table.fork_of.version
    # A dataset that the write creates starts at version 0; one whose published entry has meanwhile
    # moved to another lineage is compared with where the write found it.
    return 0 if table.is_created else table.expected_version
