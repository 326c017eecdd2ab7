"""Rows of one table before the commit: written as fragments while they come, or spooled.

1. Rows that can only be appended, or that replace a whole table, need not wait for the checks: from
   `_STREAM_BYTES_MIN` on they are written as fragments of the table's lineage while more are read.
   Nothing refers to these files before the commit. A staging record protects them while the load
   lives; when it fails, `cleanup` removes them.
2. Rows that may replace stored ones, may still be rejected, or have blobs wait in a `Spool`.
3. Either way all rows can be read again in their order, column by column, and written again: for
   another lineage, or without some of them.
4. A small load writes nothing before it has been checked.
5. A writer needs memory for every column, so no more than `STREAMS_MAX` run at the same time. Where
   records of many types are mixed, the rows of the others are spooled and written one type after
   another. A source that reads type by type ends each writer before the next begins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, Full, Queue
from typing import Final

import pyarrow as pa

from omnigraph.clock import Clock
from omnigraph.dataclass import dataclass
from omnigraph.manifest.forks import WriteBase, write_base
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.rows import Entry
from omnigraph.store.datasets import DatasetHandle, DatasetStore
from omnigraph.store.records import ScanRequest, StagedTransaction, WrittenFragment
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.stage.columns import Mask
from omnigraph.write.stage.staging_record import DatasetBase, LazyRecord

_STREAM_BYTES_MIN: Final = 8 << 20
_WAITING_BYTES_MAX: Final = 32 << 20
"""Rows of all types that wait for their writer or for the end of the input."""
STREAMS_MAX: Final = 4
_QUEUE_BATCHES_MAX: Final = 4
_PUT_WAIT_S: Final = 0.2

Fragments = tuple["WrittenFragment", ...]


class TableBases:
    """Where a load may write to its tables; a fork is cut once for every published entry."""

    def __init__(
        self,
        datasets: DatasetStore,
        incarnation: Incarnation,
        clock: Clock,
        record: LazyRecord | None = None,
    ) -> None:
        self.datasets = datasets
        self._incarnation = incarnation
        self._clock = clock
        self._record = record
        self._known: dict[str, WriteBase] = {}

    def of(self, entry: Entry) -> WriteBase:
        """Return where to stage on top of an entry."""
        known = self._known.get(entry.table_key)
        if known is not None and known.entry == entry:
            return known
        operation_id = self._clock.ulid()
        made = write_base(self.datasets, self._incarnation, entry, operation_id=operation_id)
        self._known[entry.table_key] = made
        return made

    def require_forks(self) -> None:
        """Raise when a cleanup has removed a fork that this load has cut."""
        for base in self._known.values():
            base.require_fork(self.datasets)

    def declare(self, base: WriteBase) -> None:
        """Protect files that are written long before their commit; called before the first one."""
        if self._record is not None:
            self._record.declare(DatasetBase.of(base.base))


@dataclass(frozen=True)
class Destination:
    """The table that rows go to: its published entry, and whether they replace all of it."""

    bases: TableBases
    entry: Entry
    schema: pa.Schema
    is_overwrite: bool

    def write(self, base: WriteBase, rows: pa.RecordBatchReader) -> Fragments:
        """Write rows as fragments."""
        replacing = self.schema if self.is_overwrite else None
        return self.bases.datasets.write_fragments(base.base, rows, replacing_schema=replacing)

    def stage(self, base: WriteBase, fragments: Fragments) -> StagedTransaction:
        """Make a transaction of fragments."""
        datasets = self.bases.datasets
        if self.is_overwrite:
            return datasets.stage_overwrite(base.base, self.schema, fragments=fragments)
        return datasets.stage_append(base.base, fragments=fragments)


class _Abandoned(Exception):  # noqa: N818 - a signal between two threads, never caught by name
    """The load has failed: the rows are not needed any more."""


class FragmentStream:
    """Writes batches as fragments in a thread of its own, while more of them are made."""

    def __init__(
        self, schema: pa.Schema, write: Callable[[pa.RecordBatchReader], Fragments]
    ) -> None:
        self._schema = schema
        self._write = write
        self._queue: Queue[pa.RecordBatch | Exception | None] = Queue(_QUEUE_BATCHES_MAX)
        self._failure: BaseException | None = None
        self._fragments: Fragments = ()
        self._thread = threading.Thread(target=self._run, name="omnigraph-load", daemon=True)
        self._thread.start()

    def put(self, batch: pa.RecordBatch) -> None:
        """Add rows; waits while the writer is behind, raises if it has failed."""
        self._send(batch)

    def finish(self) -> Fragments:
        """Return the fragments once all rows are in them."""
        self._send(None)
        self._thread.join()
        self._raise_failure()
        return self._fragments

    def abandon(self) -> None:
        """Stop writing; what is written stays behind, unreferenced."""
        if self._thread.is_alive():
            while True:
                try:
                    self._queue.put_nowait(_Abandoned())
                    break
                except Full:
                    self._drop_one()
            self._thread.join()

    def _drop_one(self) -> None:
        try:
            self._queue.get_nowait()
        except Empty:
            return

    def _send(self, item: pa.RecordBatch | None) -> None:
        while True:
            self._raise_failure()
            try:
                self._queue.put(item, timeout=_PUT_WAIT_S)
            except Full:
                continue
            return

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            reader = pa.RecordBatchReader.from_batches(self._schema, self._received())
            self._fragments = self._write(reader)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
            self._failure = error

    def _received(self) -> Iterator[pa.RecordBatch]:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item


class RowPart:
    """Rows of one table that are all streamed, or all spooled."""

    def __init__(self, destination: Destination, budget: SpoolBudget, *, may_stream: bool) -> None:
        self._destination = destination
        self._schema = destination.schema
        self._budget = budget
        self._spool = budget.spool(self._schema)
        self._may_stream = may_stream
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._stream: FragmentStream | None = None
        self._written: dict[tuple[str, str | None], Fragments] = {}
        self._view: DatasetHandle | None = None
        self._base: WriteBase | None = None
        self.row_count = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.row_count += batch.num_rows
        if not self._may_stream:
            self._spool.append(batch)
        elif self._stream is not None:
            self._stream.put(batch)
        elif batch.num_rows:
            self._wait(batch)

    def _wait(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._budget.waiting_bytes += batch.nbytes
        is_much = self._waiting_bytes >= _STREAM_BYTES_MIN
        if is_much and self._budget.streams < STREAMS_MAX:
            self._start_stream()
        elif is_much or self._budget.waiting_bytes > _WAITING_BYTES_MAX:
            self._spool_waiting()

    def finish(self) -> None:
        """Finish what is written: there are no more rows. May be called again."""
        if self._stream is None:
            self._spool_waiting()
            self._spool.finish()
        elif self._base is not None and _lineage(self._base) not in self._written:
            self._written[_lineage(self._base)] = self._stream.finish()
            self._budget.end_stream()

    def close(self) -> None:
        """Stop what still runs, and remove what was only for reading."""
        if self._stream is not None:
            self._stream.abandon()
        if self._view is not None:
            self._destination.bases.datasets.discard_staged_view(self._view.at)
            self._view = None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read all rows in their order, after `finish`."""
        if self._stream is not None:
            yield from self._staged_batches(columns)
        else:
            yield from self._spool.batches(columns)

    def fragments(self, base: WriteBase, kept: Mask | None = None) -> Fragments:
        """Return all rows, or the kept ones, as fragments of a lineage."""
        lineage = _lineage(base)
        if kept is not None:
            return self._destination.write(base, self._reader(kept))
        if lineage not in self._written:
            self._written[lineage] = self._destination.write(base, self._reader(None))
        return self._written[lineage]

    def _reader(self, kept: Mask | None) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, kept_rows(self.batches(), kept))

    def _start_stream(self) -> None:
        base = self._destination.bases.of(self._destination.entry)
        destination = self._destination
        destination.bases.declare(base)
        self._base = base
        self._stream = FragmentStream(self._schema, lambda rows: destination.write(base, rows))
        self._budget.begin_stream()
        for batch in self._taken_waiting():
            self._stream.put(batch)

    def _spool_waiting(self) -> None:
        """Spool all rows: those that wait, and those that follow."""
        self._may_stream = False
        for batch in self._taken_waiting():
            self._spool.append(batch)

    def _taken_waiting(self) -> list[pa.RecordBatch]:
        waiting, self._waiting = self._waiting, []
        self._budget.waiting_bytes -= self._waiting_bytes
        self._waiting_bytes = 0
        return waiting

    def _staged_batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        view, fragment_ids = self._opened_view()
        names = tuple(self._schema.names if columns is None else columns)
        for batch in view.scan(ScanRequest(columns=names, fragment_ids=fragment_ids)):
            yield batch.cast(self._schema) if columns is None else batch

    def _opened_view(self) -> tuple[DatasetHandle, tuple[int, ...]]:
        if self._base is None:
            raise ValueError("nothing was streamed")
        datasets = self._destination.bases.datasets
        if self._view is None:
            fragments = self._written[_lineage(self._base)]
            self._view = datasets.open_staged(self._destination.stage(self._base, fragments))
        found = {info.fragment_id for info in self._view.fragments()}
        if not self._destination.is_overwrite:
            at = self._base.base
            before = datasets.open(at.location, branch=at.branch, version=at.version)
            found -= {info.fragment_id for info in before.fragments()}
        return self._view, tuple(sorted(found))


def kept_rows(batches: Iterator[pa.RecordBatch], kept: Mask | None) -> Iterator[pa.RecordBatch]:
    """Pass rows on, all or those of a mask."""
    start = 0
    for batch in batches:
        if kept is None:
            yield batch
        else:
            yield batch.filter(pa.array(kept[start : start + batch.num_rows]))
        start += batch.num_rows


def _lineage(base: WriteBase) -> tuple[str, str | None]:
    return base.base.location, base.base.branch
