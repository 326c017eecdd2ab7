"""Codes of everything that can be wrong with the text of a filter."""

from __future__ import annotations

from typing import Final

from omnigraph.syntax.grammar import SYNTAX_CODES

FILTER_LETTER: Final = "F"

COLUMN_UNKNOWN: Final = "F101"
COLUMN_NOT_COMPARABLE: Final = "F102"
LITERAL_KIND: Final = "F103"
NULL_COMPARED: Final = "F104"
PATTERN: Final = "F105"
MOMENT: Final = "F106"
NUMBER_TOO_LARGE: Final = "F107"
NULL_SAFE: Final = "F108"

FILTER_CODES: Final[dict[str, str]] = {
    **{FILTER_LETTER + suffix: meaning for suffix, meaning in SYNTAX_CODES.items()},
    COLUMN_UNKNOWN: "the type has no such column",
    COLUMN_NOT_COMPARABLE: "a list, vector or Blob can only be tested for null",
    LITERAL_KIND: "a literal does not fit the column",
    NULL_COMPARED: "a column is compared with `NULL`",
    PATTERN: "a `LIKE` pattern is neither `text%` nor `%text%`",
    MOMENT: "a date or timestamp cannot be read",
    NUMBER_TOO_LARGE: "a number does not fit 64 bits",
    NULL_SAFE: "`<=>` is not supported",
}
