"""Keeping `__manifest` quick to read.

Every publish adds a small fragment or two, and reading a manifest of hundreds of them is what makes
a publish slow. Compaction writes their rows into one fragment. It changes no row, removes no
version and keeps the manifest version in which each row was created, so history is the same before
and after.

It is an update like a publish and names the same fence, so of the two from one version only one can
land. The fence fragment is left alone.

The files of old versions are put together into packs (`omnigraph.store.lance.packs`).
"""

from __future__ import annotations

from omnigraph.manifest.fence import commit_fenced
from omnigraph.manifest.layout import MANIFEST, Incarnation
from omnigraph.manifest.repository import Repository
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.errors import StaleBaseError
from omnigraph.store.records import CompactionOptions, ScanRequest


def compact_manifest(
    repository: Repository, incarnation: Incarnation, options: CompactionOptions | None = None
) -> bool:
    """Rewrite the fragments of a branch's manifest into one; False when there is nothing to gain.

    With `options` only the fragments that they name: a long history is not rewritten every time.
    Takes the lock of the branch.
    """
    clock = repository.clock
    with repository.branch_locks.take(incarnation.branch, operation_id=clock.ulid()):
        return _compact_locked(repository, incarnation, options)


def pack_manifest(repository: Repository, incarnation: Incarnation) -> int:
    """Put old versions of a branch's manifest into a pack; return how many.

    Every commit replaces the head row, so a version needs a file that the next one does not need:
    such files go into the pack too. Takes the lock of the branch.
    """
    clock = repository.clock
    with repository.branch_locks.take(incarnation.branch, operation_id=clock.ulid()):
        return repository.store.datasets.pack_versions(
            MANIFEST, branch=incarnation.lance_branch, with_files=True
        )


def _compact_locked(
    repository: Repository, incarnation: Incarnation, options: CompactionOptions | None
) -> bool:
    datasets, reader = repository.store.datasets, repository.reader
    state = reader.latest(incarnation)
    handle = reader.open(incarnation, state.version)
    planned = datasets.plan_compaction(handle.at, options)
    numbers = {number for task in planned for number in task.fragment_ids} - {state.fence}
    if not _is_worth_it(handle, numbers):
        return False
    rows = handle.scan(
        ScanRequest(with_row_id=True, with_row_address=True, fragment_ids=tuple(sorted(numbers)))
    ).read_all()
    try:
        commit_fenced(
            datasets,
            reader,
            repository.clock,
            incarnation=incarnation,
            base=state,
            staged=datasets.stage_update(handle.at, rewritten=rows, fence=state.fence),
            head=state.head,
        )
    except StaleBaseError:
        return False  # The lock was lost; its new holder compacts.
    return True


def _is_worth_it(handle: DatasetHandle, numbers: set[int]) -> bool:
    """Whether rewriting these fragments makes them fewer, or smaller."""
    found = handle.fragments(numbers.__contains__)
    return len(found) > 1 or any(fragment.deleted_rows for fragment in found)
