"""What a merge does to each table: the rows that it writes, and its conflicts.

1. What rows would lose or lack under the merged schema is found first, then the conflicts of rows,
   then broken rules of the merged schema. What is found at one step hides the later ones.
2. A table whose rows stay may still be written: its columns, its name or its numbers are others in
   the merged schema, or rows that the target inserted lack a value that they have now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from omnigraph.changes.table_changes import table_changes
from omnigraph.merge.conflicts import Conflict, ConflictKind, row_conflict
from omnigraph.merge.constraints import Checked, check_constraints, unchecked
from omnigraph.merge.links import LinkedTable, Links
from omnigraph.merge.losses import Loss, key_conflicts, losses, misfits, respelled_ids
from omnigraph.merge.parts import Handles, StoredPart, TableWork, no_work
from omnigraph.merge.resolve import Decisions, require_conflicts, settle
from omnigraph.merge.rows import Clash
from omnigraph.merge.sides import MergeJob, Sides
from omnigraph.merge.tables import MergedTable
from omnigraph.merge.vectors import (
    RecordedVectors,
    has_outdated_vectors,
    without_stale_vectors,
)
from omnigraph.merge.workers import MergeWorkers
from omnigraph.recovery.intent import Adoption
from omnigraph.schema import EntityType
from omnigraph.write.rules.stored_checks import validated_steps
from omnigraph.write.stage.columns import is_in

_LOSSES: Final = (
    ConflictKind.SCHEMA_TYPE_DROPPED,
    ConflictKind.SCHEMA_DROPPED,
    ConflictKind.SCHEMA_REQUIRED,
)


@dataclass(frozen=True)
class ClashImages:
    """Rows of one type that conflict, and the versions in which their images are."""

    entity_type: EntityType
    handles: Handles
    clash: Clash


@dataclass(frozen=True)
class Obstacles:
    """The conflicts of a merge: of rows, or, if there are none, broken rules of the schema.

    Conflicts of schemas are `others` too, and hide all of rows.
    """

    clashes: tuple[ClashImages, ...] = ()
    others: tuple[Conflict, ...] = ()


@dataclass
class Plan:
    """The rows that a merge writes, and its conflicts."""

    work: dict[str, TableWork] = field(default_factory=dict)
    adopted: list[Adoption] = field(default_factory=list)
    adopted_work: dict[str, TableWork] = field(default_factory=dict)
    links: dict[str, LinkedTable] = field(default_factory=dict)
    """Tables of which the source's files are taken over, or its version as a whole."""
    may_link: bool = False
    """Whether files may be taken over; otherwise all rows are written."""
    is_source: bool = False
    """Whether the merged graph is that of the source, which keeps all rules."""
    clashes: dict[str, list[Clash]] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    resolved: Counter[str] = field(default_factory=Counter)
    dropped: tuple[Loss, ...] = ()
    """Values that are lost because the caller allows it."""
    schema_identities: frozenset[str] = frozenset()
    """What a decision about schemas can be about, once all conflicts of schemas are settled."""

    @property
    def all_work(self) -> Mapping[str, TableWork]:
        """The changes of rows of all tables, by key."""
        linked = {key: link.work for key, link in self.links.items() if link.work is not None}
        return linked | self.adopted_work | self.work

    @property
    def adopted_keys(self) -> frozenset[str]:
        """The tables of which the source's version is published as it is."""
        return frozenset(adoption.entry.table_key for adoption in self.adopted)

    @property
    def counts(self) -> Mapping[str, tuple[int, int, int]]:
        """How many rows are inserted, updated and deleted, by table key."""
        counts = {key: work.counts for key, work in self.all_work.items()}
        return counts | {key: link.counts for key, link in self.links.items()}


def planned(job: MergeJob, workers: MergeWorkers, links: Links | None = None) -> Plan:
    """Merge schemas and rows as far as there are no conflicts; checks no rule.

    Without `links` all rows that the merge takes are written again.
    """
    sides = job.sides
    plan = Plan(
        conflicts=list(sides.schemas.conflicts),
        schema_identities=sides.schemas.settled,
        may_link=links is not None,
    )
    if not plan.conflicts:
        _find_losses(plan, sides, job.decisions)
    if not plan.conflicts:
        _plan_rows(plan, job, workers, links)
        plan.conflicts = row_conflicts(plan.clashes, sides)
    return plan


def checked(plan: Plan, sides: Sides) -> Checked:
    """Check the rules of the merged schema over the rows that a merge writes.

    Where the target has no rule, or a weaker one, all merged rows of the type are checked; so are
    they where it gets values that the merged schema does not allow.
    """
    if plan.is_source:
        return unchecked(sides)
    stricter = {step.table_key for step in validated_steps(sides.schemas.steps)}
    whole = {
        key: _whole(table, plan.all_work.get(key))
        for key, table in sides.tables.items()
        if table.target is not None
        and (table.target.entity_type.table_key in stricter or table.target_gets_misfits)
    }
    return check_constraints({**plan.all_work, **whole}, sides)


def row_conflicts(clashes: Mapping[str, list[Clash]], sides: Sides) -> list[Conflict]:
    """Return the conflicts of all rows: types without blobs first, each by type key and id."""
    found: list[Conflict] = []
    for key in sorted(clashes, key=lambda key: (bool(sides.entity_type(key).blob_properties), key)):
        of_table = [
            row_conflict(key, clash.kind, entity_id, clash.clashing_properties(row))
            for clash in clashes[key]
            for row, entity_id in enumerate(clash.ids.to_pylist())
        ]
        found += sorted(of_table, key=lambda conflict: (conflict.entity_id or "").encode())
    return found


# -- schemas ---------------------------------------------------------------------------------------


def _find_losses(plan: Plan, sides: Sides, decisions: Decisions) -> None:
    """Find what the merged schema has no place or no value for, unless it is allowed to go."""
    if sides.has_one_schema:
        return
    tables = (*sides.dropped, *sides.tables.values())
    found = [loss for table in tables for loss in losses(table)]
    plan.dropped = tuple(loss for loss in found if decisions.allows(loss))
    plan.schema_identities |= {loss.identity for loss in found if loss.dropped_by is not None}
    conflicts = [loss.conflict for loss in found if loss not in plan.dropped]
    plan.conflicts = [
        each for table in tables for each in (*key_conflicts(table), *respelled_ids(table))
    ]
    plan.conflicts += sorted(conflicts, key=lambda conflict: _LOSSES.index(conflict.kind))
    plan.conflicts += [each for table in sides.tables.values() for each in misfits(table)]


# -- rows ------------------------------------------------------------------------------------------


def _plan_rows(plan: Plan, job: MergeJob, workers: MergeWorkers, links: Links | None) -> None:
    clashes = dict[str, Sequence[Clash]]()
    for table in job.sides.touched():
        key, entity_type = table.table_key, table.entity_type
        link = None if links is None else links.of(table)
        if link is not None:
            clashes[key] = ()
            plan.links[key] = link
            if table.can_be_adopted and not job.into.is_main:
                plan.adopted.append(_adoption(table))
            continue
        handles = table.handles
        merged = workers.classify(table)
        clashes[key] = merged.clashes
        settled = settle(merged, entity_type, handles, job.decisions)
        plan.resolved.update(settled.by_rule)
        if settled.remaining:
            plan.clashes[key] = settled.remaining
        elif _is_adopted(table, job):
            plan.adopted.append(_adoption(table))
            plan.adopted_work[key] = settled.work
        elif not settled.work.is_empty:
            plan.work[key] = settled.work
    require_conflicts(job.decisions, clashes)
    plan.is_source = bool(plan.links) and links is not None and links.is_source
    for key, table in job.sides.tables.items():
        if key not in plan.clashes and key not in (*plan.adopted_work, *plan.links):
            _give_defaults(plan, table)
            _null_vectors(plan, table, job.request.recorded_vectors)


def _is_adopted(table: MergedTable, job: MergeJob) -> bool:
    """Whether the source's version is taken by pointer: then no row of it can be changed."""
    if job.into.is_main or not table.can_be_adopted:
        return False
    return job.request.recorded_vectors is None or not has_outdated_vectors(table)


def _adoption(table: MergedTable) -> Adoption:
    if table.source is None:
        raise ValueError("a table without a source cannot be adopted")
    entry = replace(table.source.entry, table_key=table.table_key)
    return Adoption(None if table.target is None else table.target.entry, entry)


def _give_defaults(plan: Plan, table: MergedTable) -> None:
    """Give rows that the target has inserted the defaults of properties that it did not know."""
    if not table.views.are_new_rows_changed:
        return
    handles, entity_type = table.handles, table.entity_type
    changes = table_changes(handles.base, handles.target, columns=["id"])
    work = plan.work.get(table.table_key) or no_work(entity_type)
    written = [part.ids for part in work.updated]
    leaving = pa.concat_arrays([work.deleted, *written])
    inserted = changes.inserted.where(~is_in(changes.inserted.ids, leaving))
    if len(inserted) and handles.new_target is not None:
        part = StoredPart(handles.new_target, inserted)
        plan.work[table.table_key] = replace(work, updated=(*work.updated, part))


def _null_vectors(plan: Plan, table: MergedTable, recorded: RecordedVectors | None) -> None:
    """Set vectors to null whose text or model is another one in the merged schema."""
    if recorded is not None:
        work = without_stale_vectors(plan.work.get(table.table_key), table, recorded)
        if work is not None and not work.is_empty:
            plan.work[table.table_key] = work


def _whole(table: MergedTable, work: TableWork | None) -> TableWork:
    """Return all rows that a table has after the merge, as if all of them were written."""
    work = work or no_work(table.entity_type)
    handle = table.handles.target
    if handle is None:
        return work
    everything = table_changes(None, handle, columns=["id"]).inserted
    leaving = pa.concat_arrays([work.deleted, *(part.ids for part in work.updated)])
    staying = everything.where(~is_in(everything.ids, leaving))
    return replace(work, updated=(*work.updated, StoredPart(handle, staying)))
