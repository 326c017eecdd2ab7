"""Turns rows, fragments, deletions and index segments into Lance transactions.

Every function works on an open dataset at the base version, writes new files under that lineage
and moves no head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import FragmentMetadata, LanceOperation, Transaction
from lance.fragment import RowIdSequence, write_fragments

from omnigraph.errors import OmnigraphError
from omnigraph.store.errors import InvalidScanError, StorageError, StorageUnavailableError
from omnigraph.store.lance.errors import certain_error, lance_failures, reason_of
from omnigraph.store.lance.handle import LanceHandle, data_file_name
from omnigraph.store.lance.layout import data_path, lineage_path
from omnigraph.store.lance.written_rows import ROWS_MAX as FEW_ROWS_MAX
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import (
    ROW_ADDRESS,
    ROW_ID,
    CompactionResult,
    DatasetVersion,
    OperationKind,
    RowCounts,
    Rows,
    StagedFile,
    StagedTransaction,
    WrittenDeletion,
    WrittenFragment,
    WrittenIndexSegment,
)
from omnigraph.store.uri import join_path
from omnigraph.values import is_blob_field

DATA_FORMAT: Final = "2.2"
ROWS_PER_FRAGMENT_MAX: Final = 1_000_000
BYTES_PER_FILE_MAX: Final = 256 * 1024 * 1024


class _RowStream:
    """Rows as one reader, without the row-id column; remembers the first error.

    Lance pulls rows through a C interface that turns every exception into text; the original is
    kept here, so that an error of the code that makes the rows keeps its type. Rows that are in
    memory are passed on directly: then writing them never waits for Python.
    """

    def __init__(self, rows: Rows, row_id_column: str | None) -> None:
        self._table = rows if isinstance(rows, pa.Table) else None
        self._reader = _reader(rows)
        self._row_id_column = row_id_column
        self._row_ids: list[pa.Array] = []
        self._passed: list[pa.RecordBatch] | None = []
        self.failure: BaseException | None = None
        self.schema = self._reader.schema
        if row_id_column is not None:
            self.schema = self.schema.remove(self.schema.get_field_index(row_id_column))

    def reader(self) -> pa.RecordBatchReader:
        if self._table is None:
            return pa.RecordBatchReader.from_batches(self.schema, self._batches())
        if self._row_id_column is not None:
            self._row_ids = self._table[self._row_id_column].chunks
        return self._table.select(self.schema.names).to_reader()

    def row_ids(self) -> pa.Array:
        if not self._row_ids:
            return pa.array([], pa.uint64())
        return pa.concat_arrays([ids.cast(pa.uint64()) for ids in self._row_ids])

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._reader:
                self._note(batch)
                if self._row_id_column is None:
                    yield batch
                else:
                    self._row_ids.append(batch[self._row_id_column])
                    yield batch.select(self.schema.names)
        except BaseException as error:
            self.failure = error
            raise

    def few_rows(self) -> pa.Table | None:
        """Return all rows that were written, if they are few."""
        if self._table is not None:
            return self._table
        return None if not self._passed else pa.Table.from_batches(self._passed)

    def _note(self, batch: pa.RecordBatch) -> None:
        if self._passed is not None:
            self._passed.append(batch)
            if sum(one.num_rows for one in self._passed) > FEW_ROWS_MAX:
                self._passed = None


def _reader(rows: Rows) -> pa.RecordBatchReader:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    return table.to_reader()


def write_rows(
    target: lance.LanceDataset | str,
    rows: Rows,
    *,
    base: DatasetVersion,
    objects: ObjectStore,
    schema: pa.Schema,
    mode: Literal["create", "append", "overwrite"],
    row_id_column: str | None,
    storage_options: Mapping[str, str] | None,
    remember: Callable[[str, pa.Table], None],
) -> tuple[WrittenFragment, ...]:
    """Write rows as uncommitted fragments; `remember` takes few rows with their data file."""
    stream = _RowStream(rows, row_id_column)
    try:
        written = write_fragments(
            stream.reader(),
            target,
            mode=mode,
            max_rows_per_file=ROWS_PER_FRAGMENT_MAX,
            max_bytes_per_file=BYTES_PER_FILE_MAX,
            data_storage_version=DATA_FORMAT,
            storage_options=dict(storage_options) if storage_options else None,
            # Which references are allowed is decided by the caller; here they are only stored.
            allow_external_blob_outside_bases=True,
        )
    except lance_failures() as error:
        if stream.failure is not None:
            raise stream.failure from None
        raise stage_error(error, base.location) from error
    if row_id_column is not None:
        _attach_row_ids(written, stream.row_ids())
    few = stream.few_rows()
    if few is not None and len(written) == 1:
        remember(data_file_name(written[0].files[0]), few)
    has_blobs = has_blob_columns(schema)
    return tuple(
        WrittenFragment(
            base=base,
            rows=fragment.physical_rows,
            keeps_row_ids=row_id_column is not None,
            files=fragment_files(fragment, base, objects if has_blobs else None),
            payload=fragment,
        )
        for fragment in written
        if fragment.physical_rows
    )


def stage_error(error: BaseException, path: str) -> StorageError:
    """Return the error for a failed stage: no head has moved, but files may have been written."""
    return certain_error(error, path) or StorageUnavailableError(path=path, reason=reason_of(error))


def _attach_row_ids(fragments: Sequence[FragmentMetadata], row_ids: pa.Array) -> None:
    start = 0
    for fragment in fragments:
        ids = row_ids.slice(start, fragment.physical_rows)
        fragment.row_id_meta = RowIdSequence(ids).to_inline_metadata()
        start += fragment.physical_rows


def has_blob_columns(schema: pa.Schema) -> bool:
    """Whether some column keeps large values in files of their own."""
    return any(is_blob_field(field) for field in schema)


def fragment_files(
    fragment: FragmentMetadata, base: DatasetVersion, blobs_in: ObjectStore | None
) -> tuple[StagedFile, ...]:
    """List the files of a new fragment; with `blobs_in` also those of its large values."""
    files: list[StagedFile] = []
    for data_file in fragment.files:
        if data_file.base_id is not None:
            continue
        path = data_path(base.location, base.branch, data_file_name(data_file))
        files.append(StagedFile(path, data_file.file_size_bytes))
        if blobs_in is not None:
            background = blobs_in.list(path.removesuffix(".lance"))
            files.extend(StagedFile(info.path, info.size) for info in background)
    return tuple(files)


def _deletion_files(
    fragment: FragmentMetadata, base: DatasetVersion, objects: ObjectStore
) -> tuple[StagedFile, ...]:
    deletion = fragment.deletion_file
    if deletion is None or deletion.base_id is not None:
        return ()
    path = join_path(lineage_path(base.location, base.branch), deletion.path(fragment.id))
    info = objects.head(path)
    return (StagedFile(path, info.size if info else None),)


def write_deletions(
    handle: LanceHandle, addresses: pa.Array, objects: ObjectStore
) -> tuple[WrittenDeletion, ...]:
    """Write one deletion per touched fragment."""
    return tuple(
        _write_deletion(handle, number, offsets, objects)
        for number, offsets in _offsets_by_fragment(addresses, handle.at)
    )


def _offsets_by_fragment(
    addresses: pa.Array, base: DatasetVersion
) -> Iterator[tuple[int, list[int]]]:
    ordered = np.sort(addresses.to_numpy(zero_copy_only=False))
    if not len(ordered):
        return
    if (ordered[1:] == ordered[:-1]).any():
        raise InvalidScanError(path=base.location, reason="a row is to be removed twice")
    homes = ordered >> np.uint64(32)
    offsets = ordered & np.uint64(0xFFFFFFFF)
    starts = np.flatnonzero(np.diff(homes, prepend=homes[:1] + np.uint64(1)))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(ordered)], strict=True):
        yield int(homes[start]), offsets[start:stop].tolist()


def _write_deletion(
    handle: LanceHandle, number: int, offsets: list[int], objects: ObjectStore
) -> WrittenDeletion:
    fragment, base = handle.fragment(number), handle.at
    before = fragment.metadata
    try:
        trimmed = fragment.delete_rows(offsets)
    except lance_failures() as error:
        raise stage_error(error, base.location) from error
    left = 0 if trimmed is None else trimmed.num_rows
    if before.num_rows - left != len(offsets):
        raise InvalidScanError(
            path=base.location,
            reason=f"{len(offsets)} rows of fragment {number} are to be removed and only"
            f" {before.num_rows - left} of them are there",
        )
    return WrittenDeletion(
        base=base,
        fragment_id=number,
        rows=len(offsets),
        empties_fragment=trimmed is None,
        files=() if trimmed is None else _deletion_files(trimmed, base, objects),
        payload=trimmed,
    )


def append_transaction(
    base: DatasetVersion, fragments: Sequence[WrittenFragment]
) -> StagedTransaction:
    """Combine fragments into one append."""
    check_lineage(base, fragments)
    if any(fragment.keeps_row_ids for fragment in fragments):
        raise InvalidScanError(path=base.location, reason="appended rows cannot keep row ids")
    return staged_record(
        base,
        LanceOperation.Append([_metadata(fragment) for fragment in fragments]),
        kind=OperationKind.APPEND,
        files=all_files(fragments),
        counts=RowCounts(inserted=sum(fragment.rows for fragment in fragments)),
    )


def update_transaction(
    base: DatasetVersion,
    fragments: Sequence[WrittenFragment],
    deletions: Sequence[WrittenDeletion],
    *,
    fenced: Sequence[FragmentMetadata] = (),
) -> StagedTransaction:
    """Combine rewritten rows, new rows and deletions into one update.

    `fenced` are fragments that stay as they are and are named as updated nevertheless: Lance then
    refuses the update when any later version has named one of them too.
    """
    check_lineage(base, [*fragments, *deletions])
    _check_single_deletions(base, deletions)
    _check_deletion_base(base, deletions)
    updated = sum(fragment.rows for fragment in fragments if fragment.keeps_row_ids)
    inserted = sum(fragment.rows for fragment in fragments if not fragment.keeps_row_ids)
    removed = sum(deletion.rows for deletion in deletions)
    if removed < updated:
        raise InvalidScanError(
            path=base.location,
            reason=f"{updated} rows are rewritten and only {removed} old ones are removed",
        )
    changed = {deletion.fragment_id for deletion in deletions}
    operation = LanceOperation.Update(
        removed_fragment_ids=[d.fragment_id for d in deletions if d.empties_fragment],
        updated_fragments=[
            *(_metadata(deletion) for deletion in deletions if not deletion.empties_fragment),
            *(fragment for fragment in fenced if fragment.id not in changed),
        ],
        new_fragments=[_metadata(fragment) for fragment in fragments],
        fields_modified=[],
    )
    return staged_record(
        base,
        operation,
        kind=OperationKind.UPDATE,
        files=all_files([*fragments, *deletions]),
        counts=RowCounts(inserted=inserted, updated=updated, deleted=removed - updated),
    )


def check_lineage(
    base: DatasetVersion,
    parts: Sequence[
        WrittenFragment
        | WrittenDeletion
        | WrittenIndexSegment
        | CompactionResult
        | StagedTransaction
    ],
) -> None:
    """Refuse files that were written under another lineage, which could not read them."""
    for part in parts:
        if (part.base.location, part.base.branch) != (base.location, base.branch):
            raise InvalidScanError(
                path=base.location,
                reason=f"files written under `{part.base.location}` branch"
                f" `{part.base.branch}` cannot be committed on branch `{base.branch}`",
            )


def _check_deletion_base(base: DatasetVersion, deletions: Sequence[WrittenDeletion]) -> None:
    for deletion in deletions:
        if deletion.base.version != base.version:
            raise InvalidScanError(
                path=base.location,
                reason=f"the deletion in fragment {deletion.fragment_id} was written on version"
                f" {deletion.base.version}, the transaction starts from {base.version}",
            )


def _check_single_deletions(base: DatasetVersion, deletions: Sequence[WrittenDeletion]) -> None:
    """Refuse two deletions of one fragment: Lance would silently lose one of them."""
    seen: set[int] = set()
    for deletion in deletions:
        if deletion.fragment_id in seen:
            raise InvalidScanError(
                path=base.location,
                reason=f"fragment {deletion.fragment_id} has two deletions; group them first",
            )
        seen.add(deletion.fragment_id)


def overwrite_transaction(
    base: DatasetVersion, schema: pa.Schema, fragments: Sequence[WrittenFragment]
) -> StagedTransaction:
    """Combine fragments into new content for the whole dataset, or for a new one."""
    check_lineage(base, fragments)
    return staged_record(
        base,
        LanceOperation.Overwrite(schema, [_metadata(fragment) for fragment in fragments]),
        kind=OperationKind.OVERWRITE,
        files=all_files(fragments),
        counts=RowCounts(inserted=sum(fragment.rows for fragment in fragments)),
    )


def metadata_transaction(
    dataset: lance.LanceDataset,
    base: DatasetVersion,
    *,
    schema_metadata: Mapping[str, str | None],
    field_metadata: Mapping[str, Mapping[str, str | None]],
) -> StagedTransaction:
    """Stage changes of schema and field metadata."""
    by_number: dict[int, LanceOperation.UpdateMap] = {}
    for name, updates in field_metadata.items():
        field = dataset.lance_schema.field(name)
        if field is None:
            raise InvalidScanError(path=base.location, reason=f"there is no column `{name}`")
        by_number[field.id()] = LanceOperation.UpdateMap(dict(updates))
    operation = LanceOperation.UpdateConfig(
        schema_metadata_updates=LanceOperation.UpdateMap(dict(schema_metadata))
        if schema_metadata
        else None,
        field_metadata_updates=by_number or None,
    )
    return staged_record(base, operation, kind=OperationKind.METADATA, files=(), counts=RowCounts())


def split_rewritten(rewritten: Rows, base: DatasetVersion) -> tuple[pa.Table, pa.Array]:
    """Take the addresses of the replaced rows off the rewritten ones."""
    table = _reader(rewritten).read_all()
    for name in (ROW_ID, ROW_ADDRESS):
        if name not in table.schema.names:
            raise InvalidScanError(
                path=base.location, reason=f"rewritten rows need the column `{name}`"
            )
    ids = table[ROW_ID]
    if pc.count_distinct(ids).as_py() != len(ids):
        raise InvalidScanError(path=base.location, reason="a row is rewritten twice")
    addresses = table[ROW_ADDRESS].cast(pa.uint64()).combine_chunks()
    return table.drop_columns([ROW_ADDRESS]), addresses


def transaction_of(staged: StagedTransaction) -> Transaction:
    """Return the library's transaction inside a staged record."""
    transaction = staged.payload
    if not isinstance(transaction, Transaction) or transaction.uuid != staged.uuid:
        raise OmnigraphError(f"staged record {staged.uuid} does not hold its transaction")
    return transaction


def staged_record(
    base: DatasetVersion,
    operation: LanceOperation.BaseOperation,
    *,
    kind: OperationKind,
    files: tuple[StagedFile, ...],
    counts: RowCounts,
) -> StagedTransaction:
    """Wrap an operation into a transaction of our own."""
    transaction = Transaction(read_version=base.version, operation=operation)
    return StagedTransaction(
        base=base,
        uuid=transaction.uuid,
        kind=kind,
        files=files,
        counts=counts,
        payload=transaction,
    )


def _metadata(part: WrittenFragment | WrittenDeletion) -> FragmentMetadata:
    """Return the library's description inside a record."""
    if not isinstance(part.payload, FragmentMetadata):
        raise OmnigraphError(f"a record of {part.base.location} does not hold its fragment")
    return part.payload


def all_files(
    parts: Sequence[WrittenFragment | WrittenDeletion | WrittenIndexSegment | CompactionResult],
) -> tuple[StagedFile, ...]:
    """List the files of all parts."""
    return tuple(file for part in parts for file in part.files)
