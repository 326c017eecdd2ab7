"""How JSON answers name types: the kinds of result columns and parameters."""

from __future__ import annotations

from typing import Final

from omnigraph.records import JsonObject
from omnigraph.values import PropType, Scalar

KINDS: Final[dict[Scalar, str]] = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
}


def described(name: str, prop_type: PropType) -> JsonObject:
    """Describe a named value: `{name, kind, item_kind?, vector_dim?, nullable}`.

    >>> described("tags", PropType(Scalar.STRING, is_list=True, nullable=True))
    {'name': 'tags', 'kind': 'list', 'item_kind': 'string', 'nullable': True}
    """
    form: JsonObject = {"name": name}
    if prop_type.is_list:
        form |= {"kind": "list", "item_kind": KINDS[prop_type.scalar]}
    else:
        form["kind"] = KINDS[prop_type.scalar]
    if prop_type.dimension is not None:
        form["vector_dim"] = prop_type.dimension
    form["nullable"] = prop_type.nullable
    return form
