"""Stored columns as Spark sees them.

| stored | Spark | Arrow on the way |
|---|---|---|
| String, enum, Bool, I32, I64, F32, F64, Date | the same | the same |
| U32 | long | int64 |
| U64 | decimal(20,0) | decimal128(20, 0) |
| DateTime, milliseconds | timestamp, UTC | timestamp[us, UTC] |
| Vector(n) | array<float> | list<float> |
| [T] | array<T> | list<T> |
| Blob | binary, only when it is named | binary |

1. Nothing is rounded or cut: a moment that microseconds cannot count is an error.
2. The way back is `omnigraph.schema.values.arrow.convert_arrow`, which checks ranges, lengths and
   nulls, and counts moments that are finer than a millisecond.
3. Batches have exactly the schema that Spark expects of them; it compares and refuses others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInputError
from omnigraph.values import PropType, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

    from omnigraph.schema import EntityType

MOMENT: Final = pa.timestamp("us", tz="UTC")
U64_DECIMAL: Final = pa.decimal128(20, 0)
_US_PER_MS: Final = 1_000
_MS_MAX: Final = (2**63 - 1) // _US_PER_MS


class MomentOutOfRangeError(InvalidInputError):
    """A stored moment is further away than Spark can count."""

    code = "OG-SPARK-RANGE"
    hint = "leave the column out with the option `columns`"
    template = (
        "column '{column}' holds the moment {milliseconds} ms since 1970, which a Spark"
        " timestamp cannot hold; leave the column out with the option `columns`"
    )
    column: str
    milliseconds: int


# -- types ----------------------------------------------------------------------------------------


def arrow_type(prop_type: PropType) -> pa.DataType:
    """Return the Arrow type in which a property travels to and from Spark.

    >>> arrow_type(PropType(Scalar.U64)), arrow_type(PropType(Scalar.VECTOR, dimension=3))
    (Decimal128Type(decimal128(20, 0)), ListType(list<element: float>))
    """
    if prop_type.is_vector:
        return pa.list_(pa.field("element", pa.float32()))
    item = _SCALARS[prop_type.scalar]
    return pa.list_(pa.field("element", item)) if prop_type.is_list else item


_SCALARS: Final[dict[Scalar, pa.DataType]] = {
    Scalar.STRING: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.int64(),
    Scalar.U64: U64_DECIMAL,
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: MOMENT,
    Scalar.BLOB: pa.binary(),
}


def entity_schema(entity_type: EntityType, columns: Iterable[str]) -> pa.Schema:
    """Return the columns of a type as they travel, in the order in which they are named."""
    fields = {field.name: field for field in entity_type.arrow_schema}
    return pa.schema([_entity_field(entity_type, fields[name]) for name in columns])


def _entity_field(entity_type: EntityType, stored: pa.Field) -> pa.Field:
    prop = entity_type.properties.get(stored.name)
    kind = pa.utf8() if prop is None else arrow_type(prop.prop_type)
    return pa.field(stored.name, kind, nullable=stored.nullable)


def default_columns(entity_type: EntityType) -> tuple[str, ...]:
    """Return the columns that a read without `columns` has: all but the Blobs."""
    return tuple(
        name for name in entity_type.arrow_schema.names if name not in entity_type.blob_properties
    )


def spark_schema(schema: pa.Schema) -> StructType:
    """Return a schema that travels as Spark's own."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - an optional library

    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def written_schema(schema: StructType) -> pa.Schema:
    """Return the form in which Spark hands over rows to be written."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - an optional library

    return to_arrow_schema(schema, timezone="UTC")


# -- columns --------------------------------------------------------------------------------------


def travelling(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return stored columns as a batch that travels."""
    arrays = [travelling_column(batch[field.name], field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def travelling_column(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return one stored column in the form in which it travels."""
    return _converted(column, field.type, field.name)


def _converted(column: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if kind == target:
        return column
    if pa.types.is_list(target):
        return _lists(column, target, name)
    if target == MOMENT and pa.types.is_date64(kind):
        return _moments(column, name)
    return column.cast(target)


def _lists(column: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=offsets[1:])
    items = _converted(column.flatten(), target.value_type, name)
    return pa.ListArray.from_arrays(pa.array(offsets), items, target, mask=column.is_null())


def _moments(column: pa.Array, name: str) -> pa.Array:
    milliseconds = column.view(pa.int64())
    far = pc.or_(pc.greater(milliseconds, _MS_MAX), pc.less(milliseconds, -_MS_MAX))
    if pc.any(far).as_py():
        raise MomentOutOfRangeError(name, milliseconds.filter(far)[0].as_py())
    return pc.multiply(milliseconds, pa.scalar(_US_PER_MS, pa.int64())).view(MOMENT)
