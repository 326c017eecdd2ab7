"""What a load knows of each type: its rows, and a few numbers per row for the rules across rows.

| kept of every row | bytes |
|---|---|
| where it came from | 8 |
| the id, unless the load makes the ids of edges itself | 16 |
| the ends of an edge | 32 |
| each tuple that `@unique` wants once | 8 |
| whether it still counts, once some rows do not (in memory) | 2 |
| whether the load made the id of an edge, from the first given one on (in memory) | 1 |
| which nodes an edge ends in, where that is asked for | 8 |
| which properties it does not name, in a merge in which some rows do not name all | 8 for 64 |

Beyond the budget of the load these numbers are in files, and rules look at them bucket by bucket
(`check/hashes.py`). Texts are read again only for the rows that a rule has to look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.manifest import Entry
from omnigraph.schema import EdgeType, EntityType, NodeType
from omnigraph.schema.values.ids import EndpointRemap, derive_ids
from omnigraph.write.load.check.hashes import HashedColumn, RowLookup
from omnigraph.write.load.check.hashing import Hashes, HashScheme
from omnigraph.write.load.check.matches import Matches
from omnigraph.write.load.rows.absent import AbsentRows
from omnigraph.write.load.rows.check_rows import CheckedRows
from omnigraph.write.load.rows.overlay import Overlay
from omnigraph.write.load.rows.row_parts import Destination, RowPart
from omnigraph.write.load.rows.spool import NumberSpool, SpoolBudget
from omnigraph.write.load.rows.taken_ids import TakenIds
from omnigraph.write.rules.unique import unique_tuples
from omnigraph.write.stage.columns import Integers, Mask, flat

ROW: Final = "_row"
"""The column of row numbers in rows that were picked from a load."""
ENDS: Final = ("src", "dst")
END_ROWS_MIN: Final = 10_000
"""With fewer edges their end rows are not remembered: the topology is quick to build."""


class LoadedType:
    """The rows of one type in one load.

    Rows are numbered in the order in which they came. `live` says which of them still count: not
    those that a later record of the same id replaces, nor those that were rejected; `records`
    leaves out only the latter. Both are None while all rows count. Ids are known from row
    `id_start` on; the ids of the rows before were made by the load itself.
    """

    def __init__(
        self,
        entity_type: EntityType,
        destination: Destination,
        hasher: HashScheme,
        budget: SpoolBudget,
        *,
        may_stream: bool,
        is_merge: bool,
    ) -> None:
        self.entity_type = entity_type
        self.table_key = entity_type.table_key
        self.destination = destination
        self.hasher = hasher
        self.tuples = unique_tuples(entity_type)
        self.is_keyed = bool(entity_type.key)
        self.live: Mask | None = None
        self.records: Mask | None = None
        self.row_count = 0
        has_ids = self.is_keyed or isinstance(entity_type, NodeType)
        self.id_start: int | None = 0 if has_ids else None
        self.has_given_ids = self.is_keyed
        self.budget = budget
        self._is_merge = is_merge
        self.fresh = RowPart(
            destination, budget, may_stream=may_stream and not entity_type.blob_properties
        )
        # A row that may meet a stored one of its id has to wait until that is known.
        self.given = RowPart(destination, budget, may_stream=False)
        self._positions = budget.numbers(np.int64)
        self.ids = HashedColumn(budget, 2)
        """Hashes of the ids, from row `id_start` on."""
        ends = ENDS if isinstance(entity_type, EdgeType) else ()
        self.ends = {end: HashedColumn(budget, 2) for end in ends}
        self.unique = [HashedColumn(budget, 1) for _ in self.tuples]
        """Hashes of each of `tuples`."""
        self.absent = AbsentRows(entity_type, budget)
        """Which properties the rows do not name, where stored rows keep those."""
        self.superseded = 0
        """How many records another record of the same id has replaced."""
        self.matches: tuple[Entry, Matches] | None = None
        """The rows whose ids are stored in a table, as it was published."""
        self._overlays: tuple[Overlay, ...] = ()
        self._made: list[Mask] = []
        self.taken: TakenIds | None = None
        """The rows that stand for stored rows of other ids."""
        self.equal: Mask | None = None
        """The rows that do not count because they equal stored rows."""
        self._lookup: RowLookup | None = None
        self._end_rows: dict[str, NumberSpool] = {}

    # -- gathering --------------------------------------------------------------------------------

    def add(self, checked: CheckedRows) -> None:
        """Add the good rows of a batch."""
        rows = checked.rows
        if not rows.num_rows:
            return
        if not checked.ids_are_new:
            self.has_given_ids = True
            if self.id_start is None:
                self.id_start = self.ids.start = self.row_count
        if self.id_start is not None and isinstance(self.entity_type, EdgeType):
            self._made.append(checked.is_made)
        self._append(rows)
        self.absent.append(checked.absent, rows.num_rows)
        self._positions.append(checked.positions.to_numpy())

    def _append(self, rows: pa.RecordBatch) -> None:
        if self._is_merge and self.has_given_ids:
            self.given.append(rows)
        else:
            self.fresh.append(rows)
        self.row_count += rows.num_rows
        if self.id_start is not None:
            pairs = self.hasher.pairs(rows["id"])
            self.ids.append(pairs.first, pairs.second)
        for end, column in self.ends.items():
            pairs = self.hasher.pairs(rows[end])
            column.append(pairs.first, pairs.second)
        for members, column in zip(self.tuples, self.unique, strict=True):
            column.append(self.tuple_hashes(rows, members))

    def finish(self) -> None:
        """Finish what is written: there are no more rows."""
        self.fresh.finish()
        self.given.finish()

    def close(self) -> None:
        """Release files and threads."""
        self.fresh.close()
        self.given.close()

    def remapped(self, remaps: dict[str, EndpointRemap]) -> LoadedType:
        """Return the same edges with ends that are spelled as ids; positions stay.

        Ambiguous ends become empty; the caller has to reject those rows.
        """
        other = LoadedType(
            self.entity_type,
            self.destination,
            self.hasher,
            self.budget,
            may_stream=False,
            is_merge=self._is_merge,
        )
        other.has_given_ids = self.has_given_ids
        # Here all rows have ids, those that the load has made too.
        other.id_start = None if self.id_start is None else 0
        other.live, other.records = self.live, self.records
        other._made = [self.made_rows()]
        for _, batch in self.batches():
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for end, remap in remaps.items():
                columns[end] = remap.apply(batch[end]).ids.fill_null("")
            if self.is_keyed:
                members = [(name, columns[name]) for name in self.entity_type.key]
                columns["id"] = derive_ids(members, type_name=self.entity_type.name).ids
            arrays = list(columns.values())
            other._append(pa.RecordBatch.from_arrays(arrays, schema=batch.schema))
        other._positions = self._positions
        other.absent = self.absent
        other.superseded = self.superseded
        other.finish()
        return other

    def matched(self, equal: Mask | None, taken: TakenIds | None) -> LoadedType:
        """Return the same rows, of which some stand for stored ones.

        Rows of `equal` change nothing and do not count. Rows of `taken` have the ids of stored
        rows. Numbers of rows stay.
        """
        other = copy(self)
        other._lookup = other.matches = None
        if equal is not None:
            other.equal = equal
            other.live = ~equal if self.live is None else self.live & ~equal
        if taken is not None:
            other.taken = taken
            other.has_given_ids, other.id_start = True, 0
            other.ids = HashedColumn(self.budget, 2)
            for start, batch in self.batches(("id",)):
                ids = taken.over(np.arange(start, start + batch.num_rows), batch["id"])
                pairs = self.hasher.pairs(ids)
                other.ids.append(pairs.first, pairs.second)
        return other

    # -- rows -------------------------------------------------------------------------------------

    def made_rows(self) -> Mask:
        """Return which rows have an id that the load has made."""
        made = np.ones(self.row_count, np.bool_)
        if self.is_keyed:
            made[:] = False
        elif self.id_start is not None and self._made:
            made[self.id_start :] = np.concatenate(self._made)
        return made

    @property
    def equal_count(self) -> int:
        """How many rows equal stored ones."""
        return 0 if self.equal is None else int(np.count_nonzero(self.equal))

    @property
    def live_count(self) -> int:
        """How many rows count."""
        return self.row_count if self.live is None else int(np.count_nonzero(self.live))

    def supersede(self, rows: Integers) -> None:
        """Stop counting rows that later rows of the same id replace."""
        if len(rows):
            self.live = self._without(self.live, rows)
            self.superseded += len(rows)
            self._lookup = self.matches = None

    def reject(self, rows: Integers) -> None:
        """Stop counting rows that break a rule."""
        if len(rows):
            self.live = self._without(self.live, rows)
            self.records = self._without(self.records, rows)
            self._lookup = self.matches = None

    def _without(self, mask: Mask | None, rows: Integers) -> Mask:
        kept = np.ones(self.row_count, np.bool_) if mask is None else mask
        kept[rows] = False
        return kept

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read all rows, live or not, each batch with the number of its first row."""
        found = self._as_read(columns)
        for overlay in self._overlays:
            found = overlay.over(found, columns)
        return found

    def _as_read(self, columns: Sequence[str] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        start = 0
        for part in (self.fresh, self.given):
            if not part.row_count:
                continue
            for batch in part.batches(columns):
                yield start, batch
                start += batch.num_rows

    @property
    def is_overlaid(self) -> bool:
        """Whether some rows have other values than those that were read."""
        return bool(self._overlays)

    @property
    def overlaid_rows(self) -> Integers:
        """The rows that have other values than those that were read."""
        rows = [np.zeros(0, np.int64), *(overlay.rows for overlay in self._overlays)]
        return np.unique(np.concatenate(rows))

    def lay_over(self, overlay: Overlay) -> None:
        """Give some rows other values."""
        self._overlays = (*self._overlays, overlay)
        self._hash_tuples(self.tuples)

    def with_overlay(self, overlay: Overlay, tuples: Sequence[tuple[str, ...]]) -> LoadedType:
        """Return the same rows with other values, which matter to some tuples only."""
        other = copy(self)
        other._overlays = (*self._overlays, overlay)
        other._lookup = None
        other._hash_tuples(tuples)
        return other

    def _hash_tuples(self, tuples: Sequence[tuple[str, ...]]) -> None:
        self.unique = list(self.unique)
        for members in tuples:
            column = HashedColumn(self.budget, 1)
            for _, batch in self.batches(members):
                column.append(self.tuple_hashes(batch, members))
            self.unique[self.tuples.index(members)] = column

    def pick(self, rows: Integers, columns: Sequence[str]) -> pa.Table:
        """Read some columns of some rows, given in ascending order; `ROW` has their numbers."""
        parts: list[pa.RecordBatch] = []
        schema = pa.schema([self.destination.schema.field(name) for name in columns])
        for start, batch in self.batches(columns) if len(rows) else ():
            low, high = np.searchsorted(rows, (start, start + batch.num_rows))
            if high > low:
                taken = batch.take(pa.array(rows[low:high] - start))
                parts.append(pa.RecordBatch.from_arrays(taken.columns, names=schema.names))
            if high == len(rows):
                break
        plain = pa.schema([pa.field(field.name, field.type) for field in schema])
        table = pa.Table.from_batches(parts, plain if not parts else None).combine_chunks()
        if self.taken is not None and "id" in columns:
            ids = self.taken.over(rows, flat(table["id"]))
            table = table.set_column(table.schema.get_field_index("id"), "id", ids)
        return table.append_column(ROW, pa.array(rows))

    def positions(self, rows: Integers) -> list[int]:
        """Return where rows came from."""
        if not len(rows):
            return []
        found: list[int] = self._positions.take(rows).tolist()
        return found

    # -- numbers ----------------------------------------------------------------------------------

    def keep_end_rows(self, end: str, nodes: npt.NDArray[np.int32]) -> None:
        """Keep which rows of the load all edges end in, to build the topology from."""
        self.take_end_rows(end)
        self._end_rows[end] = self.budget.numbers(np.int32)
        self._end_rows[end].append(nodes)

    def take_end_rows(self, end: str) -> npt.NDArray[np.int32] | None:
        """Return the rows that all edges end in, if they were kept, and forget them."""
        kept = self._end_rows.pop(end, None)
        if kept is None:
            return None
        nodes: npt.NDArray[np.int32] = kept.whole()
        kept.close()
        return nodes

    def tuple_column(self, members: tuple[str, ...]) -> HashedColumn:
        """Return the hashes of one of `tuples`."""
        return self.unique[self.tuples.index(members)]

    def tuple_hashes(self, rows: pa.RecordBatch | pa.Table, members: Sequence[str]) -> Hashes:
        """Hash the tuples of some rows; `NO_HASH` where a member is null."""
        return self.hasher.tuples([flat(rows[name]) for name in members])[0]

    def lookup(self) -> RowLookup:
        """Return the lookup of live rows by id; it is reused until rows stop counting."""
        if self._lookup is None:
            self._lookup = RowLookup(self.ids, self.live, self.budget.rows_at_once)
        return self._lookup

    def forget_lookup(self) -> None:
        """Free the memory of the lookup and the files of the buckets."""
        self._lookup = None
        for column in (self.ids, *self.ends.values(), *self.unique):
            column.forget_buckets()
