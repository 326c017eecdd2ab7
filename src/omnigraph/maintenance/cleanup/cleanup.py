"""`cleanup`: removing what nothing needs any more.

First old versions of `__manifest`, so that no snapshot can be found which cannot be read. Then what
nothing refers to: forks, files of dead attempts, datasets as a whole. That happens under the locks
of all branches, so that no writer is about to refer to it; they are taken only if there is any.
Then old versions of the datasets; last the topology files of old edge states, and temporary files
of writers that died.

`rules` decides what is needed, `planner` looks at the graph, `leftovers` finds what nothing refers
to, `remover` removes. Whatever is younger than the orphan age stays, be it a file, a fork or a
dataset: a running operation may be about to name it. A problem with one dataset is reported with it
and stops nothing else. Without confirmation everything is only counted.
"""

from __future__ import annotations

from omnigraph.maintenance.cleanup.locks import all_branches_locked
from omnigraph.maintenance.cleanup.needed import CleanupPolicy
from omnigraph.maintenance.cleanup.planner import CleanupPlanner, stored_datasets
from omnigraph.maintenance.cleanup.remover import Remover
from omnigraph.maintenance.cleanup.report import CleanupResult
from omnigraph.manifest import Repository
from omnigraph.recovery import Recovery
from omnigraph.write.stage.staging_record import StagingRecords


class Cleanup:
    """Removes what one graph no longer needs."""

    def __init__(
        self, repository: Repository, recovery: Recovery, staging: StagingRecords | None = None
    ) -> None:
        """Take records of bulk jobs from `staging`, which may have watched them for a while."""
        self._repository = repository
        self._recovery = recovery
        staging = staging or StagingRecords(repository.store.objects, repository.clock)
        self._planner = CleanupPlanner(repository, recovery, staging)

    def run(self, policy: CleanupPolicy, *, confirm: bool = False) -> CleanupResult:
        """Remove old versions and leftovers, or only count them without `confirm`."""
        self._repository.branches.require_no_schema_applies("cleanup")
        if confirm:
            self._recovery.drop_torn_branches()
            self._remove_torn_refs()
        now = self._repository.clock.now_us()
        plan = self._planner.plan(policy, now)
        remover = Remover(self._repository, policy, plan, now, confirm=confirm)
        remover.remove_manifest_versions()
        locations = remover.with_leftovers()
        if confirm and locations:
            with all_branches_locked(self._repository):
                # A writer that has the lock by now has named its files; any other prepares again.
                remover.follow(self._planner.plan(policy, now))
                remover.remove_leftovers(locations)
        else:
            remover.remove_leftovers(locations)
        remover.remove_table_versions()
        return CleanupResult(policy, confirm, (*remover.reports(), *remover.remove_others()))

    def _remove_torn_refs(self) -> None:
        """Remove what a power failure has left of forks and pins; no commit names them."""
        objects = self._repository.store.objects
        for location in stored_datasets(objects):
            for path in self._repository.store.datasets.torn_refs(location):
                objects.delete(path)
