"""Newest versions that a power failure has cut off.

A version is a file. On a local disk its name can survive a power failure that its bytes did not,
and Lance then refuses the whole dataset. Such a version is removed unless it was acknowledged.

Terms: a version is *torn* when its file has no proper end or lacks a page (the store looks at the
bytes); it is *acknowledged* when a call that wrote it has returned.

1. Everything that an acknowledgement rests on was flushed before it, and flushed bytes are not torn
   by a power failure. So a torn version was not acknowledged, or was damaged by something else.
2. A file that cannot be read and is not torn is never removed: it may be the work of a newer
   release. That is an error.
3. A version of a table counts once it is published. Above the published version nothing is
   acknowledged, so a torn head there is removed. At or below it nothing is ever removed.
4. Of `__manifest` a torn head is removed only when nothing says that it was acknowledged:
   a. no row of the derived commit table names it (rows are added after the publish);
   b. no branch was cut from it and no tag of the dataset pins it;
   c. no table of the version before has moved without a pending record. A write deletes its record
      only after its publish is durable, so a moved table without one was published by this version;
   d. no checksum of it is stored (those are added after the publish, too).
   Otherwise recovery stops: it is damage, and an operator has to restore a backup.
5. The version before must be readable: version 1 of `__manifest` is never removed.
6. The derived tables and the audit table hold nothing that is acknowledged: what a torn head of
   theirs held is added again, from the manifest and from the record that is still there. Nor does
   the table of checksums: what it loses are files without one. No damage of it
   stops an open.
7. It happens under the lock of the branch. Running processes see versions whole, so a version
   that is being written is never taken for a torn one.
8. A ref, which names a branch or tag of a dataset, is a file as well and appears whole. One that is
   empty was not acknowledged, by 1; it is removed.
9. The audit row of a version comes first, under an id computed from the file. A crash in
   between leads to the same row, and another torn file under the same name to another one.

Object stores show an object whole or not at all: they need none of this.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from omnigraph.errors import CorruptError, NotFoundError, OmnigraphError
from omnigraph.manifest import Repository
from omnigraph.manifest.layout import (
    CHECKSUMS,
    COMMIT_ACTORS,
    COMMITS,
    MANIFEST,
    RECOVERIES,
    Incarnation,
)
from omnigraph.manifest.locks.branch_lock import take_unless_held
from omnigraph.manifest.state import ManifestState
from omnigraph.recovery.audit import RecoveryAuditRow, RecoveryKind, RecoveryLog, TableOutcome
from omnigraph.recovery.intent import Intent
from omnigraph.store.errors import CorruptObjectError, DatasetNotFoundError
from omnigraph.store.filters import Comparison
from omnigraph.store.records import ScanRequest, TornHead

_SYSTEM_TABLES: Final = (RECOVERIES, COMMITS, COMMIT_ACTORS)
_VERSIONS_MAX: Final = 1_000
"""How many versions above the published one are looked at; no write makes that many."""

_log = logging.getLogger(__name__)

Lineage = tuple[str, str | None]


class TornHeadError(CorruptError):
    """The newest version of the manifest is damaged although it was acknowledged."""

    code = "OG-TORN-HEAD"
    hint = "keep the files and restore this one from a backup"
    template = (
        f"version {{version}} of `{MANIFEST}` is cut off at `{{path}}` and was not removed:"
        " {reason}"
    )
    path: str
    version: int
    reason: str


class TornHeads:
    """Finds and removes torn heads of one graph."""

    def __init__(
        self, repository: Repository, log: RecoveryLog, pending: Callable[[], Iterable[Intent]]
    ) -> None:
        self._repository = repository
        self._datasets = repository.store.datasets
        self._log = log
        self._pending = pending
        self._can_tear = repository.store.settings.root.is_local

    def drop_torn_manifest(self, incarnation: Incarnation) -> None:
        """Make the manifest of a branch readable; takes the lock only when it is not."""
        if not self._can_tear or self._is_readable(MANIFEST, incarnation.lance_branch):
            return
        operation_id = self._repository.clock.ulid()
        with self._repository.branch_locks.take(incarnation.branch, operation_id=operation_id):
            torn = self._datasets.torn_head(MANIFEST, branch=incarnation.lance_branch)
            if torn is None:
                return
            reason = self._acknowledged_by(incarnation, torn) or self._summed(torn)
            if reason is not None:
                raise TornHeadError(torn.path, torn.version, reason)
            self._remove(MANIFEST, (MANIFEST, incarnation.lance_branch), torn)

    def drop_torn_tables(self, incarnation: Incarnation) -> None:
        """Remove torn heads above the published versions; one probe per table when there are none.

        Only lineages that the branch itself writes: the branches that own the others examine them.
        """
        if not self._can_tear:
            return
        state = self._repository.reader.latest(incarnation)
        if not any(self._has_moved(table) for table in _owned(state, incarnation)):
            return
        operation_id = self._repository.clock.ulid()
        branch_locks, branch = self._repository.branch_locks, incarnation.branch
        with take_unless_held(branch_locks, branch, operation_id=operation_id) as lock:
            if lock is None:
                return  # A living writer has moved them.
            state = self._repository.reader.latest(incarnation)
            for table_key, lineage, published in _owned(state, incarnation):
                self.drop_torn_table(table_key, lineage, published=published)

    def drop_torn_table(self, table_key: str, lineage: Lineage, *, published: int) -> None:
        """Remove torn heads of one table above its published version; the lock is held."""
        location, branch = lineage
        for _ in range(_VERSIONS_MAX):
            if not self._can_tear or not self._has_moved((table_key, lineage, published)):
                return
            try:
                torn = self._datasets.torn_head(location, branch=branch)
            except CorruptObjectError as error:
                # Not torn, and still unreadable: reading this table will report it.
                _log.warning("%s stays as it is: %s", table_key, error)
                return
            if torn is None or torn.version <= published:
                return
            self._remove(table_key, lineage, torn)

    def drop_torn_system_tables(self) -> None:
        """Make the derived tables and the audit table readable."""
        if not self._can_tear:
            return
        for location in _SYSTEM_TABLES:
            if not self._is_readable(location, None):
                self._discard(location)
        if not self._is_readable(CHECKSUMS, None):
            try:
                self._discard(CHECKSUMS)
            except CorruptObjectError as error:
                _log.warning("`omnigraph doctor --scrub` cannot work: %s", error)

    def _discard(self, location: str) -> None:
        removed = self._datasets.discard_torn_head(location)
        _log.warning("removed version %s of %s, which was cut off", removed, location)

    def drop_torn_refs(self, location: str) -> None:
        """Remove branches and tags of a dataset whose file was cut off."""
        if not self._can_tear:
            return
        for path in self._datasets.torn_refs(location):
            self._repository.store.objects.delete(path)
            _log.warning("removed %s, which was cut off", path)

    def _is_readable(self, location: str, branch: str | None) -> bool:
        try:
            self._datasets.open(location, branch=branch)
        except CorruptObjectError:
            return False
        except DatasetNotFoundError:
            pass  # Nothing is there that could be torn.
        return True

    def _has_moved(self, table: tuple[str, Lineage, int]) -> bool:
        _, (location, branch), published = table
        try:
            return self._datasets.head_version(location, branch=branch) > published
        except DatasetNotFoundError:
            return False

    def _acknowledged_by(self, incarnation: Incarnation, torn: TornHead) -> str | None:
        """Return what shows that a version of the manifest was acknowledged, if anything does."""
        branch = incarnation.lance_branch
        try:
            before = self._repository.reader.at(incarnation, torn.version - 1)
        except NotFoundError:
            return "there is no version before it"
        if self._is_recorded(branch, torn.version):
            return f"`{COMMITS}` names its commit"
        for fork in self._datasets.list_branches(MANIFEST):
            if (fork.parent_branch, fork.parent_version) == (branch, torn.version):
                return f"branch {fork.name} was cut from it"
        for pin in self._datasets.list_tags(MANIFEST):
            if (pin.branch, pin.version) == (branch, torn.version):
                return f"tag {pin.name} pins it"
        explained = {
            (table.table_path, table.table_branch)
            for intent in self._pending()
            for table in intent.tables
        }
        for table in _owned(before, incarnation):
            if table[1] not in explained and self._has_moved(table):
                return f"it has published {table[0]}, whose write was finished"
        return None

    def _is_recorded(self, branch: str | None, version: int) -> bool:
        try:
            handle = self._datasets.open(COMMITS)
        except DatasetNotFoundError:
            return False
        rows = handle.scan(
            ScanRequest(
                columns=("manifest_branch",),
                row_filter=Comparison("manifest_version", "=", version),
            )
        ).read_all()
        return branch in rows["manifest_branch"].to_pylist()

    def _summed(self, torn: TornHead) -> str | None:
        """Return a reason if the checksum of a version is stored, so that it was published."""
        try:
            is_known = torn.path in self._repository.checksums.sums(MANIFEST).by_path
        except OmnigraphError:
            return None
        return "its checksum is stored, so it was whole" if is_known else None

    def _remove(self, table_key: str, lineage: Lineage, torn: TornHead) -> None:
        name = hashlib.sha256(f"{torn.path}\n{torn.tag}".encode()).hexdigest()[:26]
        self._log.record(
            RecoveryAuditRow(
                operation_id=f"torn-{name}",
                graph_commit_id=None,
                recovery_kind=RecoveryKind.TORN_HEAD_REMOVED,
                recovery_for_actor=None,
                sidecar_writer_kind=None,
                per_table_outcomes=(TableOutcome(table_key, torn.version, torn.version - 1),),
                transaction_ids=(),
                created_at=self._repository.clock.now_us(),
            )
        )
        location, branch = lineage
        self._datasets.discard_torn_head(location, branch=branch)
        _log.warning("removed version %d of %s, which was cut off", torn.version, table_key)


def _owned(state: ManifestState, incarnation: Incarnation) -> list[tuple[str, Lineage, int]]:
    """Return table key, lineage and published version of what a branch itself writes."""
    return [
        (key, (entry.location, entry.table_branch), entry.table_version)
        for key, entry in state.entries.items()
        if entry.owner_branch == incarnation.text
    ]
