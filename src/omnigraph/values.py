"""Property types and their Arrow form."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Final

import pyarrow as pa

from omnigraph.dataclass import dataclass

STABLE_PROPERTY_ID: Final = b"omnigraph.stable_property_id"
"""Arrow field metadata: the number that stays when a property is renamed."""

PRIMARY_KEY: Final = b"lance-schema:unenforced-primary-key"
"""Arrow field metadata: Lance treats this column as the primary key."""

VECTOR_DIMENSION_MAX: Final = 2_147_483_647

BLOB_STORAGE: Final = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.utf8())])
"""A blob is its bytes or the URI of an external object, never both."""

_EXTENSION_NAME: Final = b"ARROW:extension:name"
_BLOB_EXTENSION_NAME: Final = b"lance.blob.v2"
BLOB_EXTENSION: Final = {_EXTENSION_NAME: _BLOB_EXTENSION_NAME}


class Scalar(StrEnum):
    """The scalar types of both languages; the value is the spelling in the source text."""

    STRING = "String"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    BLOB = "Blob"
    VECTOR = "Vector"

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers."""
        return self in _INTEGERS

    @property
    def is_float(self) -> bool:
        """Whether values are binary floating-point numbers."""
        return self in _FLOATS

    @property
    def is_numeric(self) -> bool:
        """Whether values are numbers."""
        return self in _INTEGERS or self in _FLOATS


_INTEGERS: Final = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
_FLOATS: Final = frozenset({Scalar.F32, Scalar.F64})

DECLARABLE_SCALARS: Final = tuple(scalar for scalar in Scalar if scalar is not Scalar.VECTOR)
"""Scalars that are written as one word; a vector also needs its dimension."""

_ARROW: Final[dict[Scalar, pa.DataType]] = {
    Scalar.STRING: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.date64(),
    Scalar.BLOB: BLOB_STORAGE,
}


def is_blob_field(field: pa.Field) -> bool:
    """Whether a column keeps large values in files of their own."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name).encode() == _BLOB_EXTENSION_NAME
    return (field.metadata or {}).get(_EXTENSION_NAME) == _BLOB_EXTENSION_NAME


@dataclass(frozen=True)
class PropType:
    """The type of one property or parameter.

    `is_list`, `enum_values` and `dimension` exclude each other: there are no lists of enums or
    vectors. Enum values are sorted by code point.
    """

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the stored column (a blob column also needs field metadata)."""
        if self.dimension is not None:
            return pa.list_(pa.field("item", pa.float32(), nullable=True), self.dimension)
        item = _ARROW[self.scalar]
        return pa.list_(pa.field("item", item, nullable=True)) if self.is_list else item

    def arrow_field(self, name: str, property_id: int | None = None) -> pa.Field:
        """Build the Arrow field of a stored column called `name`."""
        metadata: dict[bytes, bytes] = {}
        if self.scalar is Scalar.BLOB:
            metadata |= BLOB_EXTENSION
        if property_id is not None:
            metadata[STABLE_PROPERTY_ID] = str(property_id).encode()
        return pa.field(name, self.arrow_type, nullable=self.nullable, metadata=metadata or None)

    @property
    def is_enum(self) -> bool:
        """Whether only listed strings are legal."""
        return self.enum_values is not None

    @property
    def is_vector(self) -> bool:
        """Whether values are vectors of `dimension` numbers."""
        return self.scalar is Scalar.VECTOR

    @property
    def is_plain_scalar(self) -> bool:
        """Whether values are single, comparable things: no list, vector or blob."""
        return not self.is_list and self.scalar not in (Scalar.VECTOR, Scalar.BLOB)

    def with_nullable(self, nullable: bool) -> PropType:
        """Return the same type with the given nullability."""
        return replace(self, nullable=nullable)

    def __str__(self) -> str:
        """Spell the type as in a `.pg` or `.gq` text.

        >>> str(PropType(Scalar.STRING, nullable=True, is_list=True))
        '[String]?'
        """
        if self.enum_values is not None:
            text = f"enum({', '.join(self.enum_values)})"
        elif self.dimension is not None:
            text = f"Vector({self.dimension})"
        else:
            text = f"[{self.scalar}]" if self.is_list else str(self.scalar)
        return text + "?" if self.nullable else text
