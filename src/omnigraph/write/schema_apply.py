"""Makes a desired schema the accepted one.

1. The lock of `main` is held from before the schema lock branch is created until after it is
   removed. A process that holds the lock of `main` and finds the schema lock branch therefore knows
   that its owner is dead, and removes it.
2. Everything is decided against the state that is read under the lock: only `main` exists, the plan
   is supported, stored rows obey the new rules. A refusal up to here has changed nothing.
3. Rewritten tables, new tables, names, tombstones and the schema row become visible in one manifest
   commit under one intent record. Tables that were read or rewritten must not have moved meanwhile.
4. The schema files are derived from the manifest after the publish, here and at every open.
5. Hard drops purge old versions last, after the publish; what cannot be purged is a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.errors import ConflictError, OmnigraphError
from omnigraph.failpoints import hit
from omnigraph.manifest import CommitDraft, Entry, GraphCommit, Registration, Repository
from omnigraph.manifest.catalogs import catalog_of
from omnigraph.manifest.errors import SchemaApplyInProgressError
from omnigraph.manifest.forks import write_base
from omnigraph.manifest.genesis import accepted_schema
from omnigraph.manifest.layout import MAIN_INCARNATION, dataset_location
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
from omnigraph.schema.migration.steps import (
    AddConstraint,
    DropConstraint,
    DropProperty,
    DropType,
)
from omnigraph.store.records import CleanupRequest
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import TableWrite, WriteJob
from omnigraph.write.rules.stored_checks import StoredTable, check_stored_rows, validated_steps
from omnigraph.write.stage.rewrite_table import TableChange

OPERATION: Final = "schema_apply"
"""The operation of the commits that change a schema."""
_log = logging.getLogger(__name__)


class SchemaApplyRunningError(ConflictError):
    """Another schema change is under way; nothing was changed."""

    code = "OG-SCHEMA-APPLY-RUNNING"
    hint = "try again when it has finished"
    template = "schema apply is already in progress"


class BranchesInTheWayError(ConflictError):
    """A schema change needs a graph with no branch but `main`; nothing was changed."""

    code = "OG-SCHEMA-APPLY-BRANCHES"
    hint = "merge or delete these branches first"
    branches: tuple[str, ...]

    def _message(self) -> str:
        return (
            "schema apply requires a graph with only main; found non-main branches:"
            f" {', '.join(self.branches)}"
        )


@dataclass(frozen=True)
class SchemaApplied:
    """What a schema apply has done; `warnings` name purges that failed."""

    plan: MigrationPlan
    applied: bool
    graph_manifest_version: int
    commit: GraphCommit | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """Return `{supported, applied, graph_manifest_version, steps}`."""
        return {
            "supported": self.plan.supported,
            "applied": self.applied,
            "graph_manifest_version": self.graph_manifest_version,
            "steps": self.plan.to_json()["steps"],
        }


class SchemaApply:
    """Applies schemas to one graph."""

    def __init__(self, repository: Repository, recovery: Recovery, committer: Committer) -> None:
        self._repository = repository
        self._recovery = recovery
        self._committer = committer
        self._datasets = repository.store.datasets

    def apply(
        self,
        desired: str | SourceText,
        *,
        allow_data_loss: bool = False,
        actor_id: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> SchemaApplied:
        """Make a desired schema the accepted one, and rewrite stored rows where that is needed."""
        operation_id = self._repository.clock.ulid()
        with self._main_lock(operation_id) as lock:
            self._recovery.sweep_branch(BranchName(MAIN))
            with self._schema_lock():
                hit("schema_apply.locked")
                self._require_only_main()
                state = self._repository.reader.latest(MAIN_INCARNATION)
                planned = _plan(desired, state, allow_data_loss=allow_data_loss)
                planned.plan.raise_if_unsupported()
                if not planned.plan.steps:
                    return SchemaApplied(planned.plan, False, state.version)
                draft = CommitDraft.new(
                    self._repository.clock,
                    OPERATION,
                    actor_id,
                    message=message,
                    properties=properties,
                )
                result = self._apply(planned, state, lock, operation_id, draft)
        return result

    @contextmanager
    def _main_lock(self, operation_id: str) -> Iterator[BranchLock]:
        try:
            with self._committer.branch_lock(
                BranchName(MAIN), operation_id=operation_id, operation="schema apply"
            ) as lock:
                yield lock
        except SchemaApplyInProgressError as error:
            raise SchemaApplyRunningError from error

    @contextmanager
    def _schema_lock(self) -> Iterator[None]:
        branches = self._repository.branches
        branches.set_schema_lock()
        try:
            yield
        finally:
            try:
                branches.clear_schema_lock()
            except OmnigraphError as error:
                # The next holder of the lock removes it.
                _log.warning("the schema apply lock stays for now: %s", error)

    def _require_only_main(self) -> None:
        names = [str(name) for name in self._repository.branches.names() if not name.is_main]
        if names:
            raise BranchesInTheWayError(tuple(names))

    def _apply(
        self,
        planned: PlannedSchema,
        state: ManifestState,
        lock: BranchLock,
        operation_id: str,
        draft: CommitDraft,
    ) -> SchemaApplied:
        tables = _tables(planned, state)
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
        job = self._job(operation_id, draft, tables, state.head.schema_hash, reads)
        job = replace(job, schema=accepted_schema(planned.desired))
        published = self._committer.commit_locked(job, lock)
        hit("schema_apply.published")
        refresh_schema_files(
            self._repository.store.objects,
            accepted_schema(planned.desired),
            previous=state.schema,
        )
        warnings = self._purge(planned.plan, tables, published.entries)
        self._committer.record(published)
        return SchemaApplied(
            planned.plan, True, published.manifest_version, published.commit, warnings
        )

    # -- the job ----------------------------------------------------------------------------------

    def _job(
        self,
        operation_id: str,
        draft: CommitDraft,
        tables: _Tables,
        schema_hash: str,
        reads: Mapping[str, Entry],
    ) -> WriteJob:
        changed = tables.changed.values()
        created = [self._created(each, operation_id) for each in tables.added]
        rewritten = [self._rewritten(c, operation_id) for c in changed if c.is_rewritten]
        adopted = [_renamed(change) for change in changed if change.is_renamed_only]
        moved = {change.entry.table_key for change in changed if change.is_moved}
        return WriteJob(
            kind=WriterKind.SCHEMA_APPLY,
            incarnation=MAIN_INCARNATION,
            operation_id=operation_id,
            draft=draft,
            schema_hash=schema_hash,
            tables=(*created, *rewritten),
            reads={key: entry for key, entry in reads.items() if key not in moved},
            registrations=(
                *(_registration(t, w.location) for t, w in zip(tables.added, created, strict=True)),
                *(_registration(c.desired, c.entry.location) for c in changed if c.is_renamed),
            ),
            tombstones=tuple(sorted(tables.removed_keys)),
            adopted=tuple(adopted),
        )

    def _created(self, added: EntityType, operation_id: str) -> TableWrite:
        location = dataset_location(*TableKey(added.table_key).parts, operation_id)
        staged = self._datasets.stage_create(location, added.arrow_schema)
        return TableWrite(added.table_key, (staged,), row_count=0, location=location)

    def _rewritten(self, change: TableChange, operation_id: str) -> TableWrite:
        base = write_base(self._datasets, MAIN_INCARNATION, change.entry, operation_id=operation_id)
        staged = change.stage(self._datasets, base.base)
        return TableWrite(
            change.desired.table_key, (staged,), row_count=change.entry.row_count, base=base
        )

    # -- hard drops -------------------------------------------------------------------------------

    def _purge(
        self, plan: MigrationPlan, tables: _Tables, published: Mapping[str, Entry]
    ) -> tuple[str, ...]:
        """Remove what hard drops have made unreachable; return what could not be removed."""
        warnings = []
        for step in plan.steps:
            if not isinstance(step, DropType | DropProperty) or step.mode != "hard":
                continue
            key = step.table_key
            if key is None:
                continue
            try:
                if isinstance(step, DropType):
                    self._purge_type(tables.dropped[key])
                else:
                    self._purge_versions(published[tables.changed[key].desired.table_key])
            except OmnigraphError as error:
                _log.warning("old versions of %s were not purged: %s", key, error)
                warnings.append(f"old versions of {key} were not purged: {error}")
        return tuple(warnings)

    def _purge_type(self, entry: Entry) -> None:
        """Empty a dropped dataset. Older snapshots then miss a version, not a whole dataset."""
        handle = open_entry(self._datasets, entry)
        staged = self._datasets.stage_overwrite(handle.at, handle.schema)
        self._datasets.commit_staged(staged)
        self._purge_versions(entry)

    def _purge_versions(self, entry: Entry) -> None:
        self._datasets.cleanup(
            entry.location,
            CleanupRequest(keep_versions=1),
            branch=entry.table_branch,
            preview=False,
        )


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


def _plan(
    desired: str | SourceText, state: ManifestState, *, allow_data_loss: bool
) -> PlannedSchema:
    return plan_schema(
        desired,
        accepted=read_ir(state.schema.ir),
        allow_data_loss=allow_data_loss,
        row_counts={key: entry.row_count for key, entry in state.entries.items()},
    )


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
    before = {declared.type_id: declared for declared in _types(accepted)}
    after = {declared.type_id: declared for declared in _types(planned.desired.catalog)}
    return _Tables(
        changed={
            known.table_key: TableChange(known, after[number], state.entries[known.table_key])
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


def _registration(declared: EntityType, location: str) -> Registration:
    if declared.type_id is None or declared.table_incarnation_id is None:
        raise ValueError(f"{declared.table_key} has no identity")
    return Registration(
        declared.table_key, location, declared.type_id, declared.table_incarnation_id
    )
