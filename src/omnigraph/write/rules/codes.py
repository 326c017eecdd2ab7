"""Codes of violations in written rows. Single values have codes of their own.

`W1xx` reading records, `W2xx` rules across rows. A code never changes its meaning; its message may
get better. The codes of values are in `omnigraph.schema.values.codes`.
"""

from __future__ import annotations

from typing import Final

INVALID_JSON: Final = "W101"
DUPLICATE_MEMBER: Final = "W102"
NOT_AN_OBJECT: Final = "W103"
ENVELOPE: Final = "W104"
UNKNOWN_FIELD: Final = "W105"
UNKNOWN_TYPE: Final = "W106"
UNKNOWN_PROPERTY: Final = "W107"
RESERVED_NAME: Final = "W108"
BAD_ENDPOINT: Final = "W109"
EXTERNAL_BLOB: Final = "W110"
MISSING_COLUMN: Final = "W111"
CELLS: Final = "W112"

NOT_UNIQUE: Final = "W201"
ENDPOINT_NOT_FOUND: Final = "W202"
TOO_FEW_EDGES: Final = "W203"
TOO_MANY_EDGES: Final = "W204"
KEY_CONFLICT: Final = "W205"

WRITE_CODES: Final[dict[str, str]] = {
    INVALID_JSON: "the line or record is not JSON",
    DUPLICATE_MEMBER: "a JSON object has two members of one name",
    NOT_AN_OBJECT: "a record, or its `data`, is not a JSON object",
    ENVELOPE: "a record does not say, or says twice, which type it is of",
    UNKNOWN_FIELD: "a record has a member beside `type`, `edge`, `from`, `to` and `data`",
    UNKNOWN_TYPE: "the schema has no node or edge type of this name",
    UNKNOWN_PROPERTY: "the type has no property of this name",
    RESERVED_NAME: "the name belongs to the storage and cannot be given",
    BAD_ENDPOINT: "an edge does not name both of its nodes",
    EXTERNAL_BLOB: "the graph does not take blobs from this address",
    MISSING_COLUMN: "a table lacks a column that its type needs",
    CELLS: "a row of CSV has more or fewer cells than its header",
    NOT_UNIQUE: "two rows share a tuple that `@key` or `@unique` wants once",
    ENDPOINT_NOT_FOUND: "an edge names a node that does not exist",
    TOO_FEW_EDGES: "a node has fewer edges of a type than `@card` wants",
    TOO_MANY_EDGES: "a node has more edges of a type than `@card` allows",
    KEY_CONFLICT: "an id that is to be inserted is stored already, or was given before",
}
"""Code → one line of meaning, for `docs/reference/errors.md`."""
