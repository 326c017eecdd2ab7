"""The one way from written files to a change of the rows of a table: new, rewritten, removed, all.

1. Fragments hold rows that nothing refers to yet. A rewritten row is in a fragment under its stable
   row id, and its old version is among the deletions; so is a removed row.
2. Without deletions the change is an append, which does not depend on what is stored. With them it
   is one update, so a table never changes in part.
3. Files are written by this process or by tasks elsewhere; rows are streamed into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.manifest.forks import WriteBase
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.records import ROW_ID, DatasetVersion, WrittenDeletion, WrittenFragment
from omnigraph.write.commit.job import TableWrite

RowIds: TypeAlias = npt.NDArray[np.uint64]


def stage_rows(
    table_key: str,
    base: WriteBase,
    datasets: DatasetStore,
    *,
    fragments: Sequence[WrittenFragment],
    deletions: Sequence[WrittenDeletion] = (),
) -> TableWrite:
    """Stage written rows and deletions as one transaction; no head moves."""
    if deletions:
        staged = datasets.stage_update(base.base, fragments=fragments, deletions=deletions)
    else:
        staged = datasets.stage_append(base.base, fragments=fragments)
    added = sum(fragment.rows for fragment in fragments)
    removed = sum(deletion.rows for deletion in deletions)
    return TableWrite(
        table_key,
        (staged,),
        base.entry.row_count + added - removed,
        base,
        appended=() if deletions else tuple(fragments),
    )


def stage_all_rows(
    table_key: str,
    base: WriteBase,
    datasets: DatasetStore,
    schema: pa.Schema,
    *,
    fragments: Sequence[WrittenFragment],
) -> TableWrite:
    """Stage written rows as the whole of a table."""
    staged = datasets.stage_overwrite(base.base, schema, fragments=fragments)
    return TableWrite(table_key, (staged,), sum(fragment.rows for fragment in fragments), base)


def write_rewritten(
    datasets: DatasetStore,
    base: DatasetVersion,
    schema: pa.Schema,
    rows: Iterable[tuple[pa.RecordBatch, RowIds]],
) -> tuple[WrittenFragment, ...]:
    """Write batches under the stable row ids that come with them."""
    numbered = schema.append(pa.field(ROW_ID, pa.uint64()))

    def batches() -> Iterator[pa.RecordBatch]:
        for batch, row_ids in rows:
            arrays = [*batch.columns, pa.array(row_ids, pa.uint64())]
            yield pa.RecordBatch.from_arrays(arrays, schema=numbered)

    reader = pa.RecordBatchReader.from_batches(numbered, batches())
    return datasets.write_fragments(base, reader, row_id_column=ROW_ID)
