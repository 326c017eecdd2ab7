"""The result of a conversion, and the last check of all of them."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.schema.values import codes
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import ErrorLog, RowErrors
from omnigraph.values import PropType, Scalar


class ConversionMode(StrEnum):
    """How values of an unexpected JSON kind are treated."""

    STRICT = "strict"
    COMPATIBLE = "compatible"


@dataclass(frozen=True)
class Converted:
    """A column in the stored Arrow type, and what was wrong, row by row.

    `errors` is utf8 and `codes` a dictionary of utf8, both null where the row is fine; a row in
    error is null in `column`. `truncated_count` counts moments of Arrow columns that were finer
    than a millisecond.
    """

    column: pa.Array
    errors: pa.Array
    codes: pa.Array
    truncated_count: int = 0

    @classmethod
    def of(cls, column: pa.Array, log: ErrorLog, truncated_count: int = 0) -> Converted:
        """Bundle a finished column with the problems of its rows."""
        row_errors = log.finish()
        return cls(column, row_errors.messages, row_errors.codes, truncated_count)

    @property
    def row_errors(self) -> RowErrors:
        """The problems alone, to be combined with those of other steps."""
        return RowErrors(self.errors, self.codes)

    @property
    def is_clean(self) -> bool:
        """Whether every row was converted."""
        return self.row_errors.is_clean


def refuse_nulls(column: pa.Array, prop: PropType, name: str, log: ErrorLog) -> None:
    """Record the rows of a non-nullable property that have no value and no other problem."""
    if not column.null_count:
        return
    missing = ~valid_mask(column) & ~log.bad
    log.add(np.flatnonzero(missing), codes.MISSING, missing_message(prop, name))


def missing_message(prop: PropType, name: str) -> str:
    """Return what is wrong with a row that lacks a required value."""
    subject = {Scalar.BLOB: "blob property", Scalar.VECTOR: "vector property"}
    what = subject.get(prop.scalar, "property")
    return f"non-nullable {what} '{name}' has null or invalid values"
