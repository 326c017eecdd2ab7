"""The answer to a read: Arrow first, everything else from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, overload

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.display import ROWS_SHOWN_MAX, Display, Displayed
from omnigraph.errors import InvalidInputError, LibraryMissingError, NotFoundError
from omnigraph.read.explain import trace_lines
from omnigraph.read.profile import NodeAccess, OperatorTrace
from omnigraph.read.result_file import write_table
from omnigraph.schema.values.to_json import to_json_values
from omnigraph.schema.values.to_python import to_python_values
from omnigraph.values import PropType

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars

BATCH_ROWS_DEFAULT: Final = 65_536


class ColumnNotFoundError(NotFoundError):
    """A result has no column of this header."""

    code = "OG-COLUMN-NOT-FOUND"
    hint = "`result.column_names` lists the headers"
    template = "no column '{header}' in this result: it has {known}"
    header: str
    known: tuple[str, ...]


class TwoColumnsNeededError(InvalidInputError):
    """A graph was to be made of a result that has one column."""

    code = "OG-TWO-COLUMNS"
    hint = "return both ends of an edge: `return {{ $a.name, $b.name }}`"
    template = "a graph needs two columns, and this result has one: '{header}'"
    header: str


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
class ResultObject:
    """A column whose values are objects: its header and the columns of the fields."""

    header: str
    fields: Sequence[ResultColumn]

    def array(self, columns: Sequence[pa.Array], absent: pa.Array | None = None) -> pa.Array:
        """Return the column; `absent` says which objects are null."""
        plain = [
            column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            for column in columns
        ]
        names = [field.header for field in self.fields]
        return pa.StructArray.from_arrays(plain, names=names, mask=absent)


@dataclass(frozen=True, eq=False, repr=False)
class QueryResult(Displayed):
    """Rows of one read.

    `result[0]` is a row as a dictionary, `result[10:20]` a result of these rows, `result["p.name"]`
    a column as a list; iterating yields the rows as dictionaries.

    Any library that supports the Arrow C stream interface can read a result directly. Headers may
    repeat: in Python dictionaries and JSON rows the later column wins.
    """

    query_name: str
    columns: tuple[ResultColumn | ResultObject, ...]
    arrays: tuple[pa.Array, ...]
    target: Target
    graph_commit_id: str
    """The commit that was read."""
    estimates: tuple[OperatorTrace, ...] = ()
    measured: tuple[OperatorTrace, ...] = ()
    elapsed_ms: float | None = None
    warnings: tuple[str, ...] = ()
    """Parameters that the query does not declare, when they were not refused."""

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

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, self.row_count, BATCH_ROWS_DEFAULT):
            yield from self[start : start + BATCH_ROWS_DEFAULT].to_pylist()

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> QueryResult: ...

    @overload
    def __getitem__(self, at: str) -> list[Any]: ...

    def __getitem__(self, at: int | slice | str) -> dict[str, Any] | QueryResult | list[Any]:
        """Return a row by its number, some rows by a slice, a column by its header."""
        if isinstance(at, str):
            return self._column(at)
        if isinstance(at, slice):
            rows = pa.array(range(self.row_count)[at], pa.int64())
            return replace(self, arrays=tuple(array.take(rows) for array in self.arrays))
        try:
            row = range(self.row_count)[at]
        except IndexError:
            raise IndexError(f"row {at} of a result that has {self.row_count} rows") from None
        [found] = replace(
            self, arrays=tuple(array.slice(row, 1) for array in self.arrays)
        ).to_pylist()
        return found

    def _column(self, header: str) -> list[Any]:
        place = self._place(header)
        return _python_values(self.arrays[place], self.columns[place])

    def _place(self, header: str) -> int:
        for place in reversed(range(len(self.columns))):
            if self.columns[place].header == header:
                return place
        raise ColumnNotFoundError(header, tuple(self.column_names))

    def _display(self) -> Display:
        place = self.target.branch or self.target.snapshot or self.graph_commit_id
        name = f" of {self.query_name}" if self.query_name else ""
        if self.estimates and not self.row_count:
            return Display(self.explanation_text())
        first = self[:ROWS_SHOWN_MAX]
        columns = [
            _python_values(array, column)
            for column, array in zip(first.columns, first.arrays, strict=True)
        ]
        return Display(
            f"{self.row_count} rows{name} from {place}",
            self.column_names,
            list(zip(*columns, strict=True)),
            self.row_count,
        )

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

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, as `to_arrow` does."""
        return self.to_arrow()

    def df(self) -> pandas.DataFrame:
        """Return the rows as a pandas data frame, as `to_pandas` does."""
        return self.to_pandas()

    def pl(self) -> polars.DataFrame:
        """Return the rows as a polars data frame, as `to_polars` does."""
        return self.to_polars()

    def to_networkx(
        self, source: str | None = None, target: str | None = None
    ) -> networkx.MultiDiGraph:
        """Return a NetworkX graph with an edge per row, from one column to another.

        `source` and `target` are headers, by default the first two columns. The other columns
        become attributes of the edges. A row in which one end is null adds the other one as a node.
        """
        try:
            import networkx  # noqa: PLC0415 - an optional library
        except ImportError as error:
            raise LibraryMissingError("networkx") from error
        if len(self.columns) < 2:
            raise TwoColumnsNeededError(*self.column_names)
        ends = (
            0 if source is None else self._place(source),
            1 if target is None else self._place(target),
        )
        values = [
            (column.header, _python_values(array, column))
            for column, array in zip(self.columns, self.arrays, strict=True)
        ]
        others = [each for place, each in enumerate(values) if place not in ends]
        graph = networkx.MultiDiGraph()
        for start, stop, rest in zip(
            *(values[end][1] for end in ends),
            _row_dictionaries(others, self.row_count),
            strict=True,
        ):
            if start is None or stop is None:
                graph.add_nodes_from(end for end in (start, stop) if end is not None)
            else:
                # Not as arguments: a column may be called as one of them is, such as `key`.
                number = graph.add_edge(start, stop)
                graph.edges[start, stop, number].update(rest)
        return graph

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
            (column.header, _json_values(array, column))
            for column, array in zip(self.columns, self.arrays, strict=True)
        ]
        return _row_dictionaries(columns, self.row_count)

    def envelope(self) -> dict[str, object]:
        """Return the whole answer as one JSON object."""
        shape: dict[str, object] = {
            "query_name": self.query_name,
            "target": self.target.as_json(),
            "row_count": self.row_count,
            "columns": self.column_names,
            "rows": self.json_rows(),
            "graph_commit_id": self.graph_commit_id,
        }
        return shape | {"warnings": list(self.warnings)} if self.warnings else shape

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
    headers = tuple([header for header, _ in columns])
    if not headers:
        return [{} for _ in range(count)]
    rows = zip(*(values for _, values in columns), strict=True)
    return [dict(zip(headers, row)) for row in rows]  # noqa: B905 - the rows are as wide


def _json_values(array: pa.Array, column: ResultColumn | ResultObject) -> list[Any]:
    if isinstance(column, ResultObject):
        return _objects(array, column, _json_values)
    return to_json_values(array, column.prop_type)


def _objects(
    array: pa.Array,
    column: ResultObject,
    values: Callable[[pa.Array, ResultColumn], list[Any]],
) -> list[dict[str, Any] | None]:
    """Return objects of field values; null where the object is."""
    fields = [
        (field.header, values(array.field(index), field))
        for index, field in enumerate(column.fields)
    ]
    found: list[dict[str, Any] | None] = [*_row_dictionaries(fields, len(array))]
    for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
        found[row] = None
    return found


def _python_values(array: pa.Array, column: ResultColumn | ResultObject) -> list[Any]:
    if isinstance(column, ResultObject):
        return _objects(array, column, _python_values)
    try:
        return to_python_values(array, column.prop_type)
    except (OverflowError, ValueError):
        return [_python_value(array.slice(row, 1), column) for row in range(len(array))]


def _python_value(value: pa.Array, column: ResultColumn) -> object:
    """Return one value; a day outside of Python's years as JSON has it."""
    try:
        return to_python_values(value, column.prop_type)[0]
    except (OverflowError, ValueError):
        return to_json_values(value, column.prop_type)[0]


def _with_moments(array: pa.Array) -> pa.Array:
    """Return moments as timestamps: a reader may cut stored 64-bit dates to whole days."""
    moment = pa.timestamp("ms", tz="UTC")
    if pa.types.is_date64(array.type):
        return array.cast(pa.int64()).cast(moment)
    if pa.types.is_list(array.type) and pa.types.is_date64(array.type.value_type):
        return array.cast(pa.list_(pa.int64())).cast(pa.list_(moment))
    if pa.types.is_struct(array.type):
        fields = [_with_moments(array.field(index)) for index in range(array.type.num_fields)]
        names = [field.name for field in array.type]
        return pa.StructArray.from_arrays(fields, names=names, mask=array.is_null())
    return array


def _numbered(headers: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    names: list[str] = []
    for header in headers:
        seen[header] = seen.get(header, 0) + 1
        names.append(header if seen[header] == 1 else f"{header}_{seen[header]}")
    return names
