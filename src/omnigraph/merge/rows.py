"""The truth table of a three-way merge, for all rows of a table at once.

Rows are matched by id. The columns say what each side did since the base; a row that neither side
changed is not looked at.

| source    | target                | result |
|-----------|-----------------------|--------|
| inserted  | untouched             | insert the source row |
| inserted  | inserted, equal       | keep |
| inserted  | inserted, different   | `divergent_insert` |
| updated   | untouched             | take the source row |
| updated   | updated, equal        | keep |
| updated   | updated, different    | `divergent_update` |
| updated   | deleted               | `delete_vs_update` |
| deleted   | untouched             | delete |
| deleted   | deleted               | nothing to do |
| deleted   | updated               | `delete_vs_update` |
| untouched | anything              | keep |

A row that was written and equals its base again is untouched: the comparison leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.compare import Mask, to_mask
from omnigraph.changes.table_changes import RowChanges, RowRefs
from omnigraph.merge.conflicts import ConflictKind

Differ: TypeAlias = Callable[[RowRefs, RowRefs], Mask]
"""Compares rows of the source with rows of the target at the same positions."""


@dataclass(frozen=True)
class Clash:
    """Rows of one kind of conflict; a side that is None has deleted them.

    `base` is None for rows that both sides inserted.
    """

    kind: ConflictKind
    ids: pa.Array
    base: RowRefs | None
    source: RowRefs | None
    target: RowRefs | None
    properties: tuple[tuple[str, ...], ...] = ()
    """Per row the properties that clash, where only those are reported."""

    def clashing_properties(self, row: int) -> tuple[str, ...]:
        """Return the properties of one row that clash, where only those are reported."""
        return self.properties[row] if self.properties else ()

    def where(self, mask: Mask) -> Clash:
        """Return the clash of some of the rows."""
        return replace(
            self,
            ids=self.ids.filter(pa.array(mask)),
            base=_where(self.base, mask),
            source=_where(self.source, mask),
            target=_where(self.target, mask),
            properties=tuple(
                names for names, is_kept in zip(self.properties, mask, strict=False) if is_kept
            ),
        )


def _where(refs: RowRefs | None, mask: Mask) -> RowRefs | None:
    return None if refs is None else refs.where(mask)


@dataclass(frozen=True)
class TableMerge:
    """What a merge does to one table of the target, in rows of the source, and what it cannot."""

    inserted: RowRefs
    updated: RowRefs
    deleted: pa.Array
    clashes: tuple[Clash, ...] = ()


def three_way(
    source: RowChanges, target: RowChanges, differ: Differ, inserted_differ: Differ
) -> TableMerge:
    """Merge what two sides did to one table since their base.

    `inserted_differ` compares rows that both sides have inserted.
    """
    inserted, both_inserted = _apart(source.inserted, target.inserted)
    free, both_updated = _apart(source.updated_after, target.updated_after)
    updated, updated_and_gone = _apart(free, target.deleted)
    away, deleted_and_changed = _apart(source.deleted, target.updated_after)
    deleted, _ = _apart(away, target.deleted)
    clashes = [
        *_unequal(ConflictKind.DIVERGENT_INSERT, both_inserted, None, inserted_differ),
        *_unequal(
            ConflictKind.DIVERGENT_UPDATE,
            both_updated,
            (source.updated_after, source.updated_before),
            differ,
        ),
    ]
    if len(updated_and_gone.source):
        refs = updated_and_gone.source
        base = _base_of(refs, source.updated_after, source.updated_before)
        clashes.append(Clash(ConflictKind.DELETE_VS_UPDATE, refs.ids, base, refs, None))
    if len(deleted_and_changed.source):
        base, after = deleted_and_changed.source, deleted_and_changed.target
        clashes.append(Clash(ConflictKind.DELETE_VS_UPDATE, base.ids, base, None, after))
    return TableMerge(inserted, updated, deleted.ids, tuple(clashes))


@dataclass(frozen=True)
class _Both:
    """Rows that both sides have changed; equal positions are the same row."""

    source: RowRefs
    target: RowRefs


def _apart(source: RowRefs, target: RowRefs) -> tuple[RowRefs, _Both]:
    """Split rows of the source into those that the target does not have, and those that it has."""
    found = pc.index_in(source.ids, value_set=target.ids)
    in_both = to_mask(found.is_valid())
    rows: npt.NDArray[np.int64] = found.drop_null().to_numpy().astype(np.int64)
    return source.where(~in_both), _Both(source.where(in_both), target.at(rows))


def _unequal(
    kind: ConflictKind, both: _Both, base: tuple[RowRefs, RowRefs] | None, differ: Differ
) -> Iterator[Clash]:
    if not len(both.source):
        return
    mask = differ(both.source, both.target)
    if mask.any():
        source, target = both.source.where(mask), both.target.where(mask)
        old = None if base is None else _base_of(source, *base)
        yield Clash(kind, source.ids, old, source, target)


def _base_of(refs: RowRefs, after: RowRefs, before: RowRefs) -> RowRefs:
    """Return the base rows of some updated rows."""
    return before.at(pc.index_in(refs.ids, value_set=after.ids).to_numpy().astype(np.int64))
