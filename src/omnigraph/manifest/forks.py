"""Lazy forks: the first write from a branch to a table forks its dataset; no data is copied.

A branch owns an entry when the entry's `owner_branch` is the branch's incarnation. The first write
to any other entry cuts a fork of the dataset from exactly the published version, under the name
`<branch>.<operation>`, which is never used twice. Until a publish names the fork, nothing refers to
it; `cleanup` reclaims the fork of an operation that died. A cleanup that spares nothing, however
young, may reclaim the fork of a live one: the write then has to be prepared again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.rows import Entry
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import StagedFilesLostError, StorageError
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

    def require_fork(self, datasets: DatasetStore) -> None:
        """Raise when the fork is gone, and with it what was staged on it."""
        location, fork = self.base.location, self.base.branch
        if self.is_fork and fork is not None and not datasets.has_branch(location, fork):
            raise StagedFilesLostError(path=location, problems=(f"fork {fork} is gone",))

    @contextmanager
    def staging(self, datasets: DatasetStore) -> Iterator[None]:
        """Stage on it inside a `with` block, which says so when the fork disappears meanwhile."""
        try:
            yield
        except StorageError:
            self.require_fork(datasets)
            raise


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
