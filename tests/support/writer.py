"""A small writer: one append to each of some tables, published as one commit.

It is the write protocol without its recovery half, for tests of the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.manifest import CommitDraft, Published, Repository, Requirements, Updates
from omnigraph.manifest.forks import WriteBase, write_base
from omnigraph.manifest.layout import Incarnation
from omnigraph.names import BranchName


def append(
    repository: Repository,
    rows: Mapping[str, pa.Table],
    *,
    branch: str = "main",
    actor_id: str | None = None,
    operation: str = "load",
) -> Published:
    """Append rows to tables of a branch, under its lock."""
    incarnation = repository.branches.resolve(BranchName.parse(branch))
    operation_id = repository.clock.ulid()
    with repository.branch_locks.take(incarnation.branch, operation_id=operation_id):
        published = append_unordered(
            repository, incarnation, rows, actor_id=actor_id, operation=operation
        )
    if published.commit is not None:
        repository.commit_tables.record([published.commit])
    return published


def append_unordered(
    repository: Repository,
    incarnation: Incarnation,
    rows: Mapping[str, pa.Table],
    *,
    actor_id: str | None = None,
    operation: str = "load",
) -> Published:
    """Append rows without taking the lock: racing writers meet in storage."""
    datasets = repository.store.datasets
    operation_id = repository.clock.ulid()
    state = repository.reader.latest(incarnation)
    bases: dict[str, WriteBase] = {}
    entries = []
    for key, table in rows.items():
        bases[key] = write_base(
            datasets, incarnation, state.entries[key], operation_id=operation_id
        )
        landed = datasets.commit_staged(datasets.stage_append(bases[key].base, table))
        count = state.entries[key].row_count + table.num_rows
        entries.append(bases[key].entry_at(landed.version, count))
    return repository.publisher.publish(
        incarnation,
        draft=CommitDraft(
            graph_commit_id=repository.clock.ulid(),
            operation=operation,
            actor_id=actor_id,
            created_at=repository.clock.now_us(),
        ),
        requirements=Requirements(
            schema_hash=state.head.schema_hash,
            written={key: state.entries[key] for key in rows},
        ),
        updates=Updates(entries=tuple(entries)),
    )


def people(*names: str) -> pa.Table:
    """Rows of `node Person { name: String @key  age: I32? }`."""
    return pa.table(
        {
            "id": list(names),
            "age": pa.array([None] * len(names), pa.int32()),
            "name": list(names),
        }
    )
