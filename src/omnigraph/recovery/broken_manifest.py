"""Branches whose newest manifest version is unusable, and how to restore them.

Releases without the fence (`omnigraph.manifest.fence`) could publish on top of a head that they had
not seen. The version that this made has two head rows, and no open succeeds any more.

1. No writer can publish on a version that cannot be used. So the versions in question are the
   newest ones, and everything below them is as it was acknowledged.
2. The version right below is put back by a restore, which is a new version: nothing is removed.
   When a cleanup has removed that one, nothing is done: an older version would lose commits.
3. The publish that made the unusable version may have been acknowledged. Its rows stay in their
   tables, above the published versions: `repair` shows them as drift, and an operator decides.
"""

from __future__ import annotations

import logging
from dataclasses import field, replace

from omnigraph.dataclass import dataclass
from omnigraph.manifest import Repository
from omnigraph.manifest.layout import MANIFEST, Incarnation
from omnigraph.manifest.state import CorruptManifestError
from omnigraph.records import member, to_json
from omnigraph.recovery.audit import RecoveryAuditRow, RecoveryKind, RecoveryLog, TableOutcome

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BrokenManifest:
    """A branch whose newest manifest version breaks an invariant.

    `usable_version` is the one right below, or None when that one is missing or broken too.
    `restored_version` is where its content is now, once it has been put back.
    """

    branch: str = field(metadata=member("graph_branch"))
    version: int = field(metadata=member("graph_manifest_version"))
    problem: str
    usable_version: int | None
    restored_version: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the branch as programs see it."""
        form: dict[str, object] = to_json(self)
        return form


def find_broken_manifests(repository: Repository) -> tuple[BrokenManifest, ...]:
    """Check the newest manifest version of every branch."""
    found = (_look(repository, each) for each in repository.branches.incarnations())
    return tuple(broken for broken in found if broken is not None)


def put_manifests_back(repository: Repository, log: RecoveryLog) -> tuple[BrokenManifest, ...]:
    """Put back what can be, each branch under its lock; return what was found and done."""
    done = []
    for incarnation in repository.branches.incarnations():
        if _look(repository, incarnation) is None:
            continue
        operation_id = repository.clock.ulid()
        with repository.branch_locks.take(incarnation.branch, operation_id=operation_id):
            broken = _look(repository, incarnation)
            if broken is not None:
                done.append(_put_back(repository, log, incarnation, broken, operation_id))
    return tuple(done)


def _look(repository: Repository, incarnation: Incarnation) -> BrokenManifest | None:
    try:
        repository.reader.latest(incarnation).head  # noqa: B018 - reading it checks it
    except CorruptManifestError as error:
        usable = _usable_below(repository, incarnation, error.version)
        return BrokenManifest(str(incarnation.branch), error.version, error.problem, usable)
    return None


def _usable_below(repository: Repository, incarnation: Incarnation, version: int) -> int | None:
    """Return the first version below that can be used, if none is missing on the way."""
    branch = incarnation.lance_branch
    stored = {info.version for info in repository.store.datasets.versions(MANIFEST, branch=branch)}
    while version - 1 in stored:
        version -= 1
        try:
            repository.reader.at(incarnation, version).head  # noqa: B018 - reading it checks it
        except CorruptManifestError:
            continue
        return version
    return None


def _put_back(
    repository: Repository,
    log: RecoveryLog,
    incarnation: Incarnation,
    broken: BrokenManifest,
    operation_id: str,
) -> BrokenManifest:
    if broken.usable_version is None:
        return broken
    uuid = repository.clock.uuid()
    restored = repository.store.datasets.restore(
        MANIFEST, branch=incarnation.lance_branch, version=broken.usable_version, uuid=uuid
    )
    outcome = TableOutcome(MANIFEST, broken.version, broken.usable_version)
    log.record(
        RecoveryAuditRow(
            operation_id=operation_id,
            graph_commit_id=None,
            recovery_kind=RecoveryKind.MANIFEST_PUT_BACK,
            recovery_for_actor=None,
            sidecar_writer_kind=None,
            per_table_outcomes=(outcome,),
            transaction_ids=(uuid,),
            created_at=repository.clock.now_us(),
        )
    )
    _log.warning(
        "put version %d of the manifest of branch %s back: %s",
        broken.usable_version,
        broken.branch,
        broken.problem,
    )
    return replace(broken, restored_version=restored.version)
