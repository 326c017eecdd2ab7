"""Graph JSONL as the input of a load: where its bytes are, and which reader reads it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias

from omnigraph.errors import InvalidInputError
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.schema.values.decode import paused_garbage_collection
from omnigraph.write.load_decode import compatible_batches, strict_batches
from omnigraph.write.load_records import RecordSorter

if TYPE_CHECKING:
    from omnigraph.schema import Catalog, EdgeType, NodeType
    from omnigraph.write.load_rows import TypeRows
    from omnigraph.write.violations import ViolationLog

RecordInput: TypeAlias = "str | os.PathLike[str] | bytes | BinaryIO"
"""A path, the text itself as bytes, or an open binary file."""


class InputUnreadableError(InvalidInputError):
    """The input of a load is not there, or is nothing that can be read."""

    code = "OG-INPUT"

    def __init__(self, source: str, problem: str) -> None:
        self.source = source
        self.problem = problem
        super().__init__(f"{source} {problem}")


class LoadSource(Protocol):
    """What a load reads. `place` names the unit in which it counts positions."""

    @property
    def place(self) -> str:
        """The unit of positions."""
        ...

    def read(
        self,
        catalog: Catalog,
        rows_of: Callable[[NodeType | EdgeType], TypeRows],
        log: ViolationLog,
    ) -> None:
        """Hand everything over to the rows of its type; problems go to the log."""
        ...


@dataclass(frozen=True)
class RecordSource:
    """Graph JSONL, read strictly or compatibly."""

    data: RecordInput
    reader: ConversionMode = ConversionMode.STRICT

    @property
    def place(self) -> str:
        """The unit of positions."""
        return "line" if self.reader is ConversionMode.STRICT else "record"

    def read(
        self,
        catalog: Catalog,
        rows_of: Callable[[NodeType | EdgeType], TypeRows],
        log: ViolationLog,
    ) -> None:
        """Read batch by batch."""
        sorter = RecordSorter(catalog, self.reader, rows_of, log)
        batches = strict_batches if self.reader is ConversionMode.STRICT else compatible_batches
        with _opened(self.data) as source, paused_garbage_collection():
            start = 0
            for decoded in batches(source, log):
                sorter.take(decoded)
                log.sort_from(start)
                start = len(log.kept)


@contextmanager
def _opened(data: RecordInput) -> Iterator[BinaryIO]:
    if isinstance(data, bytes):
        yield BytesIO(data)
    elif isinstance(data, str | os.PathLike):
        try:
            source = BufferedReader(FileIO(Path(data)))
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise InputUnreadableError(str(data), problem) from error
        with source:
            yield source
    else:
        yield data
