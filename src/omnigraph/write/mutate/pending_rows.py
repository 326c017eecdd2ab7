"""What a mutation has done so far, in memory, and what each statement sees of the graph.

Terms: *stored* rows are those of the snapshot that the operation captured; *pending* rows were
written by earlier statements, one version per id: the latest.

1. The view of a statement is stored minus removed plus pending. A pending row replaces the stored
   row with its id.
2. A removed id is never seen again, unless a later statement writes it: then it is pending.
3. At the end, a table's delta holds its pending rows, and the removed ids that are stored and not
   pending. What a query inserted and removed again is in neither.
4. Stored rows are read when a statement asks for them, never before: a query of plain inserts
   reads nothing. A table whose stored rows have decided what a statement does is *decisive*: its
   published entry must still hold when the mutation is published. Edges that are removed with their
   node decide nothing: the publish checks that no other edge was added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.manifest import Entry, Snapshot
from omnigraph.names import TableKey
from omnigraph.schema import Catalog, EntityType
from omnigraph.store.blob_contents import blob_contents
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import ROW_ID, ROW_UPDATED, ScanRequest
from omnigraph.write.mutate.predicates import Condition, has_value_in
from omnigraph.write.mutate.rows import is_large
from omnigraph.write.rules.violations import CreateConflictError, KeyConflict
from omnigraph.write.stage.columns import Column, Mask, flat, is_in, last_rows, slabs, without
from omnigraph.write.stage.delta import GraphDelta, TableDelta

_STATEMENT: Final = "_statement"
_ORIGIN: Final = "_origin"
_EFFECT: Final = "_effect"


class Origin(IntEnum):
    """What is known about the stored row with a pending row's id."""

    UNKNOWN = 0
    NEW = 1
    """There is none."""
    STORED = 2
    """There is one."""


class Effect(IntEnum):
    """What a pending row does to the stored row with its id, if there is one."""

    REPLACES = 0
    """It was given as a whole."""
    CHANGES = 1
    """Some properties have other values."""
    KEEPS = 2
    """The assigned properties have the values that they had."""


@dataclass(frozen=True)
class Matches:
    """The rows of a view for which a condition is true.

    `stored` holds the wanted columns of stored rows, `is_pending_hit` says which pending rows.
    """

    stored: pa.Table
    is_pending_hit: pa.Array

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self.stored.num_rows) + int(pc.sum(self.is_pending_hit).as_py() or 0)


class PendingTable:
    """The pending rows and removed ids of one table."""

    def __init__(self, entity: EntityType, snapshot: Snapshot) -> None:
        self.entity = entity
        self._snapshot = snapshot
        self._chunks: list[pa.Table] = []
        self._removed: list[pa.Array] = []
        self.is_decisive = False

    # -- writing --------------------------------------------------------------------------------

    def put(self, rows: pa.Table, *, statement: int, origin: Origin) -> None:
        """Write rows; each replaces what the view had under its id. Ids are distinct."""
        origins = pa.array(np.full(rows.num_rows, origin, np.int8))
        effects = pa.array(np.full(rows.num_rows, Effect.REPLACES, np.int8))
        self._chunks.append(_with_marks(rows, statement, origins, effects))

    def put_changed(self, rows: pa.Table, changed: Mask, *, statement: int) -> None:
        """Write new versions of stored rows; `changed` says which of them differ."""
        origins = pa.array(np.full(rows.num_rows, Origin.STORED, np.int8))
        effects = np.where(changed, Effect.CHANGES, Effect.KEEPS).astype(np.int8)
        self._chunks.append(_with_marks(rows, statement, origins, pa.array(effects)))

    def replace_pending(
        self, is_replaced: pa.Array, rows: pa.Table, changed: Mask, *, statement: int
    ) -> None:
        """Write new versions of some pending rows, given in the same order."""
        pending = self._marked()
        replaced = pending.filter(is_replaced)
        effects = replaced[_EFFECT].to_numpy()
        kept = np.where(changed & (effects == Effect.KEEPS), Effect.CHANGES, effects)
        marked = _with_marks(rows, statement, replaced[_ORIGIN], pa.array(kept.astype(np.int8)))
        self._chunks = [pending.filter(pc.invert(is_replaced)), marked]

    def require_new(self, ids: pa.Array) -> None:
        """Raise unless the view has no row with this id; the table must stay so."""
        condition = has_value_in(("id",), ids)
        matches = self.match(condition)
        if not matches.count:
            return
        is_stored = bool(matches.stored.num_rows)
        kind, _ = TableKey(self.entity.table_key).parts
        raise CreateConflictError(
            KeyConflict(kind, self.entity.name, str(ids[0]), is_stored=is_stored),
            graph_commit_id=self._writer_of(condition) if is_stored else None,
        )

    def _writer_of(self, condition: Condition) -> str | None:
        """Return the commit that wrote the stored row that meets a condition, if history tells."""
        request = ScanRequest(columns=("id", ROW_UPDATED), row_filter=condition.pushed)
        versions = self._stored.scan(request).read_all()[ROW_UPDATED].to_pylist()
        state, key = self._snapshot.state, self.entity.table_key
        commit = state.commit_of_rows(key, versions[0]) if versions else None
        return None if commit is None else commit.graph_commit_id

    def remove(self, matches: Matches) -> None:
        """Remove rows from the view."""
        self._removed += matches.stored["id"].chunks
        pending = self._marked()
        removed = pending.filter(matches.is_pending_hit)
        if removed.num_rows == 0:
            return
        self._chunks = [pending.filter(pc.invert(matches.is_pending_hit))]
        origin = removed[_ORIGIN]
        self._removed += removed.filter(pc.equal(origin, Origin.STORED))["id"].chunks
        unknown = flat(removed.filter(pc.equal(origin, Origin.UNKNOWN))["id"])
        if len(unknown):
            self.is_decisive = True
            found = self._scan(has_value_in(("id",), unknown), ("id",), hidden=_NO_IDS)
            self._removed += found["id"].chunks

    # -- reading --------------------------------------------------------------------------------

    def unread(self, given: Iterable[str]) -> frozenset[str]:
        """Return the columns that need not be read to be replaced: those with large values."""
        schema = self.entity.arrow_schema
        return frozenset(name for name in given if is_large(schema.field(name).type))

    @property
    def pending(self) -> pa.Table:
        """The latest pending version of every row, with the stored columns."""
        return self._marked().select(self.entity.arrow_schema.names)

    def match(self, condition: Condition, *, decides: bool = True) -> Matches:
        """Find rows of the view, and read the ids of the stored ones.

        With `decides` the table must stay as it is until the mutation is published, even if nothing
        was found.
        """
        self.is_decisive |= decides
        stored = self._scan(condition, ("id",), hidden=self._hidden())
        return Matches(stored, self._pending_hits(condition))

    def match_whole(self, condition: Condition, *, unread: frozenset[str] = frozenset()) -> Matches:
        """Find rows of the view, and read the stored ones whole.

        Columns of `unread` are about to be replaced: their values are undefined.
        """
        self.is_decisive = True
        names = tuple(name for name in self.entity.arrow_schema.names if name not in unread)
        if condition.rest is None:
            found = self._scan(condition, (*names, ROW_ID), hidden=self._hidden())
        else:
            # Do not read whole rows that the condition drops.
            matched = self._scan(condition, (ROW_ID,), hidden=self._hidden())
            found = self._fetched(matched, names)
        return Matches(self._whole_rows(found), self._pending_hits(condition))

    def ids_of(self, matches: Matches) -> pa.ChunkedArray:
        """Return the ids of the rows that were found."""
        pending = self._marked()["id"].filter(matches.is_pending_hit)
        return pa.chunked_array([*matches.stored["id"].chunks, *pending.chunks], pa.utf8())

    def _pending_hits(self, condition: Condition) -> pa.Array:
        pending = self.pending
        if pending.num_rows == 0:
            return _NOTHING
        return pc.fill_null(flat(condition.holds(pending)), False)

    def _hidden(self) -> pa.ChunkedArray:
        """Return the ids whose stored rows the view does not show."""
        ids = [array for chunk in self._chunks for array in chunk["id"].chunks]
        return pa.chunked_array([*self._removed, *ids], pa.utf8())

    def _marked(self) -> pa.Table:
        """Return pending rows with their marks, folded to the latest version of each id."""
        if len(self._chunks) > 1:
            rows = pa.concat_tables(self._chunks)
            latest = last_rows(rows["id"])
            self._chunks = [rows if latest is None else rows.take(pa.array(latest))]
        return self._chunks[0] if self._chunks else self._no_rows

    @cached_property
    def _no_rows(self) -> pa.Table:
        schema = self.entity.arrow_schema
        schema = schema.append(pa.field(_STATEMENT, pa.int32()))
        schema = schema.append(pa.field(_ORIGIN, pa.int8()))
        return schema.append(pa.field(_EFFECT, pa.int8())).empty_table()

    # -- stored rows ----------------------------------------------------------------------------

    @cached_property
    def _stored(self) -> DatasetHandle:
        return self._snapshot.open(self.entity.table_key)

    def _scan(
        self, condition: Condition, columns: tuple[str, ...], *, hidden: pa.ChunkedArray
    ) -> pa.Table:
        """Read columns of the stored rows that meet a condition and are not hidden."""
        if self._snapshot.entry(self.entity.table_key).row_count == 0:
            return self._nothing_stored(columns)
        asked = dict.fromkeys(("id", *columns, *sorted(condition.rest_columns)))
        reader = self._stored.scan(
            ScanRequest(
                columns=tuple(name for name in asked if name != ROW_ID),
                row_filter=condition.pushed,
                with_row_id=ROW_ID in asked,
            )
        )
        kept = list(_kept(reader, condition, hidden, columns))
        schema = pa.schema([reader.schema.field(name) for name in columns])
        return pa.Table.from_batches(kept, schema)

    def _fetched(self, matched: pa.Table, columns: tuple[str, ...]) -> pa.Table:
        """Read columns of some rows, and keep their row ids."""
        if matched.num_rows == 0:
            return self._nothing_stored((*columns, ROW_ID))
        row_ids = matched[ROW_ID].combine_chunks()
        return self._stored.take(row_ids, columns).append_column(ROW_ID, row_ids)

    def _nothing_stored(self, columns: tuple[str, ...]) -> pa.Table:
        schema = self.entity.arrow_schema.append(pa.field(ROW_ID, pa.uint64()))
        return pa.schema([schema.field(name) for name in columns]).empty_table()

    def _whole_rows(self, found: pa.Table) -> pa.Table:
        """Put rows into the form of a write: all stored columns, blobs with their bytes."""
        schema = self.entity.arrow_schema
        if found.num_rows == 0:
            return schema.empty_table()
        columns = []
        for field in schema:
            if field.name not in found.schema.names:
                columns.append(pa.nulls(found.num_rows, field.type))
            elif field.name in self.entity.blob_properties:
                columns.append(
                    blob_contents(
                        self._stored, field.name, flat(found[field.name]), flat(found[ROW_ID])
                    )
                )
            else:
                columns.append(found[field.name])
        return pa.Table.from_arrays(columns, schema=schema)

    # -- result ---------------------------------------------------------------------------------

    def delta(self) -> TableDelta:
        """Return the net change."""
        pending = self._marked()
        origins = pending[_ORIGIN].to_numpy()
        return TableDelta(
            table_key=self.entity.table_key,
            rows=pending.select(self.entity.arrow_schema.names),
            deleted=self._deleted(pending),
            positions=flat(pending[_STATEMENT]),
            ids_are_new=bool((origins == Origin.NEW).all()),
            is_insert=bool((origins != Origin.STORED).all()),
        )

    def partial_writes(self) -> tuple[int, int]:
        """Return how many stored rows get other values, and how many keep theirs."""
        effects = self._marked()[_EFFECT].to_numpy()
        changes = np.count_nonzero(effects == Effect.CHANGES)
        return int(changes), int(np.count_nonzero(effects == Effect.KEEPS))

    def _deleted(self, pending: pa.Table) -> pa.Array:
        if not self._removed:
            return _NO_ID
        return without(pc.unique(pa.chunked_array(self._removed, pa.utf8())), pending["id"])


class PendingChanges:
    """The changes of one mutation, by table."""

    def __init__(self, snapshot: Snapshot, catalog: Catalog) -> None:
        self._snapshot = snapshot
        self._catalog = catalog
        self._tables: dict[str, PendingTable] = {}

    def node(self, type_name: str) -> PendingTable:
        """Return the changes of a node type."""
        return self._of(self._catalog.node_types[type_name])

    def edge(self, type_name: str) -> PendingTable:
        """Return the changes of an edge type."""
        return self._of(self._catalog.edge_types[type_name])

    def delta(self) -> GraphDelta:
        """Return the net change of the graph, without tables that stay as they are."""
        deltas = {key: table.delta() for key, table in sorted(self._tables.items())}
        return GraphDelta({key: delta for key, delta in deltas.items() if not delta.is_empty})

    def partial_writes(self) -> dict[str, tuple[int, int]]:
        """Return by table how many stored rows get other values, and how many keep theirs."""
        return {key: table.partial_writes() for key, table in self._tables.items()}

    def decisive_entries(self) -> Mapping[str, Entry]:
        """Return the published entries of the decisive tables."""
        return {
            key: self._snapshot.entry(key)
            for key, table in sorted(self._tables.items())
            if table.is_decisive
        }

    def _of(self, entity: EntityType) -> PendingTable:
        key = entity.table_key
        if key not in self._tables:
            self._tables[key] = PendingTable(entity, self._snapshot)
        return self._tables[key]


# -- rows ----------------------------------------------------------------------------------------

_NO_IDS: Final = pa.chunked_array([], pa.utf8())
_NO_ID: Final = pa.nulls(0, pa.utf8())
_NOTHING: Final = pa.nulls(0, pa.bool_())


def _with_marks(rows: pa.Table, statement: int, origins: Column, effects: Column) -> pa.Table:
    statements = pa.array(np.full(rows.num_rows, statement, np.int32))
    marked = rows.append_column(_STATEMENT, statements)
    return marked.append_column(_ORIGIN, origins).append_column(_EFFECT, effects)


def _kept(
    reader: pa.RecordBatchReader,
    condition: Condition,
    hidden: pa.ChunkedArray,
    columns: tuple[str, ...],
) -> Iterator[pa.RecordBatch]:
    # Slabs, because each look-up builds a new hash table of the known ids.
    for slab in slabs(reader, reader.schema):
        rows = slab.filter(pa.array(~is_in(slab["id"], hidden))) if len(hidden) else slab
        if condition.rest is not None and rows.num_rows:
            rows = rows.filter(condition.rest(rows), null_selection_behavior="drop")
        yield from rows.select(columns).to_batches()
