"""Branches, merges, commits and tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from omnigraph.engine import EngineChoice, choose_by_size, engine_named, note
from omnigraph.graph.core import GraphCore
from omnigraph.manifest import (
    GraphCommit,
    ReadTarget,
    Snapshot,
    Tag,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.merge.decision_file import conflict_lines, read_decisions
from omnigraph.merge.merger import Merger, MergeRequest, MergeResult, RevertRequest
from omnigraph.merge.resolve import Decisions, Prefer, Strategy
from omnigraph.names import MAIN, BranchName, check_actor, check_commit_texts, choice
from omnigraph.write.stage.blob_bases import blob_bases


class HistoryCalls(GraphCore):
    """Calls about branches, commits and tags."""

    def branch_create(self, name: str, *, actor_id: str | None = None) -> None:
        """Cut a branch from the head of the bound one; costs nothing that grows with the graph."""
        self._create_branch(BranchName.parse(name), self._bound(), actor_id)

    def branch_create_from(self, source: str, name: str, *, actor_id: str | None = None) -> None:
        """Cut a branch from the head of another one."""
        incarnation = self._repository.branches.resolve(BranchName.parse(source))
        self._create_branch(BranchName.parse(name), incarnation, actor_id)

    def branch_list(self) -> list[str]:
        """Return the names of all branches, sorted, `main` first."""
        return [str(name) for name in self._repository.branches.names()]

    def branch_delete(self, name: str, *, actor_id: str | None = None) -> None:
        """Delete a branch that no other one was cut from."""
        self._require_writable("branch delete")
        check_actor(actor_id)
        self._repository.branches.delete(
            BranchName.parse(name),
            bound=self._bound().branch,
            operation_id=self._repository.clock.ulid(),
        )
        self._auto_optimize.record_files()

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
        """Merge a branch into another one as one commit with two parents, or not at all.

        With `strategy="property"` two sides may change different properties of one row. Conflicts
        of rows are settled by `resolve_file` (lines of `merge_conflicts`, edited) and by `prefer`
        (`source` or `target`); those that stay are an error that lists all of them. `dry_run` says
        what would happen and writes nothing. External blobs of rows that are copied become bytes of
        the graph; they are read only from below `external_blob_bases`. Large differences are
        compared and written by Spark tasks; the outcome is the same.
        """
        if not dry_run:
            self._require_writable("branch merge")
        check_actor(actor_id)
        check_commit_texts(message=message)
        resolve = self._repository.branches.resolve
        request = MergeRequest(
            source=resolve(BranchName.parse(source)),
            target=resolve(BranchName.parse(target)),
            actor_id=actor_id,
            decisions=self._decisions(strategy, prefer, resolve_file),
            dry_run=dry_run,
            message=message,
            external_blob_bases=blob_bases(external_blob_bases),
        )
        merger = Merger(self._repository, self._committer)
        chosen = choose_by_size(
            choice(EngineChoice, engine, "engine"),
            lambda: merger.work_bytes(request),
            session=spark,
        )
        note(chosen)
        if chosen.engine is EngineChoice.LOCAL:
            return merger.merge(request)
        bulk, read = engine_named(chosen.engine), merger.snapshots(request)
        with bulk.merge_workers(self._repository, read, session=spark) as workers:
            return merger.merge(request, workers)

    def merge_conflicts(
        self, source: str, target: str = MAIN, *, strategy: str = Strategy.ROW
    ) -> Iterator[str]:
        """Yield a line of JSON for every row in conflict, with its images on all sides.

        Where no row is in conflict, every broken rule of the schema has a line.
        """
        resolve = self._repository.branches.resolve
        request = MergeRequest(
            source=resolve(BranchName.parse(source)),
            target=resolve(BranchName.parse(target)),
            decisions=self._decisions(strategy, None, None),
        )
        return conflict_lines(Merger(self._repository, self._committer).obstacles(request))

    def commit_revert(
        self,
        commit_id: str,
        *,
        branch: str | None = None,
        prefer: str | None = None,
        external_blob_bases: Sequence[str] = (),
        actor_id: str | None = None,
    ) -> MergeResult:
        """Undo what one commit changed, as a new commit; conflicts are those of a merge.

        `prefer="source"` undoes also what was changed again since, `target` leaves that alone.
        """
        self._require_writable("commit revert")
        check_actor(actor_id)
        decisions = Decisions(
            prefer=None if prefer is None else choice(Prefer, prefer, "preference")
        )
        target = self._incarnation_of(branch)
        request = RevertRequest(
            commit_id=commit_id,
            target=target,
            actor_id=actor_id,
            decisions=decisions,
            external_blob_bases=blob_bases(external_blob_bases),
        )
        return Merger(self._repository, self._committer).revert(request)

    def sync_branch(self, branch: str | None = None) -> None:
        """Bind this handle to the latest head of a branch, by default of the one it is bound to."""
        if branch is None:
            self._repository.reader.head_version(self._bound())
            return
        incarnation = self._repository.branches.resolve(BranchName.parse(branch))
        with self._guard:
            self._incarnation = incarnation

    def list_commits(
        self, branch: str | None = None, *, limit: int | None = None, before: int | None = None
    ) -> list[GraphCommit]:
        """Return commits newest first, with those that the branch inherited.

        `before` is a manifest version: only older commits are listed.
        """
        return self._state_of(branch).commits(limit=limit, before=before)

    def get_commit(self, commit_id: str) -> GraphCommit:
        """Find one commit on any branch."""
        return self._repository.history.get(commit_id)

    def head_commit_id_for_branch(self, branch: str | None = None) -> str:
        """Return the id of a branch's newest commit."""
        return self._state_of(branch).head.commit_id

    def merge_base(self, source: str, target: str) -> GraphCommit | None:
        """Find the commit that a merge of two branches would start from."""
        resolve = self._repository.branches.resolve
        return self._repository.history.merge_base(
            resolve(BranchName.parse(source)), resolve(BranchName.parse(target))
        )

    def tag_create(
        self, name: str, target: ReadTarget | Snapshot | None = None, *, actor_id: str | None = None
    ) -> Tag:
        """Name a commit, by default the head of the bound branch, and keep its versions."""
        self._require_writable("tag create")
        check_actor(actor_id)
        snapshot = self.snapshot() if target is None else self.snapshot_of(target)
        tag = self._repository.tags.create(name, snapshot, actor_id=actor_id)
        self._auto_optimize.record_files()
        return tag

    def tag_delete(self, name: str) -> None:
        """Forget a tag."""
        self._require_writable("tag delete")
        self._repository.tags.delete(name)
        self._auto_optimize.record_files()

    def tag_list(self) -> list[Tag]:
        """Return all tags, sorted by name."""
        return list(self._repository.tags.list().values())

    def _decisions(self, strategy: str, prefer: str | None, path: Path | None) -> Decisions:
        takes, rows = ({}, {}) if path is None else read_decisions(path.read_text(), self.catalog())
        return Decisions(
            choice(Strategy, strategy, "merge strategy"),
            None if prefer is None else choice(Prefer, prefer, "preference"),
            takes,
            rows,
        )

    def _create_branch(self, name: BranchName, source: Incarnation, actor_id: str | None) -> None:
        self._require_writable("branch create")
        check_actor(actor_id)
        self._repository.branches.create(
            name, source=source, operation_id=self._repository.clock.ulid()
        )
        self._auto_optimize.record_files()
