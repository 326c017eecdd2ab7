"""The forms of a read's answer: JSON, Arrow, CSV, parquet."""

from __future__ import annotations

import io
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from starlette.responses import Response

from omnigraph.graph import QueryResult, ResultColumn, ResultObject
from omnigraph.server.call import JSON
from omnigraph.server.http.streams import ARROW
from omnigraph.values import PropType

CSV: Final = "text/csv"
PARQUET: Final = "application/vnd.apache.parquet"
READ_FORMS: Final = (ARROW, CSV, PARQUET)
"""The forms of rows besides JSON."""
_ANYTHING: Final = frozenset({"", "*/*"})
ENVELOPE: Final = b"omnigraph"
"""The key of the schema metadata of an Arrow answer that holds the rest of the envelope."""


def accepted(accept: str, known: tuple[str, ...], default: str = JSON) -> str:
    """Return the first known media type that a request asks for by name."""
    if accept in _ANYTHING:
        return default
    asked = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return next((kind for kind in asked if kind in known), default)


def read_answer(result: QueryResult, accept: str) -> Response:
    """Return the rows in the form that was asked for."""
    kind = accepted(accept, (JSON, *READ_FORMS))
    if kind == JSON:
        return Response(orjson.dumps(read_shape(result)), media_type=JSON)
    headers = {"Omnigraph-Graph-Commit": result.graph_commit_id, "Vary": "Accept"}
    if kind == ARROW:
        return Response(arrow_bytes(result), headers=headers, media_type=ARROW)
    if kind == CSV:
        return Response(csv_bytes(result), headers=headers, media_type=CSV)
    return Response(parquet_bytes(result), headers=headers, media_type=PARQUET)


def read_shape(result: QueryResult) -> dict[str, object]:
    """Return the JSON form; `columns` is left out when there are none."""
    shape = result.envelope()
    if not shape["columns"]:
        del shape["columns"]
    if result.estimates:
        shape |= result.explanation()
    return shape


def arrow_bytes(result: QueryResult) -> bytes:
    """Return the rows as an Arrow stream; its metadata has the rest of the envelope."""
    envelope = {
        "query_name": result.query_name,
        "target": result.target.as_json(),
        "graph_commit_id": result.graph_commit_id,
        "types": [_column_shape(column) for column in result.columns],
        **({"warnings": list(result.warnings)} if result.warnings else {}),
        **(result.explanation() if result.estimates else {}),
    }
    return stream_bytes(
        result.to_arrow().replace_schema_metadata({ENVELOPE: orjson.dumps(envelope)})
    )


def stream_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _column_shape(column: ResultColumn | ResultObject) -> dict[str, object]:
    if not isinstance(column, ResultObject):
        return _type_shape(column.prop_type)
    return {
        "fields": [{"name": each.header, **_type_shape(each.prop_type)} for each in column.fields]
    }


def _type_shape(prop_type: PropType) -> dict[str, object]:
    return {
        "scalar": str(prop_type.scalar),
        "nullable": prop_type.nullable,
        "is_list": prop_type.is_list,
        "enum": prop_type.enum_values,
        "dimension": prop_type.dimension,
    }


def csv_bytes(result: QueryResult) -> bytes:
    """Return the rows as CSV with a header; values are those of JSON."""
    rows, names = result.json_rows(), result.column_names
    columns = [[_cell(row[name]) for row in rows] for name in names]
    table = pa.table(dict(zip(names, columns, strict=True)))
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    return sink.getvalue()


def _cell(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def parquet_bytes(result: QueryResult) -> bytes:
    """Return the rows as a parquet file."""
    sink = io.BytesIO()
    pq.write_table(result.to_arrow(), sink)
    return sink.getvalue()
