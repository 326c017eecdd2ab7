"""Commits a merge: stages its tables, and publishes them with two parents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from omnigraph.lineage import Lineage, runtime, type_names
from omnigraph.lineage import TypeCounts as OutputCounts
from omnigraph.lineage.inputs import graph_read
from omnigraph.manifest import CommitDraft, GraphCommit, Registration, Repository
from omnigraph.manifest.schema_files import refresh_schema_files
from omnigraph.merge.conflicts import ReadSetConflictError
from omnigraph.merge.constraints import Checked
from omnigraph.merge.parts import no_work
from omnigraph.merge.plan import Plan
from omnigraph.merge.request import MergeRequest, RevertRequest
from omnigraph.merge.sides import MergeJob, Sides
from omnigraph.merge.stage import (
    Staging,
    stage_linked_table,
    stage_new_table,
    stage_reshaped_table,
    stage_table,
)
from omnigraph.merge.workers import MergeWorkers
from omnigraph.names import TableKey
from omnigraph.recovery import WriterKind
from omnigraph.recovery.intent import Adoption
from omnigraph.store.errors import StorageError
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import TableWrite, WriteJob
from omnigraph.write.stage.external_blobs import ExternalBlobs
from omnigraph.write.stage.stored_rows import StoredRows


@dataclass(frozen=True)
class MergeCommits:
    """Commits merges of one graph."""

    repository: Repository
    committer: Committer

    def commit(
        self, job: MergeJob, plan: Plan, checked: Checked, workers: MergeWorkers
    ) -> GraphCommit | None:
        """Stage every table, then publish all of them as one commit."""
        clock, request = self.repository.clock, job.request
        operation_id, store = clock.ulid(), self.repository.store
        external = ExternalBlobs(request.external_blob_bases, store.settings.storage_options)
        staging = Staging(
            store.datasets, job.into, operation_id, workers, external, may_link=plan.may_link
        )
        try:
            tables = tuple(_staged_tables(job.sides, plan, checked.stored, staging))
        except StorageError:
            # When the source was deleted meanwhile, its files may be gone.
            self._require_source(request)
            raise
        change = _schema_change(job.sides, plan, tables)
        properties = dict(request.properties)
        properties |= {f"resolved by {rule}": str(rows) for rule, rows in plan.resolved.items()}
        if plan.dropped:
            properties["dropped values"] = str(sum(loss.count for loss in plan.dropped))
        lineage = _lineage(job, plan, self.repository.root, workers, operation_id)
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
            reads=checked.reads,
            merge_source_commit_id=job.merged_parent,
            merged_into=job.sides.target.commit_id,
            registrations=change.registrations,
            tombstones=change.tombstones,
            schema=job.sides.schemas.accepted,
            adopted=(*plan.adopted, *change.renamed),
            revalidate=checked.revalidate,
        )
        self._require_source(request)
        if write.schema is None:
            return self.committer.commit(write).commit
        with (
            self.committer.reserved_lock(job.into.branch, operation=job.operation),
            self.repository.branches.schema_marked(job.into),
        ):
            published = self.committer.commit(write)
        if job.into.is_main:
            refresh_schema_files(store.objects, write.schema, previous=job.sides.target.schema)
        return published.commit

    def _require_source(self, request: MergeRequest | RevertRequest) -> None:
        if isinstance(request, RevertRequest):
            return
        if not self.repository.branches.is_alive(request.source):
            raise ReadSetConflictError(f"branch_merge_source_incarnation:{request.source.branch}")


@dataclass(frozen=True)
class _SchemaChange:
    """What a change of the target's schema publishes, in addition to tables that are written."""

    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[str, ...] = ()
    renamed: tuple[Adoption, ...] = ()


def _staged_tables(
    sides: Sides, plan: Plan, stored: StoredRows, staging: Staging
) -> Iterator[TableWrite]:
    for key, table in sides.tables.items():
        work = plan.work.get(key)
        link = plan.links.get(key)
        if key in plan.adopted_keys:
            continue
        if link is not None:
            yield stage_linked_table(link, staging)
            continue
        if table.target is None:
            yield stage_new_table(work or no_work(table.entity_type), staging)
        elif table.is_reshaped:
            yield stage_reshaped_table(table, work or no_work(table.entity_type), staging)
        elif work is not None:
            yield stage_table(work, stored, staging)


def _schema_change(sides: Sides, plan: Plan, tables: Sequence[TableWrite]) -> _SchemaChange:
    """Return what the new schema of the target needs: names, numbers, and what is gone."""
    if sides.schemas.accepted is None:
        return _SchemaChange()
    locations = {table.table_key: table.published().location for table in tables}
    locations |= {adoption.entry.table_key: adoption.entry.location for adoption in plan.adopted}
    registered, renamed = [], []
    for key, table in sides.tables.items():
        if table.target is not None and table.is_renamed and key not in locations:
            entry = table.target.entry
            renamed.append(Adoption(entry, replace(entry, table_key=key)))
        if table.target is None or table.is_renamed:
            location = locations.get(key) or table.known_location
            registered.append(Registration.of(table.entity_type, location))
    gone = sides.target.entries.keys() - sides.tables.keys()
    return _SchemaChange(tuple(registered), tuple(sorted(gone)), tuple(renamed))


def _lineage(
    job: MergeJob, plan: Plan, root: str, workers: MergeWorkers, operation_id: str
) -> dict[str, str]:
    """Return what the commit says of a merge: the rows that it takes, and what they change."""
    counts = plan.counts
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
