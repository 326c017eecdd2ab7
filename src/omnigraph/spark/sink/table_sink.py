"""Writes one type of a graph from Spark: `df.write.format("omnigraph")`.

Spark runs the commit of a write in a worker process without a session. So this way is for smaller
writes: tasks put their rows into side files as they are, and that worker loads them in process.

1. A task's files have names of their own for every attempt; only those that Spark reports are read.
   All tasks of a write renew one `__staging` record while they run, and so does the commit: no
   cleanup takes their files for leftovers, however long the write takes.
2. The load is the in-process one: same rules, same commit protocol, all rows or none.
3. The size of a write is bounded: more than `STAGED_BYTES_MAX` is refused, with a hint at
   `Graph.load`, which has no bound.
4. `abort` deletes nothing: other attempts may still write, and `cleanup` finds what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from omnigraph.clock import SystemClock
from omnigraph.errors import InvalidInputError, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.lineage import Job
from omnigraph.names import check_actor, check_commit_texts
from omnigraph.schema import EntityType
from omnigraph.spark.load.side_files import SideFiles
from omnigraph.spark.source.options import (
    SourceOptionError,
    SourceOptions,
    name_list,
    refuse_options,
    subject_of,
)
from omnigraph.spark.source.pin import open_pinned
from omnigraph.spark.source.tables import find_type
from omnigraph.store import StoreSettings
from omnigraph.store.batching import bytes_of, gathered
from omnigraph.store.connect import open_objects
from omnigraph.store.durability import DURABILITIES, Durability
from omnigraph.values import Scalar
from omnigraph.write.load.input.tables import column_problems
from omnigraph.write.load.options import (
    EdgeIdentity,
    Missing,
    NullCells,
    OnDuplicate,
    RowsTiedError,
)
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.staging_record import StagingRecords

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from omnigraph.spark.source.scan import Pin
    from omnigraph.write.stage.staging_record import StagingJob

STAGED_BYTES_MAX: Final = 1 << 30
_FILE_BYTES: Final = 64 << 20
_US_PER_MS: Final = 1_000

COMMIT_TAG: Final = "commit_tag"
TRUNCATED: Final = "truncated_moments"
"""Names of commit properties: what the caller gave, and how many moments lost a fraction."""

_READ_ONLY: Final = (
    *("columns", "filter", "fragmentsPerPartition", "follow", "versionAsOf", "timestampAsOf"),
)
_OTHER_ENDS: Final = {"src": "from", "dst": "to"}
_MISSING: Final = (*Missing, "error")
"""What becomes of properties that the frame has no column for; `error` refuses the frame."""


class SinkTooLargeError(InvalidInputError):
    """A write is too large to be checked in one process."""

    code = "OG-SPARK-SINK"
    hint = "use `graph.load({{type: frame}}, mode=…)`, which checks on Spark and has no bound"
    template = (
        f"the rows are {{staged_bytes}} bytes and `df.write` checks at most {STAGED_BYTES_MAX}"
        " in one process; nothing was written: use `graph.load({{type: frame}}, mode=…)`"
    )
    staged_bytes: int


@dataclass(frozen=True)
class WriteTarget:
    """Where rows go and how: picklable, so that tasks and the committing worker have it."""

    settings: StoreSettings
    branch: str
    kind: str
    name: str
    mode: WriteMode
    moments: tuple[str, ...]
    """Columns whose fractions of a millisecond get lost."""
    actor_id: str | None = None
    message: str | None = None
    commit_tag: str | None = None
    operation_id: str = ""
    """Under which all tasks of the write leave their files."""
    on_duplicate: OnDuplicate = OnDuplicate.ERROR
    job: str = "df.write"
    """What the lineage of the commit calls the write."""
    order_by: tuple[str, ...] = ()
    """The columns by which several rows of one id are ordered."""
    identity: tuple[str, ...] = ()
    """The columns that make the id of a row."""
    missing: Missing | None = None
    null_cells: NullCells = NullCells.NULL
    edges: EdgeIdentity | None = None
    """What edges without an id mean in a merge."""

    @property
    def properties(self) -> dict[str, str]:
        """What the commit remembers."""
        return {} if self.commit_tag is None else {COMMIT_TAG: self.commit_tag}

    def open(self) -> Graph:
        """Open the graph for writing."""
        return Graph.open(
            self.settings.root.uri,
            branch=self.branch,
            storage_options=self.settings.storage_options,
            durability=self.settings.durability,
        )


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """What one task has left."""

    files: SideFiles
    paths: tuple[str, ...]
    rows: int
    bytes: int
    truncated: int


def write_target(
    options: SourceOptions, pin: Pin, schema: StructType, *, overwrite: bool
) -> WriteTarget:
    """Check the options of a write before any row moves."""
    kind, name = subject_of(options)
    if kind not in ("node", "edge"):
        raise SourceOptionError(kind, "can only be read: name a `node` or an `edge` type to write")
    refuse_options(options, "a write", _READ_ONLY)
    check_actor(options["actor"])
    check_commit_texts(message=options["message"])
    entity_type = find_type(open_pinned(pin), kind, name)
    problems = [problem.message for problem in column_problems(entity_type, schema.fieldNames())]
    if problems:
        raise SourceOptionError(kind, f"does not fit the frame: {'; '.join(problems)}")
    return WriteTarget(
        settings=replace(pin.settings, durability=_durability(options)),
        branch=pin.branch,
        kind=kind,
        name=name,
        mode=_mode(options, overwrite=overwrite),
        moments=_moments(entity_type, schema),
        actor_id=options["actor"],
        message=options["message"],
        commit_tag=options["commitTag"],
        operation_id=f"spark-{SystemClock().ulid()}",
        on_duplicate=_on_duplicate(options),
        order_by=_order_by(options, schema.fieldNames()),
        identity=_identity(entity_type, schema.fieldNames()),
        missing=_missing(options, entity_type, schema.fieldNames()),
        null_cells=NullCells(_chosen(options, "nullCells", tuple(NullCells)) or NullCells.NULL),
        edges=_edges(options, _mode(options, overwrite=overwrite)),
    )


def _chosen(options: SourceOptions, name: str, known: Sequence[str]) -> str | None:
    """Return the value of an option that is one of some words."""
    asked = options[name]
    if asked is None:
        return None
    if asked.lower() not in known:
        raise SourceOptionError(name, f"is {' or '.join(known)}, found '{asked}'")
    return asked.lower()


def _on_duplicate(options: SourceOptions) -> OnDuplicate:
    return OnDuplicate(_chosen(options, "onDuplicate", tuple(OnDuplicate)) or OnDuplicate.ERROR)


def _edges(options: SourceOptions, mode: WriteMode) -> EdgeIdentity | None:
    asked = options["edges"]
    if asked is None:
        return None
    if mode is not WriteMode.MERGE:
        raise SourceOptionError("edges", "is for `graphMode` `merge`")
    if asked.lower() not in list(EdgeIdentity):
        raise SourceOptionError("edges", f"is {' or '.join(EdgeIdentity)}, found '{asked}'")
    return EdgeIdentity(asked.lower())


def _order_by(options: SourceOptions, columns: Sequence[str]) -> tuple[str, ...]:
    names = name_list(options, "orderBy") or ()
    for name in names:
        if name not in columns:
            raise SourceOptionError("orderBy", f"names no column of the frame: `{name}`")
    folds = _on_duplicate(options) is not OnDuplicate.ERROR
    if names and not folds:
        raise SourceOptionError("orderBy", "is for `onDuplicate` `last`, `first` and `combine`")
    if folds and not names:
        raise SourceOptionError("onDuplicate", "needs `orderBy`: rows of a frame have no order")
    return names


def _identity(entity_type: EntityType, columns: Sequence[str]) -> tuple[str, ...]:
    if not entity_type.key:
        return ("id",) if "id" in columns else ()
    # A member without a column is the same in all rows.
    names = (
        _OTHER_ENDS.get(name, name) if name not in columns else name for name in entity_type.key
    )
    return tuple(name for name in names if name in columns)


def _missing(
    options: SourceOptions, entity_type: EntityType, columns: Sequence[str]
) -> Missing | None:
    """Return what becomes of properties that the frame has no column for."""
    asked = _chosen(options, "missing", _MISSING)
    absent = [name for name in entity_type.properties if name not in columns]
    if asked == "error" and absent:
        raise SourceOptionError(
            "missing", f"is `error`, and the frame has no column {', '.join(absent)}"
        )
    return None if asked in (None, "error") else Missing(asked)


def _mode(options: SourceOptions, *, overwrite: bool) -> WriteMode:
    asked = options["graphMode"]
    allowed = (WriteMode.OVERWRITE,) if overwrite else (WriteMode.APPEND, WriteMode.MERGE)
    if asked is None:
        return allowed[0]
    if asked.lower() not in allowed:
        mode = "overwrite" if overwrite else "append"
        problem = f"is {' or '.join(allowed)} beside mode '{mode}', found '{asked}'"
        raise SourceOptionError("graphMode", problem)
    return WriteMode(asked.lower())


def _durability(options: SourceOptions) -> Durability:
    asked = options["durability"]
    for known in DURABILITIES:
        if asked == known:
            found: Durability = known
            return found
    if asked is not None:
        known_ones = " or ".join(DURABILITIES)
        raise SourceOptionError("durability", f"is {known_ones}, found '{asked}'")
    return "full"


def _moments(entity_type: EntityType, schema: StructType) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in schema.fields
        if field.dataType.typeName() in ("timestamp", "timestamp_ntz")
        and field.name in entity_type.properties
        and entity_type.properties[field.name].prop_type.scalar is Scalar.DATETIME
    )


class GraphWriter(DataSourceArrowWriter):
    """Writes the rows of one frame as one commit."""

    def __init__(self, target: WriteTarget, schema: pa.Schema) -> None:
        self._target = target
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Write the rows of one task to side files."""
        return stage_rows(self._target, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Load what all tasks left, as one commit."""
        parts = staged_parts(messages)
        with staging(self._target) as record:
            load_parts(self._target, self._schema, parts, self._target.properties)
            remove_parts(parts)
        record.close()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave everything as it is."""


# -- staging ---------------------------------------------------------------------------------------


def staging(target: WriteTarget) -> AbstractContextManager[StagingJob]:
    """Renew the record of a write while the block runs."""
    records = StagingRecords(open_objects(target.settings), SystemClock())
    return records.share(target.operation_id)


def stage_rows(target: WriteTarget, batches: Iterable[pa.RecordBatch]) -> StagedRows:
    """Write batches to files under a folder that no other attempt uses."""
    with staging(target):
        return _stage_rows(target, batches)


def _stage_rows(target: WriteTarget, batches: Iterable[pa.RecordBatch]) -> StagedRows:
    files = SideFiles(target.settings, f"{target.operation_id}/{SystemClock().ulid()}")
    paths: list[str] = []
    rows = staged = truncated = 0
    for table in _tables(batches):
        staged += table.nbytes
        if staged > STAGED_BYTES_MAX:
            raise SinkTooLargeError(staged)
        rows += table.num_rows
        truncated += sum(_fractions(table[name]) for name in target.moments)
        paths.append(files.write("rows", table))
    return StagedRows(files, tuple(paths), rows, staged, truncated)


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gather batches into tables of about `_FILE_BYTES`."""
    return gathered(batches, _FILE_BYTES, bytes_of)


def _fractions(column: pa.ChunkedArray) -> int:
    """Count moments that are finer than a millisecond."""
    moments = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    whole = pc.multiply(pc.divide(moments, _US_PER_MS), _US_PER_MS)
    return int(pc.sum(pc.not_equal(moments, whole)).as_py() or 0)


# -- committing ------------------------------------------------------------------------------------


def staged_parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    """Return what the tasks of a finished job have left."""
    parts = [message for message in messages if isinstance(message, StagedRows)]
    staged = sum(part.bytes for part in parts)
    if staged > STAGED_BYTES_MAX:
        raise SinkTooLargeError(staged)
    return parts


def load_parts(
    target: WriteTarget,
    schema: pa.Schema,
    parts: Sequence[StagedRows],
    properties: dict[str, str],
    *,
    graph: Graph | None = None,
    expected_head: str | None = None,
) -> None:
    """Load staged rows into the graph as one commit."""
    truncated = sum(part.truncated for part in parts)
    noted = properties | ({TRUNCATED: str(truncated)} if truncated else {})
    rows = {target.name: _reader(target, parts, schema)}
    opened = target.open() if graph is None else graph
    try:
        opened.load_tables(
            nodes=rows if target.kind == "node" else None,
            edges=rows if target.kind == "edge" else None,
            mode=target.mode,
            on_duplicate=target.on_duplicate,
            missing=target.missing,
            null_cells=target.null_cells,
            edge_identity=target.edges,
            actor_id=target.actor_id,
            message=target.message,
            properties=noted,
            job=Job("spark", target.job),
            expected_head=expected_head,
        )
    finally:
        if graph is None:
            opened.close()


def _reader(
    target: WriteTarget, parts: Sequence[StagedRows], schema: pa.Schema
) -> pa.RecordBatchReader:
    batches = _batches(parts, schema)
    if target.order_by:
        # Bounded by `STAGED_BYTES_MAX`.
        table = pa.Table.from_batches(batches, schema)
        _require_order(target, table)
        batches = iter(_ordered(table, target.order_by).to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def _ordered(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sort rows as Spark does: nulls come before all values."""
    keys: dict[str, pa.ChunkedArray] = {}
    for number, name in enumerate(names):
        keys |= {f"valid{number}": table[name].is_valid(), f"value{number}": table[name]}
    order = pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending") for key in keys])
    return table.take(order)


def _require_order(target: WriteTarget, table: pa.Table) -> None:
    """Refuse rows of one id that are equal in all columns of the order."""
    if not target.identity:
        return
    keys = list(dict.fromkeys((*target.identity, *target.order_by)))
    counted = table.group_by(keys).aggregate([([], "count_all")])
    tied = counted.filter(pc.greater(counted["count_all"], 1))
    named = tied.filter(tied[target.identity[0]].is_valid())
    if named.num_rows:
        shown = ", ".join(str(named[name][0].as_py()) for name in target.identity)
        raise RowsTiedError(target.name, shown, ", ".join(target.order_by))


def _batches(parts: Sequence[StagedRows], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for part in parts:
        for path in part.paths:
            # Unmapped after reading: a stream runs for months, and mappings would pile up.
            with pa.memory_map(str(part.files.local(path))) as file:
                yield from pa.ipc.open_file(file).read_all().cast(schema).to_batches()


def remove_parts(parts: Sequence[StagedRows]) -> None:
    """Remove staged rows that have been loaded; what cannot be removed is left to `cleanup`."""
    for part in parts:
        with suppress(OmnigraphError, OSError):
            part.files.remove()
