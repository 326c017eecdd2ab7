"""Files that hold typed columns: Parquet, Arrow IPC, ORC. The first batch may be empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.write.load.formats.files import open_seekable, reading

BATCH_ROWS: Final = 1 << 17

Batches: TypeAlias = Iterator[pa.RecordBatch]


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch that has columns and no rows."""
    schema = without_views(schema)
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return a schema without view types, for which Arrow lacks many functions; polars has them."""
    if not any(_plain(field.type) != field.type for field in schema):
        return schema
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_utf8()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return _plain_list(kind)


def _plain_list(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)), kind.list_size)
    return kind


def sliced(table: pa.Table) -> Batches:
    """Yield the rows of a table; at least one batch, which says what the columns are."""
    schema = without_views(table.schema)
    if schema is not table.schema:
        table = table.cast(schema)
    if not table.num_rows:
        yield no_rows(table.schema)
    yield from table.to_batches(max_chunksize=BATCH_ROWS)


def _parquet(file: pa.NativeFile) -> Batches:
    # Without `pre_buffer` a row group is read column by column as it is needed.
    with pq.ParquetFile(file, pre_buffer=False) as opened:
        yield no_rows(opened.schema_arrow)
        yield from opened.iter_batches(batch_size=BATCH_ROWS)


def _arrow(file: pa.NativeFile) -> Batches:
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    if is_file:
        opened = pa.ipc.open_file(file)
        yield no_rows(opened.schema)
        for number in range(opened.num_record_batches):
            yield from sliced(pa.Table.from_batches([opened.get_batch(number)]))
        return
    stream = pa.ipc.open_stream(file)
    yield no_rows(stream.schema)
    for batch in stream:
        yield from sliced(pa.Table.from_batches([batch]))


def _orc(file: pa.NativeFile) -> Batches:
    from pyarrow import orc  # noqa: PLC0415 - not in every build of pyarrow

    opened = orc.ORCFile(file)
    yield no_rows(opened.schema)
    for number in range(opened.nstripes):
        yield from sliced(pa.Table.from_batches([opened.read_stripe(number)]))


_READERS: Final[Mapping[str, Callable[[pa.NativeFile], Batches]]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "orc": _orc,
}


def columnar_batches(path: str, form: str, options: Mapping[str, str] | None = None) -> Batches:
    """Read a file of typed columns, batch by batch."""
    with reading(path), open_seekable(path, options) as file:
        yield from _READERS[form](file)
