"""Commits staged transactions, once each, and checks the outcome."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import lance
from lance import LanceOperation, Transaction
from lance.commit import CommitConflictError

from omnigraph.dataclass import dataclass
from omnigraph.store.digests import Ledger
from omnigraph.store.durability import PathFlusher
from omnigraph.store.errors import (
    CorruptObjectError,
    DatasetExistsError,
    DatasetVersionNotFoundError,
    MisplacedCommitError,
    StagedFilesLostError,
    StaleBaseError,
    StorageError,
    StorageFullError,
)
from omnigraph.store.lance.errors import certain_error, lance_failures, reason_of, write_error
from omnigraph.store.lance.handle import LanceHandle
from omnigraph.store.lance.layout import manifest_path, transaction_path
from omnigraph.store.lance.opener import LanceOpener
from omnigraph.store.lance.staging import DATA_FORMAT, stage_error, transaction_of
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import (
    CommittedRange,
    DatasetVersion,
    OperationKind,
    StagedFile,
    StagedTransaction,
)
from omnigraph.store.uri import Root

_FILES_CHECKED_ONE_BY_ONE_MAX: Final = 16
_INLINE_KINDS: Final = frozenset({OperationKind.APPEND, OperationKind.UPDATE})
"""Kinds whose transaction file is never read: every version carries its transaction inside.

The file is a copy. Without it, or with an empty one, the version can be read, named, written upon,
rebased over and cleaned up (guard tests), so it is not flushed, and on a local disk it is removed:
a quarter of the files of a small commit would be such copies. On an object store that would be one
more request for each commit. Compactions are another matter: the library cannot rebuild all of
them, and then the file is read.
"""


_KEEPING_FRAGMENTS: Final = (OperationKind.APPEND, OperationKind.UPDATE)
"""Transactions that leave all fragments as they are which they do not name."""


@dataclass(frozen=True)
class LanceCommitter:
    """Everything that moves the head of a lineage."""

    opener: LanceOpener
    objects: ObjectStore
    flusher: PathFlusher
    ledger: Ledger
    root: Root

    def verify_files(self, staged: StagedTransaction) -> None:
        """Check that every staged file exists with its size."""
        sizes = self._sizes([file.path for file in staged.files])
        problems = tuple(
            _file_problem(file, sizes.get(file.path))
            for file in staged.files
            if sizes.get(file.path) is None
            or (file.size is not None and sizes[file.path] != file.size)
        )
        if problems:
            self._require_space(staged, sizes)
            raise StagedFilesLostError(path=staged.base.location, problems=problems)

    def _require_space(self, staged: StagedTransaction, sizes: Mapping[str, int]) -> None:
        """Raise if there is no space for what files lack: the library does not always tell."""
        if not self.root.is_local:
            return
        missing = sum((file.size or 0) - sizes.get(file.path, 0) for file in staged.files)
        if shutil.disk_usage(self.root.local_path()).free < missing:
            reason = f"{missing} bytes of new files were not written"
            raise StorageFullError(path=staged.base.location, reason=reason)

    def commit(self, staged: StagedTransaction, *, exact: bool = True) -> CommittedRange:
        """Commit once."""
        base, transaction = staged.base, transaction_of(staged)
        if base.version == 0:
            return self._commit_creation(staged, transaction)
        handle = self._base(base)
        if exact:
            self._check_head(base)
        else:
            self._check_versions(base)
        try:
            achieved = lance.LanceDataset.commit(
                handle.dataset, transaction, max_retries=0, storage_options=self.opener.options
            )
        except lance_failures() as error:
            self._after_failed_commit(staged, error)
            return self._settled(staged, staged.intended_version)
        committed = self._settled(staged, achieved.version, opened=achieved)
        is_next = achieved.version == base.version + 1
        at = DatasetVersion(base.location, base.branch, achieved.version)
        self.opener.remember(
            achieved,
            at,
            extends=handle if is_next and staged.kind in _KEEPING_FRAGMENTS else None,
            changed_fragments=_changed_fragments(transaction),
        )
        if exact and committed.version != staged.intended_version:
            raise MisplacedCommitError(
                path=base.location,
                branch=base.branch,
                uuid=staged.uuid,
                intended=staged.intended_version,
                achieved=committed.version,
            )
        return committed

    def restore(
        self, location: str, *, branch: str | None = None, version: int, uuid: str
    ) -> CommittedRange:
        """Append a version whose content is that of `version`."""
        handle = self._loose(DatasetVersion(location, branch, version))
        head = self.opener.head_version(location, branch=branch)
        transaction = Transaction(
            read_version=head, operation=LanceOperation.Restore(version), uuid=uuid
        )
        intended = DatasetVersion(location, branch, head + 1)
        try:
            achieved = lance.LanceDataset.commit(
                handle.dataset, transaction, max_retries=0, storage_options=self.opener.options
            ).version
        except lance_failures() as error:
            if self.opener.uuid_at(intended) != uuid:
                raise write_error(error, location) from error
            achieved = intended.version
        self._settle_version(
            DatasetVersion(location, branch, achieved),
            read_version=head,
            uuid=uuid,
            kind=OperationKind.RESTORE,
        )
        return CommittedRange(location, branch, head, achieved, uuid)

    def open_staged(self, staged: StagedTransaction) -> LanceHandle:
        """Read what a staged transaction would make, without moving a head."""
        base, transaction = staged.base, transaction_of(staged)
        try:
            detached = lance.LanceDataset.commit(
                self._loose(base).dataset,
                transaction,
                # Lance draws the version number and needs a second try when it is taken.
                detached=True,
                storage_options=self.opener.options,
            )
        except lance_failures() as error:
            raise stage_error(error, base.location) from error
        at = DatasetVersion(base.location, base.branch, detached.version)
        if self.root.is_local:
            # Nobody reads the file of a detached version, and the commit writes its own.
            self._remove_copy(base, read_version=base.version, uuid=transaction.uuid)
        return LanceHandle(detached, at, missing=_never_missing)

    def _base(self, base: DatasetVersion) -> LanceHandle:
        """Open the version that a commit starts from; the newest one is never removed."""
        try:
            return self._loose(base)
        except DatasetVersionNotFoundError as error:
            reason = "cleanup has removed the version that the commit starts from"
            raise _stale(base, error.head, reason) from error

    def _loose(self, base: DatasetVersion) -> LanceHandle:
        """Open a version where it lies: what is committed on one in a pack would be lost."""
        handle = self.opener.open_loose(base)
        if handle is None:
            head = self.opener.head_version(base.location, branch=base.branch)
            raise _stale(base, head, "the version that the commit starts from is in a pack")
        return handle

    def _check_head(self, base: DatasetVersion) -> None:
        head = self.opener.head_version(base.location, branch=base.branch)
        if head != base.version:
            raise _stale(base, head, "the head was looked at first")

    def _check_versions(self, base: DatasetVersion) -> None:
        """Refuse a base that Lance cannot compare with all versions after it."""
        if self.opener.has_gap_since(base):
            head = self.opener.head_version(base.location, branch=base.branch)
            raise _stale(base, head, "versions after it were removed, or are in a pack")

    def _commit_creation(
        self, staged: StagedTransaction, transaction: Transaction
    ) -> CommittedRange:
        location = staged.base.location
        if self.opener.exists(location):
            raise DatasetExistsError(path=location)
        try:
            created = lance.LanceDataset.commit(
                self.opener.uri(location, None),
                transaction,
                max_retries=0,
                storage_options=self.opener.options,
                enable_v2_manifest_paths=True,
                enable_stable_row_ids=True,
            )
        except lance_failures() as error:
            if self.opener.uuid_at(DatasetVersion(location, None, 1)) != staged.uuid:
                if self.opener.exists(location):
                    raise DatasetExistsError(path=location) from error
                raise write_error(error, location) from error
            created = self.opener.load(DatasetVersion(location, None, 1))
        _check_new_dataset(created, location)
        return self._settled(staged, created.version)

    def _after_failed_commit(self, staged: StagedTransaction, error: BaseException) -> None:
        """Return if the commit has landed in spite of the error; else raise the right error."""
        base = staged.base
        intended = DatasetVersion(base.location, base.branch, staged.intended_version)
        holder = self.opener.uuid_at(intended)
        if holder == staged.uuid:
            return
        certain = certain_error(error, base.location)
        if certain is not None:
            raise certain from error
        if holder is not None or isinstance(error, CommitConflictError):
            raise StaleBaseError(
                path=base.location,
                branch=base.branch,
                expected=base.version,
                actual=self.opener.head_version(base.location, branch=base.branch),
                reason=reason_of(error),
            ) from error
        raise write_error(error, base.location) from error

    def _settled(
        self, staged: StagedTransaction, version: int, *, opened: lance.LanceDataset | None = None
    ) -> CommittedRange:
        base = staged.base
        self._settle_version(
            DatasetVersion(base.location, base.branch, version),
            read_version=base.version,
            uuid=staged.uuid,
            kind=staged.kind,
            opened=opened,
        )
        self.ledger.note(staged.files)
        return CommittedRange(base.location, base.branch, base.version, version, staged.uuid)

    def _settle_version(
        self,
        at: DatasetVersion,
        *,
        read_version: int,
        uuid: str,
        kind: OperationKind,
        opened: lance.LanceDataset | None = None,
    ) -> None:
        """Make a new version durable and check that it is ours."""
        files = [manifest_path(at.location, at.branch, at.version)]
        if kind not in _INLINE_KINDS:
            files.append(
                transaction_path(at.location, at.branch, read_version=read_version, uuid=uuid)
            )
        self.flusher.files(files)
        self._require_ours(at, read_version=read_version, uuid=uuid, opened=opened)
        if kind in _INLINE_KINDS and self.root.is_local:
            self._remove_copy(at, read_version=read_version, uuid=uuid)
        self.ledger.note((), files)
        self.opener.note_head(at)

    def _remove_copy(self, at: DatasetVersion, *, read_version: int, uuid: str) -> None:
        """Remove a transaction file that nobody reads; one that stays is removed by `cleanup`."""
        with suppress(StorageError):
            self.objects.delete(
                transaction_path(at.location, at.branch, read_version=read_version, uuid=uuid)
            )

    def _require_ours(
        self,
        at: DatasetVersion,
        *,
        read_version: int,
        uuid: str,
        opened: lance.LanceDataset | None,
    ) -> None:
        if self.opener.is_made_by(at, read_version=read_version, uuid=uuid):
            return
        holder = (
            self.opener.transaction(at).uuid if opened is None else self.opener.uuid_of(at, opened)
        )
        if holder != uuid:
            raise StaleBaseError(
                path=at.location,
                branch=at.branch,
                expected=read_version,
                actual=at.version,
                reason=f"version {at.version} belongs to transaction {holder}",
            )

    def _sizes(self, paths: Sequence[str]) -> dict[str, int]:
        """Look up sizes: one by one when they are few, by directory when they are many."""
        if self.root.is_local or len(paths) <= _FILES_CHECKED_ONE_BY_ONE_MAX:
            infos = (self.objects.head(path) for path in paths)
            return {info.path: info.size for info in infos if info is not None}
        directories = {path.rsplit("/", 1)[0] for path in paths}
        return {
            info.path: info.size
            for directory in directories
            for info in self.objects.list(directory)
        }


def _stale(base: DatasetVersion, actual: int, reason: str) -> StaleBaseError:
    return StaleBaseError(
        path=base.location,
        branch=base.branch,
        expected=base.version,
        actual=actual,
        reason=reason,
    )


def _never_missing(_at: DatasetVersion) -> None:
    """Do nothing: a detached version is in no lineage that could have lost it."""


def _file_problem(file: StagedFile, size: int | None) -> str:
    if size is None:
        return f"`{file.path}` is gone"
    return f"`{file.path}` has {size} bytes instead of {file.size}"


def _check_new_dataset(dataset: lance.LanceDataset, location: str) -> None:
    """Check a new dataset against the rules that hold for every dataset of ours."""
    wrong = [
        text
        for text, is_right in (
            ("it has no stable row ids", dataset.has_stable_row_ids),
            (
                f"its file format is {dataset.data_storage_version}",
                dataset.data_storage_version == DATA_FORMAT,
            ),
            ("it cleans up by itself", not dataset.config()),
        )
        if not is_right
    ]
    if wrong:
        raise CorruptObjectError(path=location, reason="; ".join(wrong))


def _changed_fragments(transaction: Transaction) -> frozenset[int] | None:
    """Return which fragments of its base an update changes; None for other transactions."""
    operation = transaction.operation
    if not isinstance(operation, LanceOperation.Update):
        return None
    updated = (fragment.id for fragment in operation.updated_fragments)
    return frozenset((*operation.removed_fragment_ids, *updated))
