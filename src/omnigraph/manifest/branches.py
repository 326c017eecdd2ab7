"""Branches of the graph.

A graph branch is a Lance branch of `__manifest`, named `<branch>.<ulid>`. That name is its
incarnation and is never used twice: a name that was deleted and created again is another branch,
and a late writer of the old one reaches nothing.

Creating or deleting a branch is one effect on storage, however large the graph is: the
manifest branch appears or disappears. Tables are forked later, by the first write to each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.manifest.errors import (
    BranchConflictError,
    BranchGoneError,
    BranchNotFoundError,
    BranchRefusedError,
    SchemaApplyInProgressError,
)
from omnigraph.manifest.layout import MAIN_INCARNATION, MANIFEST, Incarnation, schema_mark
from omnigraph.manifest.locks.branch_lock import (
    BranchLock,
    BranchLockLostError,
    BranchLocks,
    BranchLockTimeoutError,
    take_all,
)
from omnigraph.manifest.reader import ManifestReader
from omnigraph.names import MAIN, BranchName, nearest_name
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.errors import RefInUseError, RefNotFoundError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """The branch and the version of its manifest that another branch was cut from."""

    incarnation: Incarnation
    version: int


class Branches:
    """Lists, creates and deletes the branches of one graph."""

    def __init__(
        self,
        *,
        datasets: DatasetStore,
        reader: ManifestReader,
        branch_locks: BranchLocks,
        clock: Clock,
        drop_torn: Callable[[Incarnation], None] | None = None,
    ) -> None:
        self._datasets = datasets
        self._reader = reader
        self._branch_locks = branch_locks
        self._clock = clock
        self._drop_torn = drop_torn
        self._examined: set[Incarnation] = set()

    def names(self) -> tuple[BranchName, ...]:
        """Return the public names, sorted, `main` first."""
        return tuple(incarnation.branch for incarnation in self.incarnations())

    def incarnations(self) -> tuple[Incarnation, ...]:
        """Return the live incarnation of every branch, `main` first."""
        live = self._live()
        return tuple(live[name] for name in sorted(live, key=lambda n: (not n.is_main, n)))

    def resolve(self, branch: BranchName) -> Incarnation:
        """Return the live incarnation of a branch; the first time, remove its torn head."""
        incarnation = self._resolve(branch)
        if (
            self._drop_torn is not None
            and not incarnation.is_main
            and incarnation not in self._examined
        ):
            self._drop_torn(incarnation)
            self._examined.add(incarnation)
        return incarnation

    def _resolve(self, branch: BranchName) -> Incarnation:
        if branch.is_main:
            return MAIN_INCARNATION
        live = self._live()
        if branch not in live:
            near = nearest_name(branch.text, [name.text for name in live])
            raise BranchNotFoundError(branch.text, near)
        return live[branch]

    def origin(self, incarnation: Incarnation) -> Origin:
        """Return where a branch was cut from."""
        for branch in self._datasets.list_branches(MANIFEST):
            if branch.name == incarnation.text:
                parent = branch.parent_branch
                source = MAIN_INCARNATION if parent is None else Incarnation(parent)
                return Origin(source, branch.parent_version)
        raise BranchGoneError(incarnation.text)

    def is_alive(self, incarnation: Incarnation) -> bool:
        """Whether this incarnation of the branch still exists."""
        return incarnation.is_main or self._datasets.has_branch(MANIFEST, incarnation.text)

    def create(self, branch: BranchName, *, source: Incarnation, operation_id: str) -> Incarnation:
        """Cut a branch from the head of another one."""
        if branch.is_main:
            raise BranchRefusedError(MAIN, "always exists and cannot be created")
        self.require_no_schema_apply("branch create", source)
        with take_all(
            self._branch_locks, _creation_locks(branch, source), operation_id=operation_id
        ) as lock:
            _require_free(branch, self._refs())
            version = self._reader.head_version(source)
            incarnation = Incarnation.new(branch, self._clock.ulid())
            lock.check()
            self._datasets.create_branch(
                MANIFEST,
                incarnation.text,
                from_branch=source.lance_branch,
                from_version=version,
            )
            self._require_undisturbed(lock, incarnation)
            return incarnation

    def delete(self, branch: BranchName, *, bound: BranchName, operation_id: str) -> None:
        """Remove a branch: one effect, after which no reader sees it."""
        if branch.is_main:
            raise BranchRefusedError(MAIN, "cannot be deleted")
        if branch == bound:
            raise BranchRefusedError(
                branch.text, "is the one this handle is bound to; bind it to another one first"
            )
        self.require_no_schema_apply("branch delete", self._resolve(branch))
        with take_all(self._branch_locks, _name_locks(branch), operation_id=operation_id) as lock:
            # Not `resolve`: removing a torn head takes the lock that is held here, and a branch
            # that is deleted need not be readable.
            incarnation = self._resolve(branch)
            lock.check()
            try:
                self._delete(incarnation)
            except RefInUseError as error:
                self._require_unused(incarnation, error)
                self._delete(incarnation)

    # -- schema changes under way ------------------------------------------------------------------

    def require_no_schema_apply(self, operation: str, incarnation: Incarnation) -> None:
        """Refuse an operation while a schema change of a branch is under way.

        For callers that do not hold the lock of the branch: one that does has `clear_schema_lock`.
        """
        if self.has_schema_lock(incarnation) and not self._release_stale_schema_lock(incarnation):
            raise SchemaApplyInProgressError(operation)

    def require_no_schema_applies(self, operation: str) -> None:
        """Refuse an operation on all branches while a schema change of any is under way."""
        names = self._refs()
        for incarnation in self.incarnations():
            if schema_mark(incarnation) in names:
                self.require_no_schema_apply(operation, incarnation)

    def is_schema_changing(self, branch: BranchName) -> bool:
        """Whether the lock of a branch that cannot be had is that of a schema change."""
        live = self._live()
        return branch in live and self.has_schema_lock(live[branch])

    def has_schema_lock(self, incarnation: Incarnation) -> bool:
        """Whether a schema change of a branch is under way, or died before its end."""
        return self._datasets.has_branch(MANIFEST, schema_mark(incarnation))

    def set_schema_lock(self, incarnation: Incarnation) -> None:
        """Mark a schema change as under way; the caller holds the lock of the branch.

        It holds that lock until the mark is removed, so a mark that exists already has a dead
        owner.
        """
        self.clear_schema_lock(incarnation)
        self._datasets.create_branch(
            MANIFEST,
            schema_mark(incarnation),
            from_branch=incarnation.lance_branch,
            from_version=self._reader.head_version(incarnation),
        )

    def clear_schema_lock(self, incarnation: Incarnation) -> None:
        """Remove the mark if it is there; the caller holds the lock of the branch.

        A holder of that lock that is not the schema change itself finds only marks of dead ones.
        """
        if not self.has_schema_lock(incarnation):
            return
        try:
            self._datasets.delete_branch(MANIFEST, schema_mark(incarnation))
        except RefNotFoundError:
            return

    @contextmanager
    def schema_marked(self, incarnation: Incarnation) -> Iterator[None]:
        """Mark a schema change as under way; the caller holds the lock of the branch."""
        self.set_schema_lock(incarnation)
        try:
            yield
        finally:
            try:
                self.clear_schema_lock(incarnation)
            except OmnigraphError as error:
                # The next holder of the lock removes it.
                _log.warning("the mark of the schema change stays until the next write: %s", error)

    def _release_stale_schema_lock(self, incarnation: Incarnation) -> bool:
        """Remove the mark of a schema change that died; False when its owner is alive."""
        try:
            with self._branch_locks.take(
                incarnation.branch,
                operation_id=self._clock.ulid(),
                wait_max_s=self._branch_locks.takeover_s,
            ):
                self.clear_schema_lock(incarnation)
        except BranchLockTimeoutError:
            return False
        return True

    def _require_undisturbed(self, lock: BranchLock, incarnation: Incarnation) -> None:
        """Remove a new branch when another process may have made one of the same name."""
        try:
            lock.check()
        except BranchLockLostError:
            self._datasets.delete_branch(MANIFEST, incarnation.text)
            raise

    def _delete(self, incarnation: Incarnation) -> None:
        try:
            self._datasets.delete_branch(MANIFEST, incarnation.text)
        except RefNotFoundError as error:
            raise BranchNotFoundError(incarnation.branch.text) from error
        except RefInUseError:
            raise
        except OmnigraphError as error:
            # Lance deletes the ref first; a failure after that leaves only unreachable files.
            if self._datasets.has_branch(MANIFEST, incarnation.text):
                raise
            _log.warning("files of the deleted branch %s stay for now: %s", incarnation, error)

    def _require_unused(self, incarnation: Incarnation, cause: RefInUseError) -> None:
        """Raise unless nothing but leftovers keeps a branch; remove those.

        They are pins without a tag and the mark of a schema change. Both are made under the lock of
        the branch, which is held here, so they have no living owner.
        """
        self.clear_schema_lock(incarnation)
        children = self._children(incarnation)
        if children:
            raise BranchConflictError(
                incarnation.branch.text,
                f"has branches cut from it: {_quoted(children)}; delete those first",
            ) from cause
        tags = {tag.pin: tag.name for tag in self._reader.latest(MAIN_INCARNATION).tags.values()}
        pins = [
            pin.name for pin in self._datasets.list_tags(MANIFEST) if pin.branch == incarnation.text
        ]
        named = sorted(tags[pin] for pin in pins if pin in tags)
        if named:
            raise BranchConflictError(
                incarnation.branch.text,
                f"has tagged commits: {_quoted(named)}; delete those tags first",
            ) from cause
        for pin in pins:
            self._datasets.delete_tag(MANIFEST, pin)

    def _refs(self) -> frozenset[str]:
        return frozenset(self._datasets.branch_names(MANIFEST))

    def _live(self) -> dict[BranchName, Incarnation]:
        found = {BranchName(MAIN): MAIN_INCARNATION}
        for name in sorted(self._refs()):
            incarnation = Incarnation.of_lance_branch(name)
            if incarnation is not None:
                found[incarnation.branch] = incarnation
        return found

    def _children(self, incarnation: Incarnation) -> list[str]:
        children = [
            Incarnation.of_lance_branch(branch.name)
            for branch in self._datasets.list_branches(MANIFEST)
            if branch.parent_branch == incarnation.text
        ]
        return sorted(str(child.branch) for child in children if child is not None)


def _name_locks(branch: BranchName) -> set[BranchName]:
    """Return whose locks a change of a name needs: its own, and that of its first part.

    `a` and `a/b` must not appear at once. And deleting the last branch below `a` removes the whole
    directory of `a`, in which another branch may be about to appear.
    """
    return {branch, BranchName(branch.text.partition("/")[0])}


def _creation_locks(branch: BranchName, source: Incarnation) -> set[BranchName]:
    """Return whose locks a creation needs.

    The source must not be deleted meanwhile, and what its head shows must not be purged.
    """
    return _name_locks(branch) | {source.branch}


def _require_free(branch: BranchName, names: frozenset[str]) -> None:
    incarnations = [Incarnation.of_lance_branch(name) for name in sorted(names)]
    for incarnation in (MAIN_INCARNATION, *incarnations):
        if incarnation is None:
            continue
        if incarnation.branch == branch:
            raise BranchConflictError(branch.text, "already exists")
        if incarnation.branch.nests_with(branch):
            raise BranchConflictError(
                branch.text,
                f"cannot exist beside '{incarnation.branch}': one name is a path prefix of the"
                " other",
            )


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
