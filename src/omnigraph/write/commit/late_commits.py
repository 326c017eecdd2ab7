"""Heads above the published version without an intent record.

They come from a writer or sweeper that was paused, presumed dead, settled, and went on. When the
audit table knows their transactions, the operation is settled and the table is put back. Otherwise
another tool wrote to the dataset, and an operator decides with `repair`.

The transaction id of the restore that puts a table back is derived from the version that it
replaces. So a process that dies between that restore and its publish leaves a version that can be
recognized.
"""

from __future__ import annotations

from omnigraph.errors import ConflictError
from omnigraph.manifest import Entry, Repository
from omnigraph.manifest.layout import Incarnation
from omnigraph.recovery import Recovery
from omnigraph.recovery.put_back import are_explained, late_moves, put_back
from omnigraph.store.errors import DatasetVersionNotFoundError


class DriftNeedsRepairError(ConflictError):
    """A dataset has versions that the manifest does not know and no operation explains."""

    code = "OG-DRIFT"
    hint = "`omnigraph repair` shows what happened"
    template = "{table_key} has unpublished versions: published is {published}, the head is {head}"
    table_key: str
    published: int
    head: int


def undo_late_commits(
    repository: Repository, recovery: Recovery, incarnation: Incarnation, entry: Entry
) -> bool:
    """Undo late commits of settled operations on one table; the caller holds the lock.

    Returns whether there were any: the table then has another published entry.
    """
    try:
        moves = late_moves(repository.store.datasets, entry)
    except DatasetVersionNotFoundError as error:
        # Another tool has written to the dataset, and removed versions of it too.
        raise DriftNeedsRepairError(entry.table_key, entry.table_version, error.head) from error
    if not moves:
        return False
    if not are_explained(moves, recovery.log.settled_transactions()):
        raise DriftNeedsRepairError(entry.table_key, entry.table_version, moves[-1].version)
    put_back(repository, recovery.log, incarnation, entry, moves)
    return True
