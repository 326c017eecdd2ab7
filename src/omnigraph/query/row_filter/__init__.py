"""The filter of a read: SQL text to a predicate of a plan, checked against one type."""

from omnigraph.query.row_filter.check import compile_row_filter
from omnigraph.syntax import SourceError

__all__ = ["SourceError", "compile_row_filter"]
