"""Typed tables by type: Arrow, pandas, polars and parquet files become columns of rows.

A table is anything with Arrow's stream interface (`__arrow_c_stream__`), a pandas frame, an Arrow
table, batch or reader, or paths of parquet files, of folders of them, or globs. Columns have the
names of properties. `id` is optional. Edges have `src` and `dst`, or `from` and `to`; a column of
numbers or days there is spelled as the ids of nodes are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.names import nearest_name
from omnigraph.schema import EdgeType, NodeType
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.arrow import convert_arrow, plain_encoding
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.ids import Ids, spell
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import ErrorLog
from omnigraph.store.interrupts import raise_interrupt
from omnigraph.write import codes
from omnigraph.write.load_rows import ColumnBatch
from omnigraph.write.load_source import InputUnreadableError, files_of
from omnigraph.write.violations import Violation

if TYPE_CHECKING:
    from omnigraph.schema import Catalog
    from omnigraph.schema.values.converted import Converted
    from omnigraph.write.load_rows import Owner
    from omnigraph.write.load_sink import LoadSink


class ArrowStream(Protocol):
    """Whatever hands out its rows through Arrow's stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with an Arrow stream."""
        ...


TableInput: TypeAlias = (
    "pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream"
    " | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
)

_BATCH_ROWS: Final = 1 << 17
_END_NAMES: Final = (("src", "dst"), ("from", "to"))


@dataclass(frozen=True)
class TableSource:
    """Tables of nodes and edges, by type."""

    nodes: Mapping[str, TableInput]
    edges: Mapping[str, TableInput]

    place: str = "row"
    folds_free_ids: bool = False

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
        is_node = kind == "node" or (kind == "" and plain in catalog.node_types)
        # What is no table is refused by name when it is read.
        (nodes if is_node else edges)[plain] = cast("TableInput", table)
    return TableSource(nodes, edges)


def _read_table(owner: Owner, table: TableInput, sink: LoadSink) -> None:
    for source, batches in _inputs(table):
        row = sink.begin(source)
        for batch in batches:
            problems = column_problems(owner, batch.schema.names)
            for problem in problems:
                sink.refuse(problem, None)
            if problems:
                return
            sink.add(owner, column_batch(owner, batch, row))
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
    elif type(table).__module__.partition(".")[0] == "pandas":
        table = pa.Table.from_pandas(table, preserve_index=False)
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


def column_problems(owner: NodeType | EdgeType, names: Sequence[str]) -> list[Violation]:
    """Say what is wrong with the names of a table's columns."""
    ends = _end_names(owner, names)
    known = {*owner.properties, "id", *(ends or ())}
    problems = [
        _table_problem(owner, name, codes.DUPLICATE_MEMBER, f"duplicate column '{name}'")
        for name in sorted({name for name in names if list(names).count(name) > 1})
    ]
    for name in names:
        if name not in known:
            near = nearest_name(name, owner.properties)
            hint = f"; did you mean '{near}'?" if near else ""
            message = f"unknown input field '{name}' for '{owner.table_key}'{hint}"
            problems.append(_table_problem(owner, name, codes.UNKNOWN_PROPERTY, message))
    if isinstance(owner, EdgeType) and ends is None:
        message = f"edge '{owner.name}' requires field 'from' and field 'to', or 'src' and 'dst'"
        problems.append(_table_problem(owner, None, codes.MISSING_COLUMN, message))
    return problems


def _table_problem(
    owner: NodeType | EdgeType, name: str | None, code: str, message: str
) -> Violation:
    return Violation(None, owner.name, name, None, "property", code, message)


def _end_names(owner: NodeType | EdgeType, names: Sequence[str]) -> tuple[str, str] | None:
    if not isinstance(owner, EdgeType):
        return None
    return next((pair for pair in _END_NAMES if set(pair) <= set(names)), None)


def column_batch(owner: NodeType | EdgeType, batch: pa.RecordBatch, first_row: int) -> ColumnBatch:
    """Convert the columns of a batch whose first row has the number `first_row`."""
    names = batch.schema.names
    pair = _end_names(owner, names)
    ends = {} if pair is None else dict(zip(("src", "dst"), pair, strict=True))
    count = batch.num_rows
    return ColumnBatch(
        columns={name: _property(owner, name, batch) for name in owner.properties},
        positions=pa.array(np.arange(first_row, first_row + count, dtype=np.int64)),
        raw=lambda name, row: _raw(batch, ends.get(name, name), row),
        record=lambda row: _record(owner, batch, ends, row),
        given=_given(owner, batch["id"]) if "id" in names else None,
        ends={end: _end(owner, batch[name], name) for end, name in ends.items()},
    )


def _property(owner: NodeType | EdgeType, name: str, batch: pa.RecordBatch) -> Converted:
    prop = owner.properties[name]
    if name in batch.schema.names:
        return convert_arrow(batch[name], prop.prop_type, name)
    return convert_values([prop.default] * batch.num_rows, prop.prop_type, name)


def _given(owner: NodeType | EdgeType, column: pa.Array) -> Ids:
    plain = plain_encoding(column)
    log = ErrorLog(len(plain))
    if pa.types.is_string(plain.type):
        return Ids(plain, log.finish())
    kind = "edge" if isinstance(owner, EdgeType) else "node"
    message = f"{kind} id must be a string, got a column of {plain.type}"
    log.add_mask(valid_mask(plain), value_codes.ID_NOT_A_STRING, message)
    return Ids(pa.nulls(len(plain), pa.utf8()), log.finish())


def _end(owner: NodeType | EdgeType, column: pa.Array, name: str) -> Ids:
    plain = plain_encoding(column)
    log = ErrorLog(len(plain))
    missing = f"edge '{owner.name}' requires field '{name}'"
    log.add_mask(~valid_mask(plain), value_codes.MISSING, missing)
    if pa.types.is_string(plain.type):
        return Ids(plain, log.finish())
    if _is_spelled(plain.type):
        return Ids(spell(plain), log.finish())
    wrong = f"edge '{owner.name}' field '{name}' must be a string, got a column of {plain.type}"
    log.add_mask(valid_mask(plain), value_codes.WRONG_KIND, wrong)
    return Ids(pa.nulls(len(plain), pa.utf8()), log.finish())


def _is_spelled(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind))


def _record(
    owner: Owner, batch: pa.RecordBatch, ends: Mapping[str, str], row: int
) -> dict[str, object]:
    """Return a row in the form of a graph record."""
    names = [name for name in batch.schema.names if name not in ends.values()]
    data = {name: batch[name][row].as_py() for name in names}
    if not isinstance(owner, EdgeType):
        return {"type": owner.name, "data": data}
    source, target = (_raw(batch, ends[end], row) for end in ("src", "dst"))
    return {"edge": owner.name, "from": source, "to": target, "data": data}


def _raw(batch: pa.RecordBatch, name: str, row: int) -> Any:
    return batch[name][row].as_py() if name in batch.schema.names else None
