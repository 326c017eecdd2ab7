"""The small record next to a stored schema: the hashes that it must have.

{"format_version": 2, "schema_shape_hash": "sha256:…", "schema_ir_hash": "sha256:…",
 "schema_identity_version": 2, "schema_identity_domain": "<ULID>"}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.records import JsonObject, Stored, to_json
from omnigraph.schema.ir.model import SchemaIR
from omnigraph.schema.ir.to_shape import shape_of
from omnigraph.schema.language.canonical import shape_hash

VERSION: Final = 2
"""Of the format, and of the identities."""


def _read_version(at: Stored) -> int:
    if at.integer() != VERSION:
        raise at.fail(str(VERSION))
    return VERSION


@dataclass(frozen=True, kw_only=True)
class SchemaState:
    """`__schema_state.json`: hashes and identity domain of the accepted schema."""

    format_version: Annotated[int, _read_version] = VERSION
    schema_shape_hash: str
    schema_ir_hash: str
    schema_identity_version: Annotated[int, _read_version] = VERSION
    schema_identity_domain: str

    @classmethod
    def of(cls, ir: SchemaIR) -> SchemaState:
        """Describe a compiled schema."""
        return cls(
            schema_shape_hash=shape_hash(shape_of(ir)),
            schema_ir_hash=ir.ir_hash,
            schema_identity_domain=ir.schema_identity_domain,
        )

    def to_json(self) -> JsonObject:
        """Return the stored form."""
        form: JsonObject = to_json(self)
        return form


def read_state(stored: str | bytes | JsonObject) -> SchemaState:
    """Read the stored form; `ValueError` says what is wrong with it."""
    form = stored if isinstance(stored, Mapping) else orjson.loads(stored)
    return Stored(form, "$", is_strict=True).record(SchemaState)
