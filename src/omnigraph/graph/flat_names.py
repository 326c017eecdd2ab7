"""The parts of a graph, and their methods under flat names.

`graph.branch_create(...)` is `graph.branches.create(...)`, and so on. Every method here is one call
of one part, with the same arguments; the part documents it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omnigraph.changes.commit_changes import PAGE_CHANGES_DEFAULT, CommitPage
from omnigraph.changes.diff import Difference
from omnigraph.changes.feed import FeedPage, FeedRequest
from omnigraph.changes.selection import Selection
from omnigraph.graph.branches import GraphBranches
from omnigraph.graph.changes import GraphChanges, GraphDiff
from omnigraph.graph.commits import GraphCommits
from omnigraph.graph.maintenance import GraphMaintenance
from omnigraph.graph.recovery import GraphRecovery
from omnigraph.graph.schema import GraphSchema
from omnigraph.graph.session import Session
from omnigraph.graph.tags import GraphTags
from omnigraph.maintenance.cleanup.needed import ORPHAN_AGE_S
from omnigraph.maintenance.cleanup.report import CleanupResult
from omnigraph.maintenance.health import Finding
from omnigraph.maintenance.optimize import MaintenanceReport
from omnigraph.maintenance.repair import RepairReport
from omnigraph.maintenance.scrub_report import ScrubReport
from omnigraph.manifest import GraphCommit, ReadTarget, Snapshot, Tag
from omnigraph.merge.merger import MergeResult
from omnigraph.merge.resolve import Strategy
from omnigraph.names import MAIN
from omnigraph.query import LintReport
from omnigraph.recovery import PendingRecovery, RecoveryAuditRow
from omnigraph.schema import Catalog, PlannedSchema
from omnigraph.syntax import SourceText
from omnigraph.write.schema_apply import SchemaApplied


class FlatNames:
    """The parts of one open graph, and a flat name for each of their methods."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.branches = GraphBranches(session)
        self.commits = GraphCommits(session)
        self.tags = GraphTags(session)
        self.changes = GraphChanges(session)
        self.schema = GraphSchema(session)
        self.maintenance = GraphMaintenance(session)
        self.recovery = GraphRecovery(session)

    # -- branches ---------------------------------------------------------------------------------

    def branch_create(self, name: str, *, actor_id: str | None = None) -> None:
        """Create a branch at the head of the bound one."""
        self.branches.create(name, actor_id=actor_id)

    def branch_create_from(self, source: str, name: str, *, actor_id: str | None = None) -> None:
        """Create a branch at the head of another one."""
        self.branches.create_from(source, name, actor_id=actor_id)

    def branch_list(self) -> list[str]:
        """Return the names of all branches, sorted, `main` first."""
        return self.branches.list()

    def branch_delete(self, name: str, *, actor_id: str | None = None) -> None:
        """Delete a branch that no other one was created from."""
        self.branches.delete(name, actor_id=actor_id)

    def branch_merge(
        self,
        source: str,
        target: str = MAIN,
        *,
        strategy: str = Strategy.ROW,
        prefer: str | None = None,
        resolve_file: Path | None = None,
        dry_run: bool = False,
        message: str | None = None,
        external_blob_bases: Sequence[str] = (),
        actor_id: str | None = None,
        engine: str = "auto",
        spark: object | None = None,
    ) -> MergeResult:
        """Merge a branch into another one; see `GraphBranches.merge`."""
        return self.branches.merge(
            source,
            target,
            strategy=strategy,
            prefer=prefer,
            resolve_file=resolve_file,
            dry_run=dry_run,
            message=message,
            external_blob_bases=external_blob_bases,
            actor_id=actor_id,
            engine=engine,
            spark=spark,
        )

    def merge_conflicts(
        self, source: str, target: str = MAIN, *, strategy: str = Strategy.ROW
    ) -> Iterator[str]:
        """Yield a line of JSON for every row in conflict; see `GraphBranches.conflicts`."""
        return self.branches.conflicts(source, target, strategy=strategy)

    def merge_base(self, source: str, target: str) -> GraphCommit | None:
        """Find the commit that a merge of two branches would start from."""
        return self.branches.merge_base(source, target)

    def sync_branch(self, branch: str | None = None) -> None:
        """Bind this handle to the latest head of a branch, by default of the bound one."""
        self.branches.bind(branch)

    # -- commits and tags -------------------------------------------------------------------------

    def list_commits(
        self, branch: str | None = None, *, limit: int | None = None, before: int | None = None
    ) -> list[GraphCommit]:
        """Return commits newest first, with those that the branch inherited."""
        return self.commits.list(branch, limit=limit, before=before)

    def get_commit(self, commit_id: str) -> GraphCommit:
        """Find one commit on any branch."""
        return self.commits.get(commit_id)

    def head_commit_id_for_branch(self, branch: str | None = None) -> str:
        """Return the id of a branch's newest commit."""
        return self.commits.head_id(branch)

    def commit_revert(
        self,
        commit_id: str,
        *,
        branch: str | None = None,
        prefer: str | None = None,
        external_blob_bases: Sequence[str] = (),
        actor_id: str | None = None,
    ) -> MergeResult:
        """Undo what one commit changed, as a new commit; see `GraphCommits.revert`."""
        return self.commits.revert(
            commit_id,
            branch=branch,
            prefer=prefer,
            external_blob_bases=external_blob_bases,
            actor_id=actor_id,
        )

    def tag_create(
        self, name: str, target: ReadTarget | Snapshot | None = None, *, actor_id: str | None = None
    ) -> Tag:
        """Name a commit, by default the head of the bound branch, and keep its versions."""
        return self.tags.create(name, target, actor_id=actor_id)

    def tag_delete(self, name: str) -> None:
        """Forget a tag."""
        self.tags.delete(name)

    def tag_list(self) -> list[Tag]:
        """Return all tags, sorted by name."""
        return self.tags.list()

    # -- changes ----------------------------------------------------------------------------------

    def diff_between(
        self,
        before: ReadTarget | Snapshot,
        after: ReadTarget | Snapshot,
        selection: Selection | None = None,
    ) -> Difference:
        """Return the net difference of two states of the graph."""
        return self.changes.difference(before, after, selection)

    def diff(
        self,
        before: ReadTarget | Snapshot,
        after: ReadTarget | Snapshot,
        selection: Selection | None = None,
    ) -> GraphDiff:
        """Return what differs between two states: as rows, or as a frame of Spark."""
        return self.changes.diff(before, after, selection)

    def changes_between(
        self,
        before: ReadTarget | Snapshot,
        after: ReadTarget | Snapshot,
        selection: Selection | None = None,
        *,
        engine: str = "auto",
        spark: object | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield what differs between two states, with the rows of both sides."""
        return self.changes.between(before, after, selection, engine=engine, spark=spark)

    def commit_changes(
        self,
        commit_id: str,
        selection: Selection | None = None,
        *,
        limit: int = PAGE_CHANGES_DEFAULT,
        page_token: str | None = None,
    ) -> CommitPage:
        """Return a page of what one commit changed, with the rows before and after."""
        return self.changes.of_commit(commit_id, selection, limit=limit, page_token=page_token)

    def poll_changes(self, request: FeedRequest, *, branch: str | None = None) -> FeedPage:
        """Return a page of what happened on a branch since a cursor."""
        return self.changes.poll(request, branch=branch)

    def baseline(
        self, *, branch: str | None = None, selection: Selection | None = None
    ) -> tuple[Iterator[bytes], dict[str, str]]:
        """Return every entity of a branch as lines of JSON, and where the feed goes on after them.

        See `GraphChanges.baseline`.
        """
        return self.changes.baseline(branch=branch, selection=selection)

    # -- schema -----------------------------------------------------------------------------------

    def schema_source(self) -> str:
        """Return the accepted schema text of the bound branch."""
        return self.schema.source()

    def catalog(self) -> Catalog:
        """Return what the accepted schema of the bound branch declares."""
        return self.schema.catalog()

    def plan_schema(
        self, desired: str | SourceText, *, allow_data_loss: bool = False
    ) -> PlannedSchema:
        """Plan the way from the accepted schema to a desired one; touches no data."""
        return self.schema.plan(desired, allow_data_loss=allow_data_loss)

    def plan_schema_file(self, path: Path, *, allow_data_loss: bool = False) -> PlannedSchema:
        """Plan the way to the schema in a file."""
        return self.schema.plan_file(path, allow_data_loss=allow_data_loss)

    def apply_schema(
        self,
        desired: str | SourceText,
        *,
        allow_data_loss: bool = False,
        actor_id: str | None = None,
    ) -> SchemaApplied:
        """Make a desired schema the accepted one of `main`; see `GraphSchema.apply`."""
        return self.schema.apply(desired, allow_data_loss=allow_data_loss, actor_id=actor_id)

    def apply_schema_file(
        self, path: Path, *, allow_data_loss: bool = False, actor_id: str | None = None
    ) -> SchemaApplied:
        """Make the schema in a file the accepted one."""
        return self.schema.apply_file(path, allow_data_loss=allow_data_loss, actor_id=actor_id)

    def lint(self, queries: bytes, *, query_path: str) -> LintReport:
        """Check the queries of one file against the accepted schema."""
        return self.schema.lint(queries, query_path=query_path)

    # -- maintenance ------------------------------------------------------------------------------

    def ensure_indices(self, branch: str | None = None) -> MaintenanceReport:
        """Build the declared indexes that are missing, and fold in rows that they do not cover."""
        return self.maintenance.ensure_indices(branch)

    def rebuild_indexes(
        self, table_keys: Sequence[str], *, branch: str | None = None
    ) -> MaintenanceReport:
        """Build the declared indexes of some tables (`node:Person`) anew, without reading them."""
        return self.maintenance.rebuild_indexes(table_keys, branch=branch)

    def optimize(
        self, *, engine: str = "auto", spark: object | None = None, progress: bool = False
    ) -> MaintenanceReport:
        """Compact and index every table of `main` in one commit; removes no version."""
        return self.maintenance.optimize(engine=engine, spark=spark, progress=progress)

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than_s: int | None = None,
        orphan_age_s: int = ORPHAN_AGE_S,
        confirm: bool = False,
    ) -> CleanupResult:
        """Remove old versions and leftovers that nothing needs; without `confirm` only count them.

        See `GraphMaintenance.cleanup`.
        """
        return self.maintenance.cleanup(
            keep_versions=keep_versions,
            older_than_s=older_than_s,
            orphan_age_s=orphan_age_s,
            confirm=confirm,
        )

    def repair(self, *, confirm: bool = False, force: bool = False) -> RepairReport:
        """Show versions from outside; `confirm` publishes maintenance, `force` the rest."""
        return self.maintenance.repair(confirm=confirm, force=force)

    def examine(self, *, try_writing: bool = True) -> list[Finding]:
        """Return what is wrong or slow, and what helps; see `omnigraph doctor`."""
        return self.maintenance.examine(try_writing=try_writing)

    def scrub(
        self,
        *,
        branch: str | None = None,
        share: float = 1.0,
        seed: str | None = None,
        adopt: bool = False,
    ) -> ScrubReport:
        """Compare files with their checksums; see `GraphMaintenance.scrub`."""
        return self.maintenance.scrub(branch=branch, share=share, seed=seed, adopt=adopt)

    # -- recovery ---------------------------------------------------------------------------------

    def recovery_list(self) -> list[RecoveryAuditRow]:
        """Return what recovery has done, newest first."""
        return self.recovery.list()

    def recovery_show(self, operation_id: str) -> RecoveryAuditRow:
        """Return what recovery did about one operation."""
        return self.recovery.show(operation_id)

    def recovery_status(self) -> list[PendingRecovery]:
        """Return the records of unfinished writes and what recovery would do; changes nothing."""
        return self.recovery.status()

    def recovery_quarantine(self, operation_id: str) -> str:
        """Quarantine the record of an operation that recovery cannot settle; return its path."""
        return self.recovery.quarantine(operation_id)
