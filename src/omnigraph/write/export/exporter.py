"""Export: the rows of one snapshot as graph JSONL or parquet, which a load can read, or as CSV.

    OUT/nodes/Person/part-00000.jsonl     one folder per type, one file per group of fragments
    OUT/edges/Knows/part-00000.jsonl
    OUT/schema.pg                         the schema of the snapshot
    OUT/export.json                       what was exported; written last

1. All rows come from one snapshot; later writes are not among them.
2. A file appears whole or not at all, and `export.json` says that all of them are there.
3. An export never mixes with other files: its folder must be empty or absent.
4. Every property is written, nulls included. In JSONL dates are days and date-times milliseconds;
   in parquet they have their own types. Blobs of the graph are written out, external ones stay
   references.
5. Files are written row by row in storage order; the stream of all entities is ordered by id.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.errors import InvalidInputError
from omnigraph.manifest import Snapshot
from omnigraph.names import TableKey, names_given, nearest_name
from omnigraph.schema import EdgeType, EntityType, NodeType
from omnigraph.schema.values.to_json import JsonForm, to_json_values
from omnigraph.store import DatasetHandle, DatasetStore
from omnigraph.store.batching import grouped
from omnigraph.store.blob_contents import BLOB_BATCH_ROWS, with_blobs
from omnigraph.store.records import ROW_ID, DatasetVersion, ScanRequest
from omnigraph.values import BLOB_STORAGE, PropType, Scalar
from omnigraph.write.export.csv_rows import write_csv

PART_ROWS: Final = 1_000_000
"""Rows of a full file; small fragments share one."""

SUMMARY: Final = "export.json"
SCHEMA_FILE: Final = "schema.pg"
_ROW_GROUP_ROWS: Final = 131_072
_STREAM_ROWS: Final = 8_192


class ExportFormat(StrEnum):
    """The forms of an export."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    CSV = "csv"


class UnknownExportTypeError(InvalidInputError):
    """An export names a type that the schema does not have."""

    code = "OG-EXPORT-TYPE"
    template = "unknown export type '{name}'"
    name: str
    known: tuple[str, ...]

    def _hint(self) -> str:
        near = nearest_name(self.name, self.known)
        return f"did you mean '{near}'?" if near else f"there are {', '.join(self.known)}"


class ExportTargetError(InvalidInputError):
    """The folder of an export holds something already."""

    code = "OG-EXPORT-TARGET"
    hint = "name a folder that is empty or does not exist"
    template = "expected an empty folder at {path}, found {found}"
    path: str
    found: str


@dataclass(frozen=True)
class ExportTask:
    """One file to be written: picklable, so that any worker can do it."""

    entity_type: EntityType
    at: DatasetVersion
    fragment_ids: tuple[int, ...]
    path: str
    format: ExportFormat


@dataclass(frozen=True)
class ExportedFile:
    """One file that was written."""

    table_key: str
    path: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class ExportPlan:
    """What an export does: one task per file."""

    out: Path
    format: ExportFormat
    branch: str
    commit_id: str
    schema_source: str
    tasks: tuple[ExportTask, ...]
    nbytes: int
    """The stored size of the exported tables; it decides which engine runs."""


@dataclass(frozen=True, repr=False)
class ExportResult(Displayed):
    """What was exported."""

    out: str
    format: str
    branch: str
    commit_id: str
    engine: str
    files: tuple[ExportedFile, ...] = field(default_factory=tuple)

    def _display(self) -> Display:
        title = f"export of {self.branch} at commit {self.commit_id} to {self.out} ({self.format})"
        rows = [(file.table_key, file.path, file.rows, file.bytes) for file in self.files]
        return Display(title, ("type", "file", "rows", "bytes"), rows)

    @property
    def rows(self) -> int:
        """How many entities were written."""
        return sum(file.rows for file in self.files)

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        return {
            "out": self.out,
            "format": self.format,
            "graph_branch": self.branch,
            "graph_commit_id": self.commit_id,
            "engine": self.engine,
            "total_entities": self.rows,
            "types": _by_type(self.files),
        }


def _by_type(files: Iterable[ExportedFile]) -> list[dict[str, object]]:
    shapes: dict[str, dict[str, Any]] = {}
    for file in files:
        kind, name = TableKey(file.table_key).parts
        empty = {"entity_kind": kind, "type_name": name, "entities": 0, "bytes": 0, "files": []}
        shape = shapes.setdefault(file.table_key, empty)
        shape["entities"] += file.rows
        shape["bytes"] += file.bytes
        shape["files"].append(file.path)
    return [shapes[key] for key in sorted(shapes)]


# -- what ------------------------------------------------------------------------------------------


def exported_types(snapshot: Snapshot, names: Sequence[str] = ()) -> list[EntityType]:
    """Return the types to export by key, edges before nodes; without names all of them."""
    catalog = snapshot.catalog
    entity_types: list[EntityType] = [*catalog.edge_types.values(), *catalog.node_types.values()]
    known = {
        entity_type.table_key: entity_type
        for entity_type in entity_types
        if entity_type.table_key in snapshot.entries
    }
    if not names:
        return [known[key] for key in sorted(known)]
    chosen = {key for name in names_given(names) for key in _keys_of(name, known)}
    return [known[key] for key in sorted(chosen)]


def _keys_of(name: str, known: dict[TableKey, EntityType]) -> list[TableKey]:
    found = [key for key, entity_type in known.items() if name in (key, entity_type.name)]
    if not found:
        raise UnknownExportTypeError(
            name, tuple(sorted(entity_type.name for entity_type in known.values()))
        )
    return found


def plan_export(
    snapshot: Snapshot,
    out: str | os.PathLike[str],
    *,
    export_format: ExportFormat,
    types: Sequence[str] = (),
) -> ExportPlan:
    """Return the files that an export writes; writes nothing."""
    folder = Path(out).absolute()
    tasks: list[ExportTask] = []
    stored = 0
    for entity_type in exported_types(snapshot, types):
        handle = snapshot.open(entity_type.table_key)
        stored += sum(fragment.data_bytes for fragment in handle.fragments())
        tasks += _tasks_of(entity_type, handle, folder, export_format)
    return ExportPlan(
        out=folder,
        format=export_format,
        branch=str(snapshot.branch),
        commit_id=snapshot.commit_id,
        schema_source=snapshot.schema.source,
        tasks=tuple(tasks),
        nbytes=stored,
    )


def _tasks_of(
    entity_type: EntityType, handle: DatasetHandle, out: Path, export_format: ExportFormat
) -> Iterator[ExportTask]:
    for number, group in enumerate(_groups(handle)):
        path = part_path(out, entity_type, number, export_format)
        yield ExportTask(entity_type, handle.at, group, path, export_format)


def _groups(handle: DatasetHandle) -> list[tuple[int, ...]]:
    """Put neighbouring fragments together; a table without rows still gets a file."""
    groups = grouped(handle.fragments(), PART_ROWS, lambda fragment: fragment.rows) or [[]]
    return [tuple(fragment.fragment_id for fragment in group) for group in groups]


# -- doing it --------------------------------------------------------------------------------------


def begin_export(plan: ExportPlan) -> None:
    """Make the folder and put the schema into it."""
    require_empty(plan.out)
    plan.out.mkdir(parents=True, exist_ok=True)
    _write_whole(plan.out / SCHEMA_FILE, plan.schema_source.encode())


def require_empty(out: Path) -> None:
    """Raise unless an export can go to a folder."""
    if out.exists() and not out.is_dir():
        raise ExportTargetError(str(out), "a file")
    found = next(iter(sorted(out.iterdir())), None) if out.exists() else None
    if found is not None:
        raise ExportTargetError(str(out), f"`{found.name}` in it")


def finish_export(plan: ExportPlan, files: Iterable[ExportedFile], *, engine: str) -> ExportResult:
    """Write the summary, after all other files."""
    relative = tuple(
        ExportedFile(file.table_key, os.path.relpath(file.path, plan.out), file.rows, file.bytes)
        for file in files
    )
    result = ExportResult(
        str(plan.out), str(plan.format), plan.branch, plan.commit_id, engine, relative
    )
    summary = orjson.dumps(result.to_json(), option=orjson.OPT_INDENT_2)
    _write_whole(plan.out / SUMMARY, summary + b"\n")
    return result


def export_here(plan: ExportPlan, datasets: DatasetStore) -> ExportResult:
    """Run an export in this process."""
    begin_export(plan)
    files = [write_part(task, datasets) for task in plan.tasks]
    return finish_export(plan, files, engine="local")


def write_part(task: ExportTask, datasets: DatasetStore) -> ExportedFile:
    """Write one file."""
    at = task.at
    handle = datasets.open(at.location, branch=at.branch, version=at.version)
    columns = task.entity_type.arrow_schema.names
    batches = (
        _stored_rows(task.entity_type, handle, task.fragment_ids, columns)
        if task.fragment_ids
        else iter(())
    )
    return write_file(task.entity_type, batches, path=task.path, export_format=task.format)


def part_path(out: Path, entity_type: EntityType, number: int, export_format: ExportFormat) -> str:
    """Return where a file of a type goes."""
    kind = "edges" if isinstance(entity_type, EdgeType) else "nodes"
    return str(out / kind / entity_type.name / f"part-{number:05d}.{export_format}")


def write_file(
    entity_type: EntityType,
    batches: Iterable[pa.RecordBatch],
    *,
    path: str,
    export_format: ExportFormat,
) -> ExportedFile:
    """Write rows of a type to one file, which appears when it is complete."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Two attempts of one task may run in parallel: each has its own file until it is complete.
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if export_format is ExportFormat.PARQUET:
            rows = _write_parquet(unfinished, entity_type, batches)
        elif export_format is ExportFormat.CSV:
            rows = write_csv(unfinished, entity_type, batches)
        else:
            rows = _write_lines(unfinished, entity_type, batches)
        size = unfinished.stat().st_size
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return ExportedFile(entity_type.table_key, path, rows, size)


def _write_lines(path: Path, entity_type: EntityType, batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    with path.open("wb") as file:
        for batch in batches:
            file.writelines(entity_lines(entity_type, batch))
            rows += batch.num_rows
    return rows


def _write_parquet(path: Path, entity_type: EntityType, batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    schema = parquet_schema(entity_type)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            columns = [_parquet_column(batch[field.name], field) for field in schema]
            table = pa.Table.from_arrays(columns, schema=schema)
            writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
            rows += batch.num_rows
    return rows


def _write_whole(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)


# -- rows ------------------------------------------------------------------------------------------


def stream_lines(
    snapshot: Snapshot, types: Sequence[str] = (), *, kinds: Collection[str] = ("node", "edge")
) -> Iterator[bytes]:
    """Yield every entity as one line of JSON: by type key, edges first, then by id."""
    for entity_type in exported_types(snapshot, types):
        if TableKey(entity_type.table_key).kind not in kinds:
            continue
        handle = snapshot.open(entity_type.table_key)
        for batch in _ordered_rows(entity_type, handle):
            yield from entity_lines(entity_type, batch)


def stream_batches(
    snapshot: Snapshot, types: Sequence[str] = (), columns: Sequence[str] | None = None
) -> Iterator[tuple[TableKey, Iterator[pa.RecordBatch]]]:
    """Yield the rows of every type as Arrow, as they are stored: by type key, edges first.

    A type without rows has one batch, which is empty. With `columns` only those are read that the
    type has.
    """
    for entity_type in exported_types(snapshot, types):
        handle = snapshot.open(entity_type.table_key)
        fragments = tuple(fragment.fragment_id for fragment in handle.fragments())
        schema = entity_type.arrow_schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in schema.names if name in columns])
        rows = _stored_rows(entity_type, handle, fragments, schema.names) if fragments else iter(())
        yield entity_type.table_key, _at_least_one(rows, schema)


def _at_least_one(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    first = next(batches, None)
    yield pa.RecordBatch.from_pylist([], schema) if first is None else first
    yield from batches


def _stored_rows(
    entity_type: EntityType,
    handle: DatasetHandle,
    fragment_ids: tuple[int, ...],
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    blobs = tuple(name for name in entity_type.blob_properties if name in columns)
    request = ScanRequest(
        columns=tuple(columns),
        with_row_id=bool(blobs),
        fragment_ids=fragment_ids,
        batch_rows=BLOB_BATCH_ROWS if blobs else _ROW_GROUP_ROWS,
    )
    for batch in handle.scan(request):
        yield from with_blobs(handle, batch, blobs) if blobs else [batch]


def _ordered_rows(entity_type: EntityType, handle: DatasetHandle) -> Iterator[pa.RecordBatch]:
    """Yield rows by id; ids and row numbers of a whole type are in memory."""
    ids = handle.scan(ScanRequest(columns=("id",), with_row_id=True)).read_all()
    order = ids.take(pc.sort_indices(ids["id"]))[ROW_ID]
    names = list(entity_type.arrow_schema.names)
    rows = BLOB_BATCH_ROWS if entity_type.blob_properties else _STREAM_ROWS
    for start in range(0, len(order), rows):
        numbers = order.slice(start, rows).combine_chunks()
        batch = handle.take(numbers, names).combine_chunks().to_batches()[0]
        if not entity_type.blob_properties:
            yield batch
            continue
        numbered = batch.append_column(ROW_ID, numbers.cast(pa.uint64()))
        yield from with_blobs(handle, numbered, entity_type.blob_properties)


def entity_lines(entity_type: EntityType, batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield one line of JSON per row."""
    names = ["id", *entity_type.properties]
    columns: list[list[Any]] = [batch["id"].to_pylist()]
    columns += [
        to_json_values(batch[name], prop.prop_type, JsonForm.EXPORT)
        for name, prop in entity_type.properties.items()
    ]
    rows = zip(*columns, strict=True)
    data = (dict(zip(names, row, strict=True)) for row in rows)
    if isinstance(entity_type, NodeType):
        for entity in data:
            yield orjson.dumps({"type": entity_type.name, "data": entity}) + b"\n"
        return
    ends = zip(batch["src"].to_pylist(), batch["dst"].to_pylist(), data, strict=True)
    for source, target, entity in ends:
        shape = {"edge": entity_type.name, "from": source, "to": target, "data": entity}
        yield orjson.dumps(shape) + b"\n"


def parquet_schema(entity_type: EntityType) -> pa.Schema:
    """Return the columns of a type in parquet files: types that every reader knows.

    U32 is a 64-bit integer and U64 a decimal, as Spark sees them too.
    """
    fields = []
    for stored in entity_type.arrow_schema:
        prop = entity_type.properties.get(stored.name)
        kind = pa.utf8() if prop is None else _parquet_type(prop.prop_type)
        fields.append(pa.field(stored.name, kind, nullable=stored.nullable))
    return pa.schema(fields)


_PARQUET: Final[dict[Scalar, pa.DataType]] = {
    Scalar.U32: pa.int64(),
    Scalar.U64: pa.decimal128(20, 0),
    Scalar.DATETIME: pa.timestamp("ms", tz="UTC"),
    Scalar.BLOB: BLOB_STORAGE,
}


def _parquet_type(prop_type: PropType) -> pa.DataType:
    if prop_type.is_vector:
        return pa.list_(pa.float32())
    item = _PARQUET.get(prop_type.scalar, PropType(prop_type.scalar).arrow_type)
    return pa.list_(item) if prop_type.is_list else item


def _parquet_column(column: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_date64(column.type):
        # A cast in Arrow would convert to days first.
        return column.view(pa.int64()).view(field.type)
    if pa.types.is_list(column.type) and pa.types.is_date64(column.type.value_type):
        return column.cast(pa.list_(pa.int64())).cast(field.type)
    return column.cast(field.type)
