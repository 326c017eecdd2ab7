"""Vectors whose text or model is another one in the merged schema.

1. Rows that a side inserted or changed under another `@embed` than the merged one have vectors of
   another text or model. They are set to null, so that the next embedding makes them again.
2. A row stays as it is where both its text and the model are the same under both, and where the
   vector has no record: then a user has given it, and it is a value like any other.
3. Rows that no side changed keep their vectors, which count as stale, as after a schema apply. So
   does a required vector, which cannot be null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.changes.compare import Mask, differing_values
from omnigraph.changes.table_changes import RowRefs, joined_refs, table_changes
from omnigraph.merge.parts import Part, StoredPart, TableWork, no_work
from omnigraph.merge.tables import MergedTable, TableSide
from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.catalog import EmbedSource
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.vector_key import VectorKey
from omnigraph.store.datasets import DatasetHandle
from omnigraph.write.stage.columns import flat, is_in


class RecordedVectors(Protocol):
    """The records of the texts that vectors were made from."""

    def known(self, key: VectorKey, ids: pa.Array | None = None) -> pa.Table:
        """Return the `id` of recorded vectors."""
        ...


@dataclass(frozen=True)
class _Outdated:
    """A vector property that one side fills from another text, or by another model."""

    side: TableSide
    name: str
    key: VectorKey
    before: EmbedSource
    after: EmbedSource

    def stale(self, view: DatasetHandle, refs: RowRefs, recorded: pa.Array) -> Mask:
        """Mark the rows whose vector was not made from the merged text by the merged model."""
        is_other = np.ones(len(refs), np.bool_)
        if self.before.model == self.after.model:
            row_ids = pa.array(refs.row_ids, pa.uint64())
            old = self.side.opened().take(row_ids, [self.before.source])[self.before.source]
            new = view.take(row_ids, [self.after.source])[self.after.source]
            is_other = differing_values(flat(old), flat(new))
        return is_other & is_in(refs.ids, recorded)


def without_stale_vectors(
    work: TableWork | None, table: MergedTable, recorded: RecordedVectors
) -> TableWork | None:
    """Return what is written to a table, with null for vectors that are to be made again."""
    for outdated in _outdated(table, table.source):
        known = recorded.known(outdated.key)["id"].combine_chunks()
        if work is not None:
            work = replace(
                work,
                inserted=tuple(_split(work.inserted, outdated, known)),
                updated=tuple(_split(work.updated, outdated, known)),
            )
    for outdated in _outdated(table, table.target):
        known = recorded.known(outdated.key)["id"].combine_chunks()
        work = _with_rows_of_target(work or no_work(table.entity_type), table, outdated, known)
    return work


def has_outdated_vectors(table: MergedTable) -> bool:
    """Whether rows of the source may have vectors of another text or model than the merged ones."""
    return any(True for _ in _outdated(table, table.source))


def _outdated(table: MergedTable, side: TableSide | None) -> Iterator[_Outdated]:
    wanted = table.entity_type
    if side is None or not isinstance(wanted, NodeType):
        return
    stored = side.entity_type
    if not isinstance(stored, NodeType):
        return
    names = {_number(stored, name, table.aliases): name for name in stored.embed_sources}
    for name, after in wanted.embed_sources.items():
        known_as = names.get(_number(wanted, name, table.aliases))
        if known_as is None or not wanted.properties[name].prop_type.nullable:
            continue
        before = stored.embed_sources[known_as]
        texts = (
            _number(stored, before.source, table.aliases),
            _number(wanted, after.source, table.aliases),
        )
        if before.model != after.model or texts[0] != texts[1]:
            yield _Outdated(side, name, VectorKey.of(stored, known_as), before, after)


def _number(entity_type: EntityType, name: str, aliases: Aliases) -> int:
    number = entity_type.properties[name].property_id
    if number is None:
        raise ValueError(f"{entity_type.name}.{name} has no identity")
    return aliases.canonical(number)


def _split(parts: Sequence[Part], outdated: _Outdated, recorded: pa.Array) -> Iterator[Part]:
    """Split rows of a side into those that keep a vector and those that lose it."""
    for part in parts:
        if not isinstance(part, StoredPart) or part.handle.at != outdated.side.entry.at:
            yield part
            continue
        stale = outdated.stale(part.handle, part.refs, recorded)
        if stale.any():
            yield replace(part, refs=part.refs.where(stale), nulled=(*part.nulled, outdated.name))
        if not stale.all():
            yield replace(part, refs=part.refs.where(~stale))


def _with_rows_of_target(
    work: TableWork, table: MergedTable, outdated: _Outdated, recorded: pa.Array
) -> TableWork:
    """Add the rows that the target has changed and that lose a vector."""
    handles = table.handles
    if handles.target is None or handles.new_target is None:
        return work
    columns, blobs = table.entity_type.arrow_schema.names, table.entity_type.blob_properties
    changes = table_changes(handles.base, handles.target, columns=columns, blobs=blobs)
    updated = tuple(_split(work.updated, outdated, recorded))
    written = pa.concat_arrays([work.deleted, *(part.ids for part in updated)])
    changed = (
        (handles.new_target, changes.inserted),
        (handles.target, joined_refs([changes.updated_after])),
    )
    for handle, refs in changed:
        left = refs.where(~is_in(refs.ids, written))
        stale = outdated.stale(handle, left, recorded) if len(left) else np.zeros(0, np.bool_)
        if stale.any():
            updated += (StoredPart(handle, left.where(stale), (outdated.name,)),)
    return replace(work, updated=updated)
