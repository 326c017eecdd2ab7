"""Typed tables by type: Arrow, pandas, polars and parquet files become columns of rows.

A table is anything with Arrow's stream interface (`__arrow_c_stream__`), a pandas frame, an Arrow
table, batch or reader, or paths of parquet files, of folders of them, or globs. Columns have the
names of properties. `id` is optional. Edges have `src` and `dst`, or `from` and `to`; a column of
numbers or days there is spelled as the ids of nodes are.
"""

from __future__ import annotations

import math
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.names import nearest_name
from omnigraph.schema import Catalog, EdgeType, EntityType
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.arrow import convert_arrow, plain_encoding
from omnigraph.schema.values.blobs import BASE64_PREFIX
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.converted import Converted
from omnigraph.schema.values.ids import Ids, spell
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import ErrorLog
from omnigraph.store.interrupts import raise_interrupt
from omnigraph.write.load.input.interfaces import LoadSink
from omnigraph.write.load.input.source import InputUnreadableError, files_of
from omnigraph.write.load.rows.check_rows import ColumnBatch
from omnigraph.write.rules import codes
from omnigraph.write.rules.violations import Violation


class ArrowStream(Protocol):
    """Any object that exposes its rows through Arrow's stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with an Arrow stream."""
        ...


TableInput: TypeAlias = (
    "pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream"
    " | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
)

_BATCH_ROWS: Final = 1 << 17
_END_NAMES: Final = (("src", "dst"), ("from", "to"))
_UNNAMED_LEVEL: Final = re.compile(r"__index_level_\d+__")
"""What pyarrow calls a level of a pandas index that has no name of its own."""


@dataclass(frozen=True)
class TableSource:
    """Tables of nodes and edges, by type."""

    nodes: Mapping[str, TableInput]
    edges: Mapping[str, TableInput]

    place: str = "row"
    last_wins_for_unkeyed_ids: bool = False

    def read(self, catalog: Catalog, sink: LoadSink) -> None:
        """Hand all tables over, nodes first, by name."""
        for name, table in sorted(self.nodes.items()):
            node = catalog.node_types.get(name)
            if node is None:
                sink.refuse(_unknown_type("node", name, catalog.node_types), None)
            else:
                _read_table(node, table, sink)
        for name, table in sorted(self.edges.items()):
            edge = catalog.lookup_edge(name)
            if edge is None:
                sink.refuse(_unknown_type("edge", name, catalog.edge_types), None)
            else:
                _read_table(edge, table, sink)


def table_source(tables: Mapping[str, object], catalog: Catalog) -> TableSource:
    """Sort tables by what their names are; `node:` or `edge:` before a name says which is meant."""
    nodes: dict[str, TableInput] = {}
    edges: dict[str, TableInput] = {}
    for name, table in tables.items():
        kind, _, plain = name.rpartition(":")
        is_node = kind == "node" or (kind == "" and _is_meant_as_node(plain, catalog))
        # Unsupported inputs are rejected later, with the name of their type.
        (nodes if is_node else edges)[plain] = cast("TableInput", table)
    return TableSource(nodes, edges)


def _is_meant_as_node(name: str, catalog: Catalog) -> bool:
    """Whether a table is one of nodes; a name that nothing has is the kind of the nearest one."""
    if name in catalog.node_types:
        return True
    if catalog.lookup_edge(name) is not None:
        return False
    has_near_node = nearest_name(name, catalog.node_types) is not None
    return has_near_node or nearest_name(name, catalog.edge_types) is None


def _read_table(entity_type: EntityType, table: TableInput, sink: LoadSink) -> None:
    for source, batches in _inputs(table):
        row = sink.begin(source)
        for batch in batches:
            problems = column_problems(entity_type, batch.schema.names)
            for problem in problems:
                sink.refuse(problem, None)
            if problems:
                return
            sink.add(entity_type, column_batch(entity_type, batch, row))
            sink.end_batch()
            row += batch.num_rows


def _unknown_type(kind: str, name: str, known: Mapping[str, object]) -> Violation:
    near = nearest_name(name, known)
    message = f"unknown {kind} type '{name}'" + (f"; did you mean '{near}'?" if near else "")
    return Violation(None, name, None, None, "envelope", codes.UNKNOWN_TYPE, message)


# -- where rows come from -------------------------------------------------------------------------


def _inputs(table: TableInput) -> Iterator[tuple[str | None, Iterator[pa.RecordBatch]]]:
    """Return the parts of a table with the names of their files.

    The first batch of a part may be empty and still has the columns.
    """
    if isinstance(table, str | os.PathLike):
        for path in files_of([table], [".parquet"]):
            yield str(path), _parquet_batches(path)
    elif isinstance(table, list | tuple):
        for path in files_of(table, [".parquet"]):
            yield str(path), _parquet_batches(path)
    else:
        yield None, _batches(table)


def _batches(table: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif type(table).__module__.partition(".")[0] == "pandas" and hasattr(table, "columns"):
        table = _from_pandas(table)
    if isinstance(table, pa.Table):
        yield from _sliced(table)
        return
    reader = table if isinstance(table, pa.RecordBatchReader) else _stream(table)
    yield _no_rows(reader.schema)
    for batch in _read(reader):
        yield from _sliced(pa.Table.from_batches([batch]))


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
    except pa.ArrowException as error:
        problem = f"has a column without a single type: {'; '.join(map(str, error.args))}"
        raise InputUnreadableError(type(frame).__name__, problem) from error
    unnamed = [name for name in table.column_names if _UNNAMED_LEVEL.fullmatch(name)]
    return table.drop_columns(unnamed)


def _stream(table: object) -> pa.RecordBatchReader:
    if not hasattr(table, "__arrow_c_stream__"):
        raise InputUnreadableError(
            type(table).__name__,
            "is no table: give an Arrow, pandas or polars table, or the path of a parquet file",
        )
    return pa.RecordBatchReader.from_stream(table)


def _sliced(table: pa.Table) -> Iterator[pa.RecordBatch]:
    if not table.num_rows:
        yield _no_rows(table.schema)
    yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def _parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        # Without `pre_buffer` a row group is read column by column as it is needed.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield _no_rows(file.schema_arrow)
            yield from file.iter_batches(batch_size=_BATCH_ROWS)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputUnreadableError(str(path), f"cannot be read as parquet: {error}") from error


# -- columns --------------------------------------------------------------------------------------


def column_problems(entity_type: EntityType, names: Sequence[str]) -> list[Violation]:
    """Return what is wrong with the names of a table's columns."""
    problems = [
        _table_problem(entity_type, name, codes.DUPLICATE_MEMBER, f"duplicate column '{name}'")
        for name in sorted({name for name in names if list(names).count(name) > 1})
    ]
    ends: tuple[str, ...] = ()
    if isinstance(entity_type, EdgeType):
        ends = _end_names(entity_type, names) or _half_of_ends(names)
        if not set(ends) <= set(names) or not ends:
            problems.append(_missing_ends(entity_type, ends, names))
    known = {*entity_type.properties, "id", *ends}
    for name in names:
        if name not in known:
            near = nearest_name(name, entity_type.properties)
            hint = f"; did you mean '{near}'?" if near else ""
            message = f"unknown input field '{name}' for '{entity_type.table_key}'{hint}"
            problems.append(_table_problem(entity_type, name, codes.UNKNOWN_PROPERTY, message))
    return problems


def _half_of_ends(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of both ends, where the table has one of them."""
    halves = [pair for pair in _END_NAMES if set(pair) & set(names)]
    return halves[0] if len(halves) == 1 else ()


def _missing_ends(edge: EdgeType, ends: Sequence[str], names: Sequence[str]) -> Violation:
    missing = next((name for name in ends if name not in names), None)
    wanted = (
        "field 'from' and field 'to', or 'src' and 'dst'"
        if missing is None
        else f"field '{missing}'"
    )
    message = f"edge '{edge.name}' requires {wanted}"
    return _table_problem(edge, missing, codes.MISSING_COLUMN, message)


def _table_problem(entity_type: EntityType, name: str | None, code: str, message: str) -> Violation:
    return Violation(None, entity_type.name, name, None, "property", code, message)


def _end_names(entity_type: EntityType, names: Sequence[str]) -> tuple[str, str] | None:
    if not isinstance(entity_type, EdgeType):
        return None
    return next((pair for pair in _END_NAMES if set(pair) <= set(names)), None)


def column_batch(entity_type: EntityType, batch: pa.RecordBatch, first_row: int) -> ColumnBatch:
    """Convert the columns of a batch whose first row has the number `first_row`."""
    names = batch.schema.names
    pair = _end_names(entity_type, names)
    ends = {} if pair is None else dict(zip(("src", "dst"), pair, strict=True))
    count = batch.num_rows
    return ColumnBatch(
        columns={name: _property(entity_type, name, batch) for name in entity_type.properties},
        positions=pa.array(np.arange(first_row, first_row + count, dtype=np.int64)),
        raw=lambda name, row: _raw(batch, ends.get(name, name), row),
        record=lambda row: _record(entity_type, batch, ends, row),
        given=_given(entity_type, batch["id"]) if "id" in names else None,
        ends={end: _end(entity_type, batch[name], name) for end, name in ends.items()},
        absent=lambda: {
            name: np.ones(count, np.bool_) for name in entity_type.properties if name not in names
        },
        is_columnar=True,
    )


def _property(entity_type: EntityType, name: str, batch: pa.RecordBatch) -> Converted:
    prop = entity_type.properties[name]
    if name in batch.schema.names:
        return convert_arrow(batch[name], prop.prop_type, name)
    return convert_values([prop.default] * batch.num_rows, prop.prop_type, name)


def _given(entity_type: EntityType, column: pa.Array) -> Ids:
    plain = plain_encoding(column)
    log = ErrorLog(len(plain))
    if pa.types.is_string(plain.type):
        return Ids(plain, log.finish())
    kind = "edge" if isinstance(entity_type, EdgeType) else "node"
    message = f"{kind} id must be a string, got a column of {plain.type}"
    log.add_mask(valid_mask(plain), value_codes.ID_NOT_A_STRING, message)
    return Ids(pa.nulls(len(plain), pa.utf8()), log.finish())


def _end(entity_type: EntityType, column: pa.Array, name: str) -> Ids:
    plain = plain_encoding(column)
    log = ErrorLog(len(plain))
    missing = f"edge '{entity_type.name}' requires field '{name}'"
    log.add_mask(~valid_mask(plain), value_codes.MISSING, missing)
    if pa.types.is_string(plain.type):
        return Ids(plain, log.finish())
    if _is_spelled(plain.type):
        return Ids(spell(plain), log.finish())
    wrong = (
        f"edge '{entity_type.name}' field '{name}' must be a string, got a column of {plain.type}"
    )
    log.add_mask(valid_mask(plain), value_codes.WRONG_KIND, wrong)
    return Ids(pa.nulls(len(plain), pa.utf8()), log.finish())


def _is_spelled(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind))


def _record(
    entity_type: EntityType, batch: pa.RecordBatch, ends: Mapping[str, str], row: int
) -> dict[str, object]:
    """Return a row in the form of a graph record."""
    names = [name for name in batch.schema.names if name not in ends.values()]
    data = {name: _plain(batch[name][row]) for name in names}
    if not isinstance(entity_type, EdgeType):
        return {"type": entity_type.name, "data": data}
    source, target = (_raw(batch, ends[end], row) for end in ("src", "dst"))
    return {"edge": entity_type.name, "from": source, "to": target, "data": data}


def _raw(batch: pa.RecordBatch, name: str, row: int) -> object:
    return _plain(batch[name][row]) if name in batch.schema.names else None


def _plain(value: pa.Scalar) -> object:
    """Return a value in a form that JSON has, so that it can be shown, kept and loaded again."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_temporal(kind):
        return _moment(value)
    if pa.types.is_decimal(kind):
        number = value.as_py()
        return int(number) if number == int(number) and abs(number) < 1 << 63 else str(number)
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind) and not pa.types.is_map(kind):
        return [_plain(item) for item in value.values]
    found: object = value.as_py()
    if isinstance(found, float) and not math.isfinite(found):
        return "NaN" if math.isnan(found) else f"{'-' if found < 0 else ''}Infinity"
    return BASE64_PREFIX + b64encode(found).decode() if isinstance(found, bytes) else found


def _moment(value: pa.Scalar) -> object:
    """Spell a day or a moment; Python's own types end with the year 9999, and days lose hours."""
    if pa.types.is_date64(value.type):
        value = value.cast(pa.timestamp("ms"))
    text: str = value.cast(pa.utf8()).as_py()
    if not text.startswith("<"):
        return text.replace(" ", "T", 1)
    # Arrow spells no years of more than five digits either.
    width = pa.int32() if pa.types.is_date32(value.type) else pa.int64()
    return value.cast(width).as_py()
