"""`graph.schema`: the accepted schema, plans and changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from omnigraph.display import Display
from omnigraph.graph.arguments import check_commit
from omnigraph.graph.cluster_guard import require_outside_cluster
from omnigraph.graph.late import (
    linting,
    migrations,
    purging,
    schema_applies,
    schema_differences,
)
from omnigraph.graph.schema_hold import find_schema
from omnigraph.graph.session import Part
from omnigraph.manifest import AnyTarget
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.names import MAIN, BranchName
from omnigraph.policy import Action
from omnigraph.schema import Catalog, PlannedSchema, plan_schema
from omnigraph.syntax import SourceText
from omnigraph.syntax.given import GivenSource, given_source


class GraphSchema(Part):
    """Shows, plans and applies the schema of a graph."""

    def _repr_html_(self) -> str:
        is_closed = self._opened.closed.is_set()
        return Display(repr(self)).html() if is_closed else self.catalog()._repr_html_()

    def source(self, *, branch: str | None = None) -> str:
        """Return the accepted schema text of a branch, by default of the bound one."""
        return self._session.snapshot(branch).schema.source

    def catalog(self, *, branch: str | None = None) -> Catalog:
        """Return what the accepted schema of a branch declares, by default of the bound one."""
        return self._session.snapshot(branch).catalog

    def plan(
        self, desired: GivenSource, *, branch: str | None = None, allow_data_loss: bool = False
    ) -> PlannedSchema:
        """Plan the way from the accepted schema of a branch to a desired one, a text or a file.

        Without `branch` it is the bound one. Touches no data. New types and properties get their
        numbers only by an apply.
        """
        snapshot = self._session.snapshot(branch)
        return plan_schema(
            given_source(desired, suffix=".pg", letter="S"),
            accepted=snapshot.schema.compiled,
            allow_data_loss=allow_data_loss,
            row_counts={key: entry.row_count for key, entry in snapshot.entries.items()},
        )

    def plan_file(
        self,
        path: str | os.PathLike[str],
        *,
        branch: str | None = None,
        allow_data_loss: bool = False,
    ) -> PlannedSchema:
        """Plan the way to the schema in a file."""
        return self.plan(Path(path), branch=branch, allow_data_loss=allow_data_loss)

    def diff(self, before: AnyTarget, after: AnyTarget) -> migrations.MigrationPlan:
        """Return the steps from the schema of one state to that of another, by identity.

        The states are branches, tags, commits or snapshots. Types and properties are matched by
        their numbers, so a rename is a rename. A step that no apply could make is listed too, as
        `unsupported_change`.
        """
        old, new = (self._session.snapshot_of(each).schema.compiled for each in (before, after))
        return schema_differences.schema_difference(old, new)

    def apply(
        self,
        desired: GivenSource,
        *,
        branch: str | None = None,
        allow_data_loss: bool = False,
        actor_id: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> schema_applies.SchemaApplied:
        """Make a desired schema the accepted one of a branch, with what it means for stored rows.

        `desired` is its text, or a file; `branch` is by default the bound one, as for every write.
        Other branches keep the schemas and rows that they have.

        `allow_data_loss` makes drops hard: what they remove is purged from older snapshots too,
        except where another branch, a tag or a running load needs it; `kept_for` of the result
        lists those. `main` of a graph of a cluster is refused: it gets its schema by
        `omnigraph cluster apply`, and the ledger of the cluster would not know of another change.
        """
        self._session.require_writable("schema apply")
        check_commit(message, properties)
        target = BranchName(self._session.branch_of(branch))
        actor_id = self._session.authorize(
            Action.SCHEMA_APPLY, target_branch=target.text, actor_id=actor_id
        )
        if target.is_main:
            settings = self._session.repository.store.settings
            require_outside_cluster(
                "schema apply", settings.root.uri, storage_options=settings.storage_options
            )
        return self._apply(
            given_source(desired, suffix=".pg", letter="S"),
            branch=target,
            allow_data_loss=allow_data_loss,
            actor_id=actor_id,
            message=message,
            properties=properties,
        )

    def _apply(
        self,
        desired: str | SourceText,
        *,
        branch: BranchName,
        allow_data_loss: bool,
        actor_id: str | None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> schema_applies.SchemaApplied:
        session = self._session
        purger = purging.Purger(session.repository, session.recovery, session.staging)
        work = schema_applies.SchemaApply(
            session.repository, session.recovery, session.committer, purger.purge
        )
        return work.apply(
            desired,
            branch=branch,
            allow_data_loss=allow_data_loss,
            actor_id=actor_id,
            message=message,
            properties=properties,
        )

    def apply_file(
        self,
        path: str | os.PathLike[str],
        *,
        branch: str | None = None,
        allow_data_loss: bool = False,
        actor_id: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> schema_applies.SchemaApplied:
        """Make the schema in a file the accepted one of a branch."""
        return self.apply(
            Path(path),
            branch=branch,
            allow_data_loss=allow_data_loss,
            actor_id=actor_id,
            message=message,
            properties=properties,
        )

    def lint(self, queries: bytes, *, query_path: str) -> linting.LintReport:
        """Check the queries of one file against the accepted schema."""
        source = linting.SchemaSource("graph", self._session.repository.root)
        return linting.lint_queries(
            queries, self._session.catalog(), schema_source=source, query_path=query_path
        )


def accepted_schema(schema: GraphSchema, digest: str | None = None) -> AcceptedSchema:
    """Return the accepted schema of a graph: its text, its hash, its compiled form.

    With a `digest`, the SHA-256 of a text, the newest schema that had this text, if there was one,
    else the present one.
    """
    snapshot = schema._session.snapshot()
    history = schema._session.repository.history
    found = None if digest is None else find_schema(snapshot, history, digest)
    return found or snapshot.schema


def apply_schema_by_cluster(
    schema: GraphSchema, desired: str, *, actor_id: str | None = None
) -> schema_applies.SchemaApplied:
    """Make a schema the accepted one of a graph of a cluster; for `omnigraph cluster apply`."""
    schema._session.require_writable("schema apply")
    return schema._apply(desired, branch=BranchName(MAIN), allow_data_loss=False, actor_id=actor_id)
