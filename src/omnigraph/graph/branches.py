"""`graph.branches`: creating, deleting and merging branches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from omnigraph.graph.arguments import check_commit
from omnigraph.graph.late import (
    decision_file,
    engines,
    lineage_record,
    merge_requests,
    merge_results,
    merging,
    resolutions,
    schema_merges,
    schema_rules,
)
from omnigraph.graph.session import Part
from omnigraph.manifest import GraphCommit
from omnigraph.names import (
    MAIN,
    ArgumentError,
    BranchName,
    check_actor,
    check_retries,
    choice,
)
from omnigraph.policy import Action
from omnigraph.syntax.given import SourceFileError


class GraphBranches(Part):
    """Lists, creates, deletes and merges the branches of a graph."""

    def create(self, name: str, *, actor_id: str | None = None) -> str | None:
        """Create a branch at the head of the bound one; return the actor.

        The cost does not grow with the graph.
        """
        return self._create(name, None, actor_id)

    def create_from(self, source: str, name: str, *, actor_id: str | None = None) -> str | None:
        """Create a branch at the head of another one; return the actor."""
        return self._create(name, source, actor_id)

    def delete(self, name: str, *, actor_id: str | None = None) -> str | None:
        """Delete a branch that no other one was created from; return the actor."""
        session = self._session
        session.require_writable("branch delete")
        branch = BranchName.parse(name)
        actor = session.authorize(
            Action.BRANCH_DELETE, target_branch=str(branch), actor_id=actor_id
        )
        session.repository.branches.delete(
            branch,
            bound=session.binding.get().branch,
            operation_id=session.repository.clock.ulid(),
        )
        session.background.record_files()
        return actor

    def bind(self, branch: str | None = None) -> None:
        """Bind the handle to the latest head of a branch, by default of the bound one."""
        if branch is None:
            self._session.repository.reader.head_version(self._session.binding.get())
        else:
            self._session.binding.set(self._session.resolve(branch))

    def merge_base(self, source: str, target: str) -> GraphCommit | None:
        """Find the commit that a merge of two branches would start from."""
        resolve = self._session.resolve
        return self._session.repository.history.merge_base(resolve(source), resolve(target))

    def merge(
        self,
        source: str,
        target: str = MAIN,
        *,
        strategy: str = "row",
        prefer: str | None = None,
        resolve_file: str | os.PathLike[str] | None = None,
        schema: str | None = None,
        allow_data_loss: bool = False,
        check_schema: Callable[[str], None] | None = None,
        dry_run: bool = False,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        retries: int = 0,
        external_blob_bases: Sequence[str] = (),
        actor_id: str | None = None,
        job: str | lineage_record.Job | None = None,
        engine: str = "auto",
        spark: object | None = None,
    ) -> merge_results.MergeResult:
        """Merge a branch into another one as one commit with two parents, or not at all.

        With `strategy="property"` two sides may change different properties of one row. Conflicts
        of rows are settled by `resolve_file` (lines of `conflicts`, edited) and by `prefer`
        (`source` or `target`); those that stay are an error that lists all of them. The schemas are
        merged too: `schema` (`source` or `target`) settles what both sides changed differently, and
        only with `allow_data_loss` values are dropped with a type or property. A merge that changes
        the schema of the target needs what a schema apply on it needs; `check_schema` is called
        with the text of its new schema, and may raise. `dry_run`
        returns what would happen and writes nothing: with conflicts its outcome is `conflicts`. A
        merge that lost a race on the target is computed again on the new state, up to `retries`
        times. External blobs of rows that are copied become bytes of the graph; they are read only
        from below `external_blob_bases`. Large differences are compared and written by Spark tasks;
        the outcome is the same. `job` is what the lineage of the commit calls the merge.
        """
        if not dry_run:
            self._session.require_writable("branch merge")
        check_commit(message, properties)
        check_retries(retries)
        actor_id = self._merges_as(source, target, actor_id, dry_run=dry_run)
        request = merge_requests.MergeRequest(
            source=self._session.resolve(source),
            target=self._session.resolve(target),
            actor_id=actor_id,
            decisions=_decisions(strategy, prefer, schema, allow_data_loss=allow_data_loss),
            decision_file=_text_of(resolve_file),
            recorded_vectors=self._session.embeddings_table,
            schema_guard=schema_rules.SchemaRules(
                self._session,
                "branch merge",
                self._session.branch_of(target),
                actor_id,
                check_schema,
            ),
            dry_run=dry_run,
            message=message,
            properties=dict(properties or {}),
            retries=retries,
            external_blob_bases=self._session.blob_bases(external_blob_bases),
            terms=self._session.terms,
            job=self._session.job(job, "merge"),
        )
        merger = merging.Merger(self._session.repository, self._session.committer)
        bulk = engines.bulk_engine(engine, lambda: merger.work_bytes(request), session=spark)
        if bulk is None:
            return merger.merge(request)
        read = merger.snapshots(request)
        with bulk.merge_workers(self._session.repository, read, session=spark) as workers:
            return merger.merge(request, workers)

    def conflicts(self, source: str, target: str = MAIN, *, strategy: str = "row") -> Iterator[str]:
        """Yield a line of JSON for every row in conflict, with its images on all sides.

        Where no row is in conflict, every broken rule of the schema has a line.
        """
        request = merge_requests.MergeRequest(
            source=self._session.resolve(source),
            target=self._session.resolve(target),
            decisions=_decisions(strategy, None, None, allow_data_loss=False),
        )
        merger = merging.Merger(self._session.repository, self._session.committer)
        return decision_file.conflict_lines(merger.obstacles(request))

    def list(self) -> list[str]:
        """Return the names of all branches, sorted, `main` first."""
        return [str(name) for name in self._session.repository.branches.names()]

    def _merges_as(
        self, source: str, target: str, actor_id: str | None, *, dry_run: bool
    ) -> str | None:
        """Return the actor of a merge; a dry run is a read, which the engine does not decide."""
        if dry_run:
            check_actor(actor_id)
            return actor_id
        return self._session.authorize(
            Action.BRANCH_MERGE,
            branch=self._session.branch_of(source),
            target_branch=self._session.branch_of(target),
            actor_id=actor_id,
        )

    def _create(self, name: str, source: str | None, actor_id: str | None) -> str | None:
        session = self._session
        session.require_writable("branch create")
        branch = BranchName.parse(name)
        actor = session.authorize(
            Action.BRANCH_CREATE,
            branch=None if source is None else session.branch_of(source),
            target_branch=str(branch),
            actor_id=actor_id,
        )
        session.repository.branches.create(
            branch,
            source=session.incarnation_of(source),
            operation_id=session.repository.clock.ulid(),
        )
        session.background.record_files()
        return actor


def _decisions(
    strategy: str, prefer: str | None, schema: str | None, *, allow_data_loss: bool
) -> resolutions.Decisions:
    side = None if schema is None else choice(resolutions.Prefer, schema, "schema")
    return resolutions.Decisions(
        choice(resolutions.Strategy, strategy, "merge strategy"),
        None if prefer is None else choice(resolutions.Prefer, prefer, "preference"),
        schema=schema_merges.SchemaChoices(None if side is None else side.value),
        allow_data_loss=allow_data_loss,
    )


def _text_of(path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return None
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError.of("resolve_file", "the path of a file", path)
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SourceFileError(str(path), error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        problem = f"byte 0x{error.object[error.start]:02x} at offset {error.start} is not UTF-8"
        raise SourceFileError(str(path), problem) from error
