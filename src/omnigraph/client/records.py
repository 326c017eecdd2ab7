"""Graph records as the body of a request: JSON lines, made of whatever a caller has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, cast

import orjson

from omnigraph.client.refusals import NeedsStorageError
from omnigraph.write.load.formats.description import is_objects
from omnigraph.write.load.formats.exported import exported_input
from omnigraph.write.load.formats.files import InputUnreadableError, open_stream
from omnigraph.write.load.formats.json_array import BrokenArrayError, array_blocks
from omnigraph.write.load.formats.json_rows import object_batches
from omnigraph.write.load.formats.kinds import JSON, JSONL, Format
from omnigraph.write.load.input.source import record_files, record_format

RemoteInput: TypeAlias = (
    "str | os.PathLike[str] | bytes | BinaryIO | Iterator[bytes] | list[str] | list[Path]"
    " | tuple[str | Path, ...] | Mapping[str, object] | Sequence[Mapping[str, object]]"
)
_CHUNK: Final = 1 << 20
_INPUT: Final = "the input"


def record_chunks(
    data: RemoteInput, form: Format | None = None, *, is_strict: bool = True
) -> Iterator[bytes]:
    """Yield the bytes of records; a file that is not there, or is no record, raises at once."""
    if isinstance(data, str | os.PathLike):
        exported = exported_input(os.fspath(data))
        data = data if exported is None else cast("RemoteInput", exported)
    if isinstance(data, Mapping):
        raise NeedsStorageError(
            "a load of tables", "tables are read in process; a server takes graph records"
        )
    if is_objects(data):
        return _objects(cast("Sequence[Mapping[str, object]]", data))
    if isinstance(data, bytes):
        return _lines(BytesIO(data), _form(_INPUT, BytesIO(data), form, is_strict=is_strict))
    if isinstance(data, str | os.PathLike | list | tuple):
        return _files(data, form, is_strict=is_strict)
    if hasattr(data, "read"):
        source = cast("BinaryIO", data)
        return _lines(source, _form(_INPUT, source, form, is_strict=is_strict))
    if isinstance(data, Iterator):
        return data
    raise InputUnreadableError(type(data).__name__, "is no input of records")


def _form(name: str, source: BinaryIO, form: Format | None, *, is_strict: bool) -> Format:
    """Tell lines from an array; the compatible reader takes any stream of values as it is."""
    return record_format(name, source, form) if is_strict else JSONL


def _lines(source: BinaryIO, form: Format, name: str = _INPUT) -> Iterator[bytes]:
    if form is not JSON:
        yield from iter(lambda: source.read(_CHUNK), b"")
        return
    try:
        yield from array_blocks(source)
    except BrokenArrayError as error:
        raise InputUnreadableError(name, f"is no JSON array: {error}") from error


def _files(
    data: str | os.PathLike[str] | Sequence[object], form: Format | None, *, is_strict: bool
) -> Iterator[bytes]:
    found = []
    for file in record_files(data):
        with open_stream(file.path) as source:
            found.append((file.path, _form(file.path, source, form, is_strict=is_strict)))
    return _chunks(found)


def _chunks(files: Sequence[tuple[str, Format]]) -> Iterator[bytes]:
    for path, form in files:
        last = b"\n"
        with open_stream(path) as source:
            for chunk in _lines(source, form, path):
                yield chunk
                last = chunk[-1:]
        if last != b"\n":
            yield b"\n"


def _objects(objects: Sequence[Mapping[str, object]]) -> Iterator[bytes]:
    for decoded in object_batches(objects, 1):
        yield b"".join(orjson.dumps(value) + b"\n" for value in decoded.values)
