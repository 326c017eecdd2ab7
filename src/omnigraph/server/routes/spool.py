"""The body of a load: in memory while it is small, else a file, which Spark can read too."""

from __future__ import annotations

import io
import tempfile
from typing import BinaryIO, Final, Self, cast

from omnigraph.engine import EngineChoice, choose

IN_MEMORY_MAX: Final = 4 << 20


class Spool:
    """Bytes of records that come one after the other. Leaving it removes them."""

    def __init__(self) -> None:
        self._bytes: BinaryIO = io.BytesIO()
        self._path: str | None = None
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._bytes.close()

    def is_large_with(self, chunk: bytes) -> bool:
        """Whether writing a chunk goes to a disk."""
        return self.size + len(chunk) > IN_MEMORY_MAX

    def write(self, chunk: bytes) -> None:
        """Add bytes."""
        if self._path is None and self.is_large_with(chunk):
            self._move_to_disk()
        self._bytes.write(chunk)
        self.size += len(chunk)

    def input(self) -> str | BinaryIO:
        """Return what a load reads: a path where Spark is to read it, else an open file."""
        self._bytes.seek(0)
        if self._path is not None:
            self._bytes.flush()
            if choose(EngineChoice.AUTO, self._path).engine is EngineChoice.SPARK:
                return self._path
        return self._bytes

    def _move_to_disk(self) -> None:
        file = tempfile.NamedTemporaryFile(suffix=".jsonl")  # noqa: SIM115 - closed at the end
        file.write(cast("io.BytesIO", self._bytes).getbuffer())
        self._bytes.close()
        self._bytes, self._path = cast("BinaryIO", file), file.name
