"""Turns JSON values into a typed column, and their problems into a second one.

Numbers without fraction or exponent from -2^63 to 2^64-1 are integers, all other numbers doubles;
booleans are never numbers. What a property accepts:

| type | accepted |
|---|---|
| String, enum | string |
| Bool | boolean |
| I32 I64 U32 U64 | integer inside the type's range |
| F32 F64 | integer or double, rounded to nearest; must stay finite |
| Date, DateTime | integer (days, milliseconds) or a string of `omnigraph.schema.values.temporal` |
| Vector(n) | array of n numbers |
| [T] | array of what T accepts |
| Blob | string: `base64:…` or a URI |

A value that is absent and one that is null are the same; a property with a default gets it where
the member is left out, which `member_values` does before any conversion. The mode only decides
about values of another JSON kind: strict refuses them, compatible makes them null (except for
blobs, elements of vectors, and list properties that are given no array, which always fail).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from omnigraph.schema.values.blobs import convert_blobs
from omnigraph.schema.values.converted import ConversionMode, Converted, refuse_nulls
from omnigraph.schema.values.json_batch import JsonBatch
from omnigraph.schema.values.lists import convert_lists, convert_vectors
from omnigraph.schema.values.row_errors import ErrorLog
from omnigraph.schema.values.scalars import Subject, convert_scalars
from omnigraph.values import PropType, Scalar

__all__ = ["ConversionMode", "Converted", "convert_values", "member_values"]


def member_values(
    records: Sequence[Mapping[str, object]], name: str, *, default: object = None
) -> list[object]:
    """Take one member of every record; `default` stands in where it is left out.

    >>> member_values([{"a": 1}, {}, {"a": None}], "a", default=7)
    [1, 7, None]
    """
    try:
        return [record[name] for record in records]
    except KeyError:
        return [record.get(name, default) for record in records]


def convert_values(
    values: Sequence[object],
    prop: PropType,
    name: str,
    mode: ConversionMode = ConversionMode.STRICT,
) -> Converted:
    """Convert decoded JSON values of the property `name`; rows in error are null.

    >>> done = convert_values([1, 2**40, None], PropType(Scalar.I32, nullable=True), "p")
    >>> done.column.to_pylist()
    [1, None, None]
    >>> done.errors.to_pylist()
    [None, "property 'p' value 1099511627776 exceeds Int32 range", None]
    """
    batch = JsonBatch(values)
    subject = Subject(name, mode)
    log = ErrorLog(len(batch))
    column = _column(batch, prop, subject, log)
    if not prop.nullable:
        refuse_nulls(column, prop, name, log)
    return Converted.of(column, log)


def _column(batch: JsonBatch, prop: PropType, subject: Subject, log: ErrorLog) -> pa.Array:
    if prop.dimension is not None:
        return convert_vectors(batch, prop, subject, log)
    if prop.is_list:
        return convert_lists(batch, prop, subject, log)
    if prop.scalar is Scalar.BLOB:
        return convert_blobs(batch, subject, log)
    return convert_scalars(batch, prop.scalar, subject, log)
