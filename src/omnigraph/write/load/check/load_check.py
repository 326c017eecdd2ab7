"""The rules over a load that may be larger than memory.

1. The rules are those of every write (`write/rules/`). The modules of this folder find the rows
   that may break them: by hashes of all rows, and by texts only where hashes are equal, since rows
   that share no hash share no tuple.
2. Hashes that exceed the memory budget are compared part by part (`hashes.py`).
3. Stored rows are found by an index for a few values, by one pass over the needed columns for many.
4. Violations of one rule are reported in the order of the rows.
5. The result holds as long as the tables do not change. The commit itself requires that of written
   tables; the others that the result depends on are `reads`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EdgeType, EntityType
from omnigraph.write.load.check.cardinality import cascaded_sources, written_sources
from omnigraph.write.load.check.endpoints import edges_without_node, orphan_addresses
from omnigraph.write.load.check.hashes import HashedColumn
from omnigraph.write.load.check.repeats import folds, repeats
from omnigraph.write.load.check.scope import FirstRows, LoadScope
from omnigraph.write.load.check.tuples import rows_with_stored_ids, rows_with_stored_tuples
from omnigraph.write.load.input.interfaces import LoadInput
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.partial import check_incomplete
from omnigraph.write.load.rows.types import LoadedType
from omnigraph.write.rules.check import (
    NO_ROWS,
    NOTHING,
    Found,
    FoundRows,
    Source,
    WrittenRows,
)
from omnigraph.write.rules.endpoints import edge_ends
from omnigraph.write.rules.findings import Findings
from omnigraph.write.rules.validate import run_again, run_rules
from omnigraph.write.rules.violations import number_of
from omnigraph.write.stage.columns import Mask
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.stored_rows import StoredRows


class LoadCheck(LoadScope):
    """A `RuleCheck` of all types of a load, against one snapshot."""

    def __init__(
        self,
        types: Mapping[str, LoadedType],
        catalog: Catalog,
        options: LoadOptions,
        source: LoadInput,
        stored: StoredRows,
    ) -> None:
        super().__init__(types, options, stored)
        self.catalog = catalog
        self._source = source

    def run(self) -> Findings:
        """Check everything."""
        if self.options.tracks_absent:
            check_incomplete(self)
        run_rules(self)
        self.forget()
        return self.findings

    def run_again(self, moved: frozenset[str]) -> Findings:
        """Check the rules that depend on tables which have moved."""
        run_again(self, moved)
        self.forget()
        return self.findings

    # -- rows -------------------------------------------------------------------------------------

    def rows(self, entity_type: EntityType) -> LoadedType | None:
        """Return the rows of a type, or None if the load does not name it."""
        return self.types.get(entity_type.table_key)

    def both_positions(self, first: int | None, second: int | None) -> str:
        """Name the positions of two records."""
        both = " and ".join(str(number_of(one or 0)) for one in (first, second))
        return f" ({self._source.place}s {both})"

    def unchecked_values(
        self,
        entity_type: EntityType,  # noqa: ARG002
    ) -> tuple[tuple[pa.RecordBatch, pa.Array | None], ...]:
        """Return none: values are checked while the load reads (`rows/check_rows.py`)."""
        return ()

    # -- ids and tuples ---------------------------------------------------------------------------

    def repeated_ids(self, rows: WrittenRows) -> FoundRows:
        """Find rows of one id, unless they become one."""
        loaded = self._of(rows)
        if loaded.id_start is None or not loaded.has_given_ids:
            return NO_ROWS
        if folds(loaded, self.options, self._source):
            return NO_ROWS
        return self._repeats(loaded, loaded.ids, ("id",), counted=loaded.live)

    def stored_ids(self, rows: WrittenRows) -> FoundRows:
        """Find rows to append whose id is stored."""
        if self.options.mode is not WriteMode.APPEND:
            return NO_ROWS
        return rows_with_stored_ids(self._of(rows), self)

    def repeated(self, rows: WrittenRows, members: tuple[str, ...]) -> FoundRows:
        """Compare the records of the input among each other, even two of one id."""
        loaded = self._of(rows)
        counted = loaded.live if self.options.folds else loaded.records
        if counted is not None and loaded.equal is not None:
            # A row that changes nothing still has its tuple: another one may not have it.
            counted = counted | loaded.equal
        return self._repeats(loaded, loaded.tuple_column(members), members, counted=counted)

    def _repeats(
        self,
        loaded: LoadedType,
        hashed: HashedColumn,
        members: tuple[str, ...],
        *,
        counted: Mask | None,
    ) -> FoundRows:
        found = FirstRows(self.findings.wanted, width=2)
        for again in repeats(loaded, hashed, members, counted=counted):
            found.add(again.rows, again.first)
        return found.found()

    def held(self, rows: WrittenRows, members: tuple[str, ...]) -> Found[tuple[int, str]]:
        """Find rows whose tuple a stored row has that stays."""
        return rows_with_stored_tuples(self._of(rows), members, self)

    # -- edges ------------------------------------------------------------------------------------

    def without_node(self, rows: WrittenRows, end: str, node_key: TableKey) -> FoundRows:
        """Find edges one of whose ends will not be there."""
        return edges_without_node(self._of(rows), end, node_key, self)

    def removes_nodes(self, edge: EdgeType, node_key: TableKey) -> bool:
        """Whether an overwrite replaces nodes, and not the edges between them."""
        return self.is_overwritten(node_key) and not self.is_overwritten(edge.table_key)

    def cascade(self, edge: EdgeType, end: str) -> bool:
        """Remove the stored edges of removed nodes, if the caller has asked for that."""
        if not self.options.cascade:
            return False
        key = edge.table_key
        wanted = self.stored.row_count(key)
        found = orphan_addresses(edge, end, self._nodes(edge, end), self, wanted=wanted)
        if found.total:
            known = self.cascaded.get(key, np.zeros(0, np.uint64))
            self.cascaded[key] = np.union1d(known, found.rows.astype(np.uint64))
            self.reads.pop(key, None)
        return True

    def orphans(self, edge: EdgeType, end: str) -> Found[str]:
        """Find stored edges whose node is not in the new image."""
        nodes, wanted = self._nodes(edge, end), self.findings.wanted
        found = orphan_addresses(edge, end, nodes, self, wanted=wanted)
        if not len(found.rows):
            return Found((), found.total)
        handle = self.stored.snapshot.open(edge.table_key)
        addresses = pa.array(found.rows.astype(np.uint64))
        texts = handle.take_addresses(addresses, columns=[end])[end]
        return Found(texts.to_pylist(), found.total)

    def sources(self, edge: EdgeType) -> Found[Source]:
        """Count the edges of written sources, and of those that lose edges in a cascade."""
        loaded = self.rows(edge)
        if loaded is not None:
            return written_sources(edge, loaded, self)
        if edge.table_key not in self.cascaded:
            return NOTHING
        nodes = self.types.get(TableKey.node(edge.from_type))
        return cascaded_sources(edge, self.cascaded[edge.table_key], nodes, self)

    def _of(self, rows: WrittenRows) -> LoadedType:
        return self.types[rows.entity_type.table_key]

    def _nodes(self, edge: EdgeType, end: str) -> LoadedType:
        return self.types[TableKey.node(dict(edge_ends(edge))[end])]
