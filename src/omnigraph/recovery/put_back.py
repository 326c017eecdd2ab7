"""Taking back what a settled operation did late.

A writer or sweeper that was paused, presumed dead and settled may go on and move a table once more.
Its versions lie above the published one and belong to an operation that is over.

1. They are taken back only when every one of them is known: its transaction id belongs to a settled
   operation, or it is an earlier attempt to take back the version below it.
2. The id of a restore that takes something back is computed from the version that it lies upon, so
   an attempt that died after it is recognised, although nothing was written before.
3. The audit row comes before the restore, under a name made of the first late transaction, and
   names the commit. An attempt that died is repeated under the same row and the same commit id:
   each late transaction is audited once, and the row names the commit that took it back.
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
    """Return the id of the restore that is put upon a version."""
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
    """Whether every transaction belongs to a settled operation or took one of them back."""
    attempts = {above.uuid for below, above in pairwise(moves) if is_attempt(below, above)}
    return all(move.uuid in settled or move.uuid in attempts for move in moves)


def is_attempt(below: TransactionInfo, above: TransactionInfo) -> bool:
    """Whether one version is an attempt to take the one below it back."""
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
