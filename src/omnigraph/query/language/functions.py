"""The names of the functions of the language."""

from typing import Final

FUNCTIONS: Final = (
    *("avg", "bm25", "count", "date", "datetime", "fuzzy", "match_text"),
    *("max", "min", "nearest", "now", "rrf", "search", "sum"),
)
