"""Settles conflicts of rows, and turns a merge of rows into what is written.

A conflict is settled for each row on its own: by a rule for all of them (`Prefer`), by combining
properties that only one side has changed, or by a decision that a user wrote for the row.
A written decision goes before the rules; a row that nothing settles stays a conflict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.changes.compare import Mask
from omnigraph.changes.table_changes import RowRefs
from omnigraph.errors import InvalidInputError
from omnigraph.merge.combine import combined_rows
from omnigraph.merge.conflicts import ConflictKind
from omnigraph.merge.losses import Loss
from omnigraph.merge.parts import GivenPart, Handles, Part, StoredPart, TableWork
from omnigraph.merge.rows import Clash, TableMerge
from omnigraph.names import TableKey
from omnigraph.schema import EntityType
from omnigraph.schema.merge.model import SchemaChoices
from omnigraph.store.datasets import DatasetHandle

_SHOWN_MAX: Final = 20


class Prefer(StrEnum):
    """The side that wins when both have changed a row."""

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
    schema: SchemaChoices = field(default_factory=SchemaChoices)
    """Whose schema stands where both sides changed the same."""
    schema_lines: Mapping[str, int] = field(default_factory=dict)
    """The lines of a file that decide about schemas, by identity."""
    allow_data_loss: bool = False
    """Whether values may be dropped with the property or type that the chosen side dropped."""

    def allows(self, loss: Loss) -> bool:
        """Whether the caller has chosen the side that dropped something, and its loss."""
        chosen = self.schema.of(loss.identity)
        return self.allow_data_loss and loss.dropped_by is not None and chosen == loss.dropped_by

    def ids(self, table_key: str) -> set[str]:
        """Return the rows of a table that were decided one by one."""
        rows = self.rows.get(table_key)
        given = set() if rows is None else set(rows["id"].to_pylist())
        return given | {entity_id for key, entity_id in self.takes if key == table_key}

    @property
    def table_keys(self) -> list[str]:
        """Tables of which rows were decided one by one."""
        return sorted(self.rows.keys() | {key for key, _ in self.takes})


class NotInConflictError(InvalidInputError):
    """A decision is about a row that is not in conflict; nothing was merged."""

    code = "OG-NOT-IN-CONFLICT"
    hint = (
        "remove its line from the file; `omnigraph branch conflicts SOURCE --into TARGET"
        " --out FILE` writes the rows that are in conflict"
    )

    def __init__(self, rows: Sequence[tuple[str, str]]) -> None:
        self.rows = tuple(rows)
        """Table keys and ids."""
        shown = [f"{TableKey(key).type_name} '{entity_id}'" for key, entity_id in rows[:_SHOWN_MAX]]
        rest = len(rows) - len(shown)
        named = ", ".join([*shown, f"and {rest} more"] if rest else shown)
        super().__init__(f"decided, but not in conflict: {named}")


def require_conflicts(decisions: Decisions, clashes: Mapping[str, Sequence[Clash]]) -> None:
    """Refuse decisions about rows that are not in conflict: they are mistakes."""
    unneeded: list[tuple[str, str]] = []
    for key in decisions.table_keys:
        in_conflict = {each for clash in clashes.get(key, ()) for each in clash.ids.to_pylist()}
        unneeded += [(key, each) for each in sorted(decisions.ids(key) - in_conflict)]
    if unneeded:
        raise NotInConflictError(unneeded)


@dataclass(frozen=True)
class Settled:
    """What is written, how many rows were settled by which rule, and what is not settled."""

    work: TableWork
    by_rule: Mapping[str, int]
    remaining: list[Clash]


def settle(
    merge: TableMerge, entity_type: EntityType, handles: Handles, decisions: Decisions
) -> Settled:
    """Settle what can be settled, and return what is written to the table."""
    work = _Work(handles)
    work.insert(handles.new_source, merge.inserted)
    work.update(handles.source, merge.updated)
    work.deleted.append(merge.deleted)
    for clash in merge.clashes:
        rest = _given(clash, entity_type, decisions, work)
        rest = _taken(rest, _written_down(rest, entity_type, decisions), work)
        if decisions.strategy is Strategy.PROPERTY and rest.kind is ConflictKind.DIVERGENT_UPDATE:
            rest = _combined(rest, entity_type, work)
        if decisions.prefer is not None:
            rest = _taken(rest, [Take(decisions.prefer)] * len(rest.ids), work)
        if len(rest.ids):
            work.remaining.append(rest)
    return work.settled(entity_type)


class _Work:
    """Collects what is written, and what is not settled."""

    def __init__(self, handles: Handles) -> None:
        self.handles = handles
        self.inserted: list[Part] = []
        self.updated: list[Part] = []
        self.deleted: list[pa.Array] = []
        self.by_rule: Counter[str] = Counter()
        self.remaining: list[Clash] = []

    def insert(self, handle: DatasetHandle | None, refs: RowRefs) -> None:
        self.inserted += _parts(handle, refs)

    def update(self, handle: DatasetHandle | None, refs: RowRefs) -> None:
        self.updated += _parts(handle, refs)

    def put(self, clash: Clash, handle: DatasetHandle | None, refs: RowRefs | None) -> None:
        """Replace rows of a conflict by rows of one side; None removes them."""
        if refs is None:
            if clash.target is not None:
                self.deleted.append(clash.ids)
        elif clash.target is None:
            self.insert(handle, refs)
        else:
            self.update(handle, refs)

    def settled(self, entity_type: EntityType) -> Settled:
        deleted = pa.concat_arrays(self.deleted)
        work = TableWork(entity_type, tuple(self.inserted), tuple(self.updated), deleted)
        return Settled(work, self.by_rule, self.remaining)


def _parts(handle: DatasetHandle | None, refs: RowRefs) -> Iterator[Part]:
    if handle is not None and len(refs):
        yield StoredPart(handle, refs)


def _written_down(clash: Clash, entity_type: EntityType, decisions: Decisions) -> list[Take | None]:
    if not decisions.takes:
        return [None] * len(clash.ids)
    key, takes = entity_type.table_key, decisions.takes
    return [takes.get((key, entity_id)) for entity_id in clash.ids.to_pylist()]


def _taken(clash: Clash, takes: Sequence[Take | None], work: _Work) -> Clash:
    """Settle those rows for which a side is chosen."""
    for take in Take:
        mask = np.array([each is take for each in takes], np.bool_)
        if not mask.any():
            continue
        part, handles = clash.where(mask), work.handles
        match take:
            case Take.SOURCE:
                is_new = part.kind is ConflictKind.DIVERGENT_INSERT
                side = handles.new_source if is_new else handles.source
                work.put(part, side, part.source)
            case Take.BASE:
                work.put(part, handles.base, part.base)
            case Take.DELETE:
                work.put(part, None, None)
            case Take.TARGET:
                pass
        work.by_rule[f"take {take}"] += int(np.count_nonzero(mask))
    return clash.where(np.array([each is None for each in takes], np.bool_))


def _given(clash: Clash, entity_type: EntityType, decisions: Decisions, work: _Work) -> Clash:
    """Settle rows that were written by hand."""
    rows = decisions.rows.get(entity_type.table_key)
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
    work.by_rule["data"] += len(ids)
    return clash.where(~is_given)


def _combined(clash: Clash, entity_type: EntityType, work: _Work) -> Clash:
    """Settle updates of different properties of one row."""
    handles = work.handles
    sides = (
        (handles.base, clash.base),
        (handles.source, clash.source),
        (handles.target, clash.target),
    )
    fetched = [(handle, refs) for handle, refs in sides if handle is not None and refs is not None]
    rows, clashing = combined_rows(fetched, entity_type)
    if rows.num_rows:
        work.updated.append(GivenPart(rows))
        work.by_rule["property"] += rows.num_rows
    is_left = np.array([bool(names) for names in clashing], np.bool_)
    left = [names for names in clashing if names]
    return replace(clash.where(is_left), properties=tuple(left))
