"""The small record next to a stored schema: the hashes that it must have.

{"format_version": 2, "schema_shape_hash": "sha256:…", "schema_ir_hash": "sha256:…",
 "schema_identity_version": 2, "schema_identity_domain": "<ULID>"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from omnigraph.records import JsonObject
from omnigraph.schema.ir.model import SchemaIR
from omnigraph.schema.ir.to_shape import shape_of
from omnigraph.schema.language.canonical import shape_hash

FORMAT_VERSION: Final = 2
IDENTITY_VERSION: Final = 2

_MEMBERS: Final = (
    "format_version",
    "schema_shape_hash",
    "schema_ir_hash",
    "schema_identity_version",
    "schema_identity_domain",
)


@dataclass(frozen=True)
class SchemaState:
    """`__schema_state.json`: hashes and identity domain of the accepted schema."""

    schema_shape_hash: str
    schema_ir_hash: str
    schema_identity_domain: str

    @classmethod
    def of(cls, ir: SchemaIR) -> SchemaState:
        """Describe a compiled schema."""
        return cls(shape_hash(shape_of(ir)), ir.ir_hash, ir.schema_identity_domain)

    def to_json(self) -> JsonObject:
        """Return the stored form."""
        return {
            "format_version": FORMAT_VERSION,
            "schema_shape_hash": self.schema_shape_hash,
            "schema_ir_hash": self.schema_ir_hash,
            "schema_identity_version": IDENTITY_VERSION,
            "schema_identity_domain": self.schema_identity_domain,
        }


def read_state(stored: str | bytes | JsonObject) -> SchemaState:
    """Read the stored form; `ValueError` says what is wrong with it."""
    form = stored if isinstance(stored, Mapping) else orjson.loads(stored)
    if not isinstance(form, Mapping) or set(form) != set(_MEMBERS):
        raise ValueError(f"expected an object with the members {', '.join(_MEMBERS)}")
    versions = form["format_version"], form["schema_identity_version"]
    if versions != (FORMAT_VERSION, IDENTITY_VERSION):
        raise ValueError(
            f"expected format {FORMAT_VERSION} and identity version {IDENTITY_VERSION}, "
            f"found {versions[0]} and {versions[1]}"
        )
    hashes = [form[name] for name in (*_MEMBERS[1:3], _MEMBERS[4])]
    if not all(isinstance(text, str) for text in hashes):
        raise ValueError("expected the hashes and the domain to be strings")
    return SchemaState(*map(str, hashes))
