"""Compares rows of a load with the stored rows of their ids, and completes those that differ.

1. A property that a row does not name is the same as the stored one; where the row differs in
   another, the stored value is read and written again.
2. A vector that the graph makes from a text (`@embed`) stays with its text: where a row names a
   different text and not the vector, the vector becomes the one that was made for it, or null.
   Where properties that rows do not name become null (`absent` is None), a null vector counts as
   not named while the text is the same.
3. Columns are fetched in groups, numbers first, and only for rows that are the same so far, or
   whose value becomes null: those are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.values.equality import equal_rows
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.store.blob_contents import blob_contents, blob_slices
from omnigraph.store.datasets import DatasetHandle
from omnigraph.write.load.check.hashing import Hashes
from omnigraph.write.load.rows.absent import AbsentMasks, any_of, chosen
from omnigraph.write.load.rows.overlay import put
from omnigraph.write.stage.columns import Mask, flat, to_mask


def compared(
    entity_type: EntityType,
    handle: DatasetHandle,
    given: pa.RecordBatch,
    *,
    row_ids: Hashes,
    addresses: Hashes,
    absent: AbsentMasks | None = None,
    nulled: Counter[str] | None = None,
) -> tuple[Mask, list[pa.Array]]:
    """Return which rows differ from the stored ones, and the columns to write for those.

    The rows were found by their ids, which are not compared again. `absent` are the properties that
    rows do not name, where stored rows keep those. Values that become null are added to `nulled`.
    """
    work = _Comparison(
        entity_type,
        handle,
        given,
        row_ids=row_ids,
        addresses=addresses,
        absent=absent,
        nulled=Counter() if nulled is None else nulled,
    )
    return work.run()


class _Comparison:
    """One batch of rows and the stored rows of their ids."""

    def __init__(
        self,
        entity_type: EntityType,
        handle: DatasetHandle,
        given: pa.RecordBatch,
        *,
        row_ids: Hashes,
        addresses: Hashes,
        absent: AbsentMasks | None,
        nulled: Counter[str],
    ) -> None:
        self._entity_type = entity_type
        self._handle = handle
        self._given = given
        self._row_ids = row_ids
        self._addresses = addresses
        self._keeps_absent = absent is not None
        self._absent = absent or {}
        self._nulled = nulled
        self._columns = dict(zip(given.schema.names, given.columns, strict=True))
        self._same: Mask = np.ones(given.num_rows, np.bool_)
        self._embedded = embedded_texts(entity_type)

    def run(self) -> tuple[Mask, list[pa.Array]]:
        blobs = self._entity_type.blob_properties
        texts = {*self._embedded, *self._embedded.values()}
        if texts:
            self._compare_vectors(sorted(texts))
        for names in _by_cost(self._given, {"id", *texts, *blobs}):
            self._compare(names)
        for name in blobs:
            self._compare_blobs(name)
        differs = ~self._same
        plain = [name for name in self._given.schema.names if name not in {*texts, *blobs}]
        self._complete(differs, [name for name in plain if name in self._absent])
        for name in blobs:
            self._complete_blobs(differs, name)
        return differs, list(self._columns.values())

    def _is_absent(self, name: str) -> Mask:
        return any_of(self._absent, (name,), self._given.num_rows)

    # -- vectors and the texts that they are made from --------------------------------------------

    def _compare_vectors(self, names: list[str]) -> None:
        stored = self._handle.take(pa.array(self._row_ids), columns=names)
        before = {name: _as(flat(stored[name]), self._given[name].type) for name in names}
        for source in dict.fromkeys(self._embedded.values()):
            self._columns[source] = chosen(
                self._is_absent(source), before[source], self._given[source]
            )
        equal = {name: equal_rows(self._columns[name], before[name]) for name in names}
        for target, source in self._embedded.items():
            stays = self._stays(target, before[target]) & equal[source]
            self._columns[target] = chosen(stays, before[target], self._given[target])
            equal[target] |= stays
        for name in names:
            self._same &= equal[name]
            self._count_nulled(name, before[name], self._columns[name])

    def _stays(self, target: str, before: pa.Array) -> Mask:
        """Return the rows that keep their vector while they keep their text."""
        is_null = ~valid_mask(self._given[target])
        if not self._keeps_absent:
            return is_null
        # A vector that is missing so far may have been made just now.
        return self._is_absent(target) & (valid_mask(before) | is_null)

    # -- plain columns ----------------------------------------------------------------------------

    def _compare(self, names: list[str]) -> None:
        """Compare some columns, in rows that are the same so far."""
        named = [name for name in names if not self._is_absent(name).all()]
        empties = {name: ~valid_mask(self._given[name]) & ~self._is_absent(name) for name in named}
        wanted = self._same.copy()
        for mask in empties.values():
            wanted |= mask
        rows = np.flatnonzero(wanted)
        if not named or not len(rows):
            return
        stored = self._handle.take(pa.array(self._row_ids[rows]), columns=named)
        given = self._given.select(named)
        if len(rows) < given.num_rows:
            given = given.take(pa.array(rows))
        for name in named:
            before = _as(flat(stored[name]), given[name].type)
            is_absent = self._is_absent(name)[rows]
            self._same[rows] &= equal_rows(given[name], before) | is_absent
            if empties[name].any():
                self._count_nulled(name, before, given[name], ~is_absent)

    def _count_nulled(
        self, name: str, before: pa.Array, after: pa.Array, among: Mask | None = None
    ) -> None:
        gone = valid_mask(before) & ~valid_mask(after)
        count = int(np.count_nonzero(gone if among is None else gone & among))
        if count:
            self._nulled[name] += count

    def _complete(self, differs: Mask, names: Iterable[str]) -> None:
        """Read what changed rows do not name."""
        kept = [name for name in names if (self._absent[name] & differs).any()]
        rows = np.flatnonzero(any_of(self._absent, kept, len(differs)) & differs)
        if not len(rows):
            return
        stored = self._handle.take(pa.array(self._row_ids[rows]), columns=kept)
        for name in kept:
            own = self._absent[name][rows]
            values = _as(flat(stored[name]), self._given[name].type)
            self._columns[name] = put(self._columns[name], rows[own], values.filter(pa.array(own)))

    # -- blobs ------------------------------------------------------------------------------------

    def _compare_blobs(self, name: str) -> None:
        is_absent = self._is_absent(name)
        if is_absent.all():
            return
        described = self._described(name, self._addresses)
        given = self._given[name]
        self._count_nulled(name, described, given, ~is_absent)
        self._same &= is_absent | self._equal_blobs(name, given, described, self._same & ~is_absent)

    def _described(self, name: str, addresses: Hashes) -> pa.Array:
        return flat(self._handle.take_addresses(pa.array(addresses), columns=[name])[name])

    def _equal_blobs(self, name: str, given: pa.Array, described: pa.Array, asked: Mask) -> Mask:
        """Compare blobs in rows that are equal in all else: null, bytes of ours, or a reference.

        Only bytes are ever given in a merge, so a stored reference is always something else.
        """
        uris = pc.struct_field(described, "blob_uri")
        is_ours = valid_mask(described) & ~to_mask(pc.not_equal(uris, "").fill_null(False))
        is_given = valid_mask(given)
        equal: Mask = ~is_given & ~valid_mask(described)
        contents = pc.struct_field(given, "data")
        sizes = pc.cast(pc.struct_field(described, "size"), pa.int64()).fill_null(0)
        is_as_long = to_mask(pc.equal(pc.binary_length(contents), sizes).fill_null(False))
        rows = np.flatnonzero(asked & is_given & is_ours & is_as_long)
        for start, stop in blob_slices(np.asarray(sizes)[rows]):
            part = rows[start:stop]
            stored = self._handle.read_blobs(name, self._row_ids[part].tolist())
            wanted = contents.take(pa.array(part)).to_pylist()
            equal[part] = [old == new for old, new in zip(stored, wanted, strict=True)]
        return equal

    def _complete_blobs(self, differs: Mask, name: str) -> None:
        """Read the blobs that changed rows do not name; references stay references."""
        rows = np.flatnonzero(self._is_absent(name) & differs)
        if not len(rows):
            return
        described = self._described(name, self._addresses[rows])
        row_ids = pa.array(self._row_ids[rows])
        contents = blob_contents(self._handle, name, described, row_ids)
        own = self._columns[name]
        if isinstance(own, pa.ExtensionArray):
            own = own.storage
        whole = put(own, rows, contents.cast(own.type))
        kind = self._given[name].type
        is_wrapped = isinstance(kind, pa.BaseExtensionType)
        self._columns[name] = pa.ExtensionArray.from_storage(kind, whole) if is_wrapped else whole


def _by_cost(given: pa.RecordBatch, others: set[str]) -> list[list[str]]:
    """Group columns: numbers are fetched for a sixth of what texts and lists cost."""
    plain = [name for name in given.schema.names if name not in others]
    cheap = [name for name in plain if pa.types.is_primitive(given.schema.field(name).type)]
    return [names for names in (cheap, [name for name in plain if name not in cheap]) if names]


def embedded_texts(entity_type: EntityType) -> Mapping[str, str]:
    """Return the properties that the graph fills by itself, and the texts that they come from."""
    if not isinstance(entity_type, NodeType):
        return {}
    return {target: note.source for target, note in entity_type.embed_sources.items()}


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
