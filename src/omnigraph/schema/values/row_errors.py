"""Problems of single rows, returned next to a column instead of raised.

A batch of a million rows with three bad ones is not an exception: every step over values returns
its column and, row by row, a message and a code or null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.texts import without_depths

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

QUOTED_LENGTH_MAX: Final = 120
"""Longer values are cut where a message quotes them: an error must not carry a whole blob."""

_NO_CODE: Final = -1


@dataclass(frozen=True)
class RowErrors:
    """One message (utf8) and one code (dictionary of utf8) per row; null = nothing wrong."""

    messages: pa.Array
    codes: pa.Array

    @property
    def count(self) -> int:
        """How many rows have a problem."""
        return len(self.messages) - int(self.messages.null_count)

    @property
    def is_clean(self) -> bool:
        """Whether no row has a problem."""
        return self.count == 0


class ErrorLog:
    """Collects the problems of one batch; the first problem of a row is the one that stays."""

    def __init__(self, row_count: int) -> None:
        self._row_count = row_count
        self._code_numbers: dict[str, int] = {}
        self._messages: npt.NDArray[np.object_] | None = None
        self._codes: npt.NDArray[np.int8] | None = None

    def add(self, rows: Rows, code: str, message: str | Callable[[int], str]) -> None:
        """Record one problem in `rows`; `message` may be made per row, for bad rows only."""
        if not len(rows):
            return
        messages, codes = self._open()
        fresh = rows[codes[rows] == _NO_CODE]
        codes[fresh] = self._number_of(code)
        if isinstance(message, str):
            messages[fresh] = message
        else:
            messages[fresh] = np.fromiter(map(message, fresh.tolist()), object, len(fresh))

    def add_mask(self, mask: Mask, code: str, message: str | Callable[[int], str]) -> None:
        """Record one problem in the rows where `mask` is true."""
        if mask.any():
            self.add(np.flatnonzero(mask), code, message)

    def take_from(self, source: ErrorLog, *, source_rows: Rows, target_rows: Rows) -> None:
        """Copy problems of another batch; row by row, unless the target row has one already."""
        if source._messages is None or source._codes is None:
            return
        messages, codes = self._open()
        fresh = codes[target_rows] == _NO_CODE
        messages[target_rows[fresh]] = source._messages[source_rows[fresh]]
        # The last number stands for -1, no code.
        numbers = [*map(self._number_of, source._code_numbers), _NO_CODE]
        codes[target_rows[fresh]] = np.array(numbers, np.int8)[source._codes[source_rows[fresh]]]

    def __len__(self) -> int:
        return self._row_count

    @property
    def bad(self) -> Mask:
        """Which rows have a problem so far."""
        if self._codes is None:
            return np.zeros(self._row_count, np.bool_)
        bad: Mask = self._codes != _NO_CODE
        return bad

    @property
    def is_clean(self) -> bool:
        """Whether nothing was noted."""
        return self._codes is None

    def finish(self) -> RowErrors:
        """Return what was collected."""
        if self._messages is None or self._codes is None:
            return no_errors(self._row_count)
        numbers = pa.array(self._codes, mask=self._codes == _NO_CODE)
        names = pa.array(list(self._code_numbers), pa.utf8())
        codes = pa.DictionaryArray.from_arrays(numbers, names)
        return RowErrors(pa.array(self._messages.tolist(), pa.utf8()), codes)

    def _number_of(self, code: str) -> int:
        return self._code_numbers.setdefault(code, len(self._code_numbers))

    def _open(self) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int8]]:
        if self._messages is None or self._codes is None:
            self._messages = np.full(self._row_count, None, object)
            self._codes = np.full(self._row_count, _NO_CODE, np.int8)
        return self._messages, self._codes


def no_errors(row_count: int) -> RowErrors:
    """Return the errors of a batch without any."""
    codes = pa.nulls(row_count, pa.dictionary(pa.int8(), pa.utf8()))
    return RowErrors(pa.nulls(row_count, pa.utf8()), codes)


def json_text(value: object) -> str:
    """Spell a value as JSON for a message, cut to a readable length.

    >>> json_text("x"), json_text([1, None]), json_text(float("nan"))
    ('"x"', '[1,null]', 'NaN')
    """
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        text = repr(without_depths(value))
    return cut(text)


def cut(text: str) -> str:
    """Shorten a quoted text to `QUOTED_LENGTH_MAX` characters."""
    return text if len(text) <= QUOTED_LENGTH_MAX else text[:QUOTED_LENGTH_MAX] + "…"


def quoting(template: str, values: Sequence[object]) -> Callable[[int], str]:
    """Return a message per row: `template` with `{}` replaced by the row's value as JSON."""
    before, _, after = template.partition("{}")
    return lambda row: f"{before}{json_text(values[row])}{after}"
