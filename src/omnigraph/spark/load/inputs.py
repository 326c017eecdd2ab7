"""What a bulk load reads: inputs become file splits for tasks, or DataFrames.

1. Tasks read files with the readers of the in-process engine: their rows never enter the JVM. Lines
   are split by bytes and parquet files by row groups; one task reads any other file as a whole.
   Tables in memory, tables of a catalog, and what needs an expression of SQL are DataFrames.
2. Planning reads footers, headers and sizes only, never rows.
3. A task gets about as many rows as one fragment should have, so that a load of many small files
   leaves few fragments; a large file is divided among all cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.names import nearest_name
from omnigraph.spark.load.plan import FileTask, LinesSplit, ParquetSplit, RecordsSplit, RowsSplit
from omnigraph.write.load.formats.columnar import no_rows
from omnigraph.write.load.formats.description import (
    FileSource,
    check_mapped,
    checked_spec,
    file_source,
    is_description,
    mapped_columns,
    spark_reason,
)
from omnigraph.write.load.formats.files import (
    InputFile,
    InputUnreadableError,
    open_seekable,
    open_stream,
)
from omnigraph.write.load.formats.frames import frame_batches
from omnigraph.write.load.formats.kinds import JSONL, PARQUET, Format, by_suffix
from omnigraph.write.load.formats.rows import (
    RowFile,
    files_of,
    format_of,
    position_unit,
    prepared,
)
from omnigraph.write.load.input.source import record_format
from omnigraph.write.load.input.tables import column_problems
from omnigraph.write.rules import codes
from omnigraph.write.rules.violations import InputName, Violation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.schema import Catalog, EntityType

ROWS_PER_TASK_MAX: Final = 1_000_000
ROWS_PER_TASK_MIN: Final = 100_000
LINES_BYTES_MAX: Final = 48 << 20
LINES_BYTES_MIN: Final = 4 << 20
PARTITIONS_MAX: Final = 1 << 16


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

    inputs: tuple[InputName, ...] = ()
    nodes: tuple[FileTask | FrameSource, ...] = ()
    edges: tuple[FileTask | FrameSource, ...] = ()
    lines: tuple[FileTask, ...] = ()
    problems: tuple[Violation, ...] = ()
    named: frozenset[str] = frozenset()
    """Tables that the input names, whether it has rows for them or not."""


# -- graph records --------------------------------------------------------------------------------


def plan_lines(
    files: Sequence[InputFile],
    *,
    parallelism: int,
    form: Format | None = None,
    options: Mapping[str, str] | None = None,
) -> LoadPlan:
    """Plan the strict reading of graph records; arrays and compressed files are not split."""
    total = sum(file.size for file in files)
    per_task = min(max(total // (2 * parallelism), LINES_BYTES_MIN), LINES_BYTES_MAX)
    inputs: list[InputName] = []
    tasks = _Tasks(per_task)
    for number, file in enumerate(files):
        found = _record_form(file, form, options, is_first=not number)
        place = None if found is JSONL else position_unit(found)
        if found is not JSONL or file.suffix_codec:
            tasks.add(RecordsSplit(len(inputs), file.path, found.name), file.size)
            inputs.append(InputName(file.path, place))
            continue
        for start in range(0, file.size, per_task):
            end = min(file.size, start + per_task)
            tasks.add(LinesSplit(len(inputs), file.path, start, end), end - start)
            inputs.append(InputName(file.path))
    return LoadPlan(tuple(inputs), lines=tasks.finish())


def _record_form(
    file: InputFile, form: Format | None, options: Mapping[str, str] | None, *, is_first: bool
) -> Format:
    """Look at the first file, and at those whose names do not say whether they are lines."""
    if not is_first and (form is not None or file.name.endswith((".jsonl", ".ndjson"))):
        return form or JSONL
    with open_stream(file.path, options) as source:
        return record_format(file.path, source, form)


class _Tasks:
    """Gives tasks about as many bytes each."""

    def __init__(self, per_task: int, table_key: str | None = None) -> None:
        self._per_task = per_task
        self._table_key = table_key
        self._waiting: list[LinesSplit | RecordsSplit | RowsSplit] = []
        self._bytes = 0
        self._tasks: list[FileTask] = []

    def add(self, split: LinesSplit | RecordsSplit | RowsSplit, size: int) -> None:
        self._waiting.append(split)
        self._bytes += size
        if self._bytes >= self._per_task:
            self._end()

    def finish(self) -> tuple[FileTask, ...]:
        if self._waiting:
            self._end()
        return tuple(self._tasks)

    def _end(self) -> None:
        self._tasks.append(FileTask(tuple(self._waiting), self._table_key))
        self._waiting, self._bytes = [], 0


def plan_values(files: Sequence[InputFile]) -> LoadPlan:
    """Plan the compatible reading of graph records: a stream of values cannot be split."""
    tasks = [
        FileTask((LinesSplit(source, file.path, 0, file.size),))
        for source, file in enumerate(files)
    ]
    return LoadPlan(tuple(InputName(file.path) for file in files), lines=tuple(tasks))


# -- tables by type -------------------------------------------------------------------------------


def plan_tables(
    tables: Mapping[str, Any],
    catalog: Catalog,
    spark: SparkSession,
    *,
    parallelism: int,
    order_by: tuple[str, ...] = (),
    form: Format | None = None,
    options: Mapping[str, str] | None = None,
) -> LoadPlan:
    """Plan the reading of one table per type, given in any form.

    `order_by` names columns that define which of several rows of one id is the last.
    """
    planning = _Planning(spark, parallelism, order_by, form, dict(options or {}))
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
    form: Format | None = None
    options: dict[str, str] = field(default_factory=dict)
    frames: int = 0
    inputs: list[InputName] = field(default_factory=list)
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
        if not is_description(source):
            target.append(self._frame(entity_type, _frame(source, self.spark)))
        elif spark_reason(source) is not None:
            spec = checked_spec(entity_type.name, source)
            target.append(self._frame(entity_type, _read(entity_type, spec, self.spark)))
        else:
            target.extend(self._files(entity_type, file_source(entity_type, source, self.form)))

    def _files(self, entity_type: EntityType, source: FileSource) -> Iterator[FileTask]:
        """Plan files in their order; those of parquet apart, because they can be split."""
        files = files_of(source, self.options)
        total = sum(file.size for file in files)
        per_task = min(max(total // self.parallelism, LINES_BYTES_MIN), LINES_BYTES_MAX)
        told = [
            (file, self._form(file, source, is_first=not number))
            for number, file in enumerate(files)
        ]
        if told and self._has_problems(entity_type, *told[0], source):
            return
        for is_parquet, group in groupby(told, lambda each: each[1] is PARQUET):
            if is_parquet:
                yield from self._parquet(entity_type, [file for file, _ in group], source)
                continue
            tasks = _Tasks(per_task, entity_type.table_key)
            for file, form in group:
                tasks.add(RowsSplit(len(self.inputs), file, source), file.size)
                self.inputs.append(InputName(file.path, position_unit(form)))
            yield from tasks.finish()

    def _form(self, file: InputFile, source: FileSource, *, is_first: bool) -> Format:
        """Tell the format of a file; names are believed here, tasks look at the content."""
        named = source.form or by_suffix(file.name)
        if is_first or named is None or named is JSONL:
            return format_of(file, source, self.options)
        return named

    def _has_problems(
        self, entity_type: EntityType, file: InputFile, form: Format, source: FileSource
    ) -> bool:
        if form is PARQUET:
            # The footers of all files are looked at, when they are planned.
            return False
        names = RowFile(entity_type, file, source, form, self.options).columns()
        problems = [] if names is None else column_problems(entity_type, names)
        self.problems += problems
        return bool(problems)

    def _frame(self, entity_type: EntityType, frame: DataFrame) -> FrameSource:
        self.frames += 1
        if self.order_by:
            frame = frame.orderBy(*self.order_by)
        return FrameSource(entity_type.table_key, frame, self.frames * PARTITIONS_MAX)

    def _parquet(
        self, entity_type: EntityType, files: Sequence[InputFile], source: FileSource
    ) -> Iterator[FileTask]:
        groups = list(self._row_groups(entity_type, files, source))
        total = sum(rows for *_, rows in groups)
        per_task = max(-(-total // self.parallelism), ROWS_PER_TASK_MIN)
        per_task = min(per_task, ROWS_PER_TASK_MAX)
        waiting: list[_Group] = []
        for group in groups:
            waiting.append(group)
            if sum(rows for *_, rows in waiting) >= per_task:
                yield _parquet_task(entity_type, waiting, source)
                waiting = []
        if waiting:
            yield _parquet_task(entity_type, waiting, source)

    def _row_groups(
        self, entity_type: EntityType, files: Sequence[InputFile], source: FileSource
    ) -> Iterator[_Group]:
        for file in files:
            try:
                with pq.ParquetFile(open_seekable(file.path, self.options)) as opened:
                    footer = opened.metadata
                    columns = no_rows(opened.schema_arrow)
            except (OSError, pa.ArrowInvalid) as error:
                reason = f"cannot be read as parquet: {error}"
                raise InputUnreadableError(file.path, reason) from error
            names = prepared(columns, entity_type, file, source.columns).schema.names
            problems = column_problems(entity_type, names)
            if problems:
                self.problems += problems
                return
            place = len(self.inputs)
            self.inputs.append(InputName(file.path, "row"))
            first = 1
            for number in range(footer.num_row_groups):
                rows = footer.row_group(number).num_rows
                yield place, file, number, first, rows
                first += rows


_Group: TypeAlias = tuple[int, InputFile, int, int, int]
"""A source and its file, the number of a row group, of its first row, and how many rows it has."""


def _parquet_task(
    entity_type: EntityType, groups: Sequence[_Group], rows_of: FileSource
) -> FileTask:
    by_file: dict[tuple[int, InputFile], list[tuple[int, int, int]]] = {}
    for source, file, number, first, rows in groups:
        by_file.setdefault((source, file), []).append((number, first, rows))
    splits = tuple(
        ParquetSplit(
            source=source,
            file=file,
            columns=rows_of.columns,
            groups=tuple(number for number, _, _ in own),
            first_rows=tuple(first for _, first, _ in own),
            rows=sum(rows for _, _, rows in own),
        )
        for (source, file), own in by_file.items()
    )
    return FileTask(splits, entity_type.table_key)


# -- DataFrames -----------------------------------------------------------------------------------


def _frame(source: Any, spark: SparkSession) -> DataFrame:
    """Return anything tabular as a DataFrame."""
    if hasattr(source, "mapInArrow"):
        frame: DataFrame = source
        return frame
    return spark.createDataFrame(pa.Table.from_batches(frame_batches(source)))


def _read(entity_type: EntityType, spec: Mapping[str, Any], spark: SparkSession) -> DataFrame:
    if "table" in spec:
        frame = spark.table(str(spec["table"]))
    else:
        form = spec.get("format") or _spark_format(spec["path"])
        reader = spark.read.format(form).options(**dict(spec.get("options") or {}))
        if spec.get("schema"):
            reader = reader.schema(spec["schema"])
        frame = reader.load(spec["path"])
    expressions = mapped_columns(spec)
    if not expressions:
        return frame
    check_mapped(entity_type, expressions)
    known = {*entity_type.properties, "id", "src", "dst", "from", "to"} - expressions.keys()
    others = [name for name in frame.columns if name in known]
    quoted = [f"{expression} AS `{name}`" for name, expression in expressions.items()]
    return frame.selectExpr(*quoted, *(f"`{name}`" for name in others))


def _spark_format(path: str | Sequence[str]) -> str:
    """Return the reader of Spark for files that need one."""
    form = by_suffix(str(path if isinstance(path, str) else path[0]).lower()) or PARQUET
    return "json" if form.is_records else form.name
