"""Turns Lance's exceptions, which are mostly text, into leaves of our tree."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from omnigraph.store.errors import (
    CorruptObjectError,
    InvalidScanError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageTimeoutError,
    StorageUnavailableError,
    WriteOutcomeUnknownError,
)
from omnigraph.store.interrupts import raise_interrupt

_PANIC: Final = ("pyo3_runtime", "PanicException")


def lance_failures() -> tuple[type[BaseException], ...]:
    """Return everything that pylance raises for a failed call.

    A panic of its Rust half, which damaged files can cause, is an exception outside of `Exception`
    whose class cannot be imported; it is found among the subclasses at the moment of catching. An
    interrupt that came out of a stream as text is raised again at that moment.
    """
    raise_interrupt(sys.exception())
    panics = [
        kind
        for kind in BaseException.__subclasses__()
        if (kind.__module__, kind.__name__) == _PANIC
    ]
    return (OSError, ValueError, RuntimeError, pa.ArrowException, *panics)


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
_FULL: Final = ("no space left on device", "disk quota exceeded", "storage full")
_UNSENT: Final = re.compile(r" in ([0-9.]+)(ns|µs|ms|s) - HTTP error: error sending request")
_SECONDS: Final = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_GIVEN_UP_AFTER_S: Final = 0.2
_NO_BUCKET: Final = ("nosuchbucket",)
_TIMEOUT: Final = ("timed out", "timedout")
_DAMAGE: Final = (
    "corrupt",
    "does not have sufficient data",
    "failed to decode",
    "failed to fill whole buffer",
    "file size is too small",
    "invalid protobuf",
    "invalid range",
    "invalid seek",
    "invalid user input",
    "magic",
    "out of bounds",
    "parse error",
    "parser error",
    "task was aborted",
    "terminated before end of stream",
    "unexpected end",
)
"""An input that Lance calls the user's comes from a file when no user gave any."""
_CALLER: Final = (
    "contained null values",
    "different schema",
    "error optimizing sql filter",
    "error resolving filter",
    "no field named",
    "non-nullable",
    "schema error",
)


def says(error: BaseException, phrases: tuple[str, ...]) -> bool:
    """Whether the error's text has one of these phrases."""
    text = str(error).lower()
    return any(phrase in text for phrase in phrases)


def is_not_found(error: BaseException) -> bool:
    """Whether something that Lance looked for was not there, in a bucket that is."""
    return says(error, _NOT_FOUND) and not says(error, _NO_BUCKET)


def is_other_version(error: BaseException) -> bool:
    """Whether the file of a version was read and is another one; all zeros read as version 0."""
    return says(error, ("version not found error",))


def reason_of(error: BaseException) -> str:
    """Return the text without the positions in Lance's own source that it ends with."""
    text = str(error).strip().splitlines()
    first = text[0] if text else type(error).__name__
    for end in (", /home/runner/", ", /rustc/", ", location: /"):
        first = first.split(end, maxsplit=1)[0]
    return first


def _was_given_up(error: BaseException) -> bool:
    """Whether a request timed out, as opposed to one that could not be sent.

    Lance drops the cause and keeps the time it took: a refused connection fails at once.
    """
    found = _UNSENT.search(str(error))
    if found is None:
        return False
    return float(found[1]) * _SECONDS[found[2]] >= _GIVEN_UP_AFTER_S


def certain_error(error: BaseException, path: str) -> StorageError | None:
    """Return the error for a failure that certainly left nothing behind, if it is one."""
    if says(error, _PERMISSION):
        return StoragePermissionError(path=path, reason=reason_of(error))
    if says(error, _FULL):
        return StorageFullError(path=path, reason=reason_of(error))
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
    if says(error, _TIMEOUT) or _was_given_up(error):
        return StorageTimeoutError(path=path, reason=reason_of(error))
    is_panic = (type(error).__module__, type(error).__name__) == _PANIC
    if is_panic or is_not_found(error) or says(error, _DAMAGE):
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
    except lance_failures() as error:
        raise read_error(error, path) from error
