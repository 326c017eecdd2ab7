"""Commits across branches, and the snapshots that they left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.manifest.branches import Branches
from omnigraph.manifest.commits import GraphCommit, merge_base
from omnigraph.manifest.errors import BranchGoneError, CommitNotFoundError, TagNotFoundError
from omnigraph.manifest.layout import MAIN_INCARNATION, Incarnation
from omnigraph.manifest.reader import ManifestReader
from omnigraph.manifest.snapshot import ReadTarget, Snapshot, open_entry
from omnigraph.names import MAIN, BranchName, check_id, check_tag_name, nearest_name
from omnigraph.store.datasets import DatasetHandle, DatasetStore

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class History:
    """Finds commits and builds snapshots; reads only."""

    reader: ManifestReader
    branches: Branches
    datasets: DatasetStore

    def snapshot(self, incarnation: Incarnation) -> Snapshot:
        """Return the newest snapshot of a branch."""
        return Snapshot(incarnation, self.reader.latest(incarnation), self.datasets)

    def snapshot_at_version(self, incarnation: Incarnation, version: int) -> Snapshot:
        """Return the snapshot of a manifest version.

        A version from before the branch was cut is read from the branch that it was cut from.
        """
        owner = self._owner_of_version(incarnation, version)
        return Snapshot(owner, self.reader.at(owner, version), self.datasets)

    def table_at_version(
        self, incarnation: Incarnation, version: int, table_key: str
    ) -> DatasetHandle:
        """Open one table as it was at a manifest version, without building a snapshot."""
        owner = self._owner_of_version(incarnation, version)
        return open_entry(self.datasets, self.reader.table_at(owner, version, table_key))

    def snapshot_of(self, target: ReadTarget, bound: Incarnation) -> Snapshot:
        """Return the snapshot that a target names; `bound` is where `at` looks."""
        if target.kind == "branch" and target.value == MAIN:
            return self.snapshot(MAIN_INCARNATION)
        if target.kind == "branch":
            return self.snapshot(self.branches.resolve(BranchName.parse(str(target.value))))
        if target.kind == "tag":
            return self._left_by(self.tagged_commit(str(target.value)))
        if target.kind == "commit":
            return self.snapshot_of_commit(str(target.value))
        commit = self.reader.latest(bound).last_commit_until(int(target.value))
        if commit is None:
            raise CommitNotFoundError(f"at or before {_shown_moment(int(target.value))}")
        return self._left_by(commit)

    def snapshot_of_commit(self, commit_id: str) -> Snapshot:
        """Return the graph as a commit left it."""
        return self._left_by(self.get(commit_id))

    def get(self, commit_id: str) -> GraphCommit:
        """Find a commit on any live branch: `main` first, which knows most of them."""
        check_id("the commit id", commit_id)
        found = self.reader.latest(MAIN_INCARNATION).commit(commit_id)
        return found if found is not None else self._get_from_branches(commit_id)

    def _get_from_branches(self, commit_id: str) -> GraphCommit:
        for incarnation in self.branches.incarnations():
            try:
                commit = self.reader.latest(incarnation).commit(commit_id)
            except BranchGoneError:
                continue
            if commit is not None:
                return commit
        raise CommitNotFoundError(commit_id)

    def tagged_commit(self, name: str) -> GraphCommit:
        """Find the commit that a tag names."""
        name = check_tag_name(name)
        tags = self.reader.latest(MAIN_INCARNATION).tags
        if name not in tags:
            raise TagNotFoundError(name, nearest_name(name, tags))
        return self.get(tags[name].commit_id)

    def merge_base(self, source: Incarnation, target: Incarnation) -> GraphCommit | None:
        """Find the commit that a merge of two branches starts from."""
        return self.merge_base_of(source=self.snapshot(source), target=self.snapshot(target))

    def merge_base_of(self, *, source: Snapshot, target: Snapshot) -> GraphCommit | None:
        """Find the commit that a merge of two snapshots starts from.

        Only commits that both snapshots contain count: with a base above one of them, rows that it
        does not have yet would look deleted there.
        """
        return merge_base(
            source.commit_id,
            target.commit_id,
            [*source.state.commits(), *target.state.commits()],
        )

    def _left_by(self, commit: GraphCommit) -> Snapshot:
        name = commit.manifest_branch
        owner = MAIN_INCARNATION if name is None else Incarnation(name)
        return Snapshot(owner, self.reader.at(owner, commit.manifest_version), self.datasets)

    def _owner_of_version(self, incarnation: Incarnation, version: int) -> Incarnation:
        owner = incarnation
        while not owner.is_main:
            origin = self.branches.origin(owner)
            if version > origin.version:
                break
            owner = origin.incarnation
        return owner


def _shown_moment(epoch_us: int) -> str:
    """Return a moment as a date where the calendar has one."""
    try:
        return (_EPOCH + timedelta(microseconds=epoch_us)).isoformat()
    except OverflowError:
        return str(epoch_us)
