"""Schema changes, maintenance, recovery."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from omnigraph.clock import Clock, SystemClock
from omnigraph.engine import EngineChoice, choose_by_size, engine_named, note
from omnigraph.graph.core import GraphCore
from omnigraph.maintenance.cleanup import Cleanup, CleanupResult
from omnigraph.maintenance.cleanup_plan import ORPHAN_AGE_S, CleanupPolicy
from omnigraph.maintenance.health import Finding, examine
from omnigraph.maintenance.optimize import MaintenanceReport
from omnigraph.maintenance.repair import Repair, RepairReport
from omnigraph.maintenance.scrub import scrub
from omnigraph.maintenance.scrub_report import ScrubReport, ScrubRequest
from omnigraph.manifest import OpenMode
from omnigraph.manifest.errors import GraphNotFoundError
from omnigraph.manifest.layout import MANIFEST
from omnigraph.manifest.repository import assemble
from omnigraph.names import check_actor, choice
from omnigraph.query import LintReport, SchemaSource, lint_queries
from omnigraph.recovery import (
    BrokenManifest,
    PendingRecovery,
    Recovery,
    RecoveryAuditRow,
    find_broken_manifests,
    put_manifests_back,
)
from omnigraph.schema import PlannedSchema, plan_schema, read_ir
from omnigraph.store import connect
from omnigraph.store.durability import Durability
from omnigraph.syntax import SourceText
from omnigraph.syntax.grammar import decode_source
from omnigraph.write.schema_apply import SchemaApplied, SchemaApply


class MaintenanceCalls(GraphCore):
    """Calls that keep a graph in order."""

    def schema_source(self) -> str:
        """Return the accepted schema text of the bound branch."""
        return self.snapshot().schema.source

    def plan_schema(
        self, desired: str | SourceText, *, allow_data_loss: bool = False
    ) -> PlannedSchema:
        """Plan the way from the accepted schema to a desired one; touches no data."""
        snapshot = self.snapshot()
        return plan_schema(
            desired,
            accepted=read_ir(snapshot.schema.ir),
            allow_data_loss=allow_data_loss,
            row_counts={key: entry.row_count for key, entry in snapshot.entries.items()},
        )

    def plan_schema_file(self, path: Path, *, allow_data_loss: bool = False) -> PlannedSchema:
        """Plan the way to the schema in a file."""
        desired = decode_source(path.read_bytes(), str(path), "S")
        return self.plan_schema(desired, allow_data_loss=allow_data_loss)

    def apply_schema(
        self,
        desired: str | SourceText,
        *,
        allow_data_loss: bool = False,
        actor_id: str | None = None,
    ) -> SchemaApplied:
        """Make a desired schema the accepted one of `main`, with what it means for stored rows.

        `allow_data_loss` makes drops hard: what they remove is purged from older snapshots too.
        """
        self._require_writable("schema apply")
        check_actor(actor_id)
        work = SchemaApply(self._repository, self._recovery, self._committer)
        return work.apply(desired, allow_data_loss=allow_data_loss, actor_id=actor_id)

    def apply_schema_file(
        self, path: Path, *, allow_data_loss: bool = False, actor_id: str | None = None
    ) -> SchemaApplied:
        """Make the schema in a file the accepted one."""
        desired = decode_source(path.read_bytes(), str(path), "S")
        return self.apply_schema(desired, allow_data_loss=allow_data_loss, actor_id=actor_id)

    def lint(self, queries: bytes, *, query_path: str) -> LintReport:
        """Check the queries of one file against the accepted schema."""
        source = SchemaSource("graph", self.uri)
        return lint_queries(queries, self.catalog(), schema_source=source, query_path=query_path)

    def ensure_indices(self, branch: str | None = None) -> MaintenanceReport:
        """Build the declared indexes that are missing, and fold in rows that they do not cover."""
        self._require_writable("ensure_indices")
        return self._maintenance.ensure_indices(self._incarnation_of(branch))

    def rebuild_indexes(
        self, table_keys: Sequence[str], *, branch: str | None = None
    ) -> MaintenanceReport:
        """Build the declared indexes of some tables (`node:Person`) anew, without reading them."""
        self._require_writable("rebuild_indexes")
        return self._maintenance.rebuild_indexes(self._incarnation_of(branch), tuple(table_keys))

    def optimize(
        self, *, engine: str = "auto", spark: object | None = None, progress: bool = False
    ) -> MaintenanceReport:
        """Compact and index every table of `main` in one commit; removes no version.

        Large tables are rewritten and indexed by Spark tasks; the commit is the same.
        """
        self._require_writable("optimize")
        asked = choice(EngineChoice, engine, "engine")
        chosen = choose_by_size(asked, self._maintenance.work_bytes, session=spark)
        note(chosen)
        if chosen.engine is EngineChoice.LOCAL:
            return self._maintenance.optimize()
        bulk = engine_named(chosen.engine)
        with bulk.maintenance_workers(
            self._repository, session=spark, shows_progress=progress
        ) as workers:
            return self._maintenance.optimize(workers)

    def examine(self, *, try_writing: bool = True) -> list[Finding]:
        """Look for what is wrong or slow, and say what helps; see `omnigraph doctor`."""
        return examine(self._repository, self._recovery, self.snapshot(), try_writing=try_writing)

    @classmethod
    def repair_manifests(
        cls,
        uri: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "full",
        clock: Clock | None = None,
        confirm: bool = False,
    ) -> tuple[BrokenManifest, ...]:
        """Find branches whose newest manifest version cannot be used; the graph need not open.

        `confirm` puts the version below back. Nothing is removed, and no commit below is lost.
        """
        store = connect(str(uri), storage_options=storage_options, durability=durability)
        repository = assemble(store, clock or SystemClock())
        if not store.datasets.exists(MANIFEST):
            raise GraphNotFoundError(repository.root)
        if not confirm:
            return find_broken_manifests(repository)
        return put_manifests_back(repository, Recovery(repository).log)

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
            self._require_writable("scrub with adopt")
        if self._mode is OpenMode.READ_WRITE:
            self._repository.checksums.record()
        return scrub(self._repository, ScrubRequest(branch, share, seed, adopt))

    def repair(self, *, confirm: bool = False, force: bool = False) -> RepairReport:
        """Show versions from outside; `confirm` publishes maintenance, `force` the rest."""
        if confirm:
            self._require_writable("repair")
        work = Repair(self._repository, self._recovery, self._committer)
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
            self._require_writable("cleanup")
        policy = CleanupPolicy(keep_versions, older_than_s, orphan_age_s)
        work = Cleanup(self._repository, self._recovery, self._staging)
        return work.run(policy, confirm=confirm)

    def recovery_list(self) -> list[RecoveryAuditRow]:
        """Return what recovery has done, newest first."""
        return self._recovery.log.rows()

    def recovery_show(self, operation_id: str) -> RecoveryAuditRow:
        """Return what recovery did about one operation."""
        return self._recovery.show(operation_id)

    def recovery_status(self) -> list[PendingRecovery]:
        """Return the records of unfinished writes and what recovery would do; changes nothing."""
        return self._recovery.status()

    def recovery_quarantine(self, operation_id: str) -> str:
        """Set the record of an operation aside that recovery cannot settle; return where it is.

        Works on a graph that was opened for reading only: a record that names no branch stops every
        other open.
        """
        return self._recovery.quarantine(operation_id)
