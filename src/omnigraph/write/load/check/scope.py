"""What one run of the rules over a load works on, and what its searches share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.manifest import Entry
from omnigraph.write.load.check.hashes import RowLookup, StoredHashes
from omnigraph.write.load.check.hashing import Hashes
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.rules.check import FoundRows
from omnigraph.write.rules.findings import Findings
from omnigraph.write.stage.columns import Integers, Mask, flat
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.stored_rows import StoredRows

_TRIM_ROWS: Final = 1 << 16


class FirstRows:
    """Counts rows that come in any order, and keeps the first `wanted` of them.

    Every row may have further numbers.
    """

    def __init__(self, wanted: int, width: int = 1) -> None:
        self._wanted = wanted
        self._kept = [np.zeros(0, np.int64) for _ in range(width)]
        self.total = 0

    def add(self, *columns: Integers) -> None:
        """Add rows, given in the first column."""
        self.total += len(columns[0])
        pairs = zip(self._kept, columns, strict=True)
        self._kept = [np.concatenate([kept, more]) for kept, more in pairs]
        if len(self._kept[0]) > self._wanted + _TRIM_ROWS:
            self._kept = self._first()

    def columns(self) -> list[Integers]:
        """Return the first rows in their order, with their further numbers."""
        return self._first()

    def found(self) -> FoundRows:
        """Return the first rows in their order, with the second number of each, if there is one."""
        rows, *others = self._first()
        return FoundRows(rows, self.total, *others[:1])

    def _first(self) -> list[Integers]:
        order = np.argsort(self._kept[0], kind="stable")[: self._wanted]
        return [column[order] for column in self._kept]


class LoadScope:
    """What one run of the rules works on: rows of the load by table, and stored ones."""

    def __init__(
        self,
        types: Mapping[str, LoadedType],
        options: LoadOptions,
        stored: StoredRows,
    ) -> None:
        self.types = types
        self.options = options
        self.stored = stored
        self.findings = Findings(quarantines=options.quarantines)
        self.reads: dict[str, Entry | None] = {}
        """The tables that the result depends on and the load does not write."""
        self.cascaded: dict[str, Hashes] = {}
        """Addresses of stored edges that are removed with their nodes, by table."""
        self._stored_lookup: tuple[str, RowLookup] | None = None
        self._written: dict[str, Mask] = {}
        self._looked_up: dict[str, LoadedType] = {}

    def is_overwritten(self, table_key: str) -> bool:
        """Whether the load replaces all rows of a table."""
        return self.options.mode is WriteMode.OVERWRITE and table_key in self.types

    def depend_on(self, table_key: str) -> None:
        """Record that the result depends on a table, unless the load writes it."""
        if table_key not in self.types and table_key not in self.cascaded:
            self.reads[table_key] = self.stored.entry(table_key)

    def node_lookup(self, nodes: LoadedType) -> RowLookup:
        """Return the lookup of written nodes by id.

        Lookups that were used before stay while all together have `rows_at_once` rows: many types
        of edges need no more memory than one.
        """
        found = nodes.lookup()
        if found.is_divided:
            # It has one part in memory at a time, and frees that itself.
            return found
        self._looked_up.pop(nodes.table_key, None)
        self._looked_up[nodes.table_key] = nodes
        rows = sum(len(one.ids) for one in self._looked_up.values())
        for key, one in list(self._looked_up.items())[:-1]:
            if rows <= nodes.budget.rows_at_once:
                break
            rows -= len(one.ids)
            one.forget_lookup()
            del self._looked_up[key]
        return found

    def stored_lookup(self, loaded: LoadedType, node_key: str) -> RowLookup:
        """Return the lookup of stored nodes by id; the last one is cached."""
        if self._stored_lookup is None or self._stored_lookup[0] != node_key:
            self._close_stored()
            budget = loaded.budget
            ids = StoredHashes(self.stored, node_key, "id", scheme=loaded.hasher, budget=budget)
            self._stored_lookup = node_key, RowLookup(ids, None, budget.rows_at_once)
        return self._stored_lookup[1]

    def _close_stored(self) -> None:
        if self._stored_lookup is not None:
            self._stored_lookup[1].close()
        self._stored_lookup = None

    def is_written(self, loaded: LoadedType, found: pa.Table, numbers: Integers) -> Mask:
        """Return which stored rows the load replaces; `numbers` count rows of a scan."""
        if len(loaded.ids) <= loaded.budget.rows_at_once:
            ids = flat(found["id"])
            return loaded.lookup().rows_of(loaded.hasher.pairs(ids)) >= 0
        if loaded.table_key not in self._written:
            stored = StoredHashes(
                self.stored, loaded.table_key, "id", scheme=loaded.hasher, budget=loaded.budget
            )
            mask = np.zeros(len(stored), np.bool_)
            for rows, hits in loaded.lookup().joined(stored):
                mask[rows[hits >= 0]] = True
            stored.forget_buckets()
            self._written[loaded.table_key] = mask
        return self._written[loaded.table_key][numbers]

    def forget(self) -> None:
        """Free the lookups."""
        self._close_stored()
        self._written.clear()
        self._looked_up.clear()
        for loaded in self.types.values():
            loaded.forget_lookup()


def live_rows(loaded: LoadedType, start: int = 0) -> Integers:
    """Return the rows that count, from one on."""
    if loaded.live is None:
        return np.arange(start, loaded.row_count)
    return np.flatnonzero(loaded.live[start:]) + start
