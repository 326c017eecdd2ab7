"""The errors of storage.

| branch | leaves | when |
|---|---|---|
| invalid input | `InvalidLocation`, `InvalidScan` | the request makes no sense here |
| not found | `ObjectNotFound`, `DatasetNotFound`, `DatasetVersionNotFound`, `RefNotFound` | |
| denied | `StoragePermission` | the storage refused the user or the credentials |
| conflict | `ObjectExists`, `ObjectChanged`, `DatasetExists`, `RefExists`, `RefInUse`, | nothing |
| | `StaleBase`, `StagedFilesLost` | landed |
| outcome unknown | `WriteOutcomeUnknown`, `MisplacedCommit` | it may have landed, or elsewhere |
| corrupt | `CorruptObject` | stored bytes do not mean what they should |
| unavailable | `StorageTimeout`, `StorageFull`, | nothing was read, |
| | `StorageUnavailable`, `CopyRefused` | nothing was written |

Every message names the path. Facts are fields, and every leaf survives pickling.
"""

from __future__ import annotations

import errno
from collections.abc import Collection

from omnigraph.errors import (
    ConflictError,
    CorruptError,
    DeniedError,
    InvalidInputError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    UnavailableError,
)
from omnigraph.names import nearest_name


class StorageError(OmnigraphError, init=False):
    """Mixed into every leaf below: holds `path`."""

    path: str


class InvalidLocationError(StorageError, InvalidInputError):
    """A root or a path that cannot be used."""

    code = "OG-STORE-LOCATION"
    hint = "give a path, or a URL with file://, s3://, gs:// or az://"
    template = "cannot use `{path}` as a storage location: {reason}"
    reason: str


class StorageOptionError(StorageError, InvalidInputError):
    """A setting of the storage has a name that the storage does not know."""

    code = "OG-STORE-OPTION"
    hint = "the page on object storage lists the names, such as `endpoint` and `region`"
    template = "the storage of {path} has no option '{name}'"
    name: str


class InvalidScanError(StorageError, InvalidInputError):
    """A scan asks for something that this dataset does not have."""

    code = "OG-STORE-SCAN"
    hint = "`omnigraph schema show` lists the types and their properties"
    template = "cannot read `{path}` as asked: {reason}"
    reason: str


def unknown_column(path: str, name: str, known: Collection[str]) -> InvalidScanError:
    """Return the error for a column that a dataset does not have; it lists those that it has."""
    near = nearest_name(name, known)
    hint = f"; did you mean `{near}`?" if near else ""
    listed = ", ".join(f"`{each}`" for each in known)
    return InvalidScanError(path=path, reason=f"there is no column `{name}` among {listed}{hint}")


class ObjectNotFoundError(StorageError, NotFoundError):
    """No object has this path."""

    code = "OG-STORE-OBJECT-NOT-FOUND"
    hint = "`omnigraph doctor URI` looks for what is missing"
    template = "there is no object at `{path}`"


class DatasetNotFoundError(StorageError, NotFoundError):
    """No dataset, or no branch of it, lies at this location."""

    code = "OG-STORE-DATASET-NOT-FOUND"
    hint = "`omnigraph doctor URI` looks for what is missing"
    branch: str | None

    def _message(self) -> str:
        lineage = "dataset" if self.branch is None else f"branch `{self.branch}` of a dataset"
        return f"there is no {lineage} at `{self.path}`"


class DatasetVersionNotFoundError(StorageError, NotFoundError):
    """The dataset is there, this version of it is not."""

    code = "OG-STORE-VERSION-NOT-FOUND"
    hint = "`omnigraph commit list` shows what can still be read"
    branch: str | None
    version: int
    head: int

    def _message(self) -> str:
        cause = "cleanup has removed it" if self.version < self.head else "it was never written"
        lineage = "" if self.branch is None else f" on branch `{self.branch}`"
        return (
            f"version {self.version} of the dataset at `{self.path}`{lineage} does not exist:"
            f" {cause} (the newest version is {self.head})"
        )


class RefNotFoundError(StorageError, NotFoundError):
    """A dataset branch or tag does not exist."""

    code = "OG-STORE-REF-NOT-FOUND"
    hint = "`omnigraph doctor URI` looks for what is missing"
    template = "the dataset at `{path}` has no {kind} `{name}`"
    kind: str
    name: str


class StoragePermissionError(StorageError, DeniedError):
    """The storage refused the user or the credentials."""

    code = "OG-STORE-PERMISSION"
    hint = "check the owner and mode of the path, or the credentials of the object store"
    template = "permission denied at `{path}`: {reason}"
    reason: str


class ObjectExistsError(StorageError, ConflictError):
    """An object was to be created and is already there."""

    code = "OG-STORE-OBJECT-EXISTS"
    hint = "run the command again"
    template = "an object already exists at `{path}`; nothing was written"


class ObjectChangedError(StorageError, ConflictError):
    """An object is not the one that the caller had read."""

    code = "OG-STORE-OBJECT-CHANGED"
    hint = "run the command again"
    template = (
        "the object at `{path}` is no longer the one with tag {expected}; nothing was written"
    )
    expected: str


class DatasetExistsError(StorageError, ConflictError):
    """A dataset was to be created where one is already."""

    code = "OG-STORE-DATASET-EXISTS"
    hint = "run the command again"
    template = "a dataset already exists at `{path}`; nothing was written"


class RefExistsError(StorageError, ConflictError):
    """A dataset branch or tag of this name exists."""

    code = "OG-STORE-REF-EXISTS"
    hint = "run the command again"
    template = "the dataset at `{path}` already has a {kind} `{name}`"
    kind: str
    name: str


class RefInUseError(StorageError, ConflictError):
    """A dataset branch cannot be deleted while something was cut from it."""

    code = "OG-STORE-REF-IN-USE"
    hint = "`omnigraph branch list` shows the branches that may use it"
    template = "branch `{name}` of the dataset at `{path}` is in use: {reason}"
    name: str
    reason: str


class StaleBaseError(StorageError, ConflictError):
    """A staged transaction no longer fits: the dataset has moved since its base version."""

    code = "OG-STORE-STALE-BASE"
    hint = "run the command again"
    template = (
        "the dataset at `{path}` has moved: the write was prepared on version {expected},"
        " the head is {actual}; nothing was committed ({reason})"
    )
    branch: str | None
    expected: int
    actual: int
    reason: str


class StagedFilesLostError(StorageError, ConflictError):
    """Files of a staged transaction are missing or cut short; stage again."""

    code = "OG-STORE-STAGED-FILES-LOST"
    hint = "run the command again"
    problems: tuple[str, ...]

    def _message(self) -> str:
        shown = "; ".join(self.problems[:5])
        more = f"; and {len(self.problems) - 5} more" if len(self.problems) > 5 else ""
        return (
            f"staged files of the dataset at `{self.path}` are not as they were written,"
            f" so nothing was committed: {shown}{more}"
        )


class WriteOutcomeUnknownError(StorageError, OutcomeUnknownError):
    """The storage failed in the middle of a write."""

    code = "OG-STORE-OUTCOME-UNKNOWN"
    hint = "`omnigraph recovery status` shows it; the next write settles it"
    template = "the write to `{path}` may or may not have landed: {reason}"
    reason: str


class MisplacedCommitError(StorageError, OutcomeUnknownError):
    """A commit landed, but not as the one version that was intended."""

    code = "OG-STORE-MISPLACED-COMMIT"
    hint = "`omnigraph recovery status` shows it; the next write settles it"
    template = (
        "transaction {uuid} on the dataset at `{path}` was meant to become version"
        " {intended} and became version {achieved}: somebody else committed in between;"
        " recovery decides what counts"
    )
    branch: str | None
    uuid: str
    intended: int
    achieved: int


class CorruptObjectError(StorageError, CorruptError):
    """Stored bytes are missing, cut short or unreadable."""

    code = "OG-STORE-CORRUPT"
    hint = "keep the files; `omnigraph doctor URI` looks at the whole graph"
    template = "stored data at `{path}` is damaged: {reason}"
    reason: str


class StorageTimeoutError(StorageError, UnavailableError):
    """The storage did not answer in time; nothing was written."""

    code = "OG-STORE-TIMEOUT"
    hint = "try again; `omnigraph doctor URI` checks the way to the storage"
    template = "the storage did not answer in time at `{path}`: {reason}"
    reason: str


class StorageFullError(StorageError, UnavailableError):
    """No space is left, or a quota is used up; nothing was written."""

    code = "OG-STORE-FULL"
    hint = "free some space, then try again; what was stored before can still be read"
    template = "no space is left for `{path}`: {reason}"
    reason: str


class StorageUnavailableError(StorageError, UnavailableError):
    """The storage cannot be reached or refuses to work; nothing was written."""

    code = "OG-STORE-UNAVAILABLE"
    hint = "try again; `omnigraph doctor URI` checks the way to the storage"
    template = "the storage failed at `{path}`: {reason}"
    reason: str


class CopyRefusedError(StorageError, UnavailableError):
    """The storage cannot give the bytes of a file another name; they must be written again."""

    code = "OG-STORE-COPY"
    hint = "none is needed: a merge writes the rows instead"
    template = "the storage gives no second name to a file, `{path}`: {reason}"
    reason: str


def os_failure(path: str, error: OSError) -> StorageError:
    """Return the error for a failed system call that certainly left nothing behind."""
    reason = error.strerror or str(error)
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return StoragePermissionError(path=path, reason=reason)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFullError(path=path, reason=reason)
    if isinstance(error, TimeoutError):
        return StorageTimeoutError(path=path, reason=reason)
    if error.errno == errno.EIO:
        return CorruptObjectError(path=path, reason=reason)
    return StorageUnavailableError(path=path, reason=reason)
