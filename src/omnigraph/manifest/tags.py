"""Named commits.

A tag must keep what it names readable. Its versions are pinned by Lance tags before its row appears
in `main`'s manifest, and unpinned after the row is gone; `cleanup` honours either. A crash in
between leaves pins that nothing names, which `cleanup` removes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.errors import NotFoundError, OmnigraphError, OutcomeUnknownError
from omnigraph.manifest.errors import (
    BranchGoneError,
    TagExistsError,
    TagNotFoundError,
    VersionRemovedError,
)
from omnigraph.manifest.history import History
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST
from omnigraph.manifest.locks.branch_lock import (
    BranchLock,
    BranchLockLostError,
    BranchLocks,
    take_all,
)
from omnigraph.manifest.publish import Publisher, Updates
from omnigraph.manifest.reader import ManifestReader
from omnigraph.manifest.requirements import Requirements
from omnigraph.manifest.rows import Tag, tag_object_id
from omnigraph.manifest.snapshot import Snapshot
from omnigraph.names import MAIN, BranchName, check_tag_name, nearest_name
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import (
    DatasetNotFoundError,
    DatasetVersionNotFoundError,
    RefNotFoundError,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Tags:
    """Creates, lists and deletes the tags of one graph."""

    datasets: DatasetStore
    reader: ManifestReader
    publisher: Publisher
    history: History
    branch_locks: BranchLocks
    clock: Clock

    def list(self) -> Mapping[str, Tag]:
        """Return all tags by name."""
        return self.reader.latest(MAIN_INCARNATION).tags

    def create(self, name: str, snapshot: Snapshot, *, actor_id: str | None = None) -> Tag:
        """Name the head commit of a snapshot."""
        name = check_tag_name(name)
        operation_id = self.clock.ulid()
        # A tag names the version that the commit made, not a later one.
        snapshot = self.history.snapshot_of_commit(snapshot.commit_id)
        tag = Tag(
            name=name,
            commit_id=snapshot.commit_id,
            created_at=self.clock.now_us(),
            pin=f"omnigraph.{operation_id}",
            actor_id=actor_id,
        )
        branches = (BranchName(MAIN), snapshot.branch)
        with take_all(self.branch_locks, branches, operation_id=operation_id) as lock:
            if name in self.list():
                raise TagExistsError(name)
            try:
                self._pin(tag.pin, snapshot)
                self._publish(Updates(rows=(tag.row(),)))
                self._require_undisturbed(lock, tag, snapshot)
            except OutcomeUnknownError:
                # The row may be there: the pins stay, and `cleanup` removes them if it is not.
                raise
            except OmnigraphError:
                self._unpin(tag.pin, snapshot)
                raise
        return tag

    def _require_undisturbed(self, lock: BranchLock, tag: Tag, snapshot: Snapshot) -> None:
        """Remove a tag when its branch was deleted by a writer that took the lock over."""
        try:
            lock.check()
        except BranchLockLostError:
            incarnation = snapshot.incarnation
            branch = incarnation.lance_branch
            if branch is None or self.datasets.has_branch(MANIFEST, branch):
                return
            self._publish(Updates(removed=(tag_object_id(tag.name),)))
            raise BranchGoneError(incarnation.text) from None

    def delete(self, name: str) -> None:
        """Delete a tag; the commit stays for as long as its branch has it."""
        name = check_tag_name(name)
        with self.branch_locks.take(BranchName(MAIN), operation_id=self.clock.ulid()):
            tags = self.list()
            if name not in tags:
                raise TagNotFoundError(name, nearest_name(name, tags))
            snapshot = self._tagged_snapshot(tags[name])
            self._publish(Updates(removed=(tag_object_id(name),)))
            if snapshot is not None:
                self._unpin(tags[name].pin, snapshot)

    def _tagged_snapshot(self, tag: Tag) -> Snapshot | None:
        try:
            return self.history.snapshot_of_commit(tag.commit_id)
        except NotFoundError:
            # The commit no longer exists; the tag must still be deletable.
            return None

    def _publish(self, updates: Updates) -> None:
        self.publisher.publish(
            MAIN_INCARNATION, draft=None, requirements=Requirements(), updates=updates
        )

    def _pin(self, pin: str, snapshot: Snapshot) -> None:
        incarnation, version = snapshot.incarnation, snapshot.manifest_version
        what = f"the manifest of branch '{incarnation.branch}'"
        try:
            self.datasets.create_tag(
                MANIFEST, pin, branch=incarnation.lance_branch, version=version
            )
            for key, entry in snapshot.entries.items():
                what, version = key, entry.table_version
                self.datasets.create_tag(
                    entry.location, pin, branch=entry.table_branch, version=version
                )
        except DatasetVersionNotFoundError as error:
            # A snapshot that was read before a cleanup can name what the cleanup has removed.
            raise VersionRemovedError(what, version, error.head) from error
        except DatasetNotFoundError as error:
            branch = incarnation.lance_branch
            if branch is None or self.datasets.has_branch(MANIFEST, branch):
                raise
            raise BranchGoneError(incarnation.text) from error

    def _unpin(self, pin: str, snapshot: Snapshot) -> None:
        for location in (MANIFEST, *(entry.location for entry in snapshot.entries.values())):
            try:
                self.datasets.delete_tag(location, pin)
            except RefNotFoundError:
                continue
            except OmnigraphError as error:
                _log.warning("pin %s of %s stays until cleanup: %s", pin, location, error)
