"""What runs inside of Spark tasks: reading, checking and staging rows.

1. Lance is opened here and nowhere earlier: it does not survive the fork that makes a worker.
2. A task writes its rows once. What another attempt of it wrote is never named by an outcome.
3. Rows of typed tables stream from the source into fragments; what stays in memory is eight bytes
   per row and hash, and the ids where a set of them is needed. Records of graph files are
   kept until the end of the task, because they are of all types; their splits are small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.clock import SystemClock
from omnigraph.names import TableKey
from omnigraph.schema import EdgeType, EntityType
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.spark.load.absent_files import write_absent
from omnigraph.spark.load.key_set import NO_ROW, sorted_run
from omnigraph.spark.load.plan import (
    ABSENT,
    CARDINALITY,
    ENDS,
    FRAME_SOURCE,
    ID,
    MADE,
    NEEDS,
    VIOLATIONS_ALL,
    FileTask,
    LinesSplit,
    LoadContext,
    ParquetSplit,
    RecordsSplit,
    RowsSplit,
    Split,
    StagedPart,
    TaskOutcome,
    runs_of,
    unique_runs,
)
from omnigraph.spark.load.rejected_file import Rejected, encode_rejected
from omnigraph.spark.load.topology_tasks import END_COLUMNS, narrow, write_ends
from omnigraph.spark.load.vectors import VectorsFailedError, stage_vectors
from omnigraph.spark.task_store import task_store
from omnigraph.store.batching import gathered
from omnigraph.write.load.compare import embedded_texts
from omnigraph.write.load.formats.description import SourceSpecError
from omnigraph.write.load.formats.files import InputUnreadableError, open_seekable, open_stream
from omnigraph.write.load.formats.kinds import PARQUET, InputFormatError, format_named
from omnigraph.write.load.formats.rows import RowFile, format_of, prepared, texts_in
from omnigraph.write.load.input.lines import LineReader
from omnigraph.write.load.input.source import read_compatibly, read_strictly
from omnigraph.write.load.input.tables import column_batch
from omnigraph.write.load.match_edges import is_matched
from omnigraph.write.load.partial import lacking, required_properties
from omnigraph.write.load.rows.absent import AbsentMasks, any_of, with_placeholders
from omnigraph.write.load.rows.check_rows import CheckedRows, ColumnBatch, RowRules, check_rows
from omnigraph.write.rules.cardinality import has_cardinality
from omnigraph.write.rules.endpoints import ENDPOINT_RULE, edge_ends, missing_end
from omnigraph.write.rules.violations import VIOLATIONS_MAX, Violation, ViolationLog, position_in
from omnigraph.write.stage.columns import flat
from omnigraph.write.stage.external_blobs import ExternalBlobs

if TYPE_CHECKING:
    from omnigraph.search.topology.csr import Ints
    from omnigraph.store.records import WrittenFragment
    from omnigraph.write.load.check.hashing import Hashes
    from omnigraph.write.stage.columns import Integers, Mask

_BATCH_ROWS: Final = 1 << 17
_BLOCK_BYTES: Final = 4 << 20


# -- entry points ---------------------------------------------------------------------------------


def stage_files(context: LoadContext, task: FileTask, number: int) -> TaskOutcome:
    """Read the splits of a task and stage their rows."""
    try:
        if task.table_key is None:
            return _stage_lines(context, task, number)
        return _stage_rows(context, context.entity_type(task.table_key), task, number)
    except _UnreadableError as error:
        return TaskOutcome((), ViolationLog(), unreadable=(error.path, error.reason))
    except (InputUnreadableError, InputFormatError, SourceSpecError) as error:
        return TaskOutcome((), ViolationLog(), failure=error)
    except VectorsFailedError as failed:
        return TaskOutcome((), ViolationLog(), failure=failed.error)


def stage_batches(
    context: LoadContext,
    table_key: str,
    source: int,
    batches: Iterable[pa.RecordBatch],
    number: int,
) -> TaskOutcome:
    """Stage the rows that Spark hands over; their numbers mean nothing outside of the load."""
    entity_type = context.entity_type(table_key)

    def columns() -> Iterator[ColumnBatch]:
        row = position_in(FRAME_SOURCE + source + number, 1)
        for batch in _whole_batches(batches):
            yield column_batch(entity_type, batch, row)
            row += batch.num_rows

    stage = TypeStage(context, entity_type)
    try:
        part = stage.write(columns(), number)
    except VectorsFailedError as failed:
        return TaskOutcome((), ViolationLog(), failure=failed.error)
    return _outcome(context, (part,), stage.rejects)


def _whole_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine the small batches that Spark hands over, because each batch has a cost."""
    for table in gathered(batches, _BATCH_ROWS):
        yield from table.combine_chunks().to_batches()


# -- reading --------------------------------------------------------------------------------------


class _UnreadableError(Exception):
    """A source cannot be read; becomes part of the outcome."""

    def __init__(self, path: str, error: Exception) -> None:
        self.path = path
        self.reason = str(error)
        super().__init__(path, error)


def _stage_rows(
    context: LoadContext, entity_type: EntityType, task: FileTask, number: int
) -> TaskOutcome:
    stage = TypeStage(context, entity_type)
    batches = chain.from_iterable(
        _batches_of(context, entity_type, split, stage.rejects) for split in task.splits
    )
    part = stage.write(batches, number)
    stage.rejects.end_batch()
    return _outcome(context, (part,), stage.rejects)


def _batches_of(
    context: LoadContext, entity_type: EntityType, split: Split, rejects: Rejects
) -> Iterator[ColumnBatch]:
    options = context.files.settings.storage_options
    if isinstance(split, ParquetSplit):
        yield from _parquet_batches(entity_type, split, options)
    elif isinstance(split, RowsSplit):
        form = format_of(split.file, split.rows_of, options)
        opened = RowFile(entity_type, split.file, split.rows_of, form, options)
        first = position_in(split.source, 1)
        yield from opened.rows(context.catalog, first, rejects.refuse)


def _parquet_batches(
    entity_type: EntityType, split: ParquetSplit, options: Mapping[str, str]
) -> Iterator[ColumnBatch]:
    try:
        with pq.ParquetFile(open_seekable(split.file.path, options)) as file:
            for group, first in zip(split.groups, split.first_rows, strict=True):
                row = position_in(split.source, first)
                for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group]):
                    whole = prepared(batch, entity_type, split.file, split.columns)
                    texts = texts_in(whole, split.file, PARQUET)
                    yield column_batch(entity_type, whole, row, texts)
                    row += batch.num_rows
    except (OSError, pa.ArrowInvalid) as error:
        raise _UnreadableError(split.file.path, error) from error


def _stage_lines(context: LoadContext, task: FileTask, number: int) -> TaskOutcome:
    sink = _RecordSink(context)
    lines: dict[int, int] = {}
    if context.conversion is ConversionMode.COMPATIBLE:
        for split in task.splits:
            _read_values(context, split, sink)
        return _staged_records(context, sink, number, lines)
    reader = LineReader(context.catalog, sink)
    options = context.files.settings.storage_options
    for split in task.splits:
        first = position_in(split.source, 1)
        if isinstance(split, RecordsSplit):
            _read_records(context, split, sink, first)
        elif isinstance(split, LinesSplit):
            lines[split.source] = 0
            for block in _blocks(_lines(split, options)):
                reader.read(block, first + lines[split.source])
                lines[split.source] += block.count(b"\n")
    return _staged_records(context, sink, number, lines)


def _read_records(context: LoadContext, split: RecordsSplit, sink: _RecordSink, first: int) -> None:
    with open_stream(split.path, context.files.settings.storage_options) as source:
        read_strictly(source, format_named(split.form), context.catalog, sink, first)


def _read_values(context: LoadContext, split: Split, sink: _RecordSink) -> None:
    if isinstance(split, LinesSplit):
        with open_stream(split.path, context.files.settings.storage_options) as source:
            read_compatibly(source, context.catalog, sink, position_in(split.source, 1))


def _staged_records(
    context: LoadContext, sink: _RecordSink, number: int, lines: Mapping[int, int]
) -> TaskOutcome:
    parts = [stage.write(iter(batches), number) for stage, batches in sink.waiting.values()]
    return _outcome(context, parts, sink.rejects, lines)


def _blocks(text: bytes) -> Iterator[bytes]:
    """Divide a text at ends of lines: a block that is not plain is read again as a whole."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _BLOCK_BYTES) + 1 or len(text)
        yield text[start:end]
        start = end


class Rejects:
    """The records that a task rejects, and why."""

    def __init__(self, *, keeps_records: bool) -> None:
        self.log = ViolationLog()
        self.bad_records = 0
        self.kept: list[Rejected] = []
        self.respelled: set[str] = set()
        self.keeps_records = keeps_records
        self._refused: dict[int, tuple[object, list[Violation]]] = {}

    def refuse(self, violation: Violation, record: object) -> None:
        """Take a record that is no row."""
        self.log.add(violation)
        known = self._refused.setdefault(violation.position or 0, (record, []))
        known[1].append(violation)

    def take(self, entity_type: EntityType, batch: ColumnBatch, checked: CheckedRows) -> None:
        """Take the bad rows of a batch."""
        self.log.absorb(checked.log)
        if checked.spellings is not None:
            self.respelled.add(entity_type.table_key)
        rows = np.flatnonzero(checked.bad).tolist()
        self.bad_records += len(rows)
        if not self.keeps_records or not rows:
            return
        by_position: dict[int, list[Violation]] = {}
        for violation in checked.log.kept:
            by_position.setdefault(violation.position or 0, []).append(violation)
        for row in rows:
            found = by_position[batch.positions[row].as_py()]
            self.kept.append((entity_type.table_key, batch.record(row), found))

    def end_batch(self) -> None:
        """Count the records that were refused since the last call."""
        self.bad_records += len(self._refused)
        if self.keeps_records:
            self.kept += [(None, record, found) for record, found in self._refused.values()]
        self._refused.clear()


def _outcome(
    context: LoadContext,
    parts: Sequence[StagedPart],
    rejects: Rejects,
    lines: Mapping[int, int] | None = None,
) -> TaskOutcome:
    rejected = None
    if rejects.kept:
        rejected = context.files.write_bytes("rejected", encode_rejected(rejects.kept))
    return TaskOutcome(
        tuple(parts),
        rejects.log,
        rejects.bad_records,
        rejected,
        dict(lines or {}),
        respelled=frozenset(rejects.respelled),
    )


class _RecordSink:
    """Keeps the records of a task by type."""

    def __init__(self, context: LoadContext) -> None:
        self.rejects = Rejects(keeps_records=context.keeps_rejected)
        self.waiting: dict[str, tuple[TypeStage, list[ColumnBatch]]] = {}
        self._context = context

    def begin(self, name: str | None, place: str | None = None) -> int:
        """Start the next input; the task numbers its splits itself."""
        del name, place
        return 1

    def add(self, entity_type: EntityType, batch: ColumnBatch) -> None:
        """Take rows of one type."""
        if entity_type.table_key not in self.waiting:
            stage = TypeStage(self._context, entity_type, self.rejects)
            self.waiting[entity_type.table_key] = (stage, [])
        self.waiting[entity_type.table_key][1].append(batch)

    def refuse(self, violation: Violation, record: object) -> None:
        """Take a record that is no row."""
        self.rejects.refuse(violation, record)

    def end_batch(self) -> None:
        """Finish a batch."""
        self.rejects.end_batch()


def _lines(split: LinesSplit, options: Mapping[str, str]) -> bytes:
    """Read the lines that begin in a split; the last one may end behind it."""
    try:
        with open_seekable(split.path, options) as file:
            start = split.start
            if start:
                # A line belongs to the split in which its first byte lies.
                file.seek(start - 1)
                start += len(_rest_of_line(file)) - 1
            if start >= split.end:
                return b""
            file.seek(start)
            text: bytes = file.read(split.end - start)
            if not text.endswith(b"\n"):
                text += _rest_of_line(file)
            return text
    except OSError as error:
        raise _UnreadableError(split.path, error) from error


def _rest_of_line(file: pa.NativeFile) -> bytes:
    pieces = []
    while piece := file.read(1 << 16):
        end = piece.find(b"\n")
        if end >= 0:
            pieces.append(piece[: end + 1])
            break
        pieces.append(piece)
    return b"".join(pieces)


# -- staging --------------------------------------------------------------------------------------


class TypeStage:
    """Checks and writes the rows of one type in one task."""

    def __init__(
        self, context: LoadContext, entity_type: EntityType, rejects: Rejects | None = None
    ) -> None:
        self.rejects = rejects or Rejects(keeps_records=context.keeps_rejected)
        self._context = context
        self._entity_type = entity_type
        storage_options = context.files.settings.storage_options
        external = ExternalBlobs(context.external_blob_bases, storage_options)
        self._vectors = stage_vectors(context, entity_type)
        self._rules = RowRules(
            entity_type,
            context.conversion,
            external,
            copies_external=not context.replaces,
            violations_max=VIOLATIONS_ALL if context.keeps_rejected else VIOLATIONS_MAX,
            filled=frozenset() if self._vectors is None else self._vectors.targets,
            keeps_absent=context.tracks_absent,
            null_cells_are_absent=context.null_cells_are_absent,
        )
        self._absent: list[tuple[AbsentMasks, int]] = []
        self._needs: list[Integers] = []
        self._changes_texts = False
        self._lacks_without_id = False
        self._required = required_properties(entity_type)
        self._clock = SystemClock()
        self._records = 0
        self._ids_are_new = True
        self._positions: list[pa.Array] = []
        self._made: list[Mask] = []
        self._missing = ViolationLog()
        self._ids: list[pa.Array] = []
        self._id_rows: list[Integers] = []
        self._rows = 0
        self._hashes: dict[str, list[Hashes]] = {}
        self._valid: dict[str, list[Mask]] = {}
        self._sources = embedded_texts(entity_type)
        self._is_end = entity_type.table_key in context.ends
        self._tuples = unique_runs(entity_type)
        self._counts_sources = has_cardinality(entity_type)
        self._ends = self._probed_ends()
        self._keeps_ends = context.keeps_ends and len(self._ends) == len(END_COLUMNS)
        self._end_numbers: dict[str, list[Ints]] = {end: [] for end in END_COLUMNS}

    def _probed_ends(self) -> tuple[tuple[str, str], ...]:
        if not isinstance(self._entity_type, EdgeType):
            return ()
        ends = [(end, TableKey.node(name)) for end, name in edge_ends(self._entity_type)]
        return tuple((end, key) for end, key in ends if key in self._context.sets)

    def write(self, batches: Iterator[ColumnBatch], order: int) -> StagedPart:
        """Write the good rows; the others go to `rejects`."""
        good = (rows for rows in map(self._checked, batches) if rows.num_rows)
        first = next(good, None)
        fragments: tuple[WrittenFragment, ...] = ()
        if first is not None:
            schema = self._entity_type.arrow_schema
            reader = pa.RecordBatchReader.from_batches(schema, chain([first], good))
            fragments = task_store(self._context.files).datasets.write_fragments(
                self._context.bases[self._entity_type.table_key],
                reader,
                replacing_schema=schema if self._context.replaces else None,
            )
        positions = [part.to_numpy() for part in self._positions]
        return StagedPart(
            table_key=self._entity_type.table_key,
            order=order,
            records=self._records,
            fragments=fragments,
            ids_are_new=self._ids_are_new,
            positions=runs_of(np.concatenate(positions) if positions else np.zeros(0, np.int64)),
            side_files=self._side_files(),
            missing=self._missing,
            embedded=None if self._vectors is None else self._vectors.noted(),
            absent=frozenset(name for absent, _ in self._absent for name in absent),
            absent_everywhere=self._absent_everywhere(),
            changes_texts=self._changes_texts,
            lacks_without_id=self._lacks_without_id,
            made=sum(int(np.count_nonzero(made)) for made in self._made),
        )

    def _absent_everywhere(self) -> frozenset[str]:
        found = [
            {name for name, mask in absent.items() if mask.all()}
            for absent, count in self._absent
            if count
        ]
        return frozenset(set.intersection(*found)) if found else frozenset()

    def _checked(self, batch: ColumnBatch) -> pa.RecordBatch:
        self._records += len(batch.positions)
        checked = check_rows(self._rules, batch, self._clock)
        if self._vectors is not None and checked.rows.num_rows:
            checked = self._vectors.filled(checked)
        self.rejects.take(self._entity_type, batch, checked)
        self._ids_are_new &= checked.ids_are_new
        self._positions.append(checked.positions)
        if checked.rows.num_rows:
            self._made.append(checked.is_made)
            if self._is_end or not checked.ids_are_new:
                self._remember_ids(checked.rows)
            self._remember(checked.rows)
            self._probe(checked.rows, checked.positions)
            self._remember_absent(checked)
            self._rows += checked.rows.num_rows
        return with_placeholders(checked.rows) if checked.absent else checked.rows

    def _remember_absent(self, checked: CheckedRows) -> None:
        count, absent = checked.rows.num_rows, checked.absent
        self._absent.append((absent, count))
        for name in self._required:
            lacks = lacking(absent, name, count)
            self._lacks_without_id |= bool((lacks & checked.is_made).any())
            lacks &= ~checked.is_made
            if lacks.any():
                self._needs.append(np.flatnonzero(lacks) + self._rows)
                source = self._sources.get(name)
                if source is not None and (lacks & ~any_of(absent, (source,), count)).any():
                    self._changes_texts = True

    def _remember_ids(self, rows: pa.RecordBatch) -> None:
        self._ids.append(rows["id"])
        self._id_rows.append(np.arange(self._rows, self._rows + rows.num_rows))
        self._hashes.setdefault(ID, []).append(self._context.scheme.texts(rows["id"]))

    def _remember(self, rows: pa.RecordBatch) -> None:
        scheme = self._context.scheme
        for name, members in self._tuples.items():
            hashes, valid = scheme.tuples([rows[member] for member in members])
            self._hashes.setdefault(name, []).append(hashes)
            self._valid.setdefault(name, []).append(valid)
        if self._counts_sources:
            self._hashes.setdefault(CARDINALITY, []).append(scheme.texts(rows["src"]))

    def _probe(self, rows: pa.RecordBatch, positions: pa.Array) -> None:
        edge = self._entity_type
        if not isinstance(edge, EdgeType):
            return
        for end, node_key in self._ends:
            found = self._found(end, node_key, rows[end])
            if found.all():
                continue
            missing = np.flatnonzero(~found)
            shown = missing[: self._missing.room].tolist()
            for row in shown:
                position = positions[row].as_py()
                self._missing.add(missing_end(edge, end, rows[end][row].as_py(), position))
            self._missing.count(ENDPOINT_RULE, len(missing) - len(shown))

    def _found(self, end: str, node_key: str, ids: pa.Array) -> Mask:
        known = self._context.sets[node_key]
        if not self._keeps_ends:
            return known.contains(ids)
        numbers = known.rows_of(ids)
        self._end_numbers[end].append(narrow(numbers))
        found: Mask = numbers != NO_ROW
        return found

    def _side_files(self) -> dict[str, str]:
        files = self._context.files
        written = {}
        if self._keeps_ends and self._rows:
            written[ENDS] = write_ends(files, self._end_numbers)
        if any(absent for absent, _ in self._absent):
            written[ABSENT] = write_absent(files, self._entity_type, self._absent)
        if self._needs:
            written[NEEDS] = self._needed_ids()
        if is_matched(self._entity_type) and not self._ids_are_new:
            # Also in loads that match no edges: a quarantine leaves out the ids that were made.
            rows = np.flatnonzero(np.concatenate(self._made or [np.zeros(0, np.bool_)]))
            written[MADE] = files.write(MADE, pa.table({"row": rows}))
        for name, parts in self._hashes.items():
            hashes = np.concatenate(parts)
            if name == ID:
                ids = flat(pa.chunked_array(self._ids))
                run = sorted_run(hashes, ids, np.concatenate(self._id_rows))
            elif name == CARDINALITY:
                distinct, counts = np.unique(hashes, return_counts=True)
                run = pa.table({"hash": distinct, "count": counts.astype(np.int64)})
            else:
                rows = np.flatnonzero(np.concatenate(self._valid[name]))
                order = rows[np.argsort(hashes[rows])]
                run = pa.table({"hash": hashes[order], "row": order})
            written[name] = files.write(f"{name}-{_safe(self._entity_type.table_key)}", run)
        return written

    def _needed_ids(self) -> str:
        """Write the ids of rows that have to be stored, because they lack a required property."""
        rows = np.concatenate(self._id_rows)
        own = np.isin(rows, np.concatenate(self._needs))
        hashes = np.concatenate(self._hashes[ID])[own]
        ids = flat(pa.chunked_array(self._ids)).filter(pa.array(own))
        name = f"{NEEDS}-{_safe(self._entity_type.table_key)}"
        return self._context.files.write(name, sorted_run(hashes, ids, rows[own]))


def _safe(table_key: str) -> str:
    return table_key.replace(":", "-")
