"""Prepared writes for tests of the write protocol: appends to some tables, as one job."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.manifest import CommitDraft, Repository
from omnigraph.manifest.forks import write_base
from omnigraph.names import BranchName
from omnigraph.recovery import Recovery, WriterKind
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import TableWrite, WriteJob


def committer(repository: Repository) -> Committer:
    return Committer(repository, Recovery(repository), owner_id=repository.clock.ulid())


def append_job(
    repository: Repository,
    rows: Mapping[str, pa.Table],
    *,
    branch: str = "main",
    kind: WriterKind = WriterKind.LOAD,
) -> WriteJob:
    """Stage appends on the newest snapshot of a branch; nothing is committed."""
    incarnation = repository.branches.resolve(BranchName.parse(branch))
    state = repository.reader.latest(incarnation)
    datasets = repository.store.datasets
    operation_id = repository.clock.ulid()
    tables = []
    for key, table in rows.items():
        entry = state.entries[key]
        base = write_base(datasets, incarnation, entry, operation_id=operation_id)
        staged = datasets.stage_append(base.base, table)
        count = entry.row_count + table.num_rows
        tables.append(TableWrite(key, (staged,), count, base))
    return WriteJob(
        kind=kind,
        incarnation=incarnation,
        operation_id=operation_id,
        draft=CommitDraft(
            graph_commit_id=repository.clock.ulid(),
            operation="load",
            actor_id="ada",
            created_at=repository.clock.now_us(),
        ),
        schema_hash=state.head.schema_hash,
        tables=tuple(tables),
    )
