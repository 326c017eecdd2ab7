"""Staging: a change becomes one transaction per table, and no head moves.

1. A table that the branch does not own yet is forked first; files belong to the fork.
2. Rows whose ids are known to be new are appended. Otherwise the ids are looked up, stored rows are
   rewritten under their stable row ids, and everything goes into one update.
3. Rows are streamed: no copy of the change is held in memory.
4. A table without a change is not touched.
5. Appended rows do not depend on what is stored. An attempt that lost a race leaves them in
   `prestaged`, and the next one on the same lineage uses the files again.
6. A few rows of which none is known to be stored are written while they are still being validated
   (`prestage_new_rows`). If one of them turns out to be stored, the file is removed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.manifest import Repository, Snapshot
from omnigraph.manifest.forks import WriteBase, write_base
from omnigraph.manifest.layout import Incarnation
from omnigraph.names import TableKey
from omnigraph.store import DatasetStore, Store
from omnigraph.store.objects.protocol import ObjectStore
from omnigraph.store.records import WrittenFragment
from omnigraph.write.commit.job import TableWrite
from omnigraph.write.stage.columns import Integers, Mask, concatenated
from omnigraph.write.stage.delta import GraphDelta, TableDelta
from omnigraph.write.stage.stage_rows import stage_rows, write_rewritten
from omnigraph.write.stage.stored_rows import Located, StoredRows

PrestagedRows: TypeAlias = "dict[tuple[str, str, str | None], tuple[WrittenFragment, ...]]"
"""Appended rows that are written already, by table and lineage."""
_GUESSED_ROWS_MAX: Final = 256
"""Writing so few rows in vain costs less than waiting for the look-up."""


def stage_delta(
    delta: GraphDelta,
    snapshot: Snapshot,
    incarnation: Incarnation,
    repository: Repository,
    *,
    operation_id: str,
    prestaged: PrestagedRows | None = None,
    stored: StoredRows | None = None,
) -> tuple[TableWrite, ...]:
    """Stage every changed table; the result goes into `WriteJob.tables`.

    The change has been validated against the same snapshot. `operation_id` is new for every
    attempt, because forks are named after it. Ids to be deleted that are not stored are left out;
    a table without a remaining change is left out too. Give the same `prestaged` to all attempts of
    one operation. `stored` has what validation has looked up in the same snapshot.
    """
    work = _Work(
        stored or StoredRows(snapshot),
        incarnation,
        repository.store,
        operation_id,
        {} if prestaged is None else prestaged,
    )
    writes = (
        _stage_table(table, work)
        for _, table in sorted(delta.tables.items(), key=_nodes_first)
        if not table.is_empty
    )
    with repository.store.flusher.together():
        return tuple(write for write in writes if write is not None)


@contextmanager
def prestage_new_rows(
    delta: GraphDelta, snapshot: Snapshot, incarnation: Incarnation, repository: Repository
) -> Iterator[PrestagedRows]:
    """Write rows that are likely to be new, in parallel with a block that validates the change.

    Yields the `prestaged` of `stage_delta`; it is complete after the block. The files of a change
    that did not pass are removed.
    """
    prestaged: PrestagedRows = {}
    store = repository.store
    started: dict[tuple[str, str, str | None], Future[tuple[WrittenFragment, ...]]] = {}
    for key, table in delta.tables.items():
        entry = snapshot.entry(key)
        # A table that the branch does not own is forked first; a fork is more than an unnamed file.
        if _is_likely_new(table) and entry.owner_branch == incarnation.text:
            base = entry.at
            write = partial(store.datasets.write_fragments, base, table.rows)
            started[key, base.location, base.branch] = store.background.start(write)
    try:
        yield prestaged
        prestaged |= {lineage: written.result() for lineage, written in started.items()}
    except BaseException:
        wait(started.values())
        for written in started.values():
            if written.exception() is None:
                _remove_files(written.result(), store.objects)
        raise


def _remove_files(fragments: Iterable[WrittenFragment], objects: ObjectStore) -> None:
    """Remove files that are not needed, as far as possible: `cleanup` finds the rest."""
    for file in (file for fragment in fragments for file in fragment.files):
        with suppress(OmnigraphError):
            objects.delete(file.path)


@dataclass(frozen=True)
class _Work:
    """The inputs of one attempt."""

    stored: StoredRows
    incarnation: Incarnation
    store: Store
    operation_id: str
    prestaged: PrestagedRows


def _nodes_first(item: tuple[str, TableDelta]) -> tuple[bool, str]:
    return TableKey(item[0]).is_edge, item[0]


def _stage_table(delta: TableDelta, work: _Work) -> TableWrite | None:
    located = _located(delta, work.stored)
    if not delta.rows.num_rows and located is not None and not located.count:
        return None
    entry, datasets = work.stored.entry(delta.table_key), work.store.datasets
    base = write_base(datasets, work.incarnation, entry, operation_id=work.operation_id)
    with base.staging(datasets):
        if located is None or not located.count:
            appended = _appended(delta, base, work)
            return stage_rows(delta.table_key, base, datasets, fragments=appended)
        unused = work.prestaged.pop(_lineage(delta, base), ())
        _remove_files(unused, work.store.objects)
        fragments = _updated(delta.rows, located, base, datasets)
        addresses = pa.array(located.addresses[located.found])
        deletions = datasets.write_deletions(base.base, addresses)
        return stage_rows(delta.table_key, base, datasets, fragments=fragments, deletions=deletions)


def _appended(delta: TableDelta, base: WriteBase, work: _Work) -> tuple[WrittenFragment, ...]:
    lineage = _lineage(delta, base)
    if lineage not in work.prestaged:
        work.prestaged[lineage] = work.store.datasets.write_fragments(base.base, delta.rows)
    return work.prestaged[lineage]


def _lineage(delta: TableDelta, base: WriteBase) -> tuple[str, str, str | None]:
    return delta.table_key, base.base.location, base.base.branch


def _located(delta: TableDelta, stored: StoredRows) -> Located | None:
    """Find the stored rows that the change touches; None when it can touch none."""
    if _can_only_append(delta):
        return None
    return stored.locate(delta.table_key, concatenated(delta.rows["id"], delta.deleted))


def _can_only_append(delta: TableDelta) -> bool:
    """Whether the change is new rows and nothing else."""
    return delta.ids_are_new and not len(delta.deleted)


def _is_likely_new(delta: TableDelta) -> bool:
    """Whether to write the rows as new ones before any look-up."""
    if _can_only_append(delta):
        return bool(delta.rows.num_rows)
    return delta.is_insert and 0 < delta.rows.num_rows <= _GUESSED_ROWS_MAX


def _updated(
    rows: pa.Table, located: Located, base: WriteBase, datasets: DatasetStore
) -> list[WrittenFragment]:
    """Write stored rows under their row ids, and all others as new rows."""
    is_stored = located.found[: rows.num_rows]
    fragments: list[WrittenFragment] = []
    if is_stored.any():
        picked = _picked(rows, is_stored)
        numbered = ((batch, located.row_ids[numbers]) for batch, numbers in picked)
        fragments += write_rewritten(datasets, base.base, rows.schema, numbered)
    if not is_stored.all():
        batches = (batch for batch, _ in _picked(rows, ~is_stored))
        reader = pa.RecordBatchReader.from_batches(rows.schema, batches)
        fragments += datasets.write_fragments(base.base, reader)
    return fragments


def _picked(rows: pa.Table, mask: Mask) -> Iterator[tuple[pa.RecordBatch, Integers]]:
    """Yield some of the rows batch by batch, with their numbers."""
    start = 0
    for batch in rows.to_batches():
        own = mask[start : start + batch.num_rows]
        yield batch.filter(pa.array(own)), start + np.flatnonzero(own)
        start += batch.num_rows
