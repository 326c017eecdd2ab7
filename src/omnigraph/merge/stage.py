"""Turns what a merge does to one table into one staged transaction on the target's lineage.

1. New rows are appended as new fragments, without any join with stored rows.
2. Changed rows are written under the stable row ids that they have in the target. Their old
   versions, and removed rows, are deleted by exact address.
3. All of it is one transaction, so a table is never merged in part.
4. Rows are streamed: memory follows a batch, not the difference.
5. External blobs of rows that are written become bytes of the graph; only objects below an allowed
   base are read, and a row that names another one is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.errors import CorruptError
from omnigraph.manifest.forks import write_base
from omnigraph.manifest.layout import Incarnation
from omnigraph.merge.parts import RewrittenRows, RowTarget, TableWork
from omnigraph.merge.workers import MergeWorkers
from omnigraph.store.datasets import DatasetStore
from omnigraph.store.records import WrittenFragment
from omnigraph.write.commit.job import TableWrite
from omnigraph.write.stage.external_blobs import ExternalBlobs
from omnigraph.write.stage.stage_rows import stage_rows
from omnigraph.write.stage.stored_rows import Located, StoredRows


class MergedRowLostError(CorruptError):
    """A row that a merge should change or remove is not in the target."""

    code = "OG-MERGED-ROW-LOST"
    hint = "keep the files; `omnigraph doctor URI` looks at the whole graph"
    template = (
        "{missing} rows of {table_key} that the merge changes are not in the target;"
        " nothing was merged"
    )
    table_key: str
    missing: int


def stage_table(
    work: TableWork,
    stored: StoredRows,
    incarnation: Incarnation,
    datasets: DatasetStore,
    *,
    workers: MergeWorkers,
    operation_id: str,
    external_blobs: ExternalBlobs,
) -> TableWrite:
    """Write the files of a merge into one table, and stage them as one transaction."""
    key = work.entity_type.table_key
    base = write_base(datasets, incarnation, stored.entry(key), operation_id=operation_id)
    with base.staging(datasets):
        target = RowTarget(base.base, work.entity_type, external_blobs)
        fragments: list[WrittenFragment] = []
        if any(len(part.ids) for part in work.inserted):
            fragments += workers.write(target, work.inserted)
        updated_ids = _joined([part.ids for part in work.updated])
        located = _located(stored, key, updated_ids)
        if len(updated_ids):
            rewritten = RewrittenRows(updated_ids, located.row_ids)
            fragments += workers.write(target, work.updated, rewritten)
        removed = _located(stored, key, work.deleted)
        addresses = np.concatenate([located.addresses, removed.addresses])
        deletions = (
            datasets.write_deletions(base.base, pa.array(addresses)) if len(addresses) else ()
        )
        return stage_rows(key, base, datasets, fragments=fragments, deletions=deletions)


def _located(stored: StoredRows, table_key: str, ids: pa.Array) -> Located:
    located = stored.locate(table_key, ids)
    if located.count != len(ids):
        raise MergedRowLostError(table_key, len(ids) - located.count)
    return located


def _joined(columns: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(columns) if columns else pa.array([], pa.utf8())
