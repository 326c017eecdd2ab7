"""Graph JSONL as the body of a request: files one after the other, or bytes as they come."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from omnigraph.client.refusals import NeedsStorageError
from omnigraph.write.load.input.source import (
    RECORD_SUFFIXES,
    InputUnreadableError,
    files_of,
)

RemoteInput: TypeAlias = (
    "str | os.PathLike[str] | bytes | BinaryIO | Iterator[bytes] | list[str] | list[Path]"
    " | tuple[str | Path, ...] | Mapping[str, object]"
)
_CHUNK: Final = 1 << 20


def record_chunks(data: RemoteInput) -> Iterator[bytes]:
    """Yield the bytes of records; a file that is not there raises at once."""
    if isinstance(data, bytes):
        return iter([data])
    if isinstance(data, Mapping):
        raise NeedsStorageError(
            "a load of tables", "tables are read in process; a server takes graph JSONL"
        )
    if isinstance(data, str | os.PathLike):
        return _files([data])
    if isinstance(data, list | tuple):
        return _files(data)
    if hasattr(data, "read"):
        return iter(lambda: data.read(_CHUNK), b"")
    if isinstance(data, Iterator):
        return data
    raise InputUnreadableError(type(data).__name__, "is no input of records")


def _files(paths: Sequence[str | os.PathLike[str]]) -> Iterator[bytes]:
    files = files_of(paths, RECORD_SUFFIXES)
    for path in files:
        try:
            path.open("rb").close()
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise InputUnreadableError(str(path), problem) from error
    return _chunks(files)


def _chunks(files: list[Path]) -> Iterator[bytes]:
    for path in files:
        last = b"\n"
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
                last = chunk[-1:]
        if last != b"\n":
            yield b"\n"
