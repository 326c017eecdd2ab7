"""What a bulk load reads: inputs become file splits for tasks, or DataFrames.

1. Graph records and parquet files without expressions are split by bytes and row groups, and tasks
   read them with Arrow: their rows never enter the JVM. Everything else is a DataFrame.
2. Planning reads footers and sizes only, never rows.
3. A task gets about as many rows as one fragment should have, so that a load of many small files
   leaves few fragments; a large file is divided among all cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from omnigraph.errors import InvalidInputError
from omnigraph.names import nearest_name
from omnigraph.spark.load.plan import FileTask, LinesSplit, ParquetSplit
from omnigraph.spark.load.tasks import open_input
from omnigraph.write.load.input.source import InputUnreadableError, files_of
from omnigraph.write.load.input.tables import column_problems
from omnigraph.write.rules import codes
from omnigraph.write.rules.violations import Violation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.schema import Catalog, EntityType

ROWS_PER_TASK_MAX: Final = 1_000_000
ROWS_PER_TASK_MIN: Final = 100_000
LINES_BYTES_MAX: Final = 48 << 20
LINES_BYTES_MIN: Final = 4 << 20
PARTITIONS_MAX: Final = 1 << 16
_SPEC_KEYS: Final = frozenset({"format", "path", "options", "schema", "map", "src", "dst", "table"})
_FORMATS: Final = {".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}


class SourceSpecError(InvalidInputError):
    """The description of a source of a load is not valid."""

    code = "OG-SOURCE-SPEC"
    hint = "the guide 'Load data' lists what a source may be"
    template = "source of {source}: {problem}"
    source: str
    problem: str


@dataclass(frozen=True)
class FrameSource:
    """A DataFrame of rows of one type; its partitions are sources numbered from `source` on."""

    table_key: str
    frame: DataFrame
    source: int = 0


@dataclass(frozen=True)
class LoadPlan:
    """Everything that a load reads.

    `inputs` names the sources by their number; None for rows without a file. Several sources may be
    pieces of one file: its lines are counted when all of them have been read.
    """

    inputs: tuple[str | None, ...] = ()
    nodes: tuple[FileTask | FrameSource, ...] = ()
    edges: tuple[FileTask | FrameSource, ...] = ()
    lines: tuple[FileTask, ...] = ()
    problems: tuple[Violation, ...] = ()
    named: frozenset[str] = frozenset()
    """Tables that the input names, whether it has rows for them or not."""


# -- graph records --------------------------------------------------------------------------------


def plan_lines(paths: Sequence[str], *, parallelism: int) -> LoadPlan:
    """Plan the reading of graph records, strictly one per line."""
    sizes = [(path, _size(path)) for path in paths]
    total = sum(size for _, size in sizes)
    per_task = min(max(total // (2 * parallelism), LINES_BYTES_MIN), LINES_BYTES_MAX)
    inputs: list[str] = []
    tasks: list[FileTask] = []
    waiting: list[LinesSplit] = []
    waiting_bytes = 0
    for path, size in sizes:
        for start in range(0, size, per_task):
            end = min(size, start + per_task)
            waiting.append(LinesSplit(len(inputs), path, start, end))
            inputs.append(path)
            waiting_bytes += end - start
            if waiting_bytes >= per_task:
                tasks.append(FileTask(tuple(waiting)))
                waiting, waiting_bytes = [], 0
    if waiting:
        tasks.append(FileTask(tuple(waiting)))
    return LoadPlan(tuple(inputs), lines=tuple(tasks))


def plan_values(paths: Sequence[str]) -> LoadPlan:
    """Plan the compatible reading of graph records: a stream of values cannot be split."""
    sizes = [_size(path) for path in paths]
    tasks = [
        FileTask((LinesSplit(source, path, 0, size),))
        for source, (path, size) in enumerate(zip(paths, sizes, strict=True))
    ]
    return LoadPlan(tuple(paths), lines=tuple(tasks))


def _size(path: str) -> int:
    try:
        if "://" not in path:
            return Path(path).stat().st_size
        system, inside = pa.fs.FileSystem.from_uri(path)
        info = system.get_file_info(inside)
    except OSError as error:
        raise InputUnreadableError(path, f"cannot be read: {error.strerror or error}") from error
    if info.type is not pa.fs.FileType.File:
        raise InputUnreadableError(path, "is no file")
    return int(info.size)


# -- tables by type -------------------------------------------------------------------------------


def plan_tables(
    tables: Mapping[str, Any],
    catalog: Catalog,
    spark: SparkSession,
    *,
    parallelism: int,
    order_by: tuple[str, ...] = (),
) -> LoadPlan:
    """Plan the reading of one table per type, given in any form.

    `order_by` names columns that define which of several rows of one id is the last.
    """
    planning = _Planning(spark, parallelism, order_by)
    for name, source in sorted(tables.items()):
        entity_type = _entity_type(name, catalog)
        if entity_type is None:
            planning.problems.append(_unknown_type(name, catalog))
        else:
            planning.add(entity_type, source)
    return planning.finish()


def _entity_type(name: str, catalog: Catalog) -> EntityType | None:
    kind, _, plain = name.rpartition(":")
    if kind != "edge" and plain in catalog.node_types:
        return catalog.node_types[plain]
    return None if kind == "node" else catalog.lookup_edge(plain)


def _unknown_type(name: str, catalog: Catalog) -> Violation:
    near = nearest_name(name, [*catalog.node_types, *catalog.edge_types])
    message = f"unknown type '{name}'" + (f"; did you mean '{near}'?" if near else "")
    return Violation(None, name, None, None, "envelope", codes.UNKNOWN_TYPE, message)


@dataclass
class _Planning:
    spark: SparkSession
    parallelism: int
    order_by: tuple[str, ...] = ()
    frames: int = 0
    inputs: list[str | None] = field(default_factory=list)
    nodes: list[FileTask | FrameSource] = field(default_factory=list)
    edges: list[FileTask | FrameSource] = field(default_factory=list)
    problems: list[Violation] = field(default_factory=list)
    named: set[str] = field(default_factory=set)

    def finish(self) -> LoadPlan:
        return LoadPlan(
            inputs=tuple(self.inputs),
            nodes=tuple(self.nodes),
            edges=tuple(self.edges),
            problems=tuple(self.problems),
            named=frozenset(self.named),
        )

    def add(self, entity_type: EntityType, source: Any) -> None:
        self.named.add(entity_type.table_key)
        target = self.nodes if entity_type.table_key.startswith("node:") else self.edges
        if isinstance(source, Mapping):
            spec = _checked_spec(entity_type, source)
        elif isinstance(source, str | os.PathLike):
            spec = {"path": os.fspath(source)}
        elif isinstance(source, list | tuple):
            spec = {"path": [os.fspath(path) for path in source]}
        else:
            target.append(self._frame(entity_type, _frame(source, self.spark)))
            return
        if _is_plain_parquet(spec):
            target.extend(self._parquet(entity_type, spec["path"]))
        else:
            target.append(self._frame(entity_type, _read(entity_type, spec, self.spark)))

    def _frame(self, entity_type: EntityType, frame: DataFrame) -> FrameSource:
        self.frames += 1
        if self.order_by:
            frame = frame.orderBy(*self.order_by)
        return FrameSource(entity_type.table_key, frame, self.frames * PARTITIONS_MAX)

    def _parquet(self, entity_type: EntityType, path: str | list[str]) -> Iterator[FileTask]:
        groups = list(self._row_groups(entity_type, path))
        total = sum(rows for *_, rows in groups)
        per_task = max(-(-total // self.parallelism), ROWS_PER_TASK_MIN)
        per_task = min(per_task, ROWS_PER_TASK_MAX)
        waiting: list[tuple[int, str, int, int, int]] = []
        for group in groups:
            waiting.append(group)
            if sum(rows for *_, rows in waiting) >= per_task:
                yield _parquet_task(entity_type, waiting)
                waiting = []
        if waiting:
            yield _parquet_task(entity_type, waiting)

    def _row_groups(
        self, entity_type: EntityType, path: str | list[str]
    ) -> Iterator[tuple[int, str, int, int, int]]:
        paths = [path] if isinstance(path, str) else path
        for file in (file for one in paths for file in expand(one, (".parquet",))):
            try:
                with pq.ParquetFile(open_input(file)) as opened:
                    footer = opened.metadata
                    names = opened.schema_arrow.names
            except (OSError, pa.ArrowInvalid) as error:
                reason = f"cannot be read as parquet: {error}"
                raise InputUnreadableError(file, reason) from error
            problems = column_problems(entity_type, names)
            if problems:
                self.problems += problems
                return
            source = len(self.inputs)
            self.inputs.append(file)
            first = 1
            for number in range(footer.num_row_groups):
                rows = footer.row_group(number).num_rows
                yield source, file, number, first, rows
                first += rows


def _parquet_task(
    entity_type: EntityType, groups: Sequence[tuple[int, str, int, int, int]]
) -> FileTask:
    by_file: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
    for source, path, number, first, rows in groups:
        by_file.setdefault((source, path), []).append((number, first, rows))
    splits = tuple(
        ParquetSplit(
            source=source,
            path=path,
            groups=tuple(number for number, _, _ in own),
            first_rows=tuple(first for _, first, _ in own),
            rows=sum(rows for _, _, rows in own),
        )
        for (source, path), own in by_file.items()
    )
    return FileTask(splits, entity_type.table_key)


def expand(path: str, suffixes: Sequence[str]) -> list[str]:
    """Return the files that a path names: itself, a glob's, or those in a folder."""
    if "://" not in path:
        return [str(file) for file in files_of([path], suffixes)]
    system, inside = pa.fs.FileSystem.from_uri(path)
    if system.get_file_info(inside).type is not pa.fs.FileType.Directory:
        return [path]
    scheme = path.partition("://")[0]
    listed = system.get_file_info(pa.fs.FileSelector(inside))
    found = sorted(info.path for info in listed if info.path.endswith(tuple(suffixes)))
    if not found:
        raise InputUnreadableError(path, f"has no file named *{suffixes[0]}")
    return [f"{scheme}://{name}" for name in found]


# -- DataFrames -----------------------------------------------------------------------------------


def _checked_spec(entity_type: EntityType, spec: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(spec) - _SPEC_KEYS)
    if unknown:
        near = nearest_name(unknown[0], _SPEC_KEYS)
        hint = (
            f"; did you mean '{near}'?" if near else f": expected {', '.join(sorted(_SPEC_KEYS))}"
        )
        raise SourceSpecError(entity_type.name, f"unknown entry '{unknown[0]}'{hint}")
    if ("path" in spec) == ("table" in spec):
        raise SourceSpecError(entity_type.name, "expected one of 'path' and 'table'")
    return dict(spec)


def _format_of(spec: Mapping[str, Any]) -> str:
    given = spec.get("format")
    if given:
        return str(given)
    if "table" in spec:
        return ""
    path = spec["path"]
    first = str(path if isinstance(path, str | os.PathLike) else path[0])
    return _FORMATS.get(Path(first).suffix.lower(), "parquet")


def _is_plain_parquet(spec: Mapping[str, Any]) -> bool:
    asks = any(spec.get(name) for name in ("options", "schema", "map", "src", "dst", "table"))
    return not asks and _format_of(spec) == "parquet"


def _frame(source: Any, spark: SparkSession) -> DataFrame:
    """Return anything tabular as a DataFrame."""
    if hasattr(source, "mapInArrow"):
        frame: DataFrame = source
        return frame
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    elif type(source).__module__.partition(".")[0] == "pandas":
        source = pa.Table.from_pandas(source, preserve_index=False)
    elif not isinstance(source, pa.Table):
        if not isinstance(source, pa.RecordBatchReader) and not hasattr(
            source, "__arrow_c_stream__"
        ):
            raise InputUnreadableError(
                type(source).__name__,
                "is no table: give a DataFrame, an Arrow, pandas or polars table, or a path",
            )
        source = pa.RecordBatchReader.from_stream(source).read_all()
    return spark.createDataFrame(source)


def _read(entity_type: EntityType, spec: Mapping[str, Any], spark: SparkSession) -> DataFrame:
    if "table" in spec:
        frame = spark.table(str(spec["table"]))
    else:
        reader = spark.read.format(_format_of(spec)).options(**dict(spec.get("options") or {}))
        if spec.get("schema"):
            reader = reader.schema(spec["schema"])
        frame = reader.load(spec["path"])
    expressions = dict(spec.get("map") or {})
    expressions |= {end: spec[end] for end in ("src", "dst") if spec.get(end)}
    if not expressions:
        return frame
    known = {*entity_type.properties, "id", "src", "dst", "from", "to"}
    for name in expressions:
        if name not in known:
            near = nearest_name(name, known)
            hint = f"; did you mean '{near}'?" if near else ""
            raise SourceSpecError(
                entity_type.name, f"'map' names the unknown property '{name}'{hint}"
            )
    quoted = [f"{expression} AS `{name}`" for name, expression in expressions.items()]
    return frame.selectExpr(*quoted)
