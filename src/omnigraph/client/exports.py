"""Exports of a served graph to a folder: the files that a local export writes.

The server sends the rows of one state as Arrow, one stream per type, and says in headers which
commit it is. The files are written here; the folder has `export.json` when all of them are there.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from omnigraph.graph import ExportResult
from omnigraph.names import choice
from omnigraph.schema import EntityType, compile_schema
from omnigraph.write.export.exporter import (
    PART_ROWS,
    ExportedFile,
    ExportFormat,
    ExportPlan,
    begin_export,
    finish_export,
    part_path,
    require_empty,
    write_file,
)

TYPE_KEY: Final = b"omnigraph.type_key"
SCHEMA_SOURCE: Final = b"omnigraph.schema_source"
_DOMAIN: Final = "0" * 26
"""Identities are known to the graph only; a schema that is compiled here needs some."""


class ByteStream(io.RawIOBase):
    """The chunks of an answer as a file that can be read once."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        while not self._held:
            found = next(self._chunks, None)
            if found is None:
                return True
            self._held = found
        return False

    def readinto(self, buffer: object) -> int:
        """Fill a buffer as far as the held bytes go."""
        if self.is_at_end():
            return 0
        view = memoryview(buffer)  # type: ignore[arg-type]  # what `RawIOBase` hands over
        count = min(len(view), len(self._held))
        view[:count] = self._held[:count]
        self._held = self._held[count:]
        return count


class FolderExport:
    """An export to a folder, before its rows have come."""

    def __init__(self, out: str | os.PathLike[str], export_format: str) -> None:
        self._out = Path(out).absolute()
        self._format = choice(ExportFormat, export_format, "export format")
        require_empty(self._out)

    def write(self, headers: Mapping[str, str], chunks: Iterator[bytes]) -> ExportResult:
        """Write the rows that come."""
        streams = _streams(ByteStream(chunks))
        first = next(streams, None)
        metadata = {} if first is None else first.schema.metadata
        plan = ExportPlan(
            out=self._out,
            format=self._format,
            branch=unquote(headers["omnigraph-graph-branch"]),
            commit_id=headers["omnigraph-graph-commit"],
            # A schema without types has nothing to export, and no text but comments.
            schema_source=metadata.get(SCHEMA_SOURCE, b"").decode(),
            tasks=(),
            nbytes=0,
        )
        begin_export(plan)
        types = _types(plan.schema_source)
        files = [
            file
            for stream in chain([] if first is None else [first], streams)
            for file in self._files(types[stream.schema.metadata[TYPE_KEY].decode()], iter(stream))
        ]
        return finish_export(plan, files, engine="local")

    def _files(
        self, entity_type: EntityType, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[ExportedFile]:
        """Write the rows of a type, and begin a new file after many rows."""
        first, number = next(batches, None), 0
        while first is not None:
            rows = _part(chain([first], batches))
            path = part_path(self._out, entity_type, number, self._format)
            yield write_file(entity_type, rows, path=path, export_format=self._format)
            first, number = next(batches, None), number + 1


def _types(schema_source: str) -> dict[str, EntityType]:
    catalog = compile_schema(schema_source, domain=_DOMAIN).catalog
    every: list[EntityType] = [*catalog.edge_types.values(), *catalog.node_types.values()]
    return {str(entity_type.table_key): entity_type for entity_type in every}


def _part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if rows >= PART_ROWS:
            return


def _streams(source: ByteStream) -> Iterator[pa.RecordBatchReader]:
    """Yield the stream of each type, to be read before the next."""
    while not source.is_at_end():
        yield pa.ipc.open_stream(source)
