"""Graph JSONL as the input of a load: where its bytes are, and which reader reads it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from omnigraph.errors import InvalidInputError
from omnigraph.schema import Catalog
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.schema.values.decode import BATCH_BYTES, paused_garbage_collection
from omnigraph.write.load.input.decode import compatible_batches
from omnigraph.write.load.input.interfaces import LoadSink
from omnigraph.write.load.input.lines import LineReader
from omnigraph.write.load.input.records import RecordSorter

RecordInput: TypeAlias = (
    "str | os.PathLike[str] | bytes | BinaryIO | list[str] | list[Path] | tuple[str | Path, ...]"
)
"""Paths, globs or folders of files, the text itself as bytes, or an open binary file."""

RECORD_SUFFIXES: Final = (".jsonl", ".ndjson", ".json")


class InputUnreadableError(InvalidInputError):
    """The input of a load is not there, or is nothing that can be read."""

    code = "OG-INPUT"
    hint = "give files, folders or globs that exist, or `--data -` for standard input"
    template = "{source} {problem}"
    source: str
    problem: str


@dataclass(frozen=True)
class RecordSource:
    """Graph JSONL, read strictly or compatibly."""

    data: RecordInput
    reader: ConversionMode = ConversionMode.STRICT

    @property
    def last_wins_for_unkeyed_ids(self) -> bool:
        """Whether the last record of an id wins: so does the compatible reader."""
        return self.reader is ConversionMode.COMPATIBLE

    @property
    def place(self) -> str:
        """The unit of positions."""
        return "line" if self.reader is ConversionMode.STRICT else "record"

    def read(self, catalog: Catalog, sink: LoadSink) -> None:
        """Read batch by batch, file by file."""
        read = _read_strictly if self.reader is ConversionMode.STRICT else read_compatibly
        for name, data in _inputs(self.data):
            with _opened(data) as source, paused_garbage_collection():
                read(source, catalog, sink, sink.begin(name))


def _read_strictly(source: BinaryIO, catalog: Catalog, sink: LoadSink, first: int) -> None:
    reader = LineReader(catalog, sink)
    while text := source.read(BATCH_BYTES):
        if not text.endswith(b"\n"):
            text += source.readline()
        reader.read(text, first)
        first += text.count(b"\n")


def read_compatibly(source: BinaryIO, catalog: Catalog, sink: LoadSink, first: int) -> None:
    """Read a stream of values; the first one has the position `first`."""
    sorter = RecordSorter(catalog, ConversionMode.COMPATIBLE, sink)
    for decoded in compatible_batches(source, sink.refuse, first):
        sorter.take(decoded)
        sink.end_batch()


def files_of(paths: Sequence[str | os.PathLike[str]], suffixes: Sequence[str]) -> list[Path]:
    """Find files: each path is a file, a folder of files with one of the suffixes, or a glob."""
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise InputUnreadableError(type(path).__name__, "is no path of a file, folder or glob")
    return [file for path in paths for file in _files_at(Path(path), suffixes)]


def _files_at(path: Path, suffixes: Sequence[str]) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix in suffixes)
        if not found:
            wanted = " or ".join(f"*{suffix}" for suffix in suffixes)
            raise InputUnreadableError(str(path), f"has no file named {wanted}")
        return found
    if not glob.has_magic(str(path)) or path.exists():
        return [path]
    found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 - Path.glob takes no absolute pattern
    files = [file for file in found if file.is_file()]
    if not files:
        raise InputUnreadableError(str(path), "matches no file")
    return files


def _inputs(data: RecordInput) -> Iterator[tuple[str | None, Path | bytes | BinaryIO]]:
    if isinstance(data, bytes):
        yield None, data
    elif isinstance(data, str | os.PathLike):
        yield from ((str(path), path) for path in files_of([data], RECORD_SUFFIXES))
    elif isinstance(data, list | tuple):
        yield from ((str(path), path) for path in files_of(data, RECORD_SUFFIXES))
    elif hasattr(data, "read") and isinstance(data.read(0), bytes):
        yield None, data
    else:
        raise InputUnreadableError(
            type(data).__name__,
            "is no input of records: give paths, bytes or a file that is open for reading bytes;"
            " tables are given by the names of their types",
        )


@contextmanager
def _opened(data: Path | bytes | BinaryIO) -> Iterator[BinaryIO]:
    if isinstance(data, bytes):
        yield BytesIO(data)
    elif isinstance(data, Path):
        try:
            source = BufferedReader(FileIO(data))
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise InputUnreadableError(str(data), problem) from error
        with source:
            yield source
    else:
        yield data
