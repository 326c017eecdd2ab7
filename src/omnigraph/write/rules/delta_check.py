"""Rules over a change that is in memory: of a mutation, a merge, or new vectors.

Stored rows are read by index or by the columns that a rule asks for, never whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.manifest import Entry
from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EdgeType, EntityType
from omnigraph.schema.values.ids import spell
from omnigraph.write.rules.cardinality import SourceCounts
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
from omnigraph.write.rules.unique import can_look_up, lead_member, matching_rows
from omnigraph.write.stage.columns import (
    Column,
    Integers,
    concatenated,
    distinct,
    flat,
    is_in,
    places_in,
    repeated,
    without,
)
from omnigraph.write.stage.delta import GraphDelta, TableDelta
from omnigraph.write.stage.stored_rows import StoredRows


@dataclass(frozen=True)
class DeltaRows:
    """The rows that a delta writes to one table."""

    entity_type: EntityType
    delta: TableDelta

    def pick(self, rows: Integers, columns: Sequence[str]) -> pa.Table:
        """Take some columns of some rows."""
        return self.delta.rows.select(list(columns)).take(pa.array(rows))

    def positions(self, rows: Integers) -> list[int | None]:
        """Return where rows came from."""
        return [self.delta.position(row) for row in rows.tolist()]


@dataclass(frozen=True)
class DeltaCheck:
    """A `RuleCheck` of a change in memory.

    `cascades` says that the change removes the stored edges of removed nodes itself, so that none
    is looked for. `reads` collects the published entries of tables that are not written and that
    the result depends on: when one of them moves before the commit, the rules run again.
    """

    delta: GraphDelta
    catalog: Catalog
    stored: StoredRows
    cascades: bool
    findings: Findings = field(default_factory=Findings)
    reads: dict[str, Entry | None] = field(default_factory=dict)

    def against(self, stored: StoredRows) -> DeltaCheck:
        """Return the check of the same change against other stored rows.

        They may hold edges that the change did not see and does not remove.
        """
        return replace(self, stored=stored, cascades=False, findings=Findings(), reads={})

    def of(self, table_key: str) -> TableDelta | None:
        """Return the change of a table, or None if it stays as it is."""
        delta = self.delta.tables.get(table_key)
        return None if delta is None or delta.is_empty else delta

    def written_ids(self, table_key: str) -> Column:
        """Return the ids of the rows that are written to a table."""
        delta = self.of(table_key)
        return pa.array([], pa.utf8()) if delta is None else delta.rows["id"]

    def removed_ids(self, table_key: str) -> Column:
        """Return the ids of the rows that are removed from a table."""
        delta = self.of(table_key)
        return pa.array([], pa.utf8()) if delta is None else delta.deleted

    # -- rows -------------------------------------------------------------------------------------

    def rows(self, entity_type: EntityType) -> DeltaRows | None:
        """Return the rows of a type that are written, or None if there are none."""
        delta = self.of(entity_type.table_key)
        if delta is None or not delta.rows.num_rows:
            return None
        return DeltaRows(entity_type, delta)

    def depend_on(self, table_key: TableKey) -> None:
        """Record that the result depends on the stored rows of a table."""
        if self.of(table_key) is None:
            self.reads[table_key] = self.stored.entry(table_key)

    def both_positions(self, first: int | None, second: int | None) -> str:  # noqa: ARG002
        """Name nothing: a statement may write many rows."""
        return ""

    def unchecked_values(
        self, entity_type: EntityType
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
        """Return all rows that are written."""
        delta = self.of(entity_type.table_key)
        start = 0
        for batch in () if delta is None else delta.rows.to_batches():
            yield batch, None if delta is None else delta.positions_of(start, batch.num_rows)
            start += batch.num_rows

    # -- ids and tuples ---------------------------------------------------------------------------

    def repeated_ids(self, rows: WrittenRows) -> FoundRows:  # noqa: ARG002
        """Find none: a change has one row per id."""
        return NO_ROWS

    def stored_ids(self, rows: WrittenRows) -> FoundRows:  # noqa: ARG002
        """Find none: a stored row of a written id is replaced."""
        return NO_ROWS

    def repeated(self, rows: WrittenRows, members: tuple[str, ...]) -> FoundRows:
        """Compare the written rows with each other."""
        table = self.delta.tables[rows.entity_type.table_key].rows
        again, first = repeated([spell(flat(table[name])) for name in members])
        shown = self.findings.wanted
        return FoundRows(again[:shown], len(again), first[:shown])

    def held(self, rows: WrittenRows, members: tuple[str, ...]) -> Found[tuple[int, str]]:
        """Compare the written rows with the stored ones that share their first member."""
        delta = self.delta.tables[rows.entity_type.table_key]
        if not self.stored.row_count(delta.table_key):
            return NOTHING
        holders = self._holders(members, delta)
        pairs = matching_rows(members, delta.rows, holders)
        shown = pairs[: self.findings.wanted]
        return Found([(row, holders["id"][holder].as_py()) for row, holder in shown], len(pairs))

    def _holders(self, members: tuple[str, ...], delta: TableDelta) -> pa.Table:
        """Read the stored rows that stay and share the first member with a written row."""
        lead = lead_member(members, self.stored.snapshot.open(delta.table_key).indexes())
        values = flat(delta.rows[lead])
        columns = ("id", *members)
        if can_look_up(values.type):
            found = self.stored.where(delta.table_key, lead, values, columns=columns)
        else:
            found = pa.concat_tables(self.stored.scan(delta.table_key, columns))
        leaving = is_in(found["id"], delta.rows["id"]) | is_in(found["id"], delta.deleted)
        return found.filter(pa.array(~leaving)).combine_chunks()

    # -- edges ------------------------------------------------------------------------------------

    def without_node(self, rows: WrittenRows, end: str, node_key: TableKey) -> FoundRows:
        """Look up the ends that are not written, each once."""
        column = self.delta.tables[rows.entity_type.table_key].rows[end]
        unwritten = without(distinct(column), self.written_ids(node_key))
        if not len(unwritten):
            return NO_ROWS
        self.depend_on(node_key)
        exists = self.stored.contains(node_key, unwritten)
        exists &= ~is_in(unwritten, self.removed_ids(node_key))
        if exists.all():
            return NO_ROWS
        found = np.flatnonzero(is_in(column, unwritten.filter(pa.array(~exists))))
        return FoundRows(found[: self.findings.wanted], len(found))

    def removes_nodes(self, edge: EdgeType, node_key: TableKey) -> bool:  # noqa: ARG002
        """Whether the change removes nodes of a type."""
        return len(self.removed_ids(node_key)) > 0

    def cascade(self, edge: EdgeType, end: str) -> bool:  # noqa: ARG002
        """Whether the change has removed their edges already."""
        return self.cascades

    def orphans(self, edge: EdgeType, end: str) -> Found[str]:
        """Look up the removed nodes among the ends of stored edges."""
        if not self.stored.row_count(edge.table_key):
            return NOTHING
        found = self.orphan_edges(edge, end)
        return Found(found[end].slice(0, self.findings.wanted).to_pylist(), found.num_rows)

    def orphan_edges(self, edge: EdgeType, end: str) -> pa.Table:
        """Return `id` and one end of the stored edges that stay although their node is removed."""
        removed = self.removed_ids(TableKey.node(dict(edge_ends(edge))[end]))
        found = self.stored.where(edge.table_key, end, removed, columns=("id", end))
        changed = is_in(found["id"], self.written_ids(edge.table_key))
        changed |= is_in(found["id"], self.removed_ids(edge.table_key))
        return found.filter(pa.array(~changed))

    def sources(self, edge: EdgeType) -> Found[Source]:
        """Count the edges of affected sources, written and stored ones."""
        delta = self.of(edge.table_key)
        if delta is None:
            return NOTHING
        counted = self._count(edge, delta)
        rows = counted.outside(edge.cardinality)
        shown = rows[: self.findings.wanted]
        edges = _edges_of(counted.sources.take(pa.array(shown)), delta) if len(shown) else []
        found = [
            Source(counted.sources[row].as_py(), int(counted.counts[row]), own)
            for row, own in zip(shown.tolist(), edges, strict=True)
        ]
        return Found(found, len(rows))

    def _count(self, edge: EdgeType, delta: TableDelta) -> SourceCounts:
        written = flat(delta.rows["src"])
        if not self.stored.row_count(edge.table_key):
            return SourceCounts.of(pc.unique(written), [written])
        changed = concatenated(delta.rows["id"], delta.deleted)
        former = self._former_sources(edge, delta, changed)
        sources = pc.unique(concatenated(written, former))
        sources = without(sources, self.removed_ids(TableKey.node(edge.from_type)))
        stored = self.stored.where(edge.table_key, "src", sources, columns=("id", "src"))
        staying = stored.filter(pa.array(~is_in(stored["id"], changed)))["src"]
        return SourceCounts.of(sources, [written, flat(staying)])

    def _former_sources(self, edge: EdgeType, delta: TableDelta, changed: pa.Array) -> pa.Array:
        if delta.ids_are_new and not len(delta.deleted):
            return pa.array([], pa.utf8())
        found = self.stored.where(edge.table_key, "id", changed, columns=("src",))
        return flat(found["src"])


def _edges_of(sources: pa.Array, delta: TableDelta) -> list[Integers]:
    """Return the written edges of each source, in ascending order."""
    found = places_in(flat(delta.rows["src"]), sources)
    edges = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    places = found.drop_null().to_numpy()
    order = np.argsort(places, kind="stable")
    counts = np.bincount(places, minlength=len(sources))
    return np.split(edges[order], np.cumsum(counts)[:-1])
