"""Typed tables by type: Arrow, pandas, polars and parquet files become columns of rows.

A table is anything with Arrow's stream interface (`__arrow_c_stream__`), a pandas frame, an Arrow
table, batch or reader, or the path of a parquet file or of a folder of them. Columns have the names
of properties. `id` is optional. Edges have `src` and `dst`, or `from` and `to`; a column of numbers
or days there is spelled as the ids of nodes are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.names import nearest_name
from omnigraph.schema import Catalog, EdgeType, NodeType
from omnigraph.schema.values import codes as value_codes
from omnigraph.schema.values.arrow import convert_arrow, plain_encoding
from omnigraph.schema.values.convert import convert_values
from omnigraph.schema.values.ids import Ids, spell
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import ErrorLog
from omnigraph.write import codes
from omnigraph.write.load_rows import ColumnBatch, TypeRows
from omnigraph.write.load_source import InputUnreadableError
from omnigraph.write.violations import Violation, ViolationLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.schema.values.converted import Converted


class ArrowStream(Protocol):
    """Whatever hands out its rows through Arrow's stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with an Arrow stream."""
        ...


TableInput: TypeAlias = (
    "pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream | str | os.PathLike[str]"
)

_BATCH_ROWS: Final = 1 << 17
_END_NAMES: Final = (("src", "dst"), ("from", "to"))


@dataclass(frozen=True)
class TableSource:
    """Tables of nodes and edges, by type."""

    nodes: Mapping[str, TableInput]
    edges: Mapping[str, TableInput]

    place: str = "row"

    def read(
        self,
        catalog: Catalog,
        rows_of: Callable[[NodeType | EdgeType], TypeRows],
        log: ViolationLog,
    ) -> None:
        """Hand all tables over, nodes first, by name."""
        for name, table in sorted(self.nodes.items()):
            node = catalog.node_types.get(name)
            if node is None:
                log.add(_unknown_type("node", name, catalog.node_types))
            else:
                _read_table(node, table, rows_of(node), log)
        for name, table in sorted(self.edges.items()):
            edge = catalog.lookup_edge(name)
            if edge is None:
                log.add(_unknown_type("edge", name, catalog.edge_types))
            else:
                _read_table(edge, table, rows_of(edge), log)


def _unknown_type(kind: str, name: str, known: Mapping[str, object]) -> Violation:
    near = nearest_name(name, known)
    message = f"unknown {kind} type '{name}'" + (f"; did you mean '{near}'?" if near else "")
    return Violation(None, name, None, None, "envelope", codes.UNKNOWN_TYPE, message)


def _read_table(
    owner: NodeType | EdgeType, table: TableInput, rows: TypeRows, log: ViolationLog
) -> None:
    row = 1
    for batch in _batches(table):
        problems = _name_problems(owner, batch.schema.names)
        if problems:
            log.extend(problems)
            return
        rows.add(_columns(owner, batch, row))
        row += batch.num_rows


# -- where rows come from -------------------------------------------------------------------------


def _batches(table: TableInput) -> Iterator[pa.RecordBatch]:
    """Read a table in batches; the first one may be empty and still has the columns."""
    if isinstance(table, str | os.PathLike):
        for path in _parquet_files(Path(table)):
            yield from _parquet_batches(path)
        return
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif type(table).__module__.partition(".")[0] == "pandas":
        table = pa.Table.from_pandas(table, preserve_index=False)
    if isinstance(table, pa.Table):
        yield from _sliced(table)
        return
    reader = table if isinstance(table, pa.RecordBatchReader) else _stream(table)
    yield _no_rows(reader.schema)
    for batch in reader:
        yield from _sliced(pa.Table.from_batches([batch]))


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


def _parquet_files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(path.glob("*.parquet"))
        if not found:
            raise InputUnreadableError(str(path), "has no file named *.parquet")
        return found
    return [path]


def _parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as file:
            yield _no_rows(file.schema_arrow)
            yield from file.iter_batches(batch_size=_BATCH_ROWS)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputUnreadableError(str(path), f"cannot be read as parquet: {error}") from error


# -- columns --------------------------------------------------------------------------------------


def _name_problems(owner: NodeType | EdgeType, names: Sequence[str]) -> list[Violation]:
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


def _columns(owner: NodeType | EdgeType, batch: pa.RecordBatch, first_row: int) -> ColumnBatch:
    names = batch.schema.names
    pair = _end_names(owner, names)
    ends = {} if pair is None else dict(zip(("src", "dst"), pair, strict=True))
    count = batch.num_rows
    return ColumnBatch(
        columns={name: _property(owner, name, batch) for name in owner.properties},
        positions=pa.array(np.arange(first_row, first_row + count, dtype=np.int64)),
        raw=lambda name, row: _raw(batch, ends.get(name, name), row),
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


def _raw(batch: pa.RecordBatch, name: str, row: int) -> Any:
    return batch[name][row].as_py() if name in batch.schema.names else None
