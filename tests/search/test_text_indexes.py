"""Text indexes in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.cache import RECENT_VERSIONS_MAX
from omnigraph.search.text.indexes import TextIndexes
from omnigraph.store.records import DatasetVersion


def test_indexes_of_older_versions_leave_memory() -> None:
    indexes = TextIndexes()
    reads: list[DatasetVersion] = []

    def ask(at: DatasetVersion) -> None:
        def read() -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], pa.Array]:
            reads.append(at)
            return np.array([0], np.int64), pa.array(["red ship"])

        indexes.of(at, "text", covers_all=True, read=read, check=lambda: None)

    branch = DatasetVersion("nodes/N", "draft", 1)
    ask(branch)
    versions = [DatasetVersion("nodes/N", None, number) for number in range(6)]
    for at in versions:
        ask(at)
    reads.clear()
    for at in (branch, *reversed(versions)):
        ask(at)
    assert reads == list(reversed(versions))[RECENT_VERSIONS_MAX:]
