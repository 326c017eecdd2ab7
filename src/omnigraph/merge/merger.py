"""Merges one branch into another: base, rows, rules, one commit with two parents.

1. The snapshots of base, source and target are taken once; everything is computed from them.
2. A table that the source has not changed since the base is not looked at. One that the target has
   not changed takes the source's state as a whole, by pointer where the source's entry lies on the
   main lineage, else as the rows that differ. Every other one is merged row by row.
3. All row conflicts of all tables are found before any rule is checked, and all rules before
   anything is written. A merge with conflicts leaves no trace.
4. The commit is published only onto the head that was merged into. When only upkeep has moved the
   target meanwhile, the merge is computed again; otherwise the caller is told.
5. The commit has two parents even when it changes no row, so that merging the same source again
   has nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from omnigraph.changes.table_changes import RowChanges, RowRefs, differing_refs, table_changes
from omnigraph.errors import InvalidInputError
from omnigraph.manifest import CommitDraft
from omnigraph.manifest.catalogs import catalog_of
from omnigraph.manifest.errors import ExpectedVersionMismatchError, PreconditionFailedError
from omnigraph.manifest.snapshot import open_entry
from omnigraph.merge.conflicts import (
    Conflict,
    ConflictKind,
    MergeConflictError,
    ReadSetConflictError,
    row_conflict,
)
from omnigraph.merge.constraints import check_constraints
from omnigraph.merge.resolve import Prefer, resolved
from omnigraph.merge.rows import TableMerge, three_way
from omnigraph.merge.stage import TableWork, stage_table
from omnigraph.recovery import WriterKind
from omnigraph.recovery.sidecar import Adoption
from omnigraph.write.locate import StoredRows
from omnigraph.write.protocol import WriteJob

if TYPE_CHECKING:
    from omnigraph.changes.compare import Mask
    from omnigraph.manifest import Entry, GraphCommit, Repository, Snapshot
    from omnigraph.manifest.layout import Incarnation
    from omnigraph.schema import Catalog, EdgeType, NodeType
    from omnigraph.store.datasets import DatasetHandle
    from omnigraph.write.protocol import Committer
    from omnigraph.write.validate import Validated

ATTEMPTS_MAX: Final = 5


class MergeKind(StrEnum):
    """What a merge came to."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"


class SameBranchError(InvalidInputError):
    """A branch cannot be merged into itself."""

    code = "OG-SAME-BRANCH"

    def __init__(self, branch: str) -> None:
        self.branch = branch
        super().__init__(f"a merge needs distinct source and target branches: both are '{branch}'")


class UnrelatedBranchesError(InvalidInputError):
    """Two branches have no common commit to merge from."""

    code = "OG-NO-MERGE-BASE"

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        super().__init__(f"'{source}' and '{target}' have no commit in common")


@dataclass(frozen=True)
class MergeRequest:
    """What to merge, into what, and on whose behalf."""

    source: Incarnation
    target: Incarnation
    actor_id: str | None = None
    prefer: Prefer | None = None
    dry_run: bool = False
    message: str | None = None


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


@dataclass(frozen=True)
class MergeResult:
    """What a merge has done, or would do."""

    source: str
    target: str
    outcome: MergeKind
    actor_id: str | None
    commit: GraphCommit | None = None
    counts: tuple[TypeCounts, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    resolved: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        return {
            "source": self.source,
            "target": self.target,
            "outcome": str(self.outcome),
            "actor_id": self.actor_id,
        }


@dataclass(frozen=True)
class _Sides:
    """Three snapshots and the schema that all of them obey."""

    base: Snapshot
    source: Snapshot
    target: Snapshot
    catalog: Catalog

    def owner(self, table_key: str) -> NodeType | EdgeType:
        kind, _, name = table_key.partition(":")
        return self.catalog.node_types[name] if kind == "node" else self.catalog.edge_types[name]


@dataclass
class _Plan:
    """What a merge writes, and what stands in its way."""

    work: dict[str, TableWork] = field(default_factory=dict)
    adopted: list[Adoption] = field(default_factory=list)
    adopted_work: dict[str, TableWork] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    resolved: int = 0


class Merger:
    """Merges branches of one graph."""

    def __init__(self, repository: Repository, committer: Committer) -> None:
        self._repository = repository
        self._committer = committer

    def merge(self, request: MergeRequest) -> MergeResult:
        """Merge a branch into another one, or raise with everything that stands in the way."""
        source_name, target_name = str(request.source.branch), str(request.target.branch)
        if request.source == request.target:
            raise SameBranchError(source_name)
        attempt = 1
        while True:
            head = self._repository.history.snapshot(request.target).commit_id
            try:
                return self._attempt(request)
            except (PreconditionFailedError, ExpectedVersionMismatchError) as error:
                if attempt >= ATTEMPTS_MAX or not self._only_upkeep_since(head, request.target):
                    raise ReadSetConflictError(f"graph_head:{target_name}") from error
            attempt += 1

    def _attempt(self, request: MergeRequest) -> MergeResult:
        history = self._repository.history
        source, target = history.snapshot(request.source), history.snapshot(request.target)
        base_commit = history.merge_base(request.source, request.target)
        if base_commit is None:
            raise UnrelatedBranchesError(str(source.branch), str(target.branch))
        if base_commit.graph_commit_id == source.commit_id:
            return _result(request, MergeKind.ALREADY_UP_TO_DATE)
        is_forward = base_commit.graph_commit_id == target.commit_id
        if source.schema.schema_hash != target.schema.schema_hash:
            raise ReadSetConflictError("branch_merge_source_schema")
        base = target if is_forward else history.snapshot_of_commit(base_commit.graph_commit_id)
        sides = _Sides(base, source, target, catalog_of(target.schema))
        outcome = MergeKind.FAST_FORWARD if is_forward else MergeKind.MERGED
        plan = _planned(sides, request)
        stored = StoredRows(target)
        validated: Validated | None = None
        if not plan.conflicts:
            everything = plan.adopted_work | plan.work
            validated, plan.conflicts = check_constraints(everything, target, sides.catalog, stored)
        if request.dry_run:
            return _result(request, outcome, plan=plan)
        if plan.conflicts or validated is None:
            raise MergeConflictError(str(source.branch), str(target.branch), plan.conflicts)
        commit = self._commit(request, sides, plan, validated)
        return _result(request, outcome, plan=plan, commit=commit)

    def _commit(
        self, request: MergeRequest, sides: _Sides, plan: _Plan, validated: Validated
    ) -> GraphCommit | None:
        clock = self._repository.clock
        operation_id = clock.ulid()
        datasets = self._repository.store.datasets
        tables = tuple(
            stage_table(work, validated.stored, request.target, datasets, operation_id=operation_id)
            for work in plan.work.values()
        )
        properties = {"resolved_rows": str(plan.resolved)} if plan.resolved else {}
        if plan.resolved and request.prefer is not None:
            properties["resolved_by"] = f"prefer {request.prefer}"
        job = WriteJob(
            kind=WriterKind.BRANCH_MERGE,
            incarnation=request.target,
            operation_id=operation_id,
            draft=CommitDraft(
                graph_commit_id=clock.ulid(),
                operation="merge",
                actor_id=request.actor_id,
                created_at=clock.now_us(),
                merged_parent_commit_id=sides.source.commit_id,
                message=request.message,
                properties=properties,
            ),
            schema_hash=sides.target.schema.schema_hash,
            tables=tables,
            reads=validated.reads,
            merge_source_commit_id=sides.source.commit_id,
            merged_into=sides.target.commit_id,
            adopted=tuple(plan.adopted),
        )
        return self._committer.commit(job, revalidate=validated.revalidate).commit

    def _only_upkeep_since(self, head: str, target: Incarnation) -> bool:
        """Whether every commit after a head left the content as it was."""
        commits = self._repository.history.snapshot(target).state.commits()
        newer: list[GraphCommit] = []
        for commit in commits:
            if commit.graph_commit_id == head:
                return all(each.is_maintenance for each in newer)
            newer.append(commit)
        return False


# -- planning --------------------------------------------------------------------------------------


def _planned(sides: _Sides, request: MergeRequest) -> _Plan:
    plan = _Plan()
    keys = sides.base.entries.keys() | sides.source.entries.keys() | sides.target.entries.keys()
    clashing: dict[str, TableMerge] = {}
    for key in sorted(keys):
        base, source, target = (
            snapshot.entries.get(key) for snapshot in (sides.base, sides.source, sides.target)
        )
        if _same(source, target) or _same(base, source):
            continue
        if len({entry.location for entry in (base, source, target) if entry is not None}) > 1:
            raise ReadSetConflictError(f"branch_merge_dataset_identity:{key}")
        merge = _merged(key, sides)
        if merge.clashes and request.prefer is None:
            clashing[key] = merge
            continue
        work = resolved(merge, sides.owner(key), sides.source.open(key), request.prefer)
        plan.resolved += sum(len(clash.ids) for clash in merge.clashes)
        if source is not None and _by_pointer(base, source, target, request.target):
            plan.adopted.append(Adoption(target, source))
            plan.adopted_work[key] = work
        elif not work.is_empty:
            plan.work[key] = work
    plan.conflicts = _row_conflicts(clashing, sides)
    return plan


def _same(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.location, one.table_branch, one.table_version) == (
        other.location,
        other.table_branch,
        other.table_version,
    )


def _by_pointer(base: Entry | None, source: Entry, target: Entry | None, into: Incarnation) -> bool:
    """Whether the target may simply point at the source's version."""
    return _same(base, target) and source.table_branch is None and not into.is_main


def _merged(key: str, sides: _Sides) -> TableMerge:
    owner = sides.owner(key)
    columns, blobs = owner.arrow_schema.names, owner.blob_properties
    base, source, target = (
        _opened(snapshot, key) for snapshot in (sides.base, sides.source, sides.target)
    )
    theirs = RowChanges.none()
    mine = table_changes(base, source, columns=columns, blobs=blobs)
    if not _same(sides.base.entries.get(key), sides.target.entries.get(key)):
        theirs = table_changes(base, target, columns=columns, blobs=blobs)

    def differ(mine: RowRefs, theirs: RowRefs) -> Mask:
        if source is None or target is None:
            return np.ones(len(mine), np.bool_)
        return differing_refs(source, mine, target, theirs, columns=columns, blobs=blobs)

    return three_way(mine, theirs, differ)


def _opened(snapshot: Snapshot, key: str) -> DatasetHandle | None:
    entry = snapshot.entries.get(key)
    return None if entry is None else open_entry(snapshot.datasets, entry)


def _row_conflicts(clashing: Mapping[str, TableMerge], sides: _Sides) -> list[Conflict]:
    """Return the conflicts of all rows: types without blobs first, each by type key and id."""
    found: list[Conflict] = []
    for key in sorted(clashing, key=lambda key: (bool(sides.owner(key).blob_properties), key)):
        of_table = [
            (entity_id, clash.kind)
            for clash in clashing[key].clashes
            for entity_id in clash.ids.to_pylist()
        ]
        found += [row_conflict(key, kind, entity_id) for entity_id, kind in sorted(of_table)]
    return found


def _result(
    request: MergeRequest,
    outcome: MergeKind,
    *,
    plan: _Plan | None = None,
    commit: GraphCommit | None = None,
) -> MergeResult:
    work = {} if plan is None else plan.adopted_work | plan.work
    return MergeResult(
        source=str(request.source.branch),
        target=str(request.target.branch),
        outcome=outcome,
        actor_id=request.actor_id,
        commit=commit,
        counts=tuple(TypeCounts(key, *each.counts) for key, each in sorted(work.items())),
        conflicts=() if plan is None else tuple(plan.conflicts),
        resolved=0 if plan is None else plan.resolved,
    )


__all__ = ["ConflictKind", "MergeKind", "MergeRequest", "MergeResult", "Merger", "TypeCounts"]
