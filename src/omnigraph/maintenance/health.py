"""Examines a graph: what is wrong with it, what slows it down, and what to do about each.

Nothing is changed but one small object, which is written and removed again to try the storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import ConflictError, CorruptError, NotFoundError, OmnigraphError
from omnigraph.maintenance.build_indexes import plan_indexes
from omnigraph.manifest import Repository, Snapshot
from omnigraph.manifest.errors import BranchGoneError
from omnigraph.manifest.history import History
from omnigraph.manifest.layout import MAIN_INCARNATION, Incarnation
from omnigraph.recovery import Recovery, Verdict, find_broken_manifests
from omnigraph.schema import EntityType

FRAGMENTS_MANY: Final = 64
"""More small fragments than this make reads slow."""
_ROWS_SMALL: Final = 100_000
_LEFTOVER_AGE_S: Final = 3_600


class Health(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    """Works, and could be better."""
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One thing that was examined; `remedy` is the command or step that helps."""

    topic: str
    health: Health
    message: str
    remedy: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the finding as programs see it."""
        shape: dict[str, object] = {
            "topic": self.topic,
            "status": str(self.health),
            "message": self.message,
        }
        if self.remedy is not None:
            shape["remedy"] = self.remedy
        return shape


def examine(
    repository: Repository, recovery: Recovery, snapshot: Snapshot, *, try_writing: bool
) -> list[Finding]:
    """Look at storage, pending recoveries, fragments and indexes of one snapshot."""
    findings = [_storage(repository)] if try_writing else []
    findings.append(_pending(recovery))
    findings.extend(_manifests(repository))
    findings.extend(_schemas(repository))
    findings.extend(_leftovers(repository))
    findings.extend(_tables(snapshot, repository.root))
    return findings


def _storage(repository: Repository) -> Finding:
    """Check what locks and records rely on: an object that exists is never overwritten."""
    objects = repository.store.objects
    path = f"__staging/probe-{repository.clock.ulid()}"
    try:
        objects.put_if_absent(path, b"probe")
        try:
            objects.put_if_absent(path, b"again")
        except ConflictError:
            return Finding("storage", Health.OK, "can be written, and put-if-absent holds")
        finally:
            objects.delete(path)
    except OmnigraphError as error:
        return Finding(
            "storage",
            Health.PROBLEM,
            f"cannot be written: {error}",
            "check permissions, credentials and the endpoint",
        )
    return Finding(
        "storage",
        Health.PROBLEM,
        "writes an object that exists already: two writers would overwrite each other",
        "use storage with conditional writes",
    )


def _pending(recovery: Recovery) -> Finding:
    pending = recovery.status()
    if not pending:
        return Finding("recovery", Health.OK, "nothing pending")
    stuck = [each for each in pending if each.verdict is Verdict.STOP]
    if stuck:
        blocked = sorted({f"branch '{each.branch}'" if each.branch else "graph" for each in stuck})
        return Finding(
            "recovery",
            Health.PROBLEM,
            f"{len(stuck)} records cannot be settled and block the {', the '.join(blocked)}",
            f"after a look at the tables: `omnigraph recovery quarantine {stuck[0].operation_id}"
            " --confirm`",
        )
    return Finding(
        "recovery",
        Health.PROBLEM,
        f"{len(pending)} unfinished writes are pending",
        "the next write settles them; see `omnigraph recovery status`",
    )


def _manifests(repository: Repository) -> Iterator[Finding]:
    for broken in find_broken_manifests(repository):
        yield Finding(
            "manifest",
            Health.PROBLEM,
            f"branch '{broken.branch}' cannot be read: {broken.problem}",
            f"omnigraph repair {repository.root}",
        )


def _schemas(repository: Repository) -> Iterator[Finding]:
    """Look for branches that lack a change of main's schema since they parted."""
    main = repository.history.snapshot(MAIN_INCARNATION)
    for incarnation in repository.branches.incarnations():
        try:
            is_behind = _is_behind(repository.history, incarnation, main)
        except (BranchGoneError, CorruptError):
            continue  # It was deleted since, or `_manifests` reports it.
        if is_behind:
            yield Finding(
                "schema",
                Health.NOTE,
                f"the schema of branch '{incarnation.branch}' is behind that of main",
                f"omnigraph branch merge main --into {incarnation.branch} --uri {repository.root}",
            )


def _is_behind(history: History, incarnation: Incarnation, main: Snapshot) -> bool:
    snapshot = history.snapshot(incarnation)
    newest = main.state.head.schema_hash
    if snapshot.state.head.schema_hash == newest:
        return False
    base = history.merge_base_of(source=snapshot, target=main)
    if base is None:
        return True
    try:
        parted = history.snapshot_of_commit(base.graph_commit_id)
    except NotFoundError:
        return True  # A cleanup has removed it.
    return parted.state.head.schema_hash != newest


def _leftovers(repository: Repository) -> Iterator[Finding]:
    """Look for temporary files that are too old to belong to a write under way."""
    latest = repository.clock.now_us() - _LEFTOVER_AGE_S * 1_000_000
    old = [info for info in repository.store.objects.leftovers() if info.modified_us < latest]
    if old:
        yield Finding(
            "leftovers",
            Health.NOTE,
            f"{len(old)} temporary files of writers that died, {sum(i.size for i in old)} bytes",
            f"omnigraph cleanup {repository.root} --keep 10 --orphan-age 1h --confirm",
        )


def _tables(snapshot: Snapshot, root: str) -> Iterator[Finding]:
    catalog = snapshot.catalog
    entity_types: list[EntityType] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    optimize = f"omnigraph optimize {root}"
    for entity_type in entity_types:
        if entity_type.table_key not in snapshot.entries:
            continue
        handle = snapshot.open(entity_type.table_key)
        small = sum(fragment.rows < _ROWS_SMALL for fragment in handle.fragments())
        if small > FRAGMENTS_MANY:
            message = f"{entity_type.table_key} has {small} small fragments"
            yield Finding("fragments", Health.NOTE, message, optimize)
        work = plan_indexes(handle, entity_type)
        if work.segments:
            message = (
                f"{entity_type.table_key} has rows that {len(work.segments)} indexes do not cover"
            )
            yield Finding("indexes", Health.NOTE, message, optimize)
        for each in work.pending:
            message = f"{entity_type.table_key}: no index on {each.property} yet: {each.reason}"
            yield Finding("indexes", Health.NOTE, message)
