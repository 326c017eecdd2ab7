"""The parts of an open graph that only writes need: made by the first call that writes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from omnigraph.lineage.transport import LiveEvents
from omnigraph.maintenance.background import BackgroundMaintenance
from omnigraph.maintenance.optimize import Maintenance
from omnigraph.manifest import GraphCommit, Repository
from omnigraph.read.reader import Reader
from omnigraph.recovery import Recovery
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import WriteJob
from omnigraph.write.stage.staging_record import StagingRecords

PREPARED_ROWS_MAX: Final = 1_000
"""What a write of more rows changes is laid over what is in memory by the next read."""


@dataclass(frozen=True)
class WriteSide:
    """What commits the writes of a graph, and what follows them."""

    committer: Committer
    maintenance: Maintenance
    background: BackgroundMaintenance
    staging: StagingRecords


def make_write_side(
    repository: Repository,
    recovery: Recovery,
    reader: Reader,
    *,
    live: LiveEvents | None,
    auto_optimize: bool,
) -> WriteSide:
    """Put the parts together; touches no storage."""

    # The committer comes before the maintenance that uses it, and reports to what runs that.
    def on_commit(job: WriteJob) -> None:
        background.remember(job)
        if job.changed_rows <= PREPARED_ROWS_MAX:
            written = [table.table_key for table in job.tables]
            reader.prepare(partial(repository.history.snapshot, job.incarnation), written)

    def record(commit: GraphCommit) -> None:
        background.record(commit)
        if live is not None:
            live.committed(commit, repository.root)

    committer = Committer(
        repository,
        recovery,
        owner_id=repository.clock.ulid(),
        on_commit=on_commit,
        record=record,
    )
    maintenance = Maintenance(repository, recovery, committer)
    background = BackgroundMaintenance(repository, maintenance, enabled=auto_optimize)
    staging = StagingRecords(repository.store.objects, repository.clock)
    return WriteSide(committer, maintenance, background, staging)
