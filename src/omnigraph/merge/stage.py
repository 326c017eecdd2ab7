"""Turns what a merge does to one table into one staged transaction on the target's lineage.

1. New rows are appended as new fragments, without any join with stored rows.
2. Changed rows are written under the stable row ids that they have in the target. Their old
   versions, and removed rows, are deleted by exact address.
3. All of it is one transaction, so a table is never merged in part.
   A table whose columns change gets a transaction for them first, and the rows follow on it.
   A linked table takes the files of the source over as one transaction, too.
4. Rows are streamed: memory follows a batch, not the difference.
5. External blobs of rows that are written become bytes of the graph; only objects below an allowed
   base are read, and a row that names another one is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from omnigraph.errors import CorruptError, OmnigraphError
from omnigraph.manifest import Entry
from omnigraph.manifest.forks import WriteBase, write_base
from omnigraph.manifest.layout import Incarnation, dataset_location
from omnigraph.merge.links import LinkedTable, linked_source
from omnigraph.merge.parts import RewrittenRows, RowTarget, TableWork
from omnigraph.merge.tables import MergedTable
from omnigraph.merge.workers import MergeWorkers, owned_batches
from omnigraph.names import TableKey
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.records import DatasetVersion, StagedTransaction, WrittenFragment
from omnigraph.write.commit.job import TableWrite
from omnigraph.write.stage.external_blobs import ExternalBlobs
from omnigraph.write.stage.rewrite_table import TableChange
from omnigraph.write.stage.stage_rows import stage_rows
from omnigraph.write.stage.stored_rows import Located, StoredRows

_log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Staging:
    """What all tables of one merge are staged with."""

    datasets: DatasetStore
    incarnation: Incarnation
    operation_id: str
    workers: MergeWorkers
    external_blobs: ExternalBlobs
    may_link: bool = False
    """Whether files may be taken over; otherwise all rows are written."""


def stage_table(work: TableWork, stored: StoredRows, staging: Staging) -> TableWrite:
    """Write the files of a merge into one table, and stage them as one transaction."""
    key = work.entity_type.table_key
    base = _write_base(stored.entry(key), staging)
    with base.staging(staging.datasets):
        return _stage_work(work, base, stored, staging)


def stage_linked_table(link: LinkedTable, staging: Staging) -> TableWrite:
    """Stage the files of the source under further names; no row is read."""
    base = _write_base(link.target, staging)
    with base.staging(staging.datasets):
        staged = staging.datasets.stage_linked(base.base, link.rows)
    return TableWrite(link.target.table_key, (staged,), link.row_count, base)


def stage_new_table(work: TableWork, staging: Staging) -> TableWrite:
    """Stage a dataset of the target for a type that only the source has, with its files or rows."""
    key, columns = work.entity_type.table_key, work.entity_type.arrow_schema
    location = dataset_location(*TableKey(key).parts, staging.operation_id)
    source = linked_source(work) if staging.may_link else None
    staged = None
    if source is not None:
        staged = staging.datasets.stage_linked_create(location, columns, source)
    if staged is None:
        staged = _stage_created(work, location, staging)
    return TableWrite(
        key,
        (staged,),
        row_count=work.counts[0],
        location=location,
        owner_branch=staging.incarnation.text,
    )


def _stage_created(work: TableWork, location: str, staging: Staging) -> StagedTransaction:
    columns = work.entity_type.arrow_schema
    batches = (batch for part in work.inserted for batch in part.batches(work.entity_type))
    target = RowTarget(DatasetVersion(location, None, 0), work.entity_type, staging.external_blobs)
    rows = pa.RecordBatchReader.from_batches(columns, owned_batches(batches, target))
    return staging.datasets.stage_create(location, columns, rows=rows)


def stage_reshaped_table(table: MergedTable, work: TableWork, staging: Staging) -> TableWrite:
    """Stage new columns of a table of the target, and the changed rows on top of them."""
    if table.target is None:
        raise ValueError("only a table of the target has columns to change")
    datasets, key = staging.datasets, table.table_key
    base = _write_base(table.target.entry, staging)
    change = TableChange(
        table.target.entity_type, table.entity_type, table.target.entry, aliases=table.aliases
    )
    with base.staging(datasets):
        columns = change.stage(datasets, base.base)
        if work.is_empty:
            return TableWrite(key, (columns,), row_count=base.entry.row_count, base=base)
        view = datasets.open_staged(columns)
        try:
            reshaped = replace(base, base=view.at)
            stored = StoredRows(_StagedTable(base.entry, view))
            rows = _stage_work(work, reshaped, stored, staging)
        finally:
            _discard(datasets, view.at)
    following = datasets.following(rows.staged[0], columns)
    return TableWrite(key, (columns, following), row_count=rows.row_count, base=base)


@dataclass(frozen=True)
class _StagedTable:
    """The one table of which columns are staged."""

    published: Entry
    view: DatasetHandle

    def entry(self, table_key: str) -> Entry:  # noqa: ARG002 - there is one table
        return self.published

    def open(self, table_key: str) -> DatasetHandle:  # noqa: ARG002 - there is one table
        return self.view


def _write_base(entry: Entry, staging: Staging) -> WriteBase:
    return write_base(
        staging.datasets, staging.incarnation, entry, operation_id=staging.operation_id
    )


def _stage_work(
    work: TableWork, base: WriteBase, stored: StoredRows, staging: Staging
) -> TableWrite:
    key, datasets, workers = work.entity_type.table_key, staging.datasets, staging.workers
    target = RowTarget(base.base, work.entity_type, staging.external_blobs)
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
    deletions = datasets.write_deletions(base.base, pa.array(addresses)) if len(addresses) else ()
    return stage_rows(key, base, datasets, fragments=fragments, deletions=deletions)


def _discard(datasets: DatasetStore, at: DatasetVersion) -> None:
    try:
        datasets.discard_staged_view(at)
    except OmnigraphError as error:
        _log.warning("the view of a staged version stays until cleanup: %s", error)


def _located(stored: StoredRows, table_key: str, ids: pa.Array) -> Located:
    located = stored.locate(table_key, ids)
    if located.count != len(ids):
        raise MergedRowLostError(table_key, len(ids) - located.count)
    return located


def _joined(columns: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(columns) if columns else pa.array([], pa.utf8())
