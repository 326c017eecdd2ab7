"""Turns Lance's exceptions, which are mostly text, into leaves of our tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from omnigraph.store.errors import (
    CorruptObjectError,
    InvalidScanError,
    StorageError,
    StoragePermissionError,
    StorageTimeoutError,
    StorageUnavailableError,
    WriteOutcomeUnknownError,
)

LANCE_FAILURES: Final = (OSError, ValueError, RuntimeError, pa.ArrowException)
"""Everything that pylance raises for a failed call; programming errors are not among them."""

_NOT_FOUND: Final = ("was not found", "not found:", "no such file")
_PERMISSION: Final = (
    "permission denied",
    "permissiondenied",
    "accessdenied",
    "403 forbidden",
    "unauthenticated",
    "401 unauthorized",
    "read-only file system",
)
_NO_BUCKET: Final = ("nosuchbucket",)
_TIMEOUT: Final = ("timed out", "timedout")
_DAMAGE: Final = (
    "invalid range",
    "file size is too small",
    "does not have sufficient data",
    "corrupt",
    "magic",
    "invalid protobuf",
    "failed to decode",
    "unexpected end",
    "out of bounds",
    "parse error",
)
_CALLER: Final = (
    "invalid user input",
    "no field named",
    "schema error",
    "different schema",
    "contains null",
    "non-nullable",
)


def says(error: BaseException, phrases: tuple[str, ...]) -> bool:
    """Whether the error's text has one of these phrases."""
    text = str(error).lower()
    return any(phrase in text for phrase in phrases)


def is_not_found(error: BaseException) -> bool:
    """Whether something that Lance looked for was not there, in a bucket that is."""
    return says(error, _NOT_FOUND) and not says(error, _NO_BUCKET)


def reason_of(error: BaseException) -> str:
    """Return the text without the places in Lance's own source that it ends with."""
    text = str(error).strip().splitlines()
    first = text[0] if text else type(error).__name__
    for end in (", /home/runner/", ", /rustc/", ", location: /"):
        first = first.split(end, maxsplit=1)[0]
    return first


def certain_error(error: BaseException, path: str) -> StorageError | None:
    """Return the error for a failure that certainly left nothing behind, if it is one."""
    if says(error, _PERMISSION):
        return StoragePermissionError(path=path, reason=reason_of(error))
    if says(error, _CALLER):
        return InvalidScanError(path=path, reason=reason_of(error))
    return None


def read_error(error: BaseException, path: str) -> StorageError:
    """Return the error for a failed read of an existing version."""
    certain = certain_error(error, path)
    if certain is not None:
        return certain
    if says(error, _NO_BUCKET):
        return StorageUnavailableError(path=path, reason="the bucket does not exist")
    if says(error, _TIMEOUT):
        return StorageTimeoutError(path=path, reason=reason_of(error))
    if is_not_found(error) or says(error, _DAMAGE):
        return CorruptObjectError(path=path, reason=reason_of(error))
    return StorageUnavailableError(path=path, reason=reason_of(error))


def write_error(error: BaseException, path: str) -> StorageError:
    """Return the error for a failed write of which nothing is known."""
    return certain_error(error, path) or WriteOutcomeUnknownError(
        path=path, reason=reason_of(error)
    )


@contextmanager
def read_failures(path: str) -> Iterator[None]:
    """Translate failures of a read."""
    try:
        yield
    except LANCE_FAILURES as error:
        raise read_error(error, path) from error


@contextmanager
def write_failures(path: str) -> Iterator[None]:
    """Translate failures of a write whose outcome nobody checks."""
    try:
        yield
    except LANCE_FAILURES as error:
        raise write_error(error, path) from error
