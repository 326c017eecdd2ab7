"""One session in which the tables of one pipeline have their names.

1. The session shares Spark with that of the caller and nothing else: tables and settings of a
   pipeline are not seen outside, and two runs at the same time do not see each other's.
2. Every text of a user is run as `SELECT * FROM (…)`, so that it can only read.
3. Times are read and written in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from omnigraph.graph import Graph, ReadTarget
from omnigraph.names import TableKey
from omnigraph.spark.engine import spark_session
from omnigraph.spark.progress import application_id
from omnigraph.spark.session import get_spark, register
from omnigraph.spark.steps.failures import SparkStepError, step
from omnigraph.spark.types import default_columns, entity_schema, spark_schema, written_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.schema import EntityType

ROWS_OF_CHECK_MAX: Final = 100_000
FEED_COLUMNS: Final = ("_change_type", "_commit_version", "_commit_timestamp", "_graph_commit_id")
_ORDER: Final = "_omnigraph_order"


@dataclass(frozen=True)
class SourceRead:
    """How Spark reads a source."""

    name: str
    format: str
    paths: tuple[str, ...] = ()
    table: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None


@dataclass(frozen=True)
class FileInfo:
    """A file of a source; the time is that of its last change, in microseconds."""

    path: str
    bytes: int
    modified_us: int


@dataclass(frozen=True)
class HighMark:
    """The largest value of a column, as text; None where there is no row."""

    value: str | None
    mark: str | None
    """The same, or the mark of the last run where that is later."""
    rows: int
    rows_without: int
    """Rows in which the column is null."""


class Workspace:
    """The tables of one pipeline, by name.

    A micro-batch of a stream has a session that Spark has made for its rows: then `is_own` is true.
    """

    def __init__(
        self, session: object | None, settings: Mapping[str, str], *, is_own: bool = False
    ) -> None:
        self._before: dict[str, DataFrame] = {}
        """Rows before the changes of a table, by name."""
        self._all: dict[str, SourceRead] = {}
        """How all rows of a table are read of which changes are shown."""
        with step("session"):
            self._spark = spark_session(session) if is_own else _isolated(session)
            register(self._spark)
            self._spark.conf.set("spark.sql.session.timeZone", "UTC")
            for key, value in settings.items():
                if not self._spark.conf.isModifiable(key):
                    reason = "has to be given when the session is started, not by a pipeline"
                    raise SparkStepError(f"setting {key}", reason)
                self._spark.conf.set(key, value)

    @property
    def session(self) -> SparkSession:
        """The session of the tables."""
        return self._spark

    @property
    def application_id(self) -> str | None:
        """The id of the application, where Spark has one."""
        return application_id(self._spark)

    # -- tables -----------------------------------------------------------------------------------

    def add_source(self, read: SourceRead) -> None:
        """Make a source known under its name; its rows are not read."""
        with step(f"source '{read.name}'"):
            if read.table is not None:
                frame = self._spark.table(read.table)
            else:
                reader = self._spark.read.format(read.format).options(**read.options)
                if read.schema is not None:
                    reader = reader.schema(read.schema)
                frame = reader.load(list(read.paths)) if read.paths else reader.load()
            self._name(frame, read.name)

    def add_frame(self, name: str, frame: DataFrame) -> None:
        """Make a frame of this session known under a name."""
        self._name(frame, name)

    def add_empty(self, name: str, schema: str) -> None:
        """Make a table without rows known; the schema is a list of columns in SQL."""
        with step(f"source '{name}'"):
            self._name(self._spark.createDataFrame([], schema), name)

    def add_view(self, name: str, sql: str) -> None:
        """Make a view known under its name."""
        with step(f"view '{name}'"):
            self._name(self._query(sql), name)

    def add_type(self, graph: Graph, table_key: str, branch: str) -> None:
        """Make the stored rows of a type known under its name."""
        frame = graph.to_spark(self._spark, table_key, target=ReadTarget.branch(branch))
        self._name(frame, TableKey(table_key).type_name)

    def add_types_without_rows(self, types: Iterable[EntityType]) -> None:
        """Make tables with the columns of types known under their names."""
        for entity_type in types:
            schema = spark_schema(entity_schema(entity_type, default_columns(entity_type)))
            self._name(self._spark.createDataFrame([], schema), entity_type.name)

    def columns(self, name: str) -> pa.Schema:
        """Return the columns of a table."""
        return written_schema(self._spark.table(name).schema)

    def _name(self, frame: DataFrame, name: str) -> None:
        frame.createOrReplaceTempView(_quoted(name))

    def _query(self, sql: str) -> DataFrame:
        text = sql.strip().rstrip(";")
        return self._spark.sql(f"SELECT * FROM (\n{text}\n)")  # noqa: S608 - the user's own query

    # -- mappings ---------------------------------------------------------------------------------

    def mapped(self, name: str, expressions: Mapping[str, str], what: str) -> DataFrame:
        """Return the rows of a table as columns given by SQL expressions."""
        with step(what):
            selected = [f"({text}\n) AS {_quoted(column)}" for column, text in expressions.items()]
            return self._spark.table(name).selectExpr(*selected)

    def mapped_columns(self, name: str, expressions: Mapping[str, str]) -> pa.Schema:
        """Return the columns that expressions make."""
        frame = self.mapped(name, expressions, "expression")
        with step("expression"):
            # A session of Spark Connect analyses a frame only now.
            return written_schema(frame.schema)

    def all_mapped(self, parts: Sequence[tuple[str, Mapping[str, str]]], what: str) -> DataFrame:
        """Return the rows of several mapped tables; a column that one has not is null."""
        frames = [self.mapped(name, expressions, what) for name, expressions in parts]
        whole = frames[0]
        with step(what):
            for frame in frames[1:]:
                whole = whole.unionByName(frame, allowMissingColumns=True)
        return whole

    @staticmethod
    def sample(frame: DataFrame, rows_max: int, what: str) -> pa.Table:
        """Return the first rows of a frame."""
        with step(what):
            return frame.limit(rows_max).toArrow()

    @staticmethod
    def whole(frame: DataFrame, what: str) -> pa.Table:
        """Return all rows of a frame."""
        with step(what):
            return frame.toArrow()

    # -- questions --------------------------------------------------------------------------------

    def rows(self, sql: str, what: str) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the columns and rows of a query; more rows than a check can mean are an error."""
        with step(what):
            frame = self._query(sql)
            found = frame.limit(ROWS_OF_CHECK_MAX + 1).collect()
        if len(found) > ROWS_OF_CHECK_MAX:
            raise SparkStepError(what, f"it returns more than {ROWS_OF_CHECK_MAX} rows")
        return frame.columns, [row.asDict() for row in found]

    def result_columns(self, sql: str, what: str) -> list[str]:
        """Return the columns that a query would have."""
        with step(what):
            return self._query(sql).columns

    def files(self, read: SourceRead) -> list[FileInfo]:
        """List the files that Spark would read, by path."""
        options = {
            key: value
            for key, value in read.options.items()
            if key.lower() in ("pathglobfilter", "recursivefilelookup")
        }
        with step(f"source '{read.name}'"):
            listed = self._spark.read.format("binaryFile").options(**options)
            frame = listed.load(list(read.paths)).selectExpr(
                "path", "length", "unix_micros(modificationTime) AS modified"
            )
            found = [FileInfo(row[0], row[1], row[2]) for row in frame.collect()]
        return sorted(found, key=lambda one: one.path)

    # -- incremental reads ------------------------------------------------------------------------

    def mark_type(self, name: str, column: str) -> str:
        """Return the SQL type of a column that can order rows, or raise."""
        what = f"source '{name}'"
        with step(what):
            kind = self._spark.table(name).selectExpr(_quoted(column)).schema[0].dataType
        sql_type = kind.simpleString().upper()
        if kind.typeName() not in _MARKS and not sql_type.startswith("DECIMAL"):
            raise SparkStepError(what, f"'{column}' is of type {sql_type}, which orders no rows")
        return sql_type

    def high_mark(
        self, name: str, column: str, *, after: str | None, least: str | None
    ) -> HighMark:
        """Find the largest value of a column among the rows after a mark, and not below `least`."""
        quoted = _quoted(column)
        where = "true" if after is None else f"{quoted} > {after} OR {quoted} IS NULL"
        highest = f"max({quoted})"
        later = highest if least is None else f"greatest({highest}, {least})"
        with step(f"source '{name}'"):
            frame = self._spark.table(name).where(where)
            row = frame.selectExpr(
                f"CAST({highest} AS STRING)",
                f"CAST({later} AS STRING)",
                "count(*)",
                f"count_if({quoted} IS NULL)",
            ).collect()[0]
        return HighMark(row[0], row[1], rows=row[2] - row[3], rows_without=row[3])

    def narrow(self, name: str, column: str, after: str | None, until: str) -> None:
        """Leave a table only the rows after a mark, up to another one."""
        quoted = _quoted(column)
        where = f"{quoted} <= {until}" + ("" if after is None else f" AND {quoted} > {after}")
        with step(f"source '{name}'"):
            self._name(self._spark.table(name).where(where), name)

    def leave_no_row(self, name: str) -> None:
        """Leave a table its columns and no row."""
        self._name(self._spark.table(name).where("false"), name)

    def fold_changes(self, name: str, after_commit: str | None) -> None:
        """Turn a table of changes into the rows that exist after them, each once.

        The rows that were there before them are kept for `show_rows_before`.
        """
        with step(f"source '{name}'"):
            changes = self._spark.table(name)
            if after_commit is not None:
                changes = changes.where(f"_graph_commit_id <> '{after_commit}'")
            after = _first(changes.where("_change_type <> 'update_preimage'"), "DESC")
            before = _first(changes.where("_change_type <> 'update_postimage'"), "ASC")
            self._before[name] = before.where("_change_type <> 'insert'").drop(*FEED_COLUMNS)
            self._name(after.where("_change_type <> 'delete'").drop(*FEED_COLUMNS), name)

    def keep_source(self, read: SourceRead) -> None:
        """Keep how all rows of a table are read, for `show_all_rows`."""
        self._all[read.name] = read

    def forget_changes(self) -> None:
        """Forget the rows before changes: other tables are read next."""
        self._before.clear()
        self._all.clear()

    def show_rows_before(self) -> None:
        """Give the tables of changes the rows that have been changed or deleted, as they were."""
        for name, frame in self._before.items():
            self._name(frame, name)

    def show_all_rows(self) -> None:
        """Give the tables of changes all rows that there are after them."""
        for read in self._all.values():
            self.add_source(read)

    @staticmethod
    def shared_rows(
        frame: DataFrame, other: DataFrame, columns: Sequence[str], what: str
    ) -> DataFrame:
        """Return one row of a frame for each value of some columns that another one has too."""
        with step(what):
            values = other.select(*columns).distinct()
            return frame.join(values, list(columns), "left_semi").dropDuplicates(list(columns))


def _first(changes: DataFrame, order: str) -> DataFrame:
    """Return of each id the first change in an order of commits."""
    number = f"row_number() OVER (PARTITION BY id ORDER BY _commit_version {order})"
    return changes.selectExpr("*", f"{number} AS {_ORDER}").where(f"{_ORDER} = 1").drop(_ORDER)


_MARKS: Final = frozenset(
    {"timestamp", "timestamp_ntz", "date", "byte", "short", "integer", "long", "string"}
)
_SECONDS_OF_DAY: Final = 86_400


def mark_literal(value: str, sql_type: str, back: int = 0) -> str:
    """Return a mark as an SQL expression; `back` seconds, or units of a number, before it.

    >>> mark_literal("7", "BIGINT", 2)
    "CAST('7' AS BIGINT) - 2"
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    literal = f"CAST('{escaped}' AS {sql_type})"
    if not back:
        return literal
    if sql_type.startswith("TIMESTAMP"):
        return f"{literal} - INTERVAL {back} SECONDS"
    if sql_type == "DATE":
        return f"date_sub({literal}, {-(-back // _SECONDS_OF_DAY)})"
    return f"{literal} - {back}"


def _isolated(session: object | None) -> SparkSession:
    spark = get_spark() if session is None else spark_session(session)
    return spark.newSession()


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
