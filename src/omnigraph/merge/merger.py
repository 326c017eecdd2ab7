"""Merges one branch into another: base, rows, rules, one commit with two parents.

1. The snapshots of target, source and base are taken once, in this order; everything, the base
   included, is computed from them. A source that is another branch of the same name by the time
   of the commit is refused.
2. A table that the source has not changed since the base is skipped. One that the target has not
   changed takes the source's state as a whole, by pointer where the source's entry lies on the
   main lineage, else as the rows that differ. Every other one is merged row by row.
3. All row conflicts of all tables are found before any rule is checked, and all rules before
   anything is written. A merge with conflicts leaves no trace.
4. The commit is published only onto the head that was merged into. When only maintenance has moved
   the target meanwhile, the merge is computed again; otherwise that counts as one of the `retries`
   of the request, and without any it is refused.
5. The commit has two parents even when it changes no row, so that merging the same source again
   has nothing to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final

from omnigraph.changes.commit_changes import ParentlessCommitError
from omnigraph.changes.diff import SchemaBoundaryError
from omnigraph.changes.table_changes import differing_fragments
from omnigraph.display import Display, Displayed
from omnigraph.errors import InvalidInputError
from omnigraph.lineage import Job, Lineage, runtime, type_names
from omnigraph.lineage import TypeCounts as OutputCounts
from omnigraph.lineage.inputs import graph_read
from omnigraph.manifest import CommitDraft, Entry, GraphCommit, Repository, Snapshot
from omnigraph.manifest.errors import (
    BranchGoneError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.snapshot import open_entry
from omnigraph.merge.conflicts import (
    Conflict,
    Conflicts,
    MergeConflictError,
    ReadSetConflictError,
    row_conflict,
)
from omnigraph.merge.constraints import check_constraints
from omnigraph.merge.parts import Handles, TableWork
from omnigraph.merge.resolve import Decisions, require_conflicts, settle
from omnigraph.merge.rows import Clash
from omnigraph.merge.stage import stage_table
from omnigraph.merge.workers import LocalMergeWorkers, MergeWorkers
from omnigraph.names import TableKey
from omnigraph.recovery import WriterKind
from omnigraph.recovery.intent import Adoption
from omnigraph.schema import EntityType
from omnigraph.store.datasets import DatasetHandle
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import WriteJob
from omnigraph.write.commit.terms import CommitTerms
from omnigraph.write.rules.validate import Validated
from omnigraph.write.stage.external_blobs import ExternalBlobs
from omnigraph.write.stage.stored_rows import StoredRows

ATTEMPTS_MAX: Final = 5
_PAUSE_S: Final = 0.1


class MergeKind(StrEnum):
    """The outcome of a merge."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"
    CONFLICTS = "conflicts"
    """A dry run has found conflicts: a merge would be refused."""


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


@dataclass(frozen=True, kw_only=True)
class _Request:
    """What merges and reverts have in common: the branch to change, and the actor."""

    target: Incarnation
    actor_id: str | None = None
    decisions: Decisions = field(default_factory=Decisions)
    dry_run: bool = False
    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    retries: int = 0
    """How often the merge is computed again when it lost a race on the target."""
    external_blob_bases: tuple[str, ...] = ()
    """Addresses below which external blobs may be read, when their rows are copied."""
    terms: CommitTerms | None = None
    """What the commit depends on, in addition to its rows."""
    job: Job = field(default=Job("python", "merge"))


@dataclass(frozen=True, kw_only=True)
class MergeRequest(_Request):
    """Which branch to merge into the target."""

    source: Incarnation


@dataclass(frozen=True, kw_only=True)
class RevertRequest(_Request):
    """Which commit to undo on the target."""

    commit_id: str


@dataclass(frozen=True)
class TypeCounts:
    """Rows of one type that a merge changes in the target."""

    table_key: str
    inserted: int
    updated: int
    deleted: int

    def to_json(self) -> dict[str, object]:
        """Return the counts as programs see them."""
        return {
            "type_key": self.table_key,
            "insert": self.inserted,
            "update": self.updated,
            "delete": self.deleted,
        }


@dataclass(frozen=True, repr=False)
class MergeResult(Displayed):
    """What a merge has done, or would do."""

    source: str
    target: str
    outcome: MergeKind
    actor_id: str | None
    commit: GraphCommit | None = None
    counts: tuple[TypeCounts, ...] = ()
    conflicts: Conflicts = field(default_factory=Conflicts)
    resolved: Mapping[str, int] = field(default_factory=dict)
    """How many rows were settled, by rule."""
    engine: str = "local"
    """The engine that has compared and written rows."""
    is_dry_run: bool = False

    def _display(self) -> Display:
        what = "dry run of a merge of" if self.is_dry_run else "merge of"
        title = f"{what} {self.source} into {self.target}: {self.outcome}"
        if self.conflicts:
            rows = [(one.kind, one.table_key, one.entity_id) for one in self.conflicts]
            return Display(title, ("conflict", "type", "id"), rows)
        counts = [(one.table_key, one.inserted, one.updated, one.deleted) for one in self.counts]
        return Display(title, ("type", "inserted", "updated", "deleted") if counts else (), counts)

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it; a dry run says what would change and conflicts."""
        shape: dict[str, object] = {
            "source": self.source,
            "target": self.target,
            "outcome": str(self.outcome),
            "actor_id": self.actor_id,
        }
        if self.is_dry_run:
            shape["dry_run"] = True
            shape["counts"] = [each.to_json() for each in self.counts]
            shape["merge_conflicts"] = [found.to_json() for found in self.conflicts]
        return shape


@dataclass(frozen=True)
class ClashImages:
    """Rows of one type that conflict, and the versions in which their images are."""

    entity_type: EntityType
    handles: Handles
    clash: Clash


@dataclass(frozen=True)
class Obstacles:
    """The conflicts of a merge: of rows, or, if there are none, broken rules of the schema."""

    clashes: tuple[ClashImages, ...] = ()
    broken_rules: tuple[Conflict, ...] = ()


@dataclass(frozen=True)
class _Sides:
    """Three snapshots that obey one schema."""

    base: Snapshot
    source: Snapshot
    target: Snapshot

    def entity_type(self, table_key: str) -> EntityType:
        kind, name = TableKey(table_key).parts
        catalog = self.target.catalog
        return catalog.node_types[name] if kind == "node" else catalog.edge_types[name]


@dataclass
class _Plan:
    """The rows that a merge writes, and its conflicts."""

    work: dict[str, TableWork] = field(default_factory=dict)
    adopted: list[Adoption] = field(default_factory=list)
    adopted_work: dict[str, TableWork] = field(default_factory=dict)
    clashes: dict[str, list[Clash]] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    resolved: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Job:
    """One merge, or one revert, on three snapshots."""

    sides: _Sides
    outcome: MergeKind
    operation: str
    request: MergeRequest | RevertRequest
    merged_parent: str | None
    source_name: str

    @property
    def into(self) -> Incarnation:
        return self.request.target


class Merger:
    """Merges branches of one graph."""

    def __init__(self, repository: Repository, committer: Committer) -> None:
        self._repository = repository
        self._committer = committer
        self._local = LocalMergeWorkers(repository.store.datasets)
        self._bases: dict[tuple[str, str], GraphCommit | None] = {}
        """Merge bases by the heads of source and target: sizing and merging need the same one."""

    def merge(self, request: MergeRequest, workers: MergeWorkers | None = None) -> MergeResult:
        """Merge a branch into another one, or raise with all conflicts.

        `workers` compare and write rows, by default in this process.
        """
        if request.source == request.target:
            raise SameBranchError(str(request.source.branch))
        take_job = partial(self._merge_job, request)
        return self._until_settled(request, take_job, workers or self._local)

    def revert(self, request: RevertRequest) -> MergeResult:
        """Undo what one commit changed: merge its parent's state onto a branch, from the commit."""
        return self._until_settled(request, partial(self._revert_job, request), self._local)

    def obstacles(self, request: MergeRequest) -> Obstacles:
        """Return all conflicts of a merge; writes nothing."""
        job = self._merge_job(request)
        if job is None:
            return Obstacles()
        plan = _planned(job.sides, job.into, request.decisions, self._local)
        clashes = tuple(
            ClashImages(job.sides.entity_type(key), _handles(key, job.sides), clash)
            for key, of_table in sorted(plan.clashes.items())
            for clash in of_table
        )
        if clashes:
            return Obstacles(clashes)
        _, broken = _checked(plan, job.sides)
        return Obstacles(broken_rules=tuple(broken))

    def snapshots(self, request: MergeRequest) -> tuple[Snapshot, ...]:
        """Return the snapshots that a merge would read now; none when there is nothing to do."""
        sides = self._sides(request)
        return () if sides is None else (sides.base, sides.source, sides.target)

    def work_bytes(self, request: MergeRequest) -> int:
        """Return the size of the fragments that a merge would read, from manifests alone."""
        sides = self._sides(request)
        if sides is None:
            return 0
        size = 0
        for key in _touched(sides):
            handles = _handles(key, sides)
            size += differing_fragments(handles.base, handles.source).data_bytes
            if not _target_is_base(key, sides):
                size += differing_fragments(handles.base, handles.target).data_bytes
        return size

    def _sides(self, request: MergeRequest) -> _Sides | None:
        """Take the snapshots of a merge; None when there is nothing to merge."""
        job = None if request.source == request.target else self._merge_job(request)
        return None if job is None else job.sides

    # -- jobs -------------------------------------------------------------------------------------

    def _merge_job(self, request: MergeRequest) -> _Job | None:
        """Take the snapshots of a merge; None when there is nothing to merge."""
        history = self._repository.history
        # The target first: the merge is published only if the target has not moved since, so the
        # target cannot hold a newer state of the source than the one that is taken here.
        target = history.snapshot(request.target)
        source = history.snapshot(request.source)
        base_commit = self._base(source=source, target=target)
        if base_commit is None:
            raise UnrelatedBranchesError(str(source.branch), str(target.branch))
        if base_commit.graph_commit_id == source.commit_id:
            return None
        is_forward = base_commit.graph_commit_id == target.commit_id
        if source.schema.schema_hash != target.schema.schema_hash:
            raise ReadSetConflictError("branch_merge_source_schema")
        base = target if is_forward else history.snapshot_of_commit(base_commit.graph_commit_id)
        return _Job(
            _Sides(base, source, target),
            MergeKind.FAST_FORWARD if is_forward else MergeKind.MERGED,
            "merge",
            request,
            source.commit_id,
            str(source.branch),
        )

    def _base(self, *, source: Snapshot, target: Snapshot) -> GraphCommit | None:
        heads = source.commit_id, target.commit_id
        if heads not in self._bases:
            history = self._repository.history
            self._bases[heads] = history.merge_base_of(source=source, target=target)
        return self._bases[heads]

    def _revert_job(self, request: RevertRequest) -> _Job:
        history = self._repository.history
        commit, target = history.get(request.commit_id), history.snapshot(request.target)
        if commit.parent_commit_id is None:
            raise ParentlessCommitError(request.commit_id)
        base = history.snapshot_of_commit(request.commit_id)
        source = history.snapshot_of_commit(commit.parent_commit_id)
        if len({each.schema.schema_hash for each in (base, source, target)}) > 1:
            raise SchemaBoundaryError(request.commit_id, None)
        sides = _Sides(base, source, target)
        return _Job(sides, MergeKind.MERGED, "revert", request, None, request.commit_id)

    def _until_settled(
        self,
        request: MergeRequest | RevertRequest,
        take_job: Callable[[], _Job | None],
        workers: MergeWorkers,
    ) -> MergeResult:
        """Compute and commit; compute again when only maintenance has moved the target."""
        attempt, retries = 1, request.retries
        while True:
            job = take_job()
            if job is None:
                return replace(_up_to_date(request), is_dry_run=request.dry_run)
            head = job.sides.target.commit_id
            try:
                return self._run(job, workers)
            except (PreconditionFailedError, ExpectedVersionMismatchError) as error:
                if attempt >= ATTEMPTS_MAX or not self._only_maintenance_since(
                    head, request.target
                ):
                    if not retries:
                        member = f"graph_head:{request.target.branch}"
                        raise ReadSetConflictError(member) from error
                    attempt, retries = 0, retries - 1
                    self._repository.clock.sleep(self._repository.clock.jitter(0.0, _PAUSE_S))
            except BranchGoneError as error:
                member = f"branch_identifier:{request.target.branch}"
                raise ReadSetConflictError(member) from error
            attempt += 1

    def _run(self, job: _Job, workers: MergeWorkers) -> MergeResult:
        plan = _planned(job.sides, job.into, job.request.decisions, workers)
        plan.conflicts = _row_conflicts(plan.clashes, job.sides)
        validated: Validated | None = None
        if not plan.conflicts:
            validated, plan.conflicts = _checked(plan, job.sides)
        if job.request.dry_run:
            return replace(_result(job, plan), engine=workers.name)
        if plan.conflicts or validated is None:
            raise MergeConflictError(job.source_name, str(job.into.branch), plan.conflicts)
        if job.merged_parent is None and not plan.work and not plan.adopted:
            return _up_to_date(job.request)
        commit = self._commit(job, plan, validated, workers)
        return replace(_result(job, plan, commit), engine=workers.name)

    def _commit(
        self, job: _Job, plan: _Plan, validated: Validated, workers: MergeWorkers
    ) -> GraphCommit | None:
        clock, request = self._repository.clock, job.request
        operation_id, store = clock.ulid(), self._repository.store
        external = ExternalBlobs(request.external_blob_bases, store.settings.storage_options)
        tables = tuple(
            stage_table(
                work,
                validated.stored,
                job.into,
                store.datasets,
                workers=workers,
                operation_id=operation_id,
                external_blobs=external,
            )
            for work in plan.work.values()
        )
        properties = dict(request.properties)
        properties |= {f"resolved by {rule}": str(rows) for rule, rows in plan.resolved.items()}
        lineage = _lineage(job, plan, self._repository.root, workers, operation_id)
        if request.terms is not None:
            if request.terms.merged_commit not in (None, job.merged_parent):
                raise ReadSetConflictError(f"graph_head:{job.source_name}")
            request.terms.require(job.sides.target.state)
            properties |= request.terms.stated({})
            if "job" in properties:
                # Terms that name a job state the whole lineage.
                lineage = {}
        if isinstance(request, RevertRequest):
            properties["reverted_commit_id"] = request.commit_id
        write = WriteJob(
            kind=WriterKind.BRANCH_MERGE,
            incarnation=job.into,
            operation_id=operation_id,
            draft=CommitDraft(
                graph_commit_id=clock.ulid(),
                operation=job.operation,
                actor_id=request.actor_id,
                created_at=clock.now_us(),
                merged_parent_commit_id=job.merged_parent,
                message=request.message,
                properties={**lineage, **properties},
            ),
            schema_hash=job.sides.target.schema.schema_hash,
            tables=tables,
            reads=validated.reads,
            merge_source_commit_id=job.merged_parent,
            merged_into=job.sides.target.commit_id,
            adopted=tuple(plan.adopted),
            revalidate=validated.revalidate,
        )
        self._require_source(request)
        return self._committer.commit(write).commit

    def _require_source(self, request: MergeRequest | RevertRequest) -> None:
        if isinstance(request, RevertRequest):
            return
        if not self._repository.branches.is_alive(request.source):
            raise ReadSetConflictError(f"branch_merge_source_incarnation:{request.source.branch}")

    def _only_maintenance_since(self, head: str, target: Incarnation) -> bool:
        """Whether every commit after a head left the content as it was."""
        commits = self._repository.history.snapshot(target).state.commits()
        newer: list[GraphCommit] = []
        for commit in commits:
            if commit.graph_commit_id == head:
                return all(each.is_maintenance for each in newer)
            newer.append(commit)
        return False


# -- planning --------------------------------------------------------------------------------------


def _touched(sides: _Sides) -> Iterator[str]:
    """Yield the tables that the source has changed, unless the target is the same."""
    keys = sides.base.entries.keys() | sides.source.entries.keys() | sides.target.entries.keys()
    for key in sorted(keys):
        source = sides.source.entries.get(key)
        is_same = _same(source, sides.target.entries.get(key))
        if not is_same and not _same(sides.base.entries.get(key), source):
            yield key


def _target_is_base(key: str, sides: _Sides) -> bool:
    return _same(sides.base.entries.get(key), sides.target.entries.get(key))


def _planned(
    sides: _Sides, into: Incarnation, decisions: Decisions, workers: MergeWorkers
) -> _Plan:
    plan, clashes = _Plan(), dict[str, Sequence[Clash]]()
    for key in _touched(sides):
        base, source, target = (
            snapshot.entries.get(key) for snapshot in (sides.base, sides.source, sides.target)
        )
        if len({entry.location for entry in (base, source, target) if entry is not None}) > 1:
            raise ReadSetConflictError(f"branch_merge_dataset_identity:{key}")
        entity_type, handles = sides.entity_type(key), _handles(key, sides)
        merged = workers.classify(entity_type, handles, target_is_base=_target_is_base(key, sides))
        clashes[key] = merged.clashes
        settled = settle(merged, entity_type, handles, decisions)
        plan.resolved.update(settled.by_rule)
        if settled.remaining:
            plan.clashes[key] = settled.remaining
        elif source is not None and _by_pointer(base, source, target, into):
            plan.adopted.append(Adoption(target, source))
            plan.adopted_work[key] = settled.work
        elif not settled.work.is_empty:
            plan.work[key] = settled.work
    require_conflicts(decisions, clashes)
    return plan


def _checked(plan: _Plan, sides: _Sides) -> tuple[Validated | None, list[Conflict]]:
    """Check the rules of the schema over the rows that a merge writes."""
    work = plan.adopted_work | plan.work
    return check_constraints(work, sides.target, sides.target.catalog, StoredRows(sides.target))


def _same(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.at == other.at


def _by_pointer(base: Entry | None, source: Entry, target: Entry | None, into: Incarnation) -> bool:
    """Whether the target may simply point at the source's version."""
    return _same(base, target) and source.table_branch is None and not into.is_main


def _handles(key: str, sides: _Sides) -> Handles:
    return Handles(_opened(sides.base, key), _opened(sides.source, key), _opened(sides.target, key))


def _opened(snapshot: Snapshot, key: str) -> DatasetHandle | None:
    entry = snapshot.entries.get(key)
    return None if entry is None else open_entry(snapshot.datasets, entry)


def _row_conflicts(clashes: Mapping[str, list[Clash]], sides: _Sides) -> list[Conflict]:
    """Return the conflicts of all rows: types without blobs first, each by type key and id."""
    found: list[Conflict] = []
    for key in sorted(clashes, key=lambda key: (bool(sides.entity_type(key).blob_properties), key)):
        of_table = [
            row_conflict(key, clash.kind, entity_id, clash.clashing_properties(row))
            for clash in clashes[key]
            for row, entity_id in enumerate(clash.ids.to_pylist())
        ]
        found += sorted(of_table, key=lambda conflict: (conflict.entity_id or "").encode())
    return found


def _lineage(
    job: _Job, plan: _Plan, root: str, workers: MergeWorkers, operation_id: str
) -> dict[str, str]:
    """Return what the commit says of a merge: the rows that it takes, and what they change."""
    counts = {key: work.counts for key, work in (plan.adopted_work | plan.work).items()}
    names = type_names(counts)
    request = job.request
    read = request.commit_id if isinstance(request, RevertRequest) else job.merged_parent
    inputs = (
        graph_read(root, key, read, rows=sum(counts[key])) for key in names if read is not None
    )
    outputs = (
        OutputCounts(name, *counts[key], is_edge=TableKey(key).is_edge)
        for key, name in names.items()
    )
    return Lineage(
        job=request.job.of_run(operation_id),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        engine=runtime(workers.name),
    ).to_properties()


def _up_to_date(request: MergeRequest | RevertRequest) -> MergeResult:
    source = request.commit_id if isinstance(request, RevertRequest) else request.source.branch
    return MergeResult(
        str(source), str(request.target.branch), MergeKind.ALREADY_UP_TO_DATE, request.actor_id
    )


def _result(job: _Job, plan: _Plan, commit: GraphCommit | None = None) -> MergeResult:
    work = plan.adopted_work | plan.work
    return MergeResult(
        source=job.source_name,
        target=str(job.into.branch),
        outcome=MergeKind.CONFLICTS if plan.conflicts else job.outcome,
        actor_id=job.request.actor_id,
        commit=commit,
        counts=tuple(TypeCounts(key, *each.counts) for key, each in sorted(work.items())),
        conflicts=Conflicts(plan.conflicts),
        resolved=dict(plan.resolved),
        is_dry_run=job.request.dry_run,
    )
