"""`graph.maintenance`: compaction, indexes, cleanup, repair, health."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.graph.late import (
    cleanup_policy,
    cleanup_report,
    cleanups,
    engines,
    health,
    optimizing,
    repairs,
    scrub_reports,
    scrubbing,
)
from omnigraph.graph.session import Part


class GraphMaintenance(Part):
    """Keeps a graph fast, small and readable."""

    def ensure_indices(self, branch: str | None = None) -> optimizing.MaintenanceReport:
        """Build the declared indexes that are missing, and fold in rows that they do not cover."""
        self._session.require_writable("ensure_indices")
        return self._session.maintenance.ensure_indices(self._session.incarnation_of(branch))

    def rebuild_indexes(
        self, table_keys: Sequence[str], *, branch: str | None = None
    ) -> optimizing.MaintenanceReport:
        """Build the declared indexes of some tables (`node:Person`) anew, without reading them."""
        self._session.require_writable("rebuild_indexes")
        return self._session.maintenance.rebuild_indexes(
            self._session.incarnation_of(branch), tuple(table_keys)
        )

    def optimize(
        self, *, engine: str = "auto", spark: object | None = None, progress: bool = False
    ) -> optimizing.MaintenanceReport:
        """Compact and index every table of `main` in one commit; removes no version.

        Large tables are rewritten and indexed by Spark tasks; the commit is the same.
        """
        self._session.require_writable("optimize")
        bulk = engines.bulk_engine(engine, self._session.maintenance.work_bytes, session=spark)
        if bulk is None:
            return self._session.maintenance.optimize()
        with bulk.maintenance_workers(
            self._session.repository, session=spark, shows_progress=progress
        ) as workers:
            return self._session.maintenance.optimize(workers)

    def examine(self, *, try_writing: bool = True) -> list[health.Finding]:
        """Return what is wrong or slow, and what helps; see `omnigraph doctor`."""
        return health.examine(
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
    ) -> scrub_reports.ScrubReport:
        """Compare the files of the graph, or of one branch, with their checksums.

        `share` reads only so much of them, chosen by path and `seed`: by default the day. `adopt`
        gives a checksum to files that have none. What is damaged is in the report, not an error.
        """
        if adopt:
            self._session.require_writable("scrub with adopt")
        if self._session.is_writable:
            self._session.background.settle()
        return scrubbing.scrub(
            self._session.repository, scrub_reports.ScrubRequest(branch, share, seed, adopt)
        )

    def repair(self, *, confirm: bool = False, force: bool = False) -> repairs.RepairReport:
        """Show versions from outside; `confirm` publishes maintenance, `force` the rest."""
        if confirm:
            self._session.require_writable("repair")
        work = repairs.Repair(
            self._session.repository, self._session.recovery, self._session.committer
        )
        return work.run(confirm=confirm, force=force)

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than_s: int | None = None,
        orphan_age_s: int = 24 * 3600,
        confirm: bool = False,
    ) -> cleanup_report.CleanupResult:
        """Remove old versions and leftovers that nothing needs; without `confirm` only count them.

        With both options a version goes only if neither keeps it.
        """
        if confirm:
            self._session.require_writable("cleanup")
        policy = cleanup_policy.CleanupPolicy(keep_versions, older_than_s, orphan_age_s)
        work = cleanups.Cleanup(
            self._session.repository, self._session.recovery, self._session.staging
        )
        return work.run(policy, confirm=confirm)
