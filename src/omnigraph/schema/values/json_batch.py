"""A batch of decoded JSON values, sorted by kind.

The values are the Python objects that `orjson` makes. Which kinds occur is known from the set of
their types at a few nanoseconds per value; the kind of each single row is worked out only for
batches that mix kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from types import NoneType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.schema.values.row_errors import Mask, Rows


class Kind(IntEnum):
    """What a JSON value is. An integer outside of 64 bits is a double already when it arrives."""

    NULL = 0
    BOOL = 1
    INTEGER = 2
    DOUBLE = 3
    STRING = 4
    ARRAY = 5
    OTHER = 6
    """An object, or something that no JSON text can hold."""


_STRICT_IN_ARROW: Final = {Kind.STRING: pa.utf8(), Kind.BOOL: pa.bool_()}

_KINDS: Final[dict[type, Kind]] = {
    NoneType: Kind.NULL,
    bool: Kind.BOOL,
    int: Kind.INTEGER,
    float: Kind.DOUBLE,
    str: Kind.STRING,
    list: Kind.ARRAY,
    tuple: Kind.ARRAY,
}


def kind_of_type(python_type: type) -> Kind:
    """Return the kind of the values of a Python type; subclasses count as their base."""
    known = _KINDS.get(python_type)
    if known is not None:
        return known
    bases = (kind for base, kind in _KINDS.items() if issubclass(python_type, base))
    return next(bases, Kind.OTHER)


class JsonBatch:
    """Values with their kinds; everything beyond the set of types is worked out on demand."""

    def __init__(self, values: Sequence[object]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def _kind_by_type(self) -> dict[type, Kind]:
        return {t: kind_of_type(t) for t in set(map(type, self.values))}

    @cached_property
    def kinds_present(self) -> frozenset[Kind]:
        """Which kinds occur."""
        return frozenset(self._kind_by_type.values())

    def as_only(self, kind: Kind) -> pa.Array | None:
        """Return the Arrow column if all values are null or of one kind (string or boolean).

        Arrow refuses everything else for these two types, so the usual batch needs no look at the
        types of its values. (For numbers it would take booleans and cut fractions.)
        """
        try:
            column = pa.array(self.values, _STRICT_IN_ARROW[kind])
        except (TypeError, ValueError):
            return None
        has_nulls, has_values = column.null_count > 0, column.null_count < len(self)
        self.kinds_present = frozenset([Kind.NULL] * has_nulls + [kind] * has_values)
        return column

    @cached_property
    def kinds(self) -> npt.NDArray[np.int8]:
        """The kind of each row."""
        numbers = map(self._kind_by_type.__getitem__, map(type, self.values))
        return np.fromiter(numbers, np.int8, len(self.values))

    @cached_property
    def objects(self) -> npt.NDArray[np.object_]:
        """The values as an array of references, to be picked by masks and row numbers."""
        return np.fromiter(self.values, object, len(self.values))

    def has_only(self, *kinds: Kind) -> bool:
        """Whether every value is null or of one of these kinds."""
        return self.kinds_present <= {Kind.NULL, *kinds}

    def mask(self, *kinds: Kind) -> Mask:
        """Which rows are of one of these kinds."""
        found: Mask = np.isin(self.kinds, kinds)
        return found

    def others(self, *kinds: Kind) -> Rows:
        """Rows that are neither null nor of one of these kinds."""
        if self.has_only(*kinds):
            return np.zeros(0, np.int64)
        return np.flatnonzero(~self.mask(Kind.NULL, *kinds))

    def nulls(self) -> Rows:
        """Rows that are null."""
        if Kind.NULL not in self.kinds_present:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.mask(Kind.NULL))

    def keep(self, kind: Kind) -> Sequence[object]:
        """Return all values, with null in place of those of another kind."""
        if self.has_only(kind):
            return self.values
        kept = self.objects.copy()
        kept[~self.mask(kind)] = None
        result: list[object] = kept.tolist()
        return result

    def subset(self, kind: Kind) -> tuple[Rows, Sequence[object]]:
        """Return the row numbers and the values of one kind."""
        if self.kinds_present == {kind}:
            return np.arange(len(self), dtype=np.int64), self.values
        if kind not in self.kinds_present:
            return np.zeros(0, np.int64), []
        rows = np.flatnonzero(self.mask(kind))
        return rows, self.objects[rows].tolist()
