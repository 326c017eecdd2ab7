"""Combines two updates of one row that changed different properties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.compare import Mask, differing_values
from omnigraph.changes.table_changes import RowRefs
from omnigraph.merge.parts import stored_rows
from omnigraph.schema import EntityType
from omnigraph.store.datasets import DatasetHandle


def combined_rows(
    sides: Sequence[tuple[DatasetHandle, RowRefs]], entity_type: EntityType
) -> tuple[pa.Table, list[tuple[str, ...]]]:
    """Combine base, source and target of the same rows, given in this order.

    Returns the rows of which no property was changed by both sides to different values, and for
    every row the names of the properties of which one was.
    """
    before, source, target = (_rows(handle, refs, entity_type) for handle, refs in sides)
    columns: dict[str, pa.Array] = {}
    clashes: dict[str, Mask] = {}
    for name in entity_type.arrow_schema.names:
        old, in_source, in_target = before[name], source[name], target[name]
        is_changed = _differ(old, in_source)
        clashes[name] = is_changed & _differ(old, in_target) & _differ(in_source, in_target)
        columns[name] = pc.if_else(pa.array(is_changed), in_source, in_target)
    names = [
        tuple(name for name, mask in clashes.items() if mask[row]) for row in range(before.num_rows)
    ]
    is_clean = pa.array([not each for each in names], pa.bool_())
    rows = pa.table(columns).cast(entity_type.arrow_schema).filter(is_clean)
    return rows, names


def _rows(handle: DatasetHandle, refs: RowRefs, entity_type: EntityType) -> pa.RecordBatch:
    batches = list(stored_rows(handle, refs.row_ids, entity_type))
    rows = pa.Table.from_batches(batches, entity_type.arrow_schema).combine_chunks()
    found: pa.RecordBatch = rows.to_batches()[0]
    return found


def _differ(left: pa.Array, right: pa.Array) -> Mask:
    if not pa.types.is_struct(left.type):
        return differing_values(left, right)
    # A blob with its bytes: null, bytes and a reference are three different things.
    differ: Mask = np.asarray(left.is_valid()) != np.asarray(right.is_valid())
    for part in left.type:
        differ |= differing_values(
            pc.struct_field(left, part.name), pc.struct_field(right, part.name)
        )
    return differ
