"""Builds indexes and rewrites small fragments, without moving a head.

Scalar indexes of the BTREE kind point at row addresses, so a rewritten fragment drops out of their
coverage until a new segment is built over it. The other kinds hold stable row ids and stay valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import lance
from lance import LanceOperation, optimize

from omnigraph.errors import OmnigraphError
from omnigraph.store.errors import StaleBaseError
from omnigraph.store.lance.errors import lance_failures
from omnigraph.store.lance.handle import file_names
from omnigraph.store.lance.layout import index_path, max_fragment_id
from omnigraph.store.lance.staging import (
    DATA_FORMAT,
    all_files,
    check_lineage,
    fragment_files,
    has_blob_columns,
    stage_error,
    staged_record,
    transaction_of,
)
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import (
    CompactionOptions,
    CompactionResult,
    CompactionTask,
    DatasetVersion,
    IndexInfo,
    IndexKind,
    IndexSpec,
    OperationKind,
    RowCounts,
    StagedFile,
    StagedTransaction,
    WrittenIndexSegment,
)

# The stubs of this module know neither `json`, `from_json` nor `original_fragments`.
_COMPACTION: Final[Any] = optimize
_FIRST_DETACHED_VERSION: Final = 1 << 63
_VECTOR_KINDS: Final = frozenset({IndexKind.IVF_FLAT, IndexKind.IVF_PQ, IndexKind.IVF_HNSW_SQ})


def build_index_segment(
    dataset: lance.LanceDataset,
    spec: IndexSpec,
    *,
    base: DatasetVersion,
    fragment_ids: Sequence[int],
) -> WrittenIndexSegment:
    """Build one index segment over some fragments."""
    parameters: dict[str, Any] = dict(spec.parameters)
    if spec.kind in _VECTOR_KINDS:
        parameters.setdefault("num_partitions", 1)
    try:
        built = dataset.create_index_uncommitted(
            spec.column,
            spec.kind.value,
            name=spec.full_name,
            # The new segment joins or follows an index of this name; Lance would refuse.
            replace=True,
            fragment_ids=list(fragment_ids),
            **parameters,
        )
        if spec.kind is IndexKind.INVERTED:
            # A text segment is written in a staging form that only a merge makes readable.
            built = dataset.merge_existing_index_segments([built])
    except lance_failures() as error:
        raise stage_error(error, base.location) from error
    files = tuple(
        StagedFile(
            index_path(base.location, base.branch, uuid=built.uuid, file_name=file.path),
            file.size_bytes,
        )
        for file in built.files or []
    )
    return WrittenIndexSegment(
        base=base,
        name=spec.full_name,
        uuid=built.uuid,
        fragment_ids=tuple(fragment_ids),
        files=files,
        payload=built,
    )


def index_transaction(
    dataset: lance.LanceDataset,
    base: DatasetVersion,
    segments: Sequence[WrittenIndexSegment],
    *,
    replaced: frozenset[str],
) -> StagedTransaction:
    """Combine built segments and segments to drop into one index change."""
    check_lineage(base, segments)
    leaving = [
        lance.Index(
            uuid=segment.uuid,
            name=index.name,
            fields=list(index.fields),
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=segment.fragment_ids,
            index_version=segment.index_version,
        )
        for index in dataset.describe_indices()
        for segment in index.segments
        if segment.uuid in replaced
    ]
    arriving = [_index(segment) for segment in segments]
    return staged_record(
        base,
        LanceOperation.CreateIndex(arriving, leaving),
        kind=OperationKind.CREATE_INDEX,
        files=all_files(segments),
        counts=RowCounts(),
    )


def _index(segment: WrittenIndexSegment) -> lance.Index:
    """Return the library's description inside a record."""
    if not isinstance(segment.payload, lance.Index):
        raise OmnigraphError(f"the record of index segment {segment.uuid} does not hold it")
    return segment.payload


def following_transaction(
    staged: StagedTransaction, previous: StagedTransaction
) -> StagedTransaction:
    """Give a transaction that was staged on the view of another one its true base."""
    base = replace(previous.base, version=previous.intended_version)
    check_lineage(base, [staged])
    transaction = transaction_of(staged)
    operation = transaction.operation
    if isinstance(operation, LanceOperation.CreateIndex):
        # A segment built on a view carries its number, which Lance compares with real versions.
        arriving = [_settled(index, base) for index in operation.new_indices]
        operation = replace(operation, new_indices=arriving)
    moved = replace(transaction, read_version=base.version, operation=operation)
    return replace(staged, base=base, payload=moved)


def _settled(built: lance.Index, base: DatasetVersion) -> lance.Index:
    is_of_view = built.dataset_version >= _FIRST_DETACHED_VERSION
    return replace(built, dataset_version=base.version) if is_of_view else built


def segments_named(indexes: Sequence[IndexInfo], names: frozenset[str]) -> frozenset[str]:
    """Return the uuids of all segments of the indexes with these names."""
    return frozenset(
        segment.uuid for index in indexes if index.name in names for segment in index.segments
    )


def plan_compaction(
    dataset: lance.LanceDataset, base: DatasetVersion, options: CompactionOptions
) -> tuple[CompactionTask, ...]:
    """Return which fragments are worth rewriting together."""
    settings: dict[str, Any] = {
        "target_rows_per_fragment": options.target_rows,
        "materialize_deletions_threshold": options.deleted_share_min,
        "data_storage_version": DATA_FORMAT,
    }
    plan = _COMPACTION.Compaction.plan(dataset, options=settings)
    return tuple(
        CompactionTask(
            base=base,
            fragment_ids=tuple(fragment.id for fragment in task.fragments),
            payload=task.json(),
        )
        for task in plan.tasks
    )


def run_compaction(
    dataset: lance.LanceDataset, task: CompactionTask, *, objects: ObjectStore
) -> CompactionResult:
    """Rewrite the fragments of one task."""
    try:
        result = _COMPACTION.CompactionTask.from_json(task.payload).execute(dataset)
    except lance_failures() as error:
        raise stage_error(error, task.base.location) from error
    blobs_in = objects if has_blob_columns(dataset.schema) else None
    return CompactionResult(
        base=task.base,
        fragments_removed=result.metrics.fragments_removed,
        fragments_added=result.metrics.fragments_added,
        files=tuple(
            file
            for fragment in result.new_fragments
            for file in fragment_files(fragment, task.base, blobs_in)
        ),
        payload=result.json(),
    )


def compaction_transaction(
    dataset: lance.LanceDataset, base: DatasetVersion, results: Sequence[CompactionResult]
) -> StagedTransaction:
    """Combine rewritten fragments into one exchange.

    The new fragments get their ids here. Lance would number them during the commit, but after it
    has set which fragments the indexes cover: those would then claim fragment 0, and a
    text index built later would find rows twice.
    """
    check_lineage(base, results)
    _check_unchanged(dataset, base, results)
    _check_covered_alike(dataset, base, results)
    next_id = highest_fragment_id(dataset) + 1
    groups = []
    for result in results:
        rewrite = _COMPACTION.RewriteResult.from_json(result.payload)
        arriving = rewrite.new_fragments
        for fragment in arriving:
            fragment.id = next_id
            next_id += 1
        groups.append(LanceOperation.RewriteGroup(rewrite.original_fragments, arriving))
    return staged_record(
        base,
        LanceOperation.Rewrite(groups, []),
        kind=OperationKind.REWRITE,
        files=all_files(results),
        counts=RowCounts(),
    )


def _check_unchanged(
    dataset: lance.LanceDataset, base: DatasetVersion, results: Sequence[CompactionResult]
) -> None:
    """Refuse a rewrite of fragments that have changed since: it would restore old rows."""
    present = {fragment.fragment_id: fragment.metadata for fragment in dataset.get_fragments()}
    for result in results:
        for old in _COMPACTION.RewriteResult.from_json(result.payload).original_fragments:
            now = present.get(old.id)
            if now is None or file_names(now) != file_names(old):
                reason = f"fragment {old.id} has changed since it was rewritten; plan again"
                raise _stale(base, result, reason)


def _check_covered_alike(
    dataset: lance.LanceDataset, base: DatasetVersion, results: Sequence[CompactionResult]
) -> None:
    """Refuse a rewrite of fragments of which an index segment covers some and not others.

    Lance plans no such rewrite and refuses to commit one. Results that were planned on another
    version can be one: an index has grown since, or was planned with and is not there yet.
    """
    segments = [
        (index.name, frozenset(segment.fragment_ids))
        for index in dataset.describe_indices()
        for segment in index.segments
    ]
    for result in results:
        originals = _COMPACTION.RewriteResult.from_json(result.payload).original_fragments
        numbers = {fragment.id for fragment in originals}
        for name, covered in segments:
            if numbers & covered and not numbers <= covered:
                reason = f"index '{name}' covers only some of the rewritten fragments; plan again"
                raise _stale(base, result, reason)


def _stale(base: DatasetVersion, result: CompactionResult, reason: str) -> StaleBaseError:
    return StaleBaseError(
        path=base.location,
        branch=base.branch,
        expected=result.base.version,
        actual=base.version,
        reason=reason,
    )


def highest_fragment_id(dataset: lance.LanceDataset) -> int:
    """Return the highest id that a fragment of the dataset has ever had; -1 without any."""
    present = max((fragment.fragment_id for fragment in dataset.get_fragments()), default=-1)
    ever = max_fragment_id(dataset._ds.serialized_manifest())
    return present if ever is None else max(present, ever)
