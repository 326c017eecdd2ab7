"""Reading a stored compiled schema: strict about members, types and every invariant.

A stored schema decides which bytes of which dataset mean what, so nothing is guessed: an unknown
member, a missing one, a number that is used twice or a list out of order all refuse the whole.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from omnigraph.errors import CorruptError
from omnigraph.records import Json, JsonObject, MalformedError, Stored
from omnigraph.schema.ir.invariants import problems_of
from omnigraph.schema.ir.model import SchemaIR


class MalformedSchemaError(CorruptError):
    """A stored compiled schema is not what we write; `path` says where."""

    code = "OG-SCHEMA-MALFORMED"
    hint = "keep the files, restore `__manifest` from a backup"
    template = "malformed compiled schema at {path}: {problem}"
    path: str
    problem: str


def read_ir(stored: str | bytes | JsonObject) -> SchemaIR:
    """Read the stored form; raises `MalformedSchemaError` unless all invariants hold."""
    try:
        ir = Stored(_parsed(stored), "$", is_strict=True).record(SchemaIR)
    except MalformedError as error:
        raise MalformedSchemaError(error.path, f"expected {error.expected}") from None
    for path, problem in problems_of(ir):
        raise MalformedSchemaError(path, problem)
    return ir


def _parsed(stored: str | bytes | JsonObject) -> Json:
    if isinstance(stored, Mapping):
        return stored
    try:
        parsed: Json = orjson.loads(stored)
    except orjson.JSONDecodeError as error:
        raise MalformedSchemaError("$", f"not JSON: {error}") from None
    return parsed
