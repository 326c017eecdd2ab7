"""Merges one branch into another: base, rows, rules, one commit with two parents.

1. The snapshots of target, source and base are taken once, in this order; everything, the base
   included, is computed from them. A source that is another branch of the same name by the time
   of the commit is refused.
2. The schemas are merged first, by identity, and rows of all sides are read as the merged schema
   sees them. The commit that takes rows also takes the schema, under one intent record.
3. A table that the source has not changed since the base is skipped. One that the target has not
   changed takes the source's state as a whole, by pointer where the source's entry lies on the
   main lineage and has the merged columns, else as the rows that differ. Every other one is merged
   row by row.
4. All conflicts of schemas are found before any row is read, all row conflicts of all tables before
   any rule is checked, and all rules before anything is written. A merge with conflicts leaves no
   trace.
5. The commit is published only onto the head that was merged into. When only maintenance has moved
   the target meanwhile, or what was staged or is taken by pointer was removed, the merge is
   computed again; otherwise that counts as one of the `retries` of the request, and without any it
   is refused. So does a schema change of source or target that is under way.
6. The commit has two parents even when it changes no row, so that merging the same source again
   has nothing to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from omnigraph.changes.commit_changes import ParentlessCommitError
from omnigraph.changes.table_changes import differing_fragments
from omnigraph.errors import InvalidInputError
from omnigraph.manifest import GraphCommit, Repository, Snapshot
from omnigraph.manifest.errors import (
    BranchGoneError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    SchemaApplyInProgressError,
    SchemaMovedError,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.merge.commit import MergeCommits
from omnigraph.merge.conflicts import (
    Conflicts,
    MergeConflictError,
    ReadSetConflictError,
)
from omnigraph.merge.constraints import Checked
from omnigraph.merge.decision_file import (
    read_decisions,
    read_schema_choices,
    require_schema_lines,
)
from omnigraph.merge.links import KnownLinks, Links
from omnigraph.merge.plan import ClashImages, Obstacles, Plan, checked, planned
from omnigraph.merge.request import MergeRequest, RevertRequest
from omnigraph.merge.result import DroppedValues, MergeKind, MergeResult, TypeCounts
from omnigraph.merge.revert_schema import require_undoable
from omnigraph.merge.schemas import identities, merged_schemas
from omnigraph.merge.sides import MergeJob, Sides
from omnigraph.merge.workers import LocalMergeWorkers, MergeWorkers
from omnigraph.store.errors import CopyRefusedError, StagedFilesLostError
from omnigraph.write.commit.committer import Committer

_log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 5
_PAUSE_S: Final = 0.1


class SameBranchError(InvalidInputError):
    """A branch cannot be merged into itself."""

    code = "OG-SAME-BRANCH"
    hint = "`omnigraph branch merge SOURCE --into TARGET` with two names"
    template = "a merge needs distinct source and target branches: both are '{branch}'"
    branch: str


class UnrelatedBranchesError(InvalidInputError):
    """Two branches have no common commit to merge from."""

    code = "OG-NO-MERGE-BASE"
    hint = "`omnigraph export --branch SOURCE`, then `omnigraph load --mode merge`"
    template = "'{source}' and '{target}' have no commit in common"
    source: str
    target: str


class Merger:
    """Merges branches of one graph."""

    def __init__(self, repository: Repository, committer: Committer) -> None:
        self._repository = repository
        self._commits = MergeCommits(repository, committer)
        self._local = LocalMergeWorkers(repository.store.datasets)
        self._bases: dict[tuple[str, str], GraphCommit | None] = {}
        """Merge bases by the heads of source and target: sizing and merging need the same one."""
        self._linked: KnownLinks = {}

    def merge(self, request: MergeRequest, workers: MergeWorkers | None = None) -> MergeResult:
        """Merge a branch into another one, or raise with all conflicts.

        `workers` compare and write rows, by default in this process.
        """
        if request.source == request.target:
            raise SameBranchError(str(request.source.branch))

        def take_job() -> MergeJob | None:
            for branch in (request.source, request.target):
                self._repository.branches.require_no_schema_apply("branch merge", branch)
            return self._merge_job(request)

        return self._until_settled(request, take_job, workers or self._local)

    def revert(self, request: RevertRequest) -> MergeResult:
        """Undo what one commit changed: merge its parent's state onto a branch, from the commit."""
        return self._until_settled(request, partial(self._revert_job, request), self._local)

    def obstacles(self, request: MergeRequest) -> Obstacles:
        """Return all conflicts of a merge; writes nothing."""
        job = self._merge_job(replace(request, dry_run=True))
        if job is None:
            return Obstacles()
        plan = planned(job, self._local, Links(job.sides, self._linked))
        clashes = tuple(
            ClashImages(job.sides.entity_type(key), job.sides.tables[key].handles, clash)
            for key, of_table in sorted(plan.clashes.items())
            for clash in of_table
        )
        if clashes:
            return Obstacles(clashes)
        return Obstacles(others=tuple(plan.conflicts or checked(plan, job.sides).conflicts))

    def snapshots(self, request: MergeRequest) -> tuple[Snapshot, ...]:
        """Return the snapshots that a merge would read now; none when there is nothing to do."""
        sides = self._sides(request)
        return () if sides is None else (sides.base, sides.source, sides.target)

    def work_bytes(self, request: MergeRequest) -> int:
        """Return the size of the fragments that a merge would read, from manifests alone."""
        sides = self._sides(request)
        if sides is None or sides.schemas.conflicts:
            return 0
        size = 0
        links = Links(sides, self._linked)
        for table in sides.touched():
            if links.of(table) is not None:
                continue
            handles = table.handles
            size += differing_fragments(handles.base, handles.source).data_bytes
            if not table.target_is_base:
                size += differing_fragments(handles.base, handles.target).data_bytes
        return size

    def _sides(self, request: MergeRequest) -> Sides | None:
        """Take the snapshots of a merge; None when there is nothing to merge."""
        if request.source == request.target:
            return None
        job = self._merge_job(replace(request, dry_run=True))
        return None if job is None else job.sides

    # -- jobs -------------------------------------------------------------------------------------

    def _merge_job(self, request: MergeRequest) -> MergeJob | None:
        """Take the snapshots of a merge; None when there is nothing to merge."""
        history = self._repository.history
        # The target first: the merge is published only if the target has not moved since, so the
        # target cannot hold a newer state of the source than the one that is taken here.
        target = history.snapshot(request.target)
        source = history.snapshot(request.source)
        base_commit = self._base(source=source, target=target)
        if base_commit is None:
            raise UnrelatedBranchesError(str(source.branch), str(target.branch))
        decisions, text = request.decisions, request.decision_file
        if text is not None:
            choices, lines = read_schema_choices(text, decisions.schema)
            decisions = replace(decisions, schema=choices, schema_lines=lines)
        if base_commit.graph_commit_id == source.commit_id:
            if text is not None:
                # A line that cannot be used is an error also where there is nothing to decide.
                read_decisions(text, target.catalog)
            return None
        is_forward = base_commit.graph_commit_id == target.commit_id
        base = target if is_forward else history.snapshot_of_commit(base_commit.graph_commit_id)
        schemas = merged_schemas(
            self._repository,
            base=base,
            source=source,
            target=target,
            choices=decisions.schema,
            dry_run=request.dry_run,
        )
        if decisions.schema_lines:
            known = identities((base, source, target), schemas.aliases)
            require_schema_lines(decisions.schema_lines, known, "is on no side of this merge")
        if text is not None and not schemas.conflicts:
            takes, rows = read_decisions(text, schemas.catalog)
            decisions = replace(decisions, takes=takes, rows=rows)
        return MergeJob(
            Sides(base, source, target, schemas),
            MergeKind.FAST_FORWARD if is_forward else MergeKind.MERGED,
            "merge",
            request,
            decisions,
            source.commit_id,
            str(source.branch),
        )

    def _base(self, *, source: Snapshot, target: Snapshot) -> GraphCommit | None:
        heads = source.commit_id, target.commit_id
        if heads not in self._bases:
            history = self._repository.history
            self._bases[heads] = history.merge_base_of(source=source, target=target)
        return self._bases[heads]

    def _revert_job(self, request: RevertRequest) -> MergeJob:
        history = self._repository.history
        commit, target = history.get(request.commit_id), history.snapshot(request.target)
        if commit.parent_commit_id is None:
            raise ParentlessCommitError(request.commit_id)
        base = history.snapshot_of_commit(request.commit_id)
        source = history.snapshot_of_commit(commit.parent_commit_id)
        require_undoable(request.commit_id, before=source, after=base)
        schemas = merged_schemas(
            self._repository,
            base=base,
            source=source,
            target=target,
            choices=request.decisions.schema,
            dry_run=request.dry_run,
        )
        sides = Sides(base, source, target, schemas)
        kind, decisions = MergeKind.MERGED, request.decisions
        return MergeJob(sides, kind, "revert", request, decisions, None, request.commit_id)

    def _until_settled(
        self,
        request: MergeRequest | RevertRequest,
        take_job: Callable[[], MergeJob | None],
        workers: MergeWorkers,
    ) -> MergeResult:
        """Compute and commit; compute again when only maintenance has moved the target."""
        attempt, retries = 1, request.retries
        while True:
            try:
                job = take_job()
            except SchemaApplyInProgressError:
                if not retries:
                    raise
                retries = self._one_less(retries)
                continue
            if job is None:
                return replace(_up_to_date(request), is_dry_run=request.dry_run)
            head = job.sides.target.commit_id
            try:
                return self._run(job, workers)
            except SchemaApplyInProgressError:
                if not retries:
                    raise
                attempt, retries = 0, self._one_less(retries)
            except (
                PreconditionFailedError,
                ExpectedVersionMismatchError,
                SchemaMovedError,
                StagedFilesLostError,
            ) as error:
                if attempt >= ATTEMPTS_MAX or not self._only_maintenance_since(
                    head, request.target
                ):
                    if not retries:
                        member = f"graph_head:{request.target.branch}"
                        raise ReadSetConflictError(member) from error
                    attempt, retries = 0, self._one_less(retries)
            except BranchGoneError as error:
                member = f"branch_identifier:{request.target.branch}"
                raise ReadSetConflictError(member) from error
            attempt += 1

    def _one_less(self, retries: int) -> int:
        """Return the retries that are left after a pause."""
        self._repository.clock.sleep(self._repository.clock.jitter(0.0, _PAUSE_S))
        return retries - 1

    def _run(self, job: MergeJob, workers: MergeWorkers) -> MergeResult:
        request, schemas = job.request, job.sides.schemas
        if schemas.accepted is not None and request.schema_guard and not request.dry_run:
            request.schema_guard(schemas)
        try:
            return self._merged(job, workers, planned(job, workers, Links(job.sides, self._linked)))
        except CopyRefusedError as error:
            _log.info("rows are written again: %s", error)
        return self._merged(job, workers, planned(job, workers))

    def _merged(self, job: MergeJob, workers: MergeWorkers, plan: Plan) -> MergeResult:
        request, schemas = job.request, job.sides.schemas
        if not schemas.conflicts:
            lines = job.decisions.schema_lines
            require_schema_lines(lines, plan.schema_identities, "is not in conflict")
        found: Checked | None = None
        if not plan.conflicts:
            found = checked(plan, job.sides)
            plan.conflicts = found.conflicts
        if request.dry_run:
            return replace(_result(job, plan), engine=workers.name)
        if plan.conflicts or found is None:
            raise MergeConflictError(
                job.source_name,
                str(job.into.branch),
                plan.conflicts,
                is_revert=job.merged_parent is None,
            )
        is_empty = not plan.work and not plan.adopted and not plan.links
        is_same = is_empty and schemas.accepted is None
        if job.merged_parent is None and is_same:
            return _up_to_date(request)
        commit = self._commits.commit(job, plan, found, workers)
        return replace(_result(job, plan, commit), engine=workers.name)

    def _only_maintenance_since(self, head: str, target: Incarnation) -> bool:
        """Whether every commit after a head left the content as it was."""
        commits = self._repository.history.snapshot(target).state.commits()
        newer: list[GraphCommit] = []
        for commit in commits:
            if commit.graph_commit_id == head:
                return all(each.is_maintenance for each in newer)
            newer.append(commit)
        return False


def _up_to_date(request: MergeRequest | RevertRequest) -> MergeResult:
    source = request.commit_id if isinstance(request, RevertRequest) else request.source.branch
    return MergeResult(
        str(source), str(request.target.branch), MergeKind.ALREADY_UP_TO_DATE, request.actor_id
    )


def _result(job: MergeJob, plan: Plan, commit: GraphCommit | None = None) -> MergeResult:
    return MergeResult(
        source=job.source_name,
        target=str(job.into.branch),
        outcome=MergeKind.CONFLICTS if plan.conflicts else job.outcome,
        actor_id=job.request.actor_id,
        commit=commit,
        counts=tuple(TypeCounts(key, *each) for key, each in sorted(plan.counts.items())),
        conflicts=Conflicts(plan.conflicts),
        resolved=dict(plan.resolved),
        schema_changes=job.sides.schemas.steps,
        dropped_values=tuple(
            DroppedValues(loss.table_key, loss.property_name, loss.count) for loss in plan.dropped
        ),
        is_dry_run=job.request.dry_run,
    )
