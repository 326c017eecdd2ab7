"""Heads above the published version without a recovery record.

They come from a writer or sweeper that was paused, presumed dead, settled, and went on. When the
audit table knows their transactions, the operation is settled and the table is put back. Otherwise
somebody wrote to the dataset from outside, and an operator decides with `repair`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import ConflictError
from omnigraph.manifest import CommitDraft, Requirements, Updates
from omnigraph.recovery import RecoveryKind, RecoveryRecord
from omnigraph.recovery.audit import TableOutcome
from omnigraph.recovery.sweep import RECOVERY_ACTOR

if TYPE_CHECKING:
    from omnigraph.manifest import Entry, Repository
    from omnigraph.manifest.layout import Incarnation
    from omnigraph.recovery import Recovery


class DriftNeedsRepairError(ConflictError):
    """A dataset has versions that the manifest does not know and no operation explains."""

    code = "OG-DRIFT"
    hint = "`omnigraph repair` shows what happened"

    def __init__(self, table_key: str, published: int, head: int) -> None:
        self.table_key = table_key
        self.published = published
        self.head = head
        super().__init__(
            f"{table_key} has unpublished versions: published is {published}, the head is {head}"
        )


def put_back_strays(
    repository: Repository, recovery: Recovery, incarnation: Incarnation, entry: Entry
) -> bool:
    """Undo late commits of settled operations on one table; the caller holds the turn.

    Returns whether there were any: the table then has another published entry.
    """
    datasets = repository.store.datasets
    head = datasets.head_version(entry.location, branch=entry.table_branch)
    if head <= entry.table_version:
        return False
    moves = datasets.transactions(
        entry.location, branch=entry.table_branch, first=entry.table_version + 1, last=head
    )
    settled = recovery.log.settled_transactions()
    if any(move.uuid not in settled for move in moves):
        raise DriftNeedsRepairError(entry.table_key, entry.table_version, head)
    operation_id = repository.clock.ulid()
    commit_id = repository.clock.ulid()
    landed = datasets.restore(
        entry.location,
        branch=entry.table_branch,
        version=entry.table_version,
        uuid=repository.clock.uuid(),
    )
    repository.publisher.publish(
        incarnation,
        draft=CommitDraft(
            graph_commit_id=commit_id,
            operation="recovery",
            actor_id=RECOVERY_ACTOR,
            created_at=repository.clock.now_us(),
        ),
        requirements=Requirements(written={entry.table_key: entry}),
        updates=Updates(entries=(replace(entry, table_version=landed.version),)),
    )
    recovery.log.record(
        RecoveryRecord(
            operation_id=operation_id,
            graph_commit_id=commit_id,
            recovery_kind=RecoveryKind.STRAY_PUT_BACK,
            recovery_for_actor=None,
            sidecar_writer_kind=None,
            per_table_outcomes=(TableOutcome(entry.table_key, head, entry.table_version),),
            transaction_ids=tuple(move.uuid for move in moves),
            created_at=repository.clock.now_us(),
        )
    )
    return True
