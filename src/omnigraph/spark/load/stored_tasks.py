"""What tasks do with rows that lie in fragments, stored or staged: hash, probe, match, write again.

1. A fragment is handled by exactly one task of a job, and deletions are written by one job only:
   two partial deletions of one fragment would lose one of them.
2. Only the columns that a rule needs are read. Whole rows are read where both sides have the id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from omnigraph.schema import EntityType
from omnigraph.schema.values.blobs import blob_column
from omnigraph.spark.load.absent_files import AbsentFiles
from omnigraph.spark.load.key_set import (
    HashRange,
    KeySet,
    merged,
    numbered,
    sorted_run,
    stored_numbers,
)
from omnigraph.spark.load.plan import CARDINALITY, ID, LoadContext
from omnigraph.spark.task_store import task_store
from omnigraph.store.records import ROW_ADDRESS, ROW_ID, ScanRequest
from omnigraph.values import BLOB_STORAGE
from omnigraph.write.load.compare import compared
from omnigraph.write.load.match_edges import is_matched
from omnigraph.write.load.rows.taken_ids import stored_ids
from omnigraph.write.stage.columns import flat, slabs

if TYPE_CHECKING:
    from omnigraph.store.datasets import DatasetHandle
    from omnigraph.store.records import DatasetVersion, WrittenDeletion, WrittenFragment
    from omnigraph.write.stage.columns import Integers

_OFFSET_BITS: Final = 32
_COMPARED_ROWS: Final = 1 << 17


@dataclass(frozen=True)
class Slice:
    """Some fragments of one version of one table."""

    table_key: str
    at: DatasetVersion
    fragment_ids: tuple[int, ...]

    def open(self, context: LoadContext) -> DatasetHandle:
        """Open the version."""
        datasets = task_store(context.files).datasets
        return datasets.open(self.at.location, branch=self.at.branch, version=self.at.version)

    def slabs(
        self, context: LoadContext, columns: tuple[str, ...], *, with_rows: bool = False
    ) -> Iterator[pa.Table]:
        """Read columns in large pieces."""
        request = ScanRequest(
            columns=columns,
            fragment_ids=self.fragment_ids,
            with_row_id=with_rows,
            with_row_address=with_rows,
        )
        reader = self.open(context).scan(request)
        yield from slabs(reader, reader.schema)


# -- hashes of stored rows ------------------------------------------------------------------------


@dataclass(frozen=True)
class HashTask:
    """Stored rows to hash, by the columns of each kind; rows with a `replaced` id do not count."""

    rows: Slice
    kinds: Mapping[str, tuple[str, ...]]
    replaced: KeySet | None = None


def hash_stored(context: LoadContext, task: HashTask, number: int) -> dict[str, str]:
    """Write one run of hashes per kind; return the files."""
    del number
    columns = {name for members in task.kinds.values() for name in members}
    if task.replaced is not None:
        columns.add("id")
    gathered: dict[str, list[pa.Table]] = {kind: [] for kind in task.kinds}
    for slab in task.rows.slabs(context, tuple(sorted(columns)), with_rows=ID in task.kinds):
        leaving = None
        if task.replaced is not None:
            leaving = task.replaced.contains(flat(slab["id"]))
        for kind, members in task.kinds.items():
            gathered[kind].append(_hashed(context, kind, members, slab, leaving))
    table = task.rows.table_key.replace(":", "-")
    return {
        kind: context.files.write(f"stored-{kind}-{table}", _one_run(kind, runs))
        for kind, runs in gathered.items()
        if runs
    }


def _hashed(
    context: LoadContext,
    kind: str,
    members: tuple[str, ...],
    slab: pa.Table,
    leaving: np.ndarray | None,
) -> pa.Table:
    scheme = context.scheme
    if kind == CARDINALITY:
        # The source of a replaced edge is listed too: it may be left with too few edges.
        hashes = scheme.texts(flat(slab["src"]))
        counts = np.ones(len(hashes), np.int64) if leaving is None else (~leaving).astype(np.int64)
        former = np.zeros(len(hashes), np.int64) if leaving is None else leaving.astype(np.int64)
        return pa.table({"hash": hashes, "count": counts, "former": former})
    if leaving is not None:
        slab = slab.filter(pa.array(~leaving))
    if kind == ID:
        ids = flat(slab["id"])
        numbers = stored_numbers(flat(slab[ROW_ID]).to_numpy())
        columns = {"hash": scheme.texts(ids), "id": ids.cast(pa.large_utf8()), "row": numbers}
        return pa.table(columns)
    hashes, valid = scheme.tuples([flat(slab[name]) for name in members])
    return pa.table({"hash": hashes[valid]})


def _one_run(kind: str, runs: list[pa.Table]) -> pa.Table:
    together = pa.concat_tables(runs).combine_chunks()
    hashes = together["hash"].to_numpy()
    if kind == ID:
        return sorted_run(hashes, flat(together["id"]), flat(together["row"]).to_numpy())
    if kind == CARDINALITY:
        distinct, places = np.unique(hashes, return_inverse=True)
        sums = {
            name: np.bincount(places, weights=together[name].to_numpy(), minlength=len(distinct))
            for name in ("count", "former")
        }
        return pa.table({"hash": distinct, **{k: v.astype(np.int64) for k, v in sums.items()}})
    return pa.table({"hash": np.sort(hashes)})


# -- sets -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MergeTask:
    """Runs to merge into one part of a set: each with the number of its first row, or None."""

    name: str
    runs: tuple[tuple[str, int | None], ...]
    within: HashRange
    dropped: str | None = None
    """The file of rows that do not count any more."""


def merge_runs(context: LoadContext, task: MergeTask, number: int) -> str:
    """Write one part of a set; return the file."""
    del number
    runs = []
    for path, first in task.runs:
        run = task.within.slice_of(context.files.read(path))
        if first is not None:
            run = numbered(run, first)
            if task.dropped is not None:
                gone = np.isin(run["row"].to_numpy(), dropped_rows(context, (task.dropped,)))
                run = run.filter(pa.array(~gone))
        runs.append(run)
    return context.files.write(f"set-{task.name}", merged(runs, task.within))


def dropped_rows(
    context: LoadContext, paths: Sequence[str], *, first: int = 0, end: int | None = None
) -> Integers:
    """Return the numbers of rows that files name, sorted; those from `first` up to `end`."""
    found = [np.zeros(0, np.int64)]
    for path in paths:
        rows = context.files.read(path)["row"].to_numpy()
        last = len(rows) if end is None else int(np.searchsorted(rows, end))
        found.append(rows[int(np.searchsorted(rows, first)) : last])
    rows_of_all: Integers = np.unique(np.concatenate(found))
    return rows_of_all


# -- ends of edges that lie in fragments ----------------------------------------------------------


@dataclass(frozen=True)
class EndsTask:
    """Edges whose ends are to be looked up, by column."""

    rows: Slice
    ends: Mapping[str, KeySet]


def count_missing_ends(context: LoadContext, task: EndsTask, number: int) -> int:
    """Count ends that are in no set."""
    del number
    missing = 0
    for slab in task.rows.slabs(context, tuple(task.ends)):
        for end, known in task.ends.items():
            missing += int(np.count_nonzero(~known.contains(flat(slab[end]))))
    return missing


def remove_orphans(
    context: LoadContext, task: EndsTask, number: int
) -> tuple[WrittenDeletion, ...]:
    """Remove the edges one of whose ends is in no set."""
    del number
    gone: list[np.ndarray] = []
    for slab in task.rows.slabs(context, tuple(task.ends), with_rows=True):
        is_orphan = np.zeros(slab.num_rows, np.bool_)
        for end, known in task.ends.items():
            is_orphan |= ~known.contains(flat(slab[end]))
        gone.append(flat(slab[ROW_ADDRESS]).to_numpy()[is_orphan])
    addresses = pa.array(np.concatenate([np.zeros(0, np.uint64), *gone]))
    if not len(addresses):
        return ()
    datasets = task_store(context.files).datasets
    base = context.bases[task.rows.table_key]
    return datasets.write_deletions(base, addresses)


@dataclass(frozen=True)
class FoundTask:
    """Stored nodes among which ids are looked for; the set has each of them once."""

    rows: Slice
    ids: KeySet


def count_found(context: LoadContext, task: FoundTask, number: int) -> int:
    """Count the ids of the set that are stored here."""
    del number
    found = 0
    for slab in task.rows.slabs(context, ("id",)):
        found += int(np.count_nonzero(task.ids.rows_of_some(flat(slab["id"])) >= 0))
    return found


# -- upserts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StagedFragments:
    """The rows of a type in their staged fragments: where each fragment's rows begin."""

    at: DatasetVersion
    fragment_ids: tuple[int, ...]
    first_rows: tuple[int, ...]

    def addresses(self, rows: Integers) -> np.ndarray:
        """Return the addresses of rows, given by number."""
        firsts = np.array(self.first_rows, np.int64)
        slices = np.searchsorted(firsts, rows, side="right") - 1
        numbers = np.array(self.fragment_ids, np.uint64)[slices]
        return (numbers << np.uint64(_OFFSET_BITS)) | (rows - firsts[slices]).astype(np.uint64)


@dataclass(frozen=True)
class MatchTask:
    """Stored rows that staged ones may replace."""

    stored: Slice
    staged: StagedFragments
    ids: KeySet
    is_prefiltered: bool = False
    """Whether few of the stored ids are staged."""
    absent: AbsentFiles = field(default_factory=AbsentFiles)
    """What staged rows do not name."""


@dataclass(frozen=True)
class MatchOutcome:
    """What a merge does to the stored rows of a slice.

    `matched` is the file of the staged rows, by number, whose id is stored: they are not inserted.
    """

    fragments: tuple[WrittenFragment, ...]
    deletions: tuple[WrittenDeletion, ...]
    matched: str | None
    updated: int
    unchanged: int
    nulled: Mapping[str, int] = field(default_factory=dict)


def match_stored(context: LoadContext, task: MatchTask, number: int) -> MatchOutcome:
    """Find the staged rows whose id is stored; rewrite the stored rows that differ."""
    del number
    rows, row_ids, addresses = _hits(context, task)
    if not len(rows):
        return MatchOutcome((), (), None, 0, 0)
    entity_type = context.entity_type(task.stored.table_key)
    staged = _staged_rows(context, entity_type, task.staged, rows)
    name = entity_type.table_key.replace(":", "-")
    matched = context.files.write(f"matched-{name}", pa.table({"row": np.sort(rows)}))
    handle = task.stored.open(context)
    absent = task.absent.masks(context.files, entity_type, rows)
    nulled: Counter[str] = Counter()
    changed: list[pa.RecordBatch] = []
    removed: list[pa.Array] = []
    start = 0
    for batch in staged.to_batches(max_chunksize=_COMPARED_ROWS):
        own = slice(start, start + batch.num_rows)
        start += batch.num_rows
        differs, columns = compared(
            entity_type,
            handle,
            batch,
            row_ids=row_ids[own],
            addresses=addresses[own],
            absent={name: mask[own] for name, mask in absent.items()}
            if context.keeps_absent
            else None,
            nulled=nulled,
        )
        if differs.any():
            mask = pa.array(differs)
            removed.append(pa.array(addresses[own][differs]))
            kept = [column.filter(mask) for column in columns]
            if is_matched(entity_type):
                kept[0] = stored_ids(handle, row_ids[own][differs])
            ids = pa.array(row_ids[own][differs])
            schema = entity_type.arrow_schema.append(pa.field(ROW_ID, pa.uint64()))
            changed.append(pa.RecordBatch.from_arrays([*kept, ids], schema=schema))
    if not changed:
        return MatchOutcome((), (), matched, 0, len(rows))
    datasets = task_store(context.files).datasets
    base = context.bases[entity_type.table_key]
    fragments = datasets.write_fragments(base, pa.Table.from_batches(changed), row_id_column=ROW_ID)
    deletions = datasets.write_deletions(base, pa.concat_arrays(removed))
    count = sum(batch.num_rows for batch in changed)
    return MatchOutcome(fragments, deletions, matched, count, len(rows) - count, nulled)


def _hits(context: LoadContext, task: MatchTask) -> tuple[Integers, np.ndarray, np.ndarray]:
    found: list[tuple[Integers, np.ndarray, np.ndarray]] = []
    for slab in task.stored.slabs(context, ("id",), with_rows=True):
        ids = flat(slab["id"])
        rows = task.ids.rows_of_some(ids) if task.is_prefiltered else task.ids.rows_of(ids)
        hits = rows >= 0
        if hits.any():
            own, places = (flat(slab[name]).to_numpy()[hits] for name in (ROW_ID, ROW_ADDRESS))
            found.append((rows[hits], own, places))
    if not found:
        nothing = np.zeros(0, np.uint64)
        return np.zeros(0, np.int64), nothing, nothing
    rows, ids, addresses = (np.concatenate(part) for part in zip(*found, strict=True))
    return rows, ids, addresses


def _staged_rows(
    context: LoadContext, entity_type: EntityType, staged: StagedFragments, rows: Integers
) -> pa.Table:
    """Read whole staged rows, in the order given."""
    order = np.argsort(rows)
    addresses = staged.addresses(rows[order])
    numbers = np.unique(addresses >> np.uint64(_OFFSET_BITS))
    parts = []
    for fragment in numbers.tolist():
        low, high = np.searchsorted(
            addresses, [fragment << _OFFSET_BITS, (fragment + 1) << _OFFSET_BITS]
        )
        offsets = (addresses[low:high] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        rows_of = Slice(entity_type.table_key, staged.at, (int(fragment),))
        parts.append(_rows_at(context, entity_type, rows_of, offsets))
    together = pa.concat_tables(parts)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return together.take(pa.array(back))


def _rows_at(
    context: LoadContext, entity_type: EntityType, rows: Slice, offsets: Integers
) -> pa.Table:
    """Read rows of one fragment that has no deletions, by ascending offset."""
    kept = []
    start = 0
    for batch in whole_rows(context, entity_type, rows):
        low, high = np.searchsorted(offsets, [start, start + batch.num_rows])
        if high > low:
            kept.append(batch.take(pa.array(offsets[low:high] - start)))
        start += batch.num_rows
    return pa.Table.from_batches(kept, entity_type.arrow_schema)


def whole_rows(
    context: LoadContext,
    entity_type: EntityType,
    rows: Slice,
    *,
    columns: Sequence[str] | None = None,
    with_row_ids: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read all columns or some, in row order, in the form in which they are written."""
    asked = entity_type.arrow_schema.names if columns is None else columns
    names = [name for name in entity_type.arrow_schema.names if name in asked]
    schema = pa.schema([entity_type.arrow_schema.field(name) for name in names])
    request = ScanRequest(
        columns=tuple(names),
        fragment_ids=rows.fragment_ids,
        blobs_as_bytes=not set(names).isdisjoint(entity_type.blob_properties),
        with_row_id=with_row_ids,
    )
    for batch in rows.open(context).scan(request):
        arrays = [
            as_blobs(batch[name]) if name in entity_type.blob_properties else batch[name]
            for name in names
        ]
        whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
        yield whole.append_column(ROW_ID, batch[ROW_ID]) if with_row_ids else whole


def as_blobs(column: pa.Array) -> pa.Array:
    """Return bytes in the form in which blobs are written."""
    data = column.cast(BLOB_STORAGE.field(0).type)
    uris = pa.nulls(len(column), BLOB_STORAGE.field(1).type)
    return blob_column(data, uris, column.is_valid().to_numpy(zero_copy_only=False))


# -- writing staged rows again --------------------------------------------------------------------


@dataclass(frozen=True)
class RewriteTask:
    """Staged fragments to write again as one, without the rows that the files name."""

    rows: Slice
    first_row: int
    row_count: int
    dropped: tuple[str, ...]


def rewrite_staged(
    context: LoadContext, task: RewriteTask, number: int
) -> tuple[WrittenFragment, ...]:
    """Write the rows that stay; return their fragments, none if no row stays."""
    del number
    entity_type = context.entity_type(task.rows.table_key)
    end = task.first_row + task.row_count
    leaving = dropped_rows(context, task.dropped, first=task.first_row, end=end)

    def staying() -> Iterator[pa.RecordBatch]:
        start = task.first_row
        for batch in whole_rows(context, entity_type, task.rows):
            low, high = np.searchsorted(leaving, [start, start + batch.num_rows])
            mask = np.ones(batch.num_rows, np.bool_)
            mask[leaving[low:high] - start] = False
            start += batch.num_rows
            yield batch if high == low else batch.filter(pa.array(mask))

    batches = (batch for batch in staying() if batch.num_rows)
    first = next(batches, None)
    if first is None:
        return ()

    def everything() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    reader = pa.RecordBatchReader.from_batches(entity_type.arrow_schema, everything())
    return task_store(context.files).datasets.write_fragments(
        context.bases[entity_type.table_key],
        reader,
        replacing_schema=entity_type.arrow_schema if context.replaces else None,
    )
