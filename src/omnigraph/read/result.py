"""The answer to a read: Arrow first, everything else from it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import pyarrow as pa

from omnigraph.errors import UnavailableError
from omnigraph.read.explain import trace_lines
from omnigraph.read.profile import NodeAccess, OperatorTrace
from omnigraph.read.result_file import write_table
from omnigraph.schema.values.to_json import to_json_values
from omnigraph.values import PropType, Scalar

if TYPE_CHECKING:
    import pandas
    import polars

BATCH_ROWS_DEFAULT: Final = 65_536


class LibraryMissingError(UnavailableError):
    """The requested form of a result needs a library that is not installed."""

    code = "OG-LIBRARY-MISSING"
    hint = "pip install {library}"
    template = "this needs {library}, which is not installed"
    library: str


@dataclass(frozen=True)
class Target:
    """What was read, as the caller named it."""

    branch: str | None = None
    snapshot: str | None = None

    def as_json(self) -> dict[str, str | None]:
        """Return the JSON form."""
        return {"branch": self.branch, "snapshot": self.snapshot}


class ResultColumn(Protocol):
    """A column of a result: its header and its type."""

    @property
    def header(self) -> str:
        """The name, which may repeat."""
        ...

    @property
    def prop_type(self) -> PropType:
        """The type of the values."""
        ...


@dataclass(frozen=True, eq=False)
class QueryResult:
    """Rows of one read.

    Any library that supports the Arrow C stream interface can read a result directly. Headers may
    repeat: in Python dictionaries and JSON rows the later column wins.
    """

    query_name: str
    columns: tuple[ResultColumn, ...]
    arrays: tuple[pa.Array, ...]
    target: Target
    graph_commit_id: str
    """The commit that was read."""
    estimates: tuple[OperatorTrace, ...] = ()
    measured: tuple[OperatorTrace, ...] = ()
    elapsed_ms: float | None = None

    @property
    def column_names(self) -> list[str]:
        """The headers, in order."""
        return [column.header for column in self.columns]

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return len(self.arrays[0])

    def __len__(self) -> int:
        return self.row_count

    # -- Arrow ----------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return pa.schema(
            [pa.field(c.header, a.type) for c, a in zip(self.columns, self.arrays, strict=True)]
        )

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return pa.Table.from_arrays(list(self.arrays), schema=self.schema)

    def batches(self, rows_max: int = BATCH_ROWS_DEFAULT) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most `rows_max`."""
        yield from self.to_arrow().to_batches(max_chunksize=rows_max)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows to another library without copying them."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas data frame."""
        try:
            return self.to_arrow().to_pandas(date_as_object=False)
        except ImportError as error:
            raise LibraryMissingError("pandas") from error

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars data frame; repeated headers get a number."""
        try:
            import polars  # noqa: PLC0415 - an optional library
        except ImportError as error:
            raise LibraryMissingError("polars") from error
        table = self.to_arrow().rename_columns(_numbered(self.column_names))
        frame = polars.from_arrow(table)
        if not isinstance(frame, polars.DataFrame):
            raise TypeError(f"expected a data frame, got {type(frame)}")
        return frame

    def write(self, path: str | os.PathLike[str], form: Literal["arrow", "parquet"]) -> None:
        """Write the rows to a file, which appears whole or not at all.

        `arrow` is the file format of Arrow IPC. Moments are timestamps, which every reader knows,
        and repeated headers get a number.
        """
        arrays = [_with_moments(array) for array in self.arrays]
        table = pa.Table.from_arrays(arrays, names=_numbered(self.column_names))
        write_table(table, Path(path), form)

    # -- Python and JSON ------------------------------------------------------------------------

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries of Python values: dates are `datetime` objects.

        Days that these cannot hold, before the year 1 and after 9999, are texts as in JSON.
        """
        columns = [
            (column.header, _python_values(array, column))
            for column, array in zip(self.columns, self.arrays, strict=True)
        ]
        return _row_dictionaries(columns, self.row_count)

    def json_rows(self) -> list[dict[str, object]]:
        """Return the rows as JSON objects, keys in the order of the headers."""
        columns = [
            (column.header, to_json_values(array, column.prop_type))
            for column, array in zip(self.columns, self.arrays, strict=True)
        ]
        return _row_dictionaries(columns, self.row_count)

    def envelope(self) -> dict[str, object]:
        """Return the whole answer as one JSON object."""
        return {
            "query_name": self.query_name,
            "target": self.target.as_json(),
            "row_count": self.row_count,
            "columns": self.column_names,
            "rows": self.json_rows(),
            "graph_commit_id": self.graph_commit_id,
        }

    # -- how it was answered --------------------------------------------------------------------

    def node_accesses(self) -> tuple[NodeAccess, ...]:
        """Return how the explained plan finds nodes, inner operators after those that hold them."""
        return tuple(_accesses(self.estimates))

    def explanation(self) -> dict[str, object]:
        """Return the explained and the measured operators as one JSON object."""
        shape: dict[str, object] = {
            "query_name": self.query_name,
            "plan": [trace.as_json() for trace in self.estimates],
        }
        if self.measured:
            shape["profile"] = [trace.as_json() for trace in self.measured]
            shape["elapsed_ms"] = self.elapsed_ms
        return shape

    def explanation_text(self) -> str:
        """Return the explained and the measured operators as text."""
        lines = ["plan", *trace_lines(self.estimates, "  ")]
        if self.measured:
            lines += [f"profile ({self.elapsed_ms} ms)", *trace_lines(self.measured, "  ")]
        return "\n".join(lines)


def _accesses(traces: Iterable[OperatorTrace]) -> Iterator[NodeAccess]:
    for trace in traces:
        if trace.access is not None:
            yield trace.access
        yield from _accesses(trace.inner)


def _row_dictionaries(columns: list[tuple[str, list[Any]]], count: int) -> list[dict[str, Any]]:
    headers = [header for header, _ in columns]
    if not headers:
        return [{} for _ in range(count)]
    rows = zip(*(values for _, values in columns), strict=True)
    return [dict(zip(headers, row, strict=True)) for row in rows]


def _python_values(array: pa.Array, column: ResultColumn) -> list[Any]:
    try:
        return _values_of_type(array, column)
    except (OverflowError, ValueError):
        return [_python_value(array.slice(row, 1), column) for row in range(len(array))]


def _python_value(value: pa.Array, column: ResultColumn) -> object:
    """Return one value; a day outside of Python's years as JSON has it."""
    try:
        return _values_of_type(value, column)[0]
    except (OverflowError, ValueError):
        return to_json_values(value, column.prop_type)[0]


def _values_of_type(array: pa.Array, column: ResultColumn) -> list[Any]:
    if column.prop_type.scalar is not Scalar.DATETIME:
        values: list[Any] = array.to_pylist()
        return values
    # Arrow's own 64-bit dates lose the time of day on their way to Python.
    moment = pa.timestamp("ms", tz="UTC")
    if column.prop_type.is_list:
        lists: list[Any] = array.cast(pa.list_(pa.int64())).cast(pa.list_(moment)).to_pylist()
        return lists
    moments: list[Any] = array.cast(pa.int64()).cast(moment).to_pylist()
    return moments


def _with_moments(array: pa.Array) -> pa.Array:
    """Return moments as timestamps: a reader may cut stored 64-bit dates to whole days."""
    moment = pa.timestamp("ms", tz="UTC")
    if pa.types.is_date64(array.type):
        return array.cast(pa.int64()).cast(moment)
    if pa.types.is_list(array.type) and pa.types.is_date64(array.type.value_type):
        return array.cast(pa.list_(pa.int64())).cast(pa.list_(moment))
    return array


def _numbered(headers: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    names: list[str] = []
    for header in headers:
        seen[header] = seen.get(header, 0) + 1
        names.append(header if seen[header] == 1 else f"{header}_{seen[header]}")
    return names
