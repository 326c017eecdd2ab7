"""Which properties the rows of an input do not name.

1. A property that a record has no member for, or a table no column, is *absent*. That is not null:
   a merge keeps what is stored there.
2. A row takes one bit per property, in words of 64. Rows that name everything take nothing while
   no other row of their type leaves anything out.
3. What stands in an absent column is the value that a new row gets: its `@default`, or null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.schema import EntityType, NodeType
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.write.load.rows.spool import NumberSpool, SpoolBudget
from omnigraph.write.stage.columns import Mask

Words: TypeAlias = tuple[npt.NDArray[np.uint64], ...]
"""One column per 64 properties."""
AbsentMasks: TypeAlias = Mapping[str, Mask]
"""The rows that do not name a property, by property; those that all rows name are left out."""

NOTHING_ABSENT: Final[AbsentMasks] = {}
MADE: Final = "made:"
"""Before the name of a vector: the row does not name it, and it was made from the row's text."""
_BITS: Final = 64


@dataclass(frozen=True)
class PropertyBits:
    """Gives every property of a type its bit."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, entity_type: EntityType) -> PropertyBits:
        """Return the bits of a type: one per property, and one per vector that may be made."""
        made = entity_type.embed_sources if isinstance(entity_type, NodeType) else ()
        return cls((*entity_type.properties, *(MADE + name for name in made)))

    @property
    def width(self) -> int:
        """How many words a row takes."""
        return max(1, -(-len(self.names) // _BITS))

    def packed(self, absent: AbsentMasks, count: int) -> Words:
        """Write masks as words."""
        words = tuple(np.zeros(count, np.uint64) for _ in range(self.width))
        for name, mask in absent.items():
            word, bit = divmod(self.names.index(name), _BITS)
            words[word][mask] |= np.uint64(1 << bit)
        return words

    def masks(self, words: Words) -> dict[str, Mask]:
        """Read words as masks."""
        found = {}
        for number, name in enumerate(self.names):
            word, bit = divmod(number, _BITS)
            mask: Mask = (words[word] & np.uint64(1 << bit)) != 0
            if mask.any():
                found[name] = mask
        return found


class AbsentRows:
    """The absent properties of all rows of one type, in row order."""

    def __init__(self, entity_type: EntityType, budget: SpoolBudget) -> None:
        self._bits = PropertyBits.of(entity_type)
        self._budget = budget
        self._words: list[NumberSpool] = []
        self._row_count = 0
        self._rows_of: dict[str, int] = {}
        self._replaced = np.zeros(0, np.int64)
        self._replacements: Words = ()

    def append(self, absent: AbsentMasks, count: int) -> None:
        """Add rows."""
        if absent and not self._words:
            self._words = [self._budget.numbers(np.uint64) for _ in range(self._bits.width)]
            for spool in self._words:
                spool.append(np.zeros(self._row_count, np.uint64))
        if self._words:
            for spool, words in zip(self._words, self._bits.packed(absent, count), strict=True):
                spool.append(words)
        self._row_count += count
        for name, mask in absent.items():
            self._rows_of[name] = self._rows_of.get(name, 0) + int(np.count_nonzero(mask))

    @property
    def names(self) -> frozenset[str]:
        """The properties that some rows do not name."""
        return frozenset(name for name, count in self._rows_of.items() if count)

    @property
    def names_everywhere(self) -> frozenset[str]:
        """The properties that no row names."""
        return frozenset(name for name, count in self._rows_of.items() if count == self._row_count)

    def between(self, low: int, high: int) -> dict[str, Mask]:
        """Return the masks of consecutive rows."""
        if not self._words:
            return {}
        words = tuple(spool.between(low, high) for spool in self._words)
        first, last = np.searchsorted(self._replaced, (low, high))
        if last > first:
            rows = self._replaced[first:last] - low
            words = tuple(word.copy() for word in words)
            for word, other in zip(words, self._replacements, strict=True):
                word[rows] = other[first:last]
        return self._bits.masks(words)

    def take(self, rows: npt.NDArray[np.int64]) -> dict[str, Mask]:
        """Return the masks of some rows."""
        if not self._words:
            return {}
        words = tuple(spool.take(rows) for spool in self._words)
        own, places = np.isin(rows, self._replaced), np.searchsorted(self._replaced, rows)
        for word, other in zip(words, self._replacements, strict=False):
            word[own] = other[places[own]]
        return self._bits.masks(words)

    def replace(self, rows: npt.NDArray[np.int64], absent: AbsentMasks) -> None:
        """Exchange what some rows do not name; rows of all calls ascend."""
        if not self._words:
            return
        words = self._bits.packed(absent, len(rows))
        before = self._replacements or tuple(np.zeros(0, np.uint64) for _ in words)
        self._replaced = np.concatenate([self._replaced, rows])
        self._replacements = tuple(np.concatenate(pair) for pair in zip(before, words, strict=True))


def chosen(mask: Mask, first: pa.Array, second: pa.Array) -> pa.Array:
    """Take rows of `first` where the mask says so, and of `second` elsewhere."""
    if not mask.any():
        return second
    if mask.all():
        return first
    count = len(mask)
    places = np.where(mask, np.arange(count), np.arange(count) + count)
    return pa.concat_arrays([first, second]).take(pa.array(places))


def masks_of(absent: AbsentMasks, rows: npt.NDArray[Any]) -> dict[str, Mask]:
    """Return the masks of some rows, given by number or by a mask."""
    found = {name: mask[rows] for name, mask in absent.items()}
    return {name: mask for name, mask in found.items() if mask.any()}


def with_made(node: NodeType, rows: pa.RecordBatch, absent: AbsentMasks) -> AbsentMasks:
    """Note the vectors that rows do not name and that were made for them."""
    made = {
        MADE + name: absent[name] & valid_mask(rows[name])
        for name in node.embed_sources
        if name in absent
    }
    return {**absent, **{name: mask for name, mask in made.items() if mask.any()}}


def any_of(absent: AbsentMasks, names: Sequence[str], count: int) -> Mask:
    """Return the rows that leave out one of some properties."""
    nothing: Mask = np.zeros(count, np.bool_)
    return reduce(np.logical_or, (absent[name] for name in names if name in absent), nothing)


_ZEROS: Final = (
    (pa.types.is_list, ()),
    (pa.types.is_large_list, ()),
    (pa.types.is_string, ""),
    (pa.types.is_large_string, ""),
    (pa.types.is_binary, b""),
    (pa.types.is_large_binary, b""),
    (pa.types.is_boolean, False),
    (pa.types.is_floating, 0.0),
)


def with_placeholders(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Fill required columns that have nulls: storage takes no row without them.

    Only rows whose property is absent have such nulls; they are never committed as they are.
    """
    arrays = [
        _without_nulls(column) if column.null_count and not field.nullable else column
        for column, field in zip(rows.columns, rows.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def _without_nulls(column: pa.Array) -> pa.Array:
    zero = pa.array([_zero(column.type)], column.type)
    places = np.where(valid_mask(column), np.arange(len(column)), len(column))
    return pa.concat_arrays([column, zero]).take(pa.array(places))


def _zero(kind: pa.DataType) -> Any:
    if pa.types.is_fixed_size_list(kind):
        return [0.0] * kind.list_size
    if pa.types.is_struct(kind):
        return {field.name: _zero(field.type) for field in list(kind)[:1]}
    for is_kind, value in _ZEROS:
        if is_kind(kind):
            return value
    return 0
