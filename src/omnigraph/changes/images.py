"""Rows of changes as JSON: every property, nulls included, in the encoding of an export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.changes.table_changes import Numbers
from omnigraph.schema import EdgeType, EntityType
from omnigraph.schema.values.to_json import JsonForm, to_json_values
from omnigraph.store.blob_contents import with_blobs
from omnigraph.store.datasets import DatasetHandle
from omnigraph.store.records import ROW_ID


def row_images(
    handle: DatasetHandle,
    row_ids: Numbers,
    entity_type: EntityType,
    shown: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the image of each row, in the order given; `shown` are other names of properties."""
    names = entity_type.arrow_schema.names
    wanted = pa.array(row_ids, pa.uint64())
    rows = handle.take(wanted, names).append_column(ROW_ID, wanted).combine_chunks()
    for batch in rows.to_batches():
        for part in with_blobs(handle, batch, entity_type.blob_properties):
            yield from _images(part, entity_type, shown or {})


def _images(
    batch: pa.RecordBatch, entity_type: EntityType, shown: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    names = sorted((shown.get(name, name), name) for name in entity_type.properties)
    columns = {
        image_name: to_json_values(
            batch[name], entity_type.properties[name].prop_type, JsonForm.EXPORT
        )
        for image_name, name in names
    }
    for row in range(batch.num_rows):
        image: dict[str, Any] = {
            "properties": {name: values[row] for name, values in columns.items()}
        }
        if isinstance(entity_type, EdgeType):
            image["endpoints"] = {
                "from": batch["src"][row].as_py(),
                "to": batch["dst"][row].as_py(),
            }
        yield image
