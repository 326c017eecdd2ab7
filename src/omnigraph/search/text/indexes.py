"""Text indexes in memory, for rows that no stored index covers.

They are derived from published versions, which never change, so an index stays valid. The
text that they are made from is bounded in total; an index over more text lives for one query. Of
one lineage only the `RECENT_VERSIONS_MAX` versions that were used last keep their indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.cache import RECENT_VERSIONS_MAX, BoundedCache, SingleFlight
from omnigraph.store.records import DatasetVersion
from omnigraph.store.text_index import TextIndex, index_texts

TEXT_BYTES_MAX: Final = 64 * 2**20

Texts: TypeAlias = Callable[[], tuple[npt.NDArray[np.int64], pa.Array | pa.ChunkedArray]]
"""Reads row ids and their texts."""


class TextIndexes:
    """The text indexes in memory of one graph. Safe between threads; each is made once."""

    def __init__(self, text_bytes_max: int = TEXT_BYTES_MAX) -> None:
        self._cached: BoundedCache[TextIndex] = BoundedCache(text_bytes_max)
        self._flights = SingleFlight()

    def forget(self) -> None:
        """Drop everything from memory."""
        self._cached.clear()

    def of(
        self,
        version: DatasetVersion,
        column: str,
        *,
        covers_all: bool,
        read: Texts,
        check: Callable[[], None],
    ) -> TextIndex:
        """Return the index over all rows of a version, or over those that no stored one covers.

        `check` may end the wait for another thread that makes the same index.
        """
        key = (version, column, covers_all)
        with self._flights.alone(key, check):
            known = self._cached.get(key)
            if known is None:
                row_ids, texts = read()
                known = index_texts(row_ids, texts)
                check()
                self._cached.put(key, known, max(texts.nbytes, 1))
                self._cached.keep_recent(RECENT_VERSIONS_MAX, partial(_same_lineage, version))
            return known


def _same_lineage(version: DatasetVersion, key: Hashable, _: object) -> DatasetVersion | None:
    """Return the version of a key if it is of the same lineage."""
    at = key[0] if isinstance(key, tuple) else None
    is_same = isinstance(at, DatasetVersion) and at.lineage == version.lineage
    return at if is_same else None
