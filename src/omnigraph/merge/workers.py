"""Workers that compare and write the rows of a merge: this process, or tasks elsewhere.

1. Classifying reads three versions of a table and changes nothing. Rows are matched by id alone, so
   the rows of some ids can be classified apart from all others; `joined` puts the parts together.
2. Writing adds files that nothing refers to before the merge commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.compare import Mask
from omnigraph.changes.table_changes import (
    RowChanges,
    RowRefs,
    differing_refs,
    joined_refs,
    table_changes,
)
from omnigraph.merge.parts import Handles, Part, RewrittenRows, RowTarget
from omnigraph.merge.rows import Clash, Differ, TableMerge, three_way
from omnigraph.merge.tables import MergedTable
from omnigraph.schema import EntityType
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.records import WrittenFragment
from omnigraph.write.stage.stage_rows import write_rewritten

_EXTERNAL_ROWS_AT_ONCE: Final = 16
"""Rows with external blobs in memory at once: their sizes are not known before."""


class MergeWorkers(Protocol):
    """Compares and writes the rows of merges."""

    @property
    def name(self) -> str:
        """The name of the engine in results."""
        ...

    def classify(self, table: MergedTable) -> TableMerge:
        """Find what a merge does to one table, and what it cannot."""
        ...

    def write(
        self, target: RowTarget, parts: Sequence[Part], rewritten: RewrittenRows | None = None
    ) -> Sequence[WrittenFragment]:
        """Write rows as uncommitted fragments; `rewritten` has their row ids, if they have any."""
        ...


@dataclass(frozen=True)
class LocalMergeWorkers:
    """Works in this process."""

    datasets: DatasetStore
    name: str = "local"

    def classify(self, table: MergedTable) -> TableMerge:
        """Compare both sides with the base, then with each other."""
        entity_type, handles = table.entity_type, table.handles
        columns, blobs = entity_type.arrow_schema.names, entity_type.blob_properties
        source = table_changes(handles.base, handles.source, columns=columns, blobs=blobs)
        target = RowChanges.none()
        if not table.target_is_base:
            target = table_changes(handles.base, handles.target, columns=columns, blobs=blobs)
        return three_way(source, target, *differs_by(entity_type, handles))

    def write(
        self, target: RowTarget, parts: Sequence[Part], rewritten: RewrittenRows | None = None
    ) -> Sequence[WrittenFragment]:
        """Stream rows into fragments."""
        batches = (batch for part in parts for batch in part.batches(target.entity_type))
        return write_batches(self.datasets, target, batches, rewritten)


def differs_by(entity_type: EntityType, handles: Handles) -> tuple[Differ, Differ]:
    """Return how rows of the source are compared with rows of the target.

    The second one is for rows that both sides have inserted.
    """
    return (
        _differ_by(entity_type, handles.source, handles.target),
        _differ_by(entity_type, handles.new_source, handles.new_target),
    )


def _differ_by(
    entity_type: EntityType, in_source: DatasetHandle | None, in_target: DatasetHandle | None
) -> Differ:
    columns, blobs = entity_type.arrow_schema.names, entity_type.blob_properties

    def differ(source: RowRefs, target: RowRefs) -> Mask:
        if in_source is None or in_target is None:
            return np.ones(len(source), np.bool_)
        return differing_refs(in_source, source, in_target, target, columns=columns, blobs=blobs)

    return differ


def write_batches(
    datasets: DatasetStore,
    target: RowTarget,
    batches: Iterable[pa.RecordBatch],
    rewritten: RewrittenRows | None,
) -> Sequence[WrittenFragment]:
    """Write batches of whole rows as uncommitted fragments, with all blobs as the graph's own."""
    columns = target.entity_type.arrow_schema
    owned = owned_batches(batches, target)
    if rewritten is None:
        reader = pa.RecordBatchReader.from_batches(columns, owned)
        return datasets.write_fragments(target.base, reader)
    numbered = ((batch, rewritten.row_ids_of(batch["id"])) for batch in owned)
    return write_rewritten(datasets, target.base, columns, numbered)


def owned_batches(batches: Iterable[pa.RecordBatch], target: RowTarget) -> Iterator[pa.RecordBatch]:
    """Yield batches of whole rows with all blobs as the graph's own."""
    for batch in batches:
        yield from _owned(batch, target)


def _owned(batch: pa.RecordBatch, target: RowTarget) -> Iterator[pa.RecordBatch]:
    names = [
        name
        for name in target.entity_type.blob_properties
        if pc.struct_field(batch[name], "uri").null_count < batch.num_rows
    ]
    step = _EXTERNAL_ROWS_AT_ONCE if names else max(1, batch.num_rows)
    for start in range(0, batch.num_rows, step):
        part = batch.slice(start, step)
        for name in names:
            column = target.external_blobs.owned(part[name])
            part = part.set_column(
                part.schema.get_field_index(name), part.schema.field(name), column
            )
        yield part


# -- parts of a classification ---------------------------------------------------------------------


def joined(parts: Sequence[TableMerge]) -> TableMerge:
    """Join the results of disjoint sets of ids into the result of one pass."""
    if len(parts) == 1:
        return parts[0]
    return TableMerge(
        joined_refs([part.inserted for part in parts]),
        joined_refs([part.updated for part in parts]),
        _joined_ids([part.deleted for part in parts]),
        tuple(_joined_clashes([clash for part in parts for clash in part.clashes])),
    )


def _joined_clashes(clashes: Sequence[Clash]) -> Iterator[Clash]:
    # The order in which one pass finds them: by kind, and rows that the target deleted first.
    kinds = sorted({_sort_key(clash) for clash in clashes})
    for kind in kinds:
        alike = [clash for clash in clashes if _sort_key(clash) == kind]
        yield Clash(
            alike[0].kind,
            _joined_ids([clash.ids for clash in alike]),
            _joined_side([clash.base for clash in alike]),
            _joined_side([clash.source for clash in alike]),
            _joined_side([clash.target for clash in alike]),
        )


_ORDER = ("divergent_insert", "divergent_update", "delete_vs_update")


def _sort_key(clash: Clash) -> tuple[int, bool]:
    return _ORDER.index(str(clash.kind)), clash.source is None


def _joined_side(refs: Sequence[RowRefs | None]) -> RowRefs | None:
    present = [each for each in refs if each is not None]
    return joined_refs(present) if present else None


def _joined_ids(ids: Sequence[pa.Array]) -> pa.Array:
    everything = pa.concat_arrays([pa.array([], pa.utf8()), *ids])
    return everything.take(pc.sort_indices(everything))
