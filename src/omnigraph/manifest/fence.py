"""Why a change of `__manifest` lands on the version that it replaces, or not at all.

Lance moves a transaction on top of versions that it does not conflict with, and it can compare only
with versions that still exist. So after a cleanup it may not see that another writer has moved the
head row: a late publish would then add a second head row, and the graph would be unreadable.
These facts prevent that, however long a writer was paused and whichever versions were removed
meanwhile:

1. *Every change names the fence.* The fence is the fragment in which the genesis commit lies
   (`ManifestState.fence`). Every publish and every compaction names it as changed. Lance refuses a
   transaction when a later version, still stored, has changed a fragment that the transaction
   changes too.
2. *The fence stays.* The genesis commit is in every version of every branch and its row is never
   rewritten. Compaction leaves its fragment alone.
3. *Cleanup keeps a witness.* The newest version of `__manifest` on a branch that made a commit, and
   all versions above it, are never removed. A transaction that starts from an older version,
   still stored or not, conflicts with that witness and is refused.
4. *Settings are not a publish.* Setting the format stamp changes no row and may land in between:
   then a publish lands one version higher. A publish that lands anywhere but on base + 1 reads the
   version that it made. If that version has not exactly one head row, its own (an older release
   without the fence, or Lance's own compaction of `__manifest`), the version below is restored
   before the publish is acknowledged, and the publish starts over.
5. *The newest version is found by listing.* Removed versions leave gaps, so nothing follows from
   the absence of a version (`omnigraph.store.lance.opener`).

6. *Prepared files are removed behind a new version.* A publish that has prepared its files and lost
   the lock of its branch may still try to land. So cleanup first lists the files without a
   reference, then makes a version of each branch that changes nothing but names the fence
   (`advance`), and removes those of the listed files that are still without a reference: a writer
   that prepared one of them started from an older version and is refused.

What cleanup may remove while writers and readers of any age exist follows from these: any version
but the head of a lineage, the witness of fact 3, what a branch or tag pins, what an intent record
or a running job names. A reader of a removed version gets a typed error. A writer that started from
one is refused by the fence, and prepares again. Versions of a table are not fenced: no reader opens
one that `__manifest` does not name, and a late commit above the published version of its table is
undone by the next writer.
"""

from __future__ import annotations

import logging
from typing import Final

from omnigraph.clock import Clock
from omnigraph.manifest.layout import MANIFEST, Incarnation
from omnigraph.manifest.reader import ManifestReader
from omnigraph.manifest.rows import Head
from omnigraph.manifest.state import CorruptManifestError, ManifestState
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import StaleBaseError
from omnigraph.store.records import DatasetVersion, StagedTransaction

_ADVANCE_MAX: Final = 5

_log = logging.getLogger(__name__)


def commit_fenced(
    datasets: DatasetStore,
    reader: ManifestReader,
    clock: Clock,
    *,
    incarnation: Incarnation,
    base: ManifestState,
    staged: StagedTransaction,
    head: Head,
) -> int:
    """Commit a change of `base` that leaves `head` as the head row; return the version it became.

    Raises `StaleBaseError` when `base` is no longer the newest version: nothing has changed then.
    """
    landed = datasets.commit_staged(staged, exact=False).version
    if landed != base.version + 1:
        _require_sound(datasets, reader, clock, incarnation=incarnation, landed=landed, head=head)
    return landed


def advance(
    datasets: DatasetStore, reader: ManifestReader, clock: Clock, incarnation: Incarnation
) -> None:
    """Make a version that changes nothing, so that changes prepared from an older one are refused.

    The caller holds the lock of the branch, so only a writer that has lost it can interfere.
    """
    for _ in range(_ADVANCE_MAX):
        base = reader.latest(incarnation)
        at = DatasetVersion(MANIFEST, incarnation.lance_branch, base.version)
        staged = datasets.stage_update(at, fence=base.fence)
        try:
            commit_fenced(
                datasets,
                reader,
                clock,
                incarnation=incarnation,
                base=base,
                staged=staged,
                head=base.head,
            )
        except StaleBaseError as error:
            stale = error
        else:
            return
    raise stale


def _require_sound(
    datasets: DatasetStore,
    reader: ManifestReader,
    clock: Clock,
    *,
    incarnation: Incarnation,
    landed: int,
    head: Head,
) -> None:
    """Restore the version below when a commit has landed on top of another publish."""
    try:
        if reader.at(incarnation, landed).head == head:
            return
        reason = "its head is another one"
    except CorruptManifestError as error:
        reason = error.problem
    branch = incarnation.lance_branch
    restored = datasets.restore(MANIFEST, branch=branch, version=landed - 1, uuid=clock.uuid())
    _log.warning(
        "manifest version %d of branch %s was made from an old version and was taken back (%s)",
        landed,
        incarnation.branch,
        reason,
    )
    raise StaleBaseError(
        path=MANIFEST,
        branch=branch,
        expected=landed - 1,
        actual=restored.version,
        reason=f"version {landed} was made from an old version: {reason}",
    )
