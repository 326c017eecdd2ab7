"""Settles conflicts of rows, and turns a merge of rows into what is written.

A conflict is settled for each row on its own: by a rule for all of them (`Prefer`), by combining
properties that only one side has changed, or by a decision that somebody wrote down for the row.
What nothing settles stays a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.merge.combine import combined_rows
from omnigraph.merge.conflicts import ConflictKind
from omnigraph.merge.stage import GivenPart, Part, StoredPart, TableWork

if TYPE_CHECKING:
    from omnigraph.changes.compare import Mask
    from omnigraph.changes.table_changes import RowRefs
    from omnigraph.merge.rows import Clash, TableMerge
    from omnigraph.schema import EdgeType, NodeType
    from omnigraph.store.datasets import DatasetHandle


class Prefer(StrEnum):
    """Whose row stands when both sides have changed it."""

    SOURCE = "source"
    TARGET = "target"


class Strategy(StrEnum):
    """What counts as a conflict of an update."""

    ROW = "row"
    """Both sides changed the row, and not to the same values."""
    PROPERTY = "property"
    """Both sides changed the same property, and not to the same value."""


class Take(StrEnum):
    """What a row becomes."""

    SOURCE = "source"
    TARGET = "target"
    BASE = "base"
    DELETE = "delete"


@dataclass(frozen=True)
class Decisions:
    """How conflicts are to be settled."""

    strategy: Strategy = Strategy.ROW
    prefer: Prefer | None = None
    takes: Mapping[tuple[str, str], Take] = field(default_factory=dict)
    """By table key and id."""
    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    """Rows that were written by hand, by table key."""


@dataclass(frozen=True)
class Handles:
    """The three versions of one table; a side that is None does not have it."""

    base: DatasetHandle | None
    source: DatasetHandle | None
    target: DatasetHandle | None


@dataclass
class Settled:
    """What is written, how many rows were settled by which rule, and what is not settled."""

    work: TableWork
    by_rule: dict[str, int] = field(default_factory=dict)
    remaining: list[Clash] = field(default_factory=list)


def settle(
    merge: TableMerge, owner: NodeType | EdgeType, handles: Handles, decisions: Decisions
) -> Settled:
    """Settle what can be settled, and return what is written to the table."""
    work = _Work(handles)
    work.insert(handles.source, merge.inserted)
    work.update(handles.source, merge.updated)
    work.deleted.append(merge.deleted)
    settled = Settled(TableWork(owner, (), (), pa.array([], pa.utf8())))
    for clash in merge.clashes:
        rest = _given(clash, owner, decisions, work, settled)
        if decisions.strategy is Strategy.PROPERTY and rest.kind is ConflictKind.DIVERGENT_UPDATE:
            rest = _combined(rest, owner, handles, work, settled)
        rest = _taken(rest, owner, decisions, work, settled)
        if len(rest.ids):
            settled.remaining.append(rest)
    return replace(
        settled,
        work=TableWork(
            owner, tuple(work.inserted), tuple(work.updated), pa.concat_arrays(work.deleted)
        ),
    )


class _Work:
    """Collects what is written."""

    def __init__(self, handles: Handles) -> None:
        self.handles = handles
        self.inserted: list[Part] = []
        self.updated: list[Part] = []
        self.deleted: list[pa.Array] = []

    def insert(self, handle: DatasetHandle | None, refs: RowRefs) -> None:
        self.inserted += _parts(handle, refs)

    def update(self, handle: DatasetHandle | None, refs: RowRefs) -> None:
        self.updated += _parts(handle, refs)

    def put(self, clash: Clash, handle: DatasetHandle | None, refs: RowRefs | None) -> None:
        """Let rows of a conflict become rows of one side; None lets them go."""
        if refs is None:
            if clash.target is not None:
                self.deleted.append(clash.ids)
        elif clash.target is None:
            self.insert(handle, refs)
        else:
            self.update(handle, refs)


def _parts(handle: DatasetHandle | None, refs: RowRefs) -> Iterator[Part]:
    if handle is not None and len(refs):
        yield StoredPart(handle, refs)


def _taken(
    clash: Clash,
    owner: NodeType | EdgeType,
    decisions: Decisions,
    work: _Work,
    settled: Settled,
) -> Clash:
    """Settle rows by what was decided for each, else by the rule for all."""
    default = None if decisions.prefer is None else Take(decisions.prefer)
    takes = [
        decisions.takes.get((owner.table_key, entity_id), default)
        for entity_id in clash.ids.to_pylist()
    ]
    for take in Take:
        mask = np.array([each is take for each in takes], np.bool_)
        if not mask.any():
            continue
        part, handles = clash.where(mask), work.handles
        match take:
            case Take.SOURCE:
                work.put(part, handles.source, part.source)
            case Take.BASE:
                work.put(part, handles.base, part.base)
            case Take.DELETE:
                work.put(part, None, None)
            case Take.TARGET:
                pass
        _count(settled, f"take {take}", int(np.count_nonzero(mask)))
    return clash.where(np.array([each is None for each in takes], np.bool_))


def _given(
    clash: Clash,
    owner: NodeType | EdgeType,
    decisions: Decisions,
    work: _Work,
    settled: Settled,
) -> Clash:
    """Settle rows that were written by hand."""
    rows = decisions.rows.get(owner.table_key)
    if rows is None:
        return clash
    wanted = set(rows["id"].to_pylist())
    is_given: Mask = np.array([each in wanted for each in clash.ids.to_pylist()], np.bool_)
    ids = set(clash.ids.filter(pa.array(is_given)).to_pylist())
    if not ids:
        return clash
    picked = rows.filter(pa.array([each in ids for each in rows["id"].to_pylist()]))
    part = GivenPart(picked)
    if clash.target is None:
        work.inserted.append(part)
    else:
        work.updated.append(part)
    _count(settled, "data", len(ids))
    return clash.where(~is_given)


def _combined(
    clash: Clash, owner: NodeType | EdgeType, handles: Handles, work: _Work, settled: Settled
) -> Clash:
    """Settle updates of different properties of one row."""
    sides = (
        (handles.base, clash.base),
        (handles.source, clash.source),
        (handles.target, clash.target),
    )
    fetched = [(handle, refs) for handle, refs in sides if handle is not None and refs is not None]
    rows, clashing = combined_rows(fetched, owner)
    if rows.num_rows:
        work.updated.append(GivenPart(rows))
        _count(settled, "property", rows.num_rows)
    is_left = np.array([bool(names) for names in clashing], np.bool_)
    left = [names for names in clashing if names]
    return replace(clash.where(is_left), properties=tuple(left))


def _count(settled: Settled, rule: str, rows: int) -> None:
    settled.by_rule[rule] = settled.by_rule.get(rule, 0) + rows
