"""Which row ids the rows of taken fragments have in the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from lance import FragmentMetadata

from omnigraph.dataclass import dataclass

RowIds: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Part:
    """A fragment of the source, and the row ids of all its rows there."""

    fragment: FragmentMetadata
    row_ids: RowIds


@dataclass(frozen=True)
class Numbered:
    """A fragment of the source with the row ids that its rows have in the target."""

    part: Part
    row_ids: RowIds
    is_numbered_by_commit: bool

    @property
    def keeps_name(self) -> bool:
        """Whether the rows have the same row ids on both sides."""
        return bool(np.array_equal(self.row_ids, self.part.row_ids))


def number_rows(parts: Sequence[Part], first_new: int, next_id: int) -> list[Numbered] | None:
    """Give the rows of fragments their numbers; None where a new row would get none.

    A fragment of new rows alone is numbered by the commit. A row that was written again since is in
    a second fragment, and has there the number that it got in the first.
    """
    by_first = sorted(parts, key=lambda part: int(part.row_ids.min(initial=first_new)))
    homes: list[Numbered] = []
    others: list[Part] = []
    for part in by_first:
        is_home = bool((part.row_ids >= first_new).all())
        if not is_home or any(_overlap(part.row_ids, home.part.row_ids) for home in homes):
            others.append(part)
            continue
        row_ids = np.arange(next_id, next_id + len(part.row_ids), dtype=np.uint64)
        next_id += len(part.row_ids)
        homes.append(Numbered(part, row_ids, is_numbered_by_commit=True))
    empty = np.empty(0, np.uint64)
    known = np.concatenate([empty, *(home.part.row_ids for home in homes)])
    given = np.concatenate([empty, *(home.row_ids for home in homes)])
    order = np.argsort(known)
    numbered = list(homes)
    for part in others:
        kept = _translated(part.row_ids, first_new, known[order], given[order])
        if kept is None:
            return None
        numbered.append(Numbered(part, kept, is_numbered_by_commit=False))
    return numbered


def _overlap(one: RowIds, other: RowIds) -> bool:
    if one.min() > other.max() or other.min() > one.max():
        return False
    return bool(np.isin(one, other).any())


def _translated(row_ids: RowIds, first_new: int, known: RowIds, given: RowIds) -> RowIds | None:
    """Return row ids with those of new rows replaced; None where one is not known."""
    is_new = row_ids >= first_new
    new = row_ids[is_new]
    if not len(new):
        return row_ids
    places = np.searchsorted(known, new)
    if not len(known) or (places == len(known)).any() or (known[places] != new).any():
        return None
    translated = row_ids.copy()
    translated[is_new] = given[places]
    return translated
