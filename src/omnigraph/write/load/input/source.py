"""Graph records as the input of a load: where they are, and which reader reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, cast

from omnigraph.dataclass import dataclass
from omnigraph.schema import Catalog
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.schema.values.decode import paused_garbage_collection
from omnigraph.write.load.formats.description import is_objects
from omnigraph.write.load.formats.files import (
    InputFile,
    InputUnreadableError,
    find_files,
    head_of,
    open_stream,
)
from omnigraph.write.load.formats.json_array import BrokenArrayError, array_blocks
from omnigraph.write.load.formats.json_rows import object_batches
from omnigraph.write.load.formats.kinds import (
    GRAPH_RECORDS,
    HEAD_BYTES,
    JSON,
    JSONL,
    RECORD_SUFFIXES,
    Format,
    InputFormatError,
    by_content,
    checked,
)
from omnigraph.write.load.formats.rows import line_blocks, position_unit
from omnigraph.write.load.input.decode import compatible_batches
from omnigraph.write.load.input.interfaces import LoadSink
from omnigraph.write.load.input.lines import LineReader
from omnigraph.write.load.input.records import RecordSorter

RecordInput: TypeAlias = (
    "str | os.PathLike[str] | bytes | BinaryIO | list[str] | list[Path] | tuple[str | Path, ...]"
    " | Sequence[Mapping[str, object]]"
)
"""Paths, globs or folders, the text itself as bytes, an open binary file, or a list of objects."""

_STDIN: Final = "the input"


@dataclass(frozen=True)
class RecordSource:
    """Graph records, read strictly or compatibly."""

    data: RecordInput
    reader: ConversionMode = ConversionMode.STRICT
    form: Format | None = None
    """Lines or an array, where the caller says it."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

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
        if is_objects(self.data):
            objects = cast("Sequence[Mapping[str, object]]", self.data)
            _read_objects(objects, catalog, sink, self.reader)
            return
        for name, opened in self._inputs():
            with opened as source, paused_garbage_collection():
                if self.reader is ConversionMode.STRICT:
                    form = record_format(name or _STDIN, source, self.form)
                    first = sink.begin(name, None if form is JSONL else position_unit(form))
                    read_strictly(source, form, catalog, sink, first)
                else:
                    read_compatibly(source, catalog, sink, sink.begin(name))

    def _inputs(self) -> Iterator[tuple[str | None, AbstractContextManager[BinaryIO]]]:
        data = self.data
        if isinstance(data, bytes):
            yield None, _given(BytesIO(data))
        elif isinstance(data, str | os.PathLike | list | tuple):
            for file in record_files(data, self.storage_options):
                yield file.path, open_stream(file.path, self.storage_options)
        elif hasattr(data, "read") and isinstance(data.read(0), bytes):
            yield None, _given(cast("BinaryIO", data))
        else:
            error = InputUnreadableError(
                type(data).__name__,
                "is no input of records: give paths, bytes, a file that is open for reading bytes,"
                " or a list of objects; tables are given by the names of their types",
            )
            error.hint = "`graph.load({'TYPE': rows}, mode=...)` says what the rows of a table are"
            raise error


@contextmanager
def _given(source: BinaryIO) -> Iterator[BinaryIO]:
    yield source


def record_files(
    data: str | os.PathLike[str] | Sequence[object], options: Mapping[str, str] | None = None
) -> list[InputFile]:
    """Return the files of graph records that paths name."""
    paths = [data] if isinstance(data, str | os.PathLike) else list(data)
    return find_files(cast("list[str]", paths), RECORD_SUFFIXES, options)


def record_format(name: str, source: BinaryIO, asked: Format | None) -> Format:
    """Return whether a text is lines or an array; raise where it is neither."""
    if asked is not None and not asked.is_records:
        raise InputFormatError(name, asked.title, GRAPH_RECORDS)
    head = head_of(source, HEAD_BYTES)
    stated = asked or JSONL
    try:
        if asked is None and by_content(head) is JSON and not name.endswith((".jsonl", ".ndjson")):
            return JSON
        return checked(name, stated, head)
    except InputFormatError as error:
        raise InputFormatError(name, error.found, GRAPH_RECORDS) from None


def read_strictly(
    source: BinaryIO, form: Format, catalog: Catalog, sink: LoadSink, first: int
) -> None:
    """Read lines, or the elements of an array; the first one has the position `first`."""
    reader = LineReader(catalog, sink)
    position = first
    try:
        for text in array_blocks(source) if form is JSON else line_blocks(source):
            reader.read(text, position)
            position += text.count(b"\n")
    except BrokenArrayError as error:
        sink.refuse(error.violation(first), None)


def read_compatibly(source: BinaryIO, catalog: Catalog, sink: LoadSink, first: int) -> None:
    """Read a stream of values; the first one has the position `first`."""
    sorter = RecordSorter(catalog, ConversionMode.COMPATIBLE, sink)
    for decoded in compatible_batches(source, sink.refuse, first):
        sorter.take(decoded)
        sink.end_batch()


def _read_objects(
    objects: Sequence[Mapping[str, object]],
    catalog: Catalog,
    sink: LoadSink,
    reader: ConversionMode,
) -> None:
    sorter = RecordSorter(catalog, reader, sink)
    for decoded in object_batches(objects, sink.begin(None, "record")):
        sorter.take(decoded)
        sink.end_batch()
