"""Lazy forks: the first write from a branch to a table forks its dataset; no data is copied.

A branch owns an entry when the entry's `owner_branch` is the branch's incarnation. The first write
to any other entry cuts a fork of the dataset from exactly the published version, under the name
`<branch>.<operation>`, which is never used twice. Until a publish names the fork, nothing refers to
it; `cleanup` reclaims the fork of an operation that died.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.rows import Entry
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.records import DatasetVersion


@dataclass(frozen=True)
class WriteBase:
    """Where a branch may write to a table: the version to stage on, and whose entry it was."""

    base: DatasetVersion
    entry: Entry
    owner_branch: str
    is_fork: bool

    def entry_at(self, version: int, row_count: int) -> Entry:
        """Return the entry to publish once the table has reached `version`."""
        return replace(
            self.entry,
            table_branch=self.base.branch,
            table_version=version,
            row_count=row_count,
            owner_branch=self.owner_branch,
        )


def write_base(
    datasets: DatasetStore, incarnation: Incarnation, entry: Entry, *, operation_id: str
) -> WriteBase:
    """Return where to stage a write, forking the dataset when the branch does not own it yet."""
    if entry.owner_branch == incarnation.text:
        base = entry.at
        return WriteBase(base, entry, entry.owner_branch, is_fork=False)
    fork = datasets.create_branch(
        entry.location,
        f"{incarnation.branch}.{operation_id}",
        from_branch=entry.table_branch,
        from_version=entry.table_version,
    )
    return WriteBase(fork, entry, incarnation.text, is_fork=True)
