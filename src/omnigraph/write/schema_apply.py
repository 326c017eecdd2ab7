"""Makes a desired schema the accepted one of a branch.

1. The lock of the branch is held from before the mark of the schema change is set until after it is
   removed. A process that holds this lock and finds the mark therefore knows that its owner is
   dead, and removes it.
2. Numbers for new types and properties are reserved on `main` before the lock is asked for. If the
   schema of the branch has changed since they were counted and they are too few, the lock is
   released and more are reserved.
3. Everything is decided against the state that is read under the lock: the plan is supported,
   stored rows obey the new rules. A desired schema does not have what another change or a merge has
   brought or changed meanwhile, such as a new name; undoing that is refused, because nobody has
   asked for it. A refusal up to here has changed nothing.
4. A table that the branch inherits is forked before it is rewritten; what the branch inherits and
   drops gets a tombstone. No lineage of another branch is written to.
5. Rewritten tables, new tables, names, tombstones and the schema row become visible in one manifest
   commit under one intent record. Tables that were read or rewritten must not have moved meanwhile.
6. The schema files are derived from the manifest of `main` after the publish, here and at every
   open.
7. Hard drops purge old versions last, after the lock is released; what cannot be purged is a
   warning, and what others still need is listed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.errors import ConflictError
from omnigraph.failpoints import hit
from omnigraph.manifest import CommitDraft, Entry, GraphCommit, Registration, Repository
from omnigraph.manifest.catalogs import catalog_of
from omnigraph.manifest.errors import BranchGoneError, SchemaApplyInProgressError
from omnigraph.manifest.forks import write_base
from omnigraph.manifest.genesis import accepted_schema
from omnigraph.manifest.layout import Incarnation, dataset_location
from omnigraph.manifest.locks.branch_lock import BranchLock
from omnigraph.manifest.schema_files import refresh_schema_files
from omnigraph.manifest.snapshot import open_entry
from omnigraph.manifest.state import ManifestState
from omnigraph.names import MAIN, BranchName, TableKey
from omnigraph.records import JsonObject
from omnigraph.recovery import Recovery, WriterKind
from omnigraph.recovery.intent import Adoption
from omnigraph.schema import (
    Catalog,
    EntityType,
    MigrationPlan,
    PlannedSchema,
    SourceText,
    plan_schema,
    read_ir,
)
from omnigraph.schema.ir.aliases import Aliases
from omnigraph.schema.merge.facts import Declared, Identity, TypeIdentity
from omnigraph.schema.migration.steps import (
    AddConstraint,
    DropConstraint,
    DropProperty,
    DropType,
)
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import TableWrite, WriteJob
from omnigraph.write.rules.stored_checks import StoredTable, check_stored_rows, validated_steps
from omnigraph.write.stage.rewrite_table import TableChange

OPERATION: Final = "schema_apply"
"""The operation of the commits that change a schema."""
_RESERVATIONS_MAX: Final = 10
"""How often the schema of a branch may change between counting what is new and taking its lock."""
_log = logging.getLogger(__name__)


class SchemaApplyRunningError(ConflictError):
    """Another schema change is under way; nothing was changed."""

    code = "OG-SCHEMA-APPLY-RUNNING"
    hint = "try again when it has finished"
    template = "schema apply is already in progress"


class SchemaMovingError(ConflictError):
    """Other schema changes of the branch were faster each time; nothing was changed."""

    code = "OG-SCHEMA-APPLY-BUSY"
    hint = "try again when the schema of the branch changes less often"
    template = "the schema of branch {branch!r} changes too often to plan another change"
    branch: str


class SchemaApplyLostError(ConflictError):
    """The schema has changed in a way that the change would undo; nothing was changed."""

    code = "OG-SCHEMA-APPLY-LOST"
    hint = (
        "`omnigraph schema show` has the schema of now: bring what is new into yours; applying"
        " yours again undoes it"
    )
    template = (
        "the schema of branch {branch!r} has changed meanwhile, and this change would undo what is"
        " new there: {undone}"
    )
    branch: str
    undone: str


@dataclass(frozen=True)
class Dropped:
    """A table that a hard drop concerns.

    `before` is the entry that the change replaced; `after` the one that it has published, None for
    a type that is gone.
    """

    table_key: str
    before: Entry
    after: Entry | None


@dataclass(frozen=True)
class StillNeeded:
    """Who needs values that a hard drop would have purged: a branch, a tag or a running load."""

    table_key: str
    branch: str | None = None
    tag: str | None = None
    operation: str | None = None

    def to_json(self) -> JsonObject:
        """Return `{type, branch}`, `{type, tag}` or `{type, operation}`."""
        members = {"branch": self.branch, "tag": self.tag, "operation": self.operation}
        return {
            "type": self.table_key,
            **{name: value for name, value in members.items() if value is not None},
        }


@dataclass(frozen=True)
class Purged:
    """What a purge has left, and for whom; `warnings` name the tables where it failed."""

    kept_for: tuple[StillNeeded, ...] = ()
    warnings: tuple[str, ...] = ()


Purge = Callable[[Incarnation, tuple[Dropped, ...]], Purged]
"""Removes what hard drops of a branch have made unreachable; the caller holds no lock."""


@dataclass(frozen=True, repr=False)
class SchemaApplied(Displayed):
    """What a schema apply has done.

    `warnings` name purges that failed and stored queries that the branch no longer fits;
    `kept_for` names what still needs what a hard drop would have purged.
    """

    plan: MigrationPlan
    applied: bool
    graph_manifest_version: int
    commit: GraphCommit | None = None
    warnings: tuple[str, ...] = ()
    branch: str = MAIN
    kept_for: tuple[StillNeeded, ...] = ()

    def _display(self) -> Display:
        plan = self.plan._display()
        done = "applied to" if self.applied else "not applied to"
        return replace(plan, title=f"schema {done} {self.branch}: {plan.title}")

    def to_json(self) -> JsonObject:
        """Return `{branch, supported, applied, graph_manifest_version, steps, kept_for?}`."""
        shape: JsonObject = {
            "branch": self.branch,
            "supported": self.plan.supported,
            "applied": self.applied,
            "graph_manifest_version": self.graph_manifest_version,
            "steps": self.plan.to_json()["steps"],
        }
        if self.kept_for:
            shape["kept_for"] = [kept.to_json() for kept in self.kept_for]
        return shape


@dataclass(frozen=True)
class _Asked:
    """What one call wants."""

    desired: str | SourceText
    allow_data_loss: bool
    draft: CommitDraft
    operation_id: str

    def plan(self, state: ManifestState, free: range | None = None) -> PlannedSchema:
        """Plan the way from the schema of a state, with the numbers that are reserved."""
        return plan_schema(
            self.desired,
            accepted=read_ir(state.schema.ir),
            allow_data_loss=self.allow_data_loss,
            row_counts={key: entry.row_count for key, entry in state.entries.items()},
            free=None if free is None else iter(free),
        )


@dataclass(frozen=True)
class _Done:
    """What has become visible, and what is left to purge."""

    applied: SchemaApplied
    dropped: tuple[Dropped, ...] = ()


class SchemaApply:
    """Applies schemas to the branches of one graph."""

    def __init__(
        self, repository: Repository, recovery: Recovery, committer: Committer, purge: Purge
    ) -> None:
        self._repository = repository
        self._recovery = recovery
        self._committer = committer
        self._purge = purge
        self._datasets = repository.store.datasets

    def apply(
        self,
        desired: str | SourceText,
        *,
        branch: BranchName,
        allow_data_loss: bool = False,
        actor_id: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> SchemaApplied:
        """Make a desired schema the accepted one, and rewrite stored rows where that is needed."""
        clock = self._repository.clock
        draft = CommitDraft.new(clock, OPERATION, actor_id, message=message, properties=properties)
        asked = _Asked(desired, allow_data_loss, draft, clock.ulid())
        incarnation = self._repository.branches.resolve(branch)
        done = self._reserve_and_apply(asked, incarnation)
        if not done.dropped:
            return done.applied
        purged = self._purge(incarnation, done.dropped)
        return replace(done.applied, warnings=purged.warnings, kept_for=purged.kept_for)

    def _reserve_and_apply(self, asked: _Asked, incarnation: Incarnation) -> _Done:
        """Reserve numbers for what is new, and apply under the lock if they are enough there."""
        try:
            # Before numbers are reserved, which would wait for another change of `main`.
            self._repository.branches.require_no_schema_apply(OPERATION, incarnation)
        except SchemaApplyInProgressError as error:
            raise SchemaApplyRunningError from error
        reserved = range(0)
        asked_for: ManifestState | None = None
        for _ in range(_RESERVATIONS_MAX):
            state = self._repository.reader.latest(incarnation)
            asked_for = asked_for or state
            planned = asked.plan(state)
            _require_nothing_undone(incarnation, asked_for, state, planned)
            planned.plan.raise_if_unsupported()
            if planned.numbers_given > len(reserved):
                reserved = self._repository.identities.reserve(
                    planned.numbers_given, above=int(state.schema.ir["next_identity_id"])
                )
                hit("schema_apply.reserved")
            done = self._apply_locked(asked, incarnation, reserved, asked_for)
            if done is not None:
                return done
        raise SchemaMovingError(incarnation.branch.text)

    def _apply_locked(
        self, asked: _Asked, incarnation: Incarnation, reserved: range, asked_for: ManifestState
    ) -> _Done | None:
        """Apply under the lock of the branch; None if more numbers are needed by now.

        `asked_for` is the state of the branch when the change was asked for.
        """
        with (
            self._branch_lock(incarnation, asked.operation_id) as lock,
            self._repository.branches.schema_marked(incarnation),
        ):
            hit("schema_apply.locked")
            state = self._repository.reader.latest(incarnation)
            if asked.plan(state).numbers_given > len(reserved):
                return None
            planned = asked.plan(state, reserved)
            _require_nothing_undone(incarnation, asked_for, state, planned)
            planned.plan.raise_if_unsupported()
            if not planned.plan.steps:
                unchanged = SchemaApplied(
                    planned.plan, False, state.version, branch=incarnation.branch.text
                )
                return _Done(unchanged)
            return self._apply(_Work(asked, incarnation, planned, state), lock)

    @contextmanager
    def _branch_lock(self, incarnation: Incarnation, operation_id: str) -> Iterator[BranchLock]:
        branch = incarnation.branch
        try:
            with self._committer.branch_lock(
                branch, operation_id=operation_id, operation="schema apply"
            ) as lock:
                if not self._repository.branches.is_alive(incarnation):
                    raise BranchGoneError(incarnation.text)
                self._recovery.sweep_branch(branch)
                yield lock
        except SchemaApplyInProgressError as error:
            raise SchemaApplyRunningError from error

    def _apply(self, work: _Work, lock: BranchLock) -> _Done:
        planned, state, tables = work.planned, work.state, work.tables
        steps = validated_steps(planned.plan)
        checked = {step.table_key for step in steps if step.table_key is not None}
        check_stored_rows(
            steps,
            {
                key: StoredTable(tables.changed[key], open_entry(self._datasets, entry))
                for key, entry in state.entries.items()
                if key in checked
            },
        )
        reads = {key: state.entries[key] for key in checked | _rekeyed_edges(planned.plan)}
        published = self._committer.commit_locked(self._job(work, reads), lock)
        hit("schema_apply.published")
        if work.incarnation.is_main:
            refresh_schema_files(
                self._repository.store.objects,
                accepted_schema(planned.desired),
                previous=state.schema,
            )
        self._committer.record(published)
        applied = SchemaApplied(
            planned.plan,
            True,
            published.manifest_version,
            published.commit,
            branch=work.incarnation.branch.text,
        )
        return _Done(applied, tuple(_hard_drops(planned.plan, tables, published.entries)))

    # -- the job ----------------------------------------------------------------------------------

    def _job(self, work: _Work, reads: Mapping[str, Entry]) -> WriteJob:
        tables = work.tables
        changed = tables.changed.values()
        created = [self._created(each, work) for each in tables.added]
        rewritten = [self._rewritten(each, work) for each in changed if each.is_rewritten]
        adopted = [_renamed(change) for change in changed if change.is_renamed_only]
        moved = {change.entry.table_key for change in changed if change.is_moved}
        return WriteJob(
            kind=WriterKind.SCHEMA_APPLY,
            incarnation=work.incarnation,
            operation_id=work.asked.operation_id,
            draft=work.asked.draft,
            schema_hash=work.state.head.schema_hash,
            tables=(*created, *rewritten),
            reads={key: entry for key, entry in reads.items() if key not in moved},
            registrations=(
                *(
                    Registration.of(t, w.location)
                    for t, w in zip(tables.added, created, strict=True)
                ),
                *(Registration.of(c.desired, c.entry.location) for c in changed if c.is_renamed),
            ),
            tombstones=tuple(sorted(tables.removed_keys)),
            adopted=tuple(adopted),
            schema=accepted_schema(work.planned.desired),
        )

    def _created(self, added: EntityType, work: _Work) -> TableWrite:
        location = dataset_location(*TableKey(added.table_key).parts, work.asked.operation_id)
        staged = self._datasets.stage_create(location, added.arrow_schema)
        return TableWrite(
            added.table_key,
            (staged,),
            row_count=0,
            location=location,
            owner_branch=work.incarnation.text,
        )

    def _rewritten(self, change: TableChange, work: _Work) -> TableWrite:
        base = write_base(
            self._datasets,
            work.incarnation,
            change.entry,
            operation_id=work.asked.operation_id,
        )
        with base.staging(self._datasets):
            staged = change.stage(self._datasets, base.base)
        return TableWrite(
            change.desired.table_key, (staged,), row_count=change.entry.row_count, base=base
        )


# -- lost races ----------------------------------------------------------------------------------


def _require_nothing_undone(
    incarnation: Incarnation, before: ManifestState, now: ManifestState, planned: PlannedSchema
) -> None:
    """Raise if a change would undo what has changed on the branch since a state.

    Something that has another name now would be dropped: the desired schema has its old name.
    """
    if before.schema.schema_hash == now.schema.schema_hash:
        return
    old, new, wanted = (
        Declared(ir, Aliases.of())
        for ir in (read_ir(before.schema.ir), read_ir(now.schema.ir), planned.desired.ir)
    )
    undone = [
        identity
        for identity, fact in new.facts.items()
        if fact not in (old.facts.get(identity), wanted.facts.get(identity))
    ]
    gone = {each.type_id for each in undone if _is_type(each) and each not in wanted.facts}
    named = (each for each in undone if _is_type(each) or each.type_id not in gone)
    if undone:
        names = ", ".join(sorted(filter(None, map(new.name_of, named))))
        raise SchemaApplyLostError(incarnation.branch.text, names)


def _is_type(identity: Identity) -> bool:
    return isinstance(identity, TypeIdentity)


# -- from plan to tables -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tables:
    """What a plan means for tables; `changed` and `dropped` are by accepted key."""

    changed: Mapping[str, TableChange]
    added: tuple[EntityType, ...]
    dropped: Mapping[str, Entry]

    @property
    def removed_keys(self) -> frozenset[str]:
        """Keys that no longer name a table: of dropped types, and old names."""
        remaining = {change.desired.table_key for change in self.changed.values()}
        remaining |= {added.table_key for added in self.added}
        return frozenset({*self.changed, *self.dropped} - remaining)


@dataclass(frozen=True)
class _Work:
    """One change on its way, planned against the state that was read under the lock."""

    asked: _Asked
    incarnation: Incarnation
    planned: PlannedSchema
    state: ManifestState

    @cached_property
    def tables(self) -> _Tables:
        """What the plan means for tables."""
        return _tables(self.planned, self.state)


def _hard_drops(
    plan: MigrationPlan, tables: _Tables, published: Mapping[str, Entry]
) -> Iterator[Dropped]:
    """Yield every table of which a hard drop removes something, once."""
    keys = {
        step.table_key
        for step in plan.steps
        if isinstance(step, DropType | DropProperty) and step.mode == "hard"
    }
    for key in sorted(key for key in keys if key is not None):
        if key in tables.dropped:
            yield Dropped(key, tables.dropped[key], None)
        else:
            change = tables.changed[key]
            yield Dropped(key, change.entry, published[change.desired.table_key])


def _rekeyed_edges(plan: MigrationPlan) -> frozenset[str]:
    """Return the edge tables whose key changes: they may have no rows, also none that come now."""
    keys = [
        step.table_key
        for step in plan.steps
        if isinstance(step, AddConstraint | DropConstraint) and step.constraint.kind == "key"
    ]
    return frozenset(key for key in keys if key is not None and TableKey(key).is_edge)


def _tables(planned: PlannedSchema, state: ManifestState) -> _Tables:
    accepted = catalog_of(state.schema)
    forgetting = {
        step.table_key
        for step in planned.plan.steps
        if isinstance(step, DropProperty) and step.mode == "hard"
    }
    before = {declared.type_id: declared for declared in _types(accepted)}
    after = {declared.type_id: declared for declared in _types(planned.desired.catalog)}
    return _Tables(
        changed={
            known.table_key: TableChange(
                known,
                after[number],
                state.entries[known.table_key],
                forgets=known.table_key in forgetting,
            )
            for number, known in before.items()
            if number in after
        },
        added=tuple(wanted for number, wanted in after.items() if number not in before),
        dropped={
            known.table_key: state.entries[known.table_key]
            for number, known in before.items()
            if number not in after
        },
    )


def _types(catalog: Catalog) -> tuple[EntityType, ...]:
    return (*catalog.node_types.values(), *catalog.edge_types.values())


def _renamed(change: TableChange) -> Adoption:
    return Adoption(change.entry, replace(change.entry, table_key=change.desired.table_key))
