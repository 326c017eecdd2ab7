"""The rows of one type as CSV, for spreadsheets and other simple readers.

A null is an empty cell and an empty text is `""`. Dates and moments are as in query results, lists
and vectors are JSON, blobs of the graph are `base64:` texts and external ones their addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.csv as pc

from omnigraph.schema import EntityType
from omnigraph.schema.values.to_json import JsonForm, to_json_values
from omnigraph.values import PropType, Scalar

_AS_TEXT = frozenset({Scalar.DATETIME, Scalar.BLOB})


def write_csv(path: Path, entity_type: EntityType, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a header and all rows; return how many there were."""
    schema = _csv_schema(entity_type)
    rows = 0
    with pc.CSVWriter(path, schema) as writer:
        for batch in batches:
            columns = [_csv_column(batch[name], entity_type, name) for name in schema.names]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            rows += batch.num_rows
    return rows


def _csv_schema(entity_type: EntityType) -> pa.Schema:
    fields = []
    for stored in entity_type.arrow_schema:
        prop = entity_type.properties.get(stored.name)
        is_text = prop is None or _is_text(prop.prop_type)
        fields.append(pa.field(stored.name, pa.utf8() if is_text else stored.type))
    return pa.schema(fields)


def _is_text(prop_type: PropType) -> bool:
    return prop_type.is_list or prop_type.is_vector or prop_type.scalar in _AS_TEXT


def _csv_column(column: pa.Array, entity_type: EntityType, name: str) -> pa.Array:
    prop = entity_type.properties.get(name)
    if prop is None or not _is_text(prop.prop_type):
        return column
    form = JsonForm.EXPORT if prop.prop_type.scalar is Scalar.BLOB else JsonForm.RESULT
    values = to_json_values(column, prop.prop_type, form)
    texts = [value if value is None or isinstance(value, str) else _json(value) for value in values]
    return pa.array(texts, pa.utf8())


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
