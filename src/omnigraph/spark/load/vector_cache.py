"""Vectors that the tasks of one load share, so that a text is paid for once.

1. A task writes the vectors of each answer to a side file, under hashes of their texts, and reads
   the files of other tasks before it asks. A task that is run again finds what it has paid for.
2. Two tasks that meet the same new text at the same moment may both ask for it: neither waits.
3. What a worker remembers is bounded; beyond that a text may be paid for again.
4. A provider that has failed for one task is not asked by the others: they fail with its error.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph.errors import OmnigraphError
from omnigraph.write.embed.failure import failure_note, provider_failure

if TYPE_CHECKING:
    import numpy.typing as npt

    from omnigraph.spark.load.side_files import SideFiles

    Vectors = npt.NDArray[np.float32]

REMEMBERED_MAX: Final = 200_000
_DIGEST_BYTES: Final = 16
_FAILURE: Final = "embedding/failure"


class SharedVectors:
    """The vectors of one load, as one task sees them."""

    def __init__(self, files: SideFiles) -> None:
        self._files = files
        self._read: set[str] = set()
        self._known: dict[tuple[str, bytes], Vectors] = {}

    def known(self, type_name: str, property_name: str, texts: list[str]) -> dict[str, Vectors]:
        """Return the vectors of those texts that have one; raise what the provider failed with."""
        failure = next(iter(self._files.named(_FAILURE)), None)
        if failure is not None:
            raise provider_failure(self._files.read_bytes(failure))
        folder = _folder(type_name, property_name)
        self._look_at(folder)
        found = ((text, self._known.get((folder, _digest(text)))) for text in texts)
        return {text: vector for text, vector in found if vector is not None}

    def add(self, type_name: str, property_name: str, texts: list[str], vectors: Vectors) -> None:
        """Write vectors for other tasks."""
        digests = pa.array([_digest(text) for text in texts], pa.binary(_DIGEST_BYTES))
        flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
        column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        table = pa.table({"text": digests, "vector": column})
        self._files.write(f"{_folder(type_name, property_name)}/part", table)

    def fail(self, error: OmnigraphError) -> None:
        """Record that the provider fails, so that other tasks stop asking it."""
        note = failure_note(error)
        if note is not None:
            self._files.write_bytes(f"{_FAILURE}/error", note)

    def _look_at(self, folder: str) -> None:
        for path in self._files.named(folder):
            if path in self._read or len(self._known) >= REMEMBERED_MAX:
                continue
            self._read.add(path)
            self._known.update(((folder, digest), vector) for digest, vector in self._part(path))

    def _part(self, path: str) -> Iterator[tuple[bytes, Vectors]]:
        table = self._files.read(path)
        if not table.num_rows:
            return
        numbers = table["vector"].combine_chunks().flatten().to_numpy()
        yield from zip(table["text"].to_pylist(), numbers.reshape(table.num_rows, -1), strict=True)


def _folder(type_name: str, property_name: str) -> str:
    return f"embedding/{type_name}.{property_name}"


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
