"""Purges what hard drops of a schema change have made unreachable on their branch.

1. It runs under the locks of all branches, after the schema change is published: no branch is cut
   and no merge adopts a version while it looks and removes.
2. What `cleanup` would need stays: versions that a live branch or the merge base of two of them
   shows, that a tag pins, that a fork was cut from, that a pending intent record or a running load
   names (`omnigraph.maintenance.cleanup.needed`).
3. Only a lineage that the branch owns is written to or purged. What the branch has inherited and
   dropped stays as it is: its tombstone, or the fork that was rewritten, belongs to the branch.
4. Forks of branches that no longer exist have no owner. Those that nothing needs are removed first:
   otherwise they would keep what nobody can read.
5. Whatever stays is listed with who needs it. A table that cannot be purged is a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from omnigraph.errors import NotFoundError, OmnigraphError
from omnigraph.maintenance.cleanup.locks import all_branches_locked
from omnigraph.maintenance.cleanup.needed import CleanupPolicy, Needs, removable
from omnigraph.maintenance.cleanup.planner import CleanupPlanner
from omnigraph.manifest import Entry, Repository
from omnigraph.manifest.layout import MAIN_INCARNATION, Incarnation
from omnigraph.manifest.snapshot import open_entry
from omnigraph.recovery import Recovery
from omnigraph.store.records import CleanupRequest
from omnigraph.write.schema_apply import Dropped, Purged, StillNeeded
from omnigraph.write.stage.staging_record import StagingRecords

_NEWEST_ONLY = CleanupPolicy(keep_versions=1, orphan_age_s=0)
_AFTER_ALL: Final = 2**63 - 1
"""A time after every commit: a version goes also if the clock of its writer is ahead of ours."""
_log = logging.getLogger(__name__)


class Purger:
    """Purges dropped values of one graph."""

    def __init__(self, repository: Repository, recovery: Recovery, staging: StagingRecords) -> None:
        self._repository = repository
        self._recovery = recovery
        self._staging = staging
        self._datasets = repository.store.datasets
        self._planner = CleanupPlanner(repository, recovery, staging)

    def purge(self, incarnation: Incarnation, dropped: tuple[Dropped, ...]) -> Purged:
        """Remove what nothing needs of these tables; the caller holds no lock."""
        kept: list[StillNeeded] = []
        warnings = []
        try:
            with all_branches_locked(self._repository):
                needs = self._planner.plan(_NEWEST_ONLY, _AFTER_ALL).needs
                for table in dropped:
                    try:
                        self._remove_dead_forks(table.before.location, needs)
                        kept += self._kept_for(incarnation, table)
                        self._purge(incarnation, table, needs)
                    except OmnigraphError as error:
                        warnings.append(_warning([table], error))
        except OmnigraphError as error:
            warnings.append(_warning(dropped, error))
        return Purged(tuple(kept), tuple(warnings))

    def _purge(self, incarnation: Incarnation, table: Dropped, needs: Needs) -> None:
        entry = table.after or table.before
        if entry.owner_branch != incarnation.text:
            return
        location, lineage = entry.location, entry.table_branch
        for fork in self._datasets.list_branches(location):
            needs.add_version(location, fork.parent_branch, fork.parent_version)
        for pin in self._datasets.list_tags(location):
            needs.add_version(location, pin.branch, pin.version)
        if table.after is None:
            self._empty(entry, needs)
        stored = self._datasets.versions(location, branch=lineage)
        going = removable(stored, (location, lineage), needs)
        if going:
            request = CleanupRequest(versions=going)
            self._datasets.cleanup(location, request, branch=lineage, preview=False)

    def _remove_dead_forks(self, location: str, needs: Needs) -> None:
        """Remove the forks of deleted branches that nothing needs, leaves first."""
        live = {name.text for name in self._repository.branches.names()}
        forks = {fork.name: fork for fork in self._datasets.list_branches(location)}
        while True:
            parents = {fork.parent_branch for fork in forks.values()}
            dead = [
                name
                for name in forks
                if _branch_of_fork(name) not in live
                and name not in parents
                and (location, name) not in needs.versions
            ]
            if not dead:
                return
            for name in dead:
                del forks[name]
                self._datasets.delete_branch(location, name)

    def _empty(self, entry: Entry, needs: Needs) -> None:
        """Put an empty version above one that goes: storage cannot do without a newest version.

        Older snapshots then miss a version, not a whole dataset.
        """
        head = self._datasets.head_version(entry.location, branch=entry.table_branch)
        if head in needs.versions.get((entry.location, entry.table_branch), ()):
            return
        handle = open_entry(self._datasets, entry)
        base = self._datasets.open(entry.location, branch=entry.table_branch, version=head).at
        self._datasets.commit_staged(self._datasets.stage_overwrite(base, handle.schema))

    # -- who needs what stays ---------------------------------------------------------------------

    def _kept_for(self, incarnation: Incarnation, table: Dropped) -> list[StillNeeded]:
        key = table.table_key
        branches = sorted(set(self._branches_with(incarnation, table)))
        return [
            *(StillNeeded(key, branch=name) for name in branches),
            *(StillNeeded(key, tag=name) for name in self._tags_with(table)),
            *(StillNeeded(key, operation=operation) for operation in self._loads_on(table)),
        ]

    def _branches_with(self, incarnation: Incarnation, table: Dropped) -> Iterator[str]:
        """Yield the branches that need the table: they show it, alone or in a merge with this one.

        So do those that have a fork of it, or an unfinished write to it.
        """
        repository = self._repository
        for other in repository.branches.incarnations():
            if other == incarnation:
                continue
            state = repository.reader.latest(other)
            base = repository.history.merge_base(incarnation, other)
            if _holds(state.entries.values(), table) or (
                base is not None and self._shows(base.graph_commit_id, table)
            ):
                yield other.branch.text
        own = {table.before.table_branch, table.after and table.after.table_branch}
        for fork in self._datasets.list_branches(table.before.location):
            if fork.name not in own:
                yield _branch_of_fork(fork.name)
        for intent in self._recovery.pending():
            if any(each.table_path == table.before.location for each in intent.tables):
                yield intent.branch

    def _tags_with(self, table: Dropped) -> list[str]:
        tags = self._repository.reader.latest(MAIN_INCARNATION).tags
        return [name for name, tag in tags.items() if self._shows(tag.commit_id, table)]

    def _loads_on(self, table: Dropped) -> list[str]:
        running, _ = self._staging.partition(orphan_age_s=0)
        return [
            record.operation_id
            for record in running
            if any(base.table_path == table.before.location for base in record.bases)
        ]

    def _shows(self, commit_id: str, table: Dropped) -> bool:
        try:
            snapshot = self._repository.history.snapshot_of_commit(commit_id)
        except NotFoundError:
            return False
        return _holds(snapshot.entries.values(), table)


def _holds(entries: Iterable[Entry], table: Dropped) -> bool:
    """Whether one of these entries is of the dataset, and not what the change has made of it."""
    return any(
        entry.location == table.before.location
        and (table.after is None or entry.at != table.after.at)
        for entry in entries
    )


def _branch_of_fork(name: str) -> str:
    """Return the branch that a fork `<branch>.<operation>` was made for."""
    return name.rpartition(".")[0]


def _warning(tables: Iterable[Dropped], error: OmnigraphError) -> str:
    keys = ", ".join(table.table_key for table in tables)
    _log.warning("old versions of %s were not purged: %s", keys, error)
    return f"old versions of {keys} were not purged: {error}"
