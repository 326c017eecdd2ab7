"""Which columns of a table have which index, and over which fragments: facts for planners.

An index covers the fragments that it was built over; rows of others are found by scanning. These
facts never decide whether a query succeeds, only which access path is likely to be faster. Indexes
are found by column and kind, never by name.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from omnigraph.cache import BoundedCache
from omnigraph.dataclass import dataclass
from omnigraph.manifest.snapshot import Snapshot
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import FragmentInfo, IndexInfo, IndexKind

_TABLES_MAX: Final = 1_024
VECTOR_KINDS: Final = frozenset({IndexKind.IVF_FLAT, IndexKind.IVF_PQ, IndexKind.IVF_HNSW_SQ})


@dataclass(frozen=True)
class ColumnIndex:
    """One index on one column of one table version."""

    name: str
    column: str
    kind: str
    missing_fragments: tuple[int, ...]
    """Fragments that it does not cover, ascending."""
    missing_rows: int
    """Live rows in those fragments."""

    @property
    def is_whole(self) -> bool:
        """Whether it covers every fragment."""
        return not self.missing_fragments


@dataclass(frozen=True)
class TableIndexes:
    """The indexes of one table version."""

    columns: frozenset[str]
    rows: int
    fragments: int
    indexes: tuple[ColumnIndex, ...] = field(default=())

    @classmethod
    def of(cls, handle: DatasetHandle) -> TableIndexes:
        """Read the facts of an open dataset."""
        fragments = handle.fragments()
        found = [_column_index(index, fragments) for index in handle.indexes() if index.columns]
        return cls(
            frozenset(handle.schema.names),
            sum(fragment.rows for fragment in fragments),
            len(fragments),
            tuple(sorted(found, key=lambda index: (index.column, index.kind, index.name))),
        )

    def on(self, column: str, *kinds: str) -> ColumnIndex | None:
        """Return the index of one of these kinds that misses the fewest rows."""
        found = [one for one in self.indexes if one.column == column and one.kind in kinds]
        return min(found, key=lambda index: index.missing_rows, default=None)

    def text(self, column: str) -> ColumnIndex | None:
        """Return the full-text index of a column."""
        return self.on(column, IndexKind.INVERTED)

    def vector(self, column: str) -> ColumnIndex | None:
        """Return the vector index of a column."""
        return self.on(column, *VECTOR_KINDS)

    def btree_gap(self, column: str) -> str | None:
        """Return why no BTREE index on a column covers every row; None when one does."""
        if column not in self.columns:
            return f"column '{column}' not in schema"
        index = self.on(column, IndexKind.BTREE)
        if index is None:
            return f"no BTREE index on '{column}'"
        missing = len(index.missing_fragments)
        return f"{missing} fragment(s) not covered by the index on '{column}'" if missing else None

    def btree_missing_rows(self, column: str) -> int:
        """Return how many rows no BTREE index on a column covers."""
        index = self.on(column, IndexKind.BTREE)
        return self.rows if index is None else index.missing_rows


class IndexFacts:
    """The indexes of a graph's tables, read once per published version. Safe between threads."""

    def __init__(self) -> None:
        self._known: BoundedCache[TableIndexes] = BoundedCache(_TABLES_MAX)

    def of(self, snapshot: Snapshot, table_key: str) -> TableIndexes:
        """Return the indexes of a table in a snapshot."""
        key = snapshot.entry(table_key).at
        known = self._known.get(key)
        if known is None:
            known = TableIndexes.of(snapshot.open(table_key))
            self._known.put(key, known, 1)
        return known


def _column_index(index: IndexInfo, fragments: tuple[FragmentInfo, ...]) -> ColumnIndex:
    covered = frozenset(number for segment in index.segments for number in segment.fragment_ids)
    missing = [one for one in fragments if one.fragment_id not in covered]
    return ColumnIndex(
        index.name,
        index.columns[0],
        index.kind,
        tuple(sorted(one.fragment_id for one in missing)),
        sum(one.rows for one in missing),
    )
