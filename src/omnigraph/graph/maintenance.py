"""`graph.maintenance`: compaction, indexes, cleanup, repair, health."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine import bulk_engine
from omnigraph.graph.session import Part
from omnigraph.maintenance.cleanup.cleanup import Cleanup
from omnigraph.maintenance.cleanup.needed import ORPHAN_AGE_S, CleanupPolicy
from omnigraph.maintenance.cleanup.report import CleanupResult
from omnigraph.maintenance.health import Finding, examine
from omnigraph.maintenance.optimize import MaintenanceReport
from omnigraph.maintenance.repair import Repair, RepairReport
from omnigraph.maintenance.scrub import scrub
from omnigraph.maintenance.scrub_report import ScrubReport, ScrubRequest


class GraphMaintenance(Part):
    """Keeps a graph fast, small and readable."""

    def ensure_indices(self, branch: str | None = None) -> MaintenanceReport:
        """Build the declared indexes that are missing, and fold in rows that they do not cover."""
        self._session.require_writable("ensure_indices")
        return self._session.maintenance.ensure_indices(self._session.incarnation_of(branch))

    def rebuild_indexes(
        self, table_keys: Sequence[str], *, branch: str | None = None
    ) -> MaintenanceReport:
        """Build the declared indexes of some tables (`node:Person`) anew, without reading them."""
        self._session.require_writable("rebuild_indexes")
        return self._session.maintenance.rebuild_indexes(
            self._session.incarnation_of(branch), tuple(table_keys)
        )

    def optimize(
        self, *, engine: str = "auto", spark: object | None = None, progress: bool = False
    ) -> MaintenanceReport:
        """Compact and index every table of `main` in one commit; removes no version.

        Large tables are rewritten and indexed by Spark tasks; the commit is the same.
        """
        self._session.require_writable("optimize")
        bulk = bulk_engine(engine, self._session.maintenance.work_bytes, session=spark)
        if bulk is None:
            return self._session.maintenance.optimize()
        with bulk.maintenance_workers(
            self._session.repository, session=spark, shows_progress=progress
        ) as workers:
            return self._session.maintenance.optimize(workers)

    def examine(self, *, try_writing: bool = True) -> list[Finding]:
        """Return what is wrong or slow, and what helps; see `omnigraph doctor`."""
        return examine(
            self._session.repository,
            self._session.recovery,
            self._session.snapshot(),
            try_writing=try_writing,
        )

    def scrub(
        self,
        *,
        branch: str | None = None,
        share: float = 1.0,
        seed: str | None = None,
        adopt: bool = False,
    ) -> ScrubReport:
        """Compare the files of the graph, or of one branch, with their checksums.

        `share` reads only so much of them, chosen by path and `seed`: by default the day. `adopt`
        gives a checksum to files that have none. What is damaged is in the report, not an error.
        """
        if adopt:
            self._session.require_writable("scrub with adopt")
        if self._session.is_writable:
            self._session.background.settle()
        return scrub(self._session.repository, ScrubRequest(branch, share, seed, adopt))

    def repair(self, *, confirm: bool = False, force: bool = False) -> RepairReport:
        """Show versions from outside; `confirm` publishes maintenance, `force` the rest."""
        if confirm:
            self._session.require_writable("repair")
        work = Repair(self._session.repository, self._session.recovery, self._session.committer)
        return work.run(confirm=confirm, force=force)

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than_s: int | None = None,
        orphan_age_s: int = ORPHAN_AGE_S,
        confirm: bool = False,
    ) -> CleanupResult:
        """Remove old versions and leftovers that nothing needs; without `confirm` only count them.

        With both options a version goes only if neither keeps it.
        """
        if confirm:
            self._session.require_writable("cleanup")
        policy = CleanupPolicy(keep_versions, older_than_s, orphan_age_s)
        work = Cleanup(self._session.repository, self._session.recovery, self._session.staging)
        return work.run(policy, confirm=confirm)
