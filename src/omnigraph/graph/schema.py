"""`graph.schema`: the accepted schema, plans and changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from omnigraph.graph.cluster_guard import require_outside_cluster
from omnigraph.graph.schema_hold import find_schema
from omnigraph.graph.session import Part
from omnigraph.lineage import check_properties
from omnigraph.manifest.rows import AcceptedSchema
from omnigraph.names import MAIN, check_commit_texts
from omnigraph.policy import Action
from omnigraph.query import LintReport, SchemaSource, lint_queries
from omnigraph.schema import Catalog, PlannedSchema, plan_schema, read_ir
from omnigraph.syntax import SourceText
from omnigraph.syntax.given import GivenSource, given_source
from omnigraph.write.schema_apply import SchemaApplied, SchemaApply


class GraphSchema(Part):
    """Shows, plans and applies the schema of a graph."""

    def source(self) -> str:
        """Return the accepted schema text of the bound branch."""
        return self._session.snapshot().schema.source

    def catalog(self) -> Catalog:
        """Return what the accepted schema of the bound branch declares."""
        return self._session.catalog()

    def plan(self, desired: GivenSource, *, allow_data_loss: bool = False) -> PlannedSchema:
        """Plan the way from the accepted schema to a desired one, a text or a file.

        Touches no data.
        """
        snapshot = self._session.snapshot()
        return plan_schema(
            given_source(desired, suffix=".pg", letter="S"),
            accepted=read_ir(snapshot.schema.ir),
            allow_data_loss=allow_data_loss,
            row_counts={key: entry.row_count for key, entry in snapshot.entries.items()},
        )

    def plan_file(
        self, path: str | os.PathLike[str], *, allow_data_loss: bool = False
    ) -> PlannedSchema:
        """Plan the way to the schema in a file."""
        return self.plan(Path(path), allow_data_loss=allow_data_loss)

    def apply(
        self,
        desired: GivenSource,
        *,
        allow_data_loss: bool = False,
        actor_id: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> SchemaApplied:
        """Make a desired schema the accepted one of `main`, with what it means for stored rows.

        `desired` is its text, or a file.

        `allow_data_loss` makes drops hard: what they remove is purged from older snapshots too.
        A graph of a cluster is refused: it gets its schema by `omnigraph cluster apply`, and the
        ledger of the cluster would not know of another change.
        """
        self._session.require_writable("schema apply")
        check_commit_texts(message=message, properties=properties)
        check_properties(properties)
        actor_id = self._session.authorize(
            Action.SCHEMA_APPLY, target_branch=MAIN, actor_id=actor_id
        )
        settings = self._session.repository.store.settings
        require_outside_cluster(
            "schema apply", settings.root.uri, storage_options=settings.storage_options
        )
        return self._apply(
            given_source(desired, suffix=".pg", letter="S"),
            allow_data_loss=allow_data_loss,
            actor_id=actor_id,
            message=message,
            properties=properties,
        )

    def _apply(
        self,
        desired: str | SourceText,
        *,
        allow_data_loss: bool,
        actor_id: str | None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> SchemaApplied:
        work = SchemaApply(
            self._session.repository, self._session.recovery, self._session.committer
        )
        return work.apply(
            desired,
            allow_data_loss=allow_data_loss,
            actor_id=actor_id,
            message=message,
            properties=properties,
        )

    def apply_file(
        self,
        path: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        actor_id: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> SchemaApplied:
        """Make the schema in a file the accepted one."""
        return self.apply(
            Path(path),
            allow_data_loss=allow_data_loss,
            actor_id=actor_id,
            message=message,
            properties=properties,
        )

    def lint(self, queries: bytes, *, query_path: str) -> LintReport:
        """Check the queries of one file against the accepted schema."""
        source = SchemaSource("graph", self._session.repository.root)
        return lint_queries(
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
) -> SchemaApplied:
    """Make a schema the accepted one of a graph of a cluster; for `omnigraph cluster apply`."""
    schema._session.require_writable("schema apply")
    return schema._apply(desired, allow_data_loss=False, actor_id=actor_id)
