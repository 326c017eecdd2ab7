"""Codes of the problems that values can have.

`V1xx` reading a value, `V3xx` identity. The rules of the schema have `V2xx`, in
`omnigraph.write.rules.values`. A code never changes its meaning; the message may get better.
"""

from __future__ import annotations

from typing import Final

WRONG_KIND: Final = "V101"
OUT_OF_RANGE: Final = "V102"
TEMPORAL_OUT_OF_RANGE: Final = "V103"
INVALID_LITERAL: Final = "V104"
MISSING: Final = "V105"
NOT_AN_ARRAY: Final = "V106"
INVALID_ITEM: Final = "V107"
WRONG_DIMENSION: Final = "V108"
NOT_NUMERIC: Final = "V109"
NOT_FINITE: Final = "V110"
INVALID_BASE64: Final = "V111"
NOT_A_BLOB: Final = "V112"
INVALID_TEXT: Final = "V113"
LOSSY: Final = "V114"
INVALID_JSON: Final = "V115"

KEY_NOT_FINITE: Final = "V301"
ID_MISMATCH: Final = "V302"
ID_NOT_A_STRING: Final = "V303"
AMBIGUOUS_ENDPOINT: Final = "V304"

VALUE_CODES: Final[dict[str, str]] = {
    WRONG_KIND: "the JSON value or the column is of another kind than the property",
    OUT_OF_RANGE: "the number does not fit into the property's type",
    TEMPORAL_OUT_OF_RANGE: "the date or moment is too far from 1970 for its type",
    INVALID_LITERAL: "the text is not a date or moment in an accepted spelling",
    MISSING: "a property that is not nullable has no value",
    NOT_AN_ARRAY: "a list property was given something else than an array",
    INVALID_ITEM: "a list has an item that is null or of another kind",
    WRONG_DIMENSION: "a vector has more or fewer elements than its type says",
    NOT_NUMERIC: "a vector has an element that is not a number",
    NOT_FINITE: "the number is NaN or infinite",
    INVALID_BASE64: "the text after `base64:` is not standard, padded base64",
    NOT_A_BLOB: "a blob is given neither as a URI nor as `base64:` data",
    INVALID_TEXT: "the text holds half of a surrogate pair and has no UTF-8 form",
    LOSSY: "the number has a fraction and the property is an integer",
    INVALID_JSON: "the text is not JSON",
    KEY_NOT_FINITE: "a key member is NaN or infinite",
    ID_MISMATCH: "the given id is not the one that the key members spell",
    ID_NOT_A_STRING: "the given id is not a string",
    AMBIGUOUS_ENDPOINT: "an edge endpoint uses a spelling that stands for several nodes",
}
"""Code → one line of meaning, for `docs/reference/errors.md`."""
