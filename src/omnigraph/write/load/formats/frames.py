"""Tables in memory become Arrow batches; the first batch may be empty and has the columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from omnigraph.store.interrupts import raise_interrupt
from omnigraph.write.load.formats.columnar import no_rows, sliced
from omnigraph.write.load.formats.files import InputUnreadableError

_UNNAMED_LEVEL: Final = re.compile(r"__index_level_\d+__")
"""What pyarrow calls a level of a pandas index that has no name of its own."""


class ArrowStream(Protocol):
    """Any object that exposes its rows through Arrow's stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with an Arrow stream."""
        ...


def frame_batches(table: Any) -> Iterator[pa.RecordBatch]:
    """Read a table of Arrow, pandas, polars, or of any library that hands out Arrow streams."""
    found = _as_arrow(table)
    if isinstance(found, pa.Table):
        yield from sliced(found)
        return
    yield no_rows(found.schema)
    for batch in _read(found):
        yield from sliced(pa.Table.from_batches([batch]))


def _as_arrow(table: Any) -> pa.Table | pa.RecordBatchReader:
    if isinstance(table, pa.Table | pa.RecordBatchReader):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if isinstance(table, list | tuple) and table and isinstance(table[0], pa.RecordBatch):
        return _from_batches(table)
    home = type(table).__module__.partition(".")[0]
    if home == "pandas" and hasattr(table, "columns"):
        return _from_pandas(table)
    if type(table).__module__ == "pyarrow._dataset":
        scanner = table if hasattr(table, "to_reader") else table.scanner()
        return scanner.to_reader()
    if home == "polars" and hasattr(table, "collect"):
        # A lazy frame has no rows before it is collected.
        table = table.collect()
    if not hasattr(table, "__arrow_c_stream__"):
        raise _no_table(
            table,
            "is no table: give an Arrow, pandas or polars table, a list of objects, or a path",
            hint="`list(rows)` of a generator is a list",
        )
    try:
        return pa.RecordBatchReader.from_stream(table)
    except pa.ArrowException as error:
        problem = f"hands out no table that Arrow can read: {'; '.join(map(str, error.args))}"
        hint = "`to_frame()` of a column is a table; other types of columns have to be cast"
        raise _no_table(table, problem, hint=hint) from error


def _no_table(table: object, problem: str, *, hint: str) -> InputUnreadableError:
    error = InputUnreadableError(type(table).__name__, problem)
    error.hint = hint
    return error


def _from_batches(batches: Sequence[Any]) -> pa.Table:
    try:
        return pa.Table.from_batches(batches)
    except (TypeError, pa.ArrowException) as error:
        problem = f"has not only batches of one schema: {'; '.join(map(str, error.args))}"
        raise InputUnreadableError("list", problem) from error


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except pa.ArrowException as error:
        # Other libraries bring streams of their own, which make text of an interrupt.
        raise_interrupt(error)
        raise


def _from_pandas(frame: Any) -> pa.Table:
    """Return a frame as a table; named levels of its index are columns like the others."""
    is_named = any(name is not None and name not in frame.columns for name in frame.index.names)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=is_named)
    except (pa.ArrowException, TypeError, ValueError) as error:
        # Besides its own errors Arrow raises plain ones, for doubled names and sparse columns.
        problem = f"cannot become an Arrow table: {'; '.join(map(str, error.args))}"
        hint = "give every column a name of its own and values of one type: `astype` casts them"
        raise _no_table(frame, problem, hint=hint) from error
    unnamed = [name for name in table.column_names if _UNNAMED_LEVEL.fullmatch(name)]
    return table.drop_columns(unnamed)
