"""Undoing late commits of settled operations.

A writer or sweeper that was paused, presumed dead and settled may resume and move a table again.
Its versions lie above the published one and belong to an operation that is settled.

1. They are undone only when every one of them is known: its transaction id belongs to a settled
   operation, or it is an earlier attempt to undo the version below it.
2. The id of such a restore is computed from the version below it. An attempt that died after its
   restore is thereby recognised, although no record of it was written before.
3. The audit row comes before the restore, under a name made of the first late transaction, and
   names the commit. An attempt that died is repeated under the same row and the same commit id:
   each late transaction is audited once, and the row names the commit that undid it.
4. The caller holds the lock of the branch.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from omnigraph.failpoints import hit
from omnigraph.manifest import CommitDraft, Entry, Repository, Requirements, Updates
from omnigraph.manifest.layout import Incarnation
from omnigraph.recovery.audit import RecoveryAuditRow, RecoveryKind, RecoveryLog, TableOutcome
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.records import TransactionInfo

RECOVERY_ACTOR: Final = "omnigraph:recovery"
_NAMESPACE: Final = uuid.UUID("3f0c1c52-6f0e-4d0e-9a38-6d2a3d1f7b11")


def restore_uuid(below: str) -> str:
    """Return the id of the restore that undoes a version."""
    return str(uuid.uuid5(_NAMESPACE, below))


def late_moves(datasets: DatasetStore, entry: Entry) -> tuple[TransactionInfo, ...]:
    """Return the transactions above a published version, oldest first."""
    head = datasets.head_version(entry.location, branch=entry.table_branch)
    if head <= entry.table_version:
        return ()
    return datasets.transactions(
        entry.location, branch=entry.table_branch, first=entry.table_version + 1, last=head
    )


def are_explained(moves: Sequence[TransactionInfo], settled: Container[str]) -> bool:
    """Whether every transaction belongs to a settled operation or undid one of them."""
    attempts = {above.uuid for below, above in pairwise(moves) if is_attempt(below, above)}
    return all(move.uuid in settled or move.uuid in attempts for move in moves)


def is_attempt(below: TransactionInfo, above: TransactionInfo) -> bool:
    """Whether one version is an attempt to undo the one below it."""
    return above.uuid == restore_uuid(below.uuid)


def put_back(
    repository: Repository,
    log: RecoveryLog,
    incarnation: Incarnation,
    entry: Entry,
    moves: Sequence[TransactionInfo],
) -> None:
    """Restore a table to its published version and publish that as the new head."""
    clock = repository.clock
    operation_id = f"stray-{moves[0].uuid}"
    row = log.find(operation_id)
    if row is None:
        row = RecoveryAuditRow(
            operation_id=operation_id,
            graph_commit_id=clock.ulid(),
            recovery_kind=RecoveryKind.STRAY_PUT_BACK,
            recovery_for_actor=None,
            sidecar_writer_kind=None,
            per_table_outcomes=(
                TableOutcome(entry.table_key, moves[-1].version, entry.table_version),
            ),
            transaction_ids=tuple(move.uuid for move in moves),
            created_at=clock.now_us(),
        )
        log.record(row)
    landed = repository.store.datasets.restore(
        entry.location,
        branch=entry.table_branch,
        version=entry.table_version,
        uuid=restore_uuid(moves[-1].uuid),
    )
    hit("strays.after_restore")
    published = repository.publisher.publish(
        incarnation,
        draft=CommitDraft(
            graph_commit_id=row.graph_commit_id or clock.ulid(),
            operation="recovery",
            actor_id=RECOVERY_ACTOR,
            created_at=clock.now_us(),
            properties={"operation_id": operation_id},
        ),
        requirements=Requirements(written={entry.table_key: entry}),
        updates=Updates(entries=(replace(entry, table_version=landed.version),)),
    )
    if published.commit is not None:
        repository.commit_tables.record([published.commit])
