"""Codes of the problems that values can have.

`V1xx` reading a value, `V3xx` identity. The rules of the schema have `V2xx`, in
`omnigraph.write.rules.values`. A code never changes its meaning; the message may get better.
"""

from __future__ import annotations

from typing import Final

VALUE_CODES: Final[dict[str, str]] = {}
"""Code → one line of meaning, for `docs/reference/errors.md`."""


def _code(code: str, meaning: str) -> str:
    VALUE_CODES[code] = meaning
    return code


WRONG_KIND: Final = _code(
    "V101", "the JSON value or the column is of another kind than the property"
)
OUT_OF_RANGE: Final = _code("V102", "the number does not fit into the property's type")
TEMPORAL_OUT_OF_RANGE: Final = _code("V103", "the date or moment is too far from 1970 for its type")
INVALID_LITERAL: Final = _code("V104", "the text is not a date or moment in an accepted spelling")
MISSING: Final = _code("V105", "a property that is not nullable has no value")
NOT_AN_ARRAY: Final = _code("V106", "a list property was given something else than an array")
INVALID_ITEM: Final = _code("V107", "a list has an item that is null or of another kind")
WRONG_DIMENSION: Final = _code("V108", "a vector has more or fewer elements than its type says")
NOT_NUMERIC: Final = _code("V109", "a vector has an element that is not a number")
NOT_FINITE: Final = _code("V110", "the number is NaN or infinite")
INVALID_BASE64: Final = _code("V111", "the text after `base64:` is not standard, padded base64")
NOT_A_BLOB: Final = _code("V112", "a blob is given neither as a URI nor as `base64:` data")
INVALID_TEXT: Final = _code("V113", "the text holds half of a surrogate pair and has no UTF-8 form")
LOSSY: Final = _code("V114", "the number has a fraction and the property is an integer")
INVALID_JSON: Final = _code("V115", "the text is not JSON")

KEY_NOT_FINITE: Final = _code("V301", "a key member is NaN or infinite")
ID_MISMATCH: Final = _code("V302", "the given id is not the one that the key members spell")
ID_NOT_A_STRING: Final = _code("V303", "the given id is not a string")
AMBIGUOUS_ENDPOINT: Final = _code(
    "V304", "an edge endpoint uses a spelling that stands for several nodes"
)
