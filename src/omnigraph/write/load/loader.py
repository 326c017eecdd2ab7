"""Bulk load: records or tables become one commit, or nothing.

1. The input is read once. Rows are converted and judged one by one while it is read; what is wrong
   anywhere in it is reported together, and then nothing is committed.
2. Memory is bounded by batches, not by the input: rows are written as fragments while they are
   read, or wait in files; see `load_types` for the few numbers per row that stay.
3. All types of one call are one commit; an edge may name a node of the same call in any order.
4. A load that changes nothing makes no commit.
5. With a quarantine, rows that break a rule are left out instead, and so are the rows that then
   break one, until nothing more falls. A rule that no row can mend by staying out fails the load.
6. `append` and `merge` that lose a race before any effect are judged and staged again on the newer
   state, with the rows as they were converted and the files as they were written; the last attempt
   is prepared under the lock, where nobody can be faster. `overwrite` is handed back to the caller,
   unless only maintenance has moved its tables.
7. A branch that the call has made is removed again when the load fails.
8. Files that are written long before the commit are spared by `cleanup` while the load lives: it
   holds a record (`staging_record`) from before the first of them.
9. A dry run reads and judges everything, counts what would change, and writes nothing: neither
   files nor a branch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from omnigraph.clock import Clock
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.manifest import CommitDraft, Entry, GraphCommit, Repository, Snapshot
from omnigraph.manifest.catalogs import catalog_of
from omnigraph.manifest.errors import (
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    SchemaMovedError,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.publish import Requirements, Revalidate, is_only_maintenance, mismatch
from omnigraph.manifest.state import ManifestState
from omnigraph.names import MAIN, BranchName, TableKey
from omnigraph.recovery import WriterKind
from omnigraph.schema import Catalog
from omnigraph.write.commit.attempts import attempts
from omnigraph.write.commit.committer import Committer, WriteJob
from omnigraph.write.embed.row_embedder import RowEmbedder
from omnigraph.write.load.check.checks import LoadCheck
from omnigraph.write.load.check.findings import Findings
from omnigraph.write.load.check.repeats import fold
from omnigraph.write.load.input.interfaces import LoadInput, LoadSource
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.result import LoadCounts, LoadResult, Seconds
from omnigraph.write.load.rows.intake import Intake
from omnigraph.write.load.rows.parts import TableBases
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.load.stage import StagedTable, preview_type, stage_cascade, stage_type
from omnigraph.write.load.topology import persist_topologies
from omnigraph.write.rules.violations import KeyConflictError
from omnigraph.write.stage.delta import WriteMode
from omnigraph.write.stage.external_blobs import ExternalBlobs
from omnigraph.write.stage.staging_record import LazyRecord, StagingRecords
from omnigraph.write.stage.stored_rows import StoredRows

_log = logging.getLogger(__name__)


class Loader:
    """Loads into the branches of one graph."""

    def __init__(
        self, repository: Repository, committer: Committer, embedder: RowEmbedder | None = None
    ) -> None:
        self._repository = repository
        self._committer = committer
        self._embedder = embedder
        self._staged_files: LazyRecord | None = None

    def load(self, source: LoadSource, options: LoadOptions) -> LoadResult:
        """Read everything, judge it, and commit it once."""
        options.check()
        with (
            self._target(options) as target,
            SpoolBudget(options.memory_max) as room,
            self._staging_record() as self._staged_files,
        ):
            snapshot = self._repository.history.snapshot(target.incarnation)
            if options.expected_head is not None:
                self._repository.publisher.require(
                    target.incarnation, Requirements(expected_head=options.expected_head)
                )
            load = self.prepare(source, options, snapshot, room)
            try:
                load.intake.finish()
                self._fold(load)
                if options.is_dry_run:
                    self._preview(load, snapshot)
                    return self._result(load, target, None)
                commit = self._commit(load, snapshot)
                if self._embedder is not None:
                    self._embedder.record()
                if commit is not None and options.persists_topology:
                    self._persist_topologies(load, target.incarnation)
                return self._result(load, target, commit)
            finally:
                load.intake.close()

    def _staging_record(self) -> LazyRecord:
        clock = self._repository.clock
        records = StagingRecords(self._repository.store.objects, clock)
        return LazyRecord(records, clock.ulid())

    # -- where ------------------------------------------------------------------------------------

    @contextmanager
    def _target(self, options: LoadOptions) -> Iterator[_Target]:
        target = self._find(options)
        try:
            yield target
        except OutcomeUnknownError:
            # The load may be there, and the branch with it.
            raise
        except BaseException:
            if target.is_new:
                self._take_back(target)
            raise

    def _find(self, options: LoadOptions) -> _Target:
        branches = self._repository.branches
        if isinstance(options.target, Incarnation):
            return _Target(options.target, is_new=False)
        try:
            return _Target(branches.resolve(options.target), is_new=False)
        except BranchNotFoundError:
            if options.from_branch is None:
                raise
        source = branches.resolve(options.from_branch)
        if options.is_dry_run:
            # The branch would be like this one.
            return _Target(source, is_new=False)
        operation_id = self._repository.clock.ulid()
        made = branches.create(options.target, source=source, operation_id=operation_id)
        return _Target(made, is_new=True)

    def _take_back(self, target: _Target) -> None:
        repository = self._repository
        try:
            if repository.branches.is_alive(target.incarnation):
                repository.branches.delete(
                    target.incarnation.branch,
                    bound=BranchName(MAIN),
                    operation_id=repository.clock.ulid(),
                )
        except OmnigraphError as error:
            _log.warning("branch %s stays behind: %s", target.incarnation.branch, error)

    # -- what -------------------------------------------------------------------------------------

    def prepare(
        self, source: LoadSource, options: LoadOptions, snapshot: Snapshot, room: SpoolBudget
    ) -> LoadState:
        """Read everything."""
        load = self.begun(source, options, snapshot, room)
        try:
            with load.timer.phase("read"):
                source.read(load.catalog, load.intake)
        except BaseException:
            load.intake.close()
            raise
        load.timer.move("read", "validate", load.intake.checking_s)
        return load

    def begun(
        self, source: LoadSource, options: LoadOptions, snapshot: Snapshot, room: SpoolBudget
    ) -> LoadState:
        """Return a load that has read nothing yet."""
        clock = self._repository.clock
        store = self._repository.store
        bases = TableBases(store.datasets, snapshot.incarnation, clock, self._staged_files)
        external = ExternalBlobs(options.external_blob_bases, store.settings.storage_options)
        intake = Intake(
            options,
            snapshot,
            bases=bases,
            room=room,
            clock=clock,
            external_blobs=external,
            place=source.place,
            embedder=self._embedder,
        )
        catalog = catalog_of(snapshot.schema)
        return LoadState(source, intake, bases, catalog, options, _Timer(clock))

    # -- judging ----------------------------------------------------------------------------------

    def judge(self, load: LoadState, snapshot: Snapshot) -> LoadCheck:
        """Run the rules across rows; leave out what breaks them, or raise."""
        intake = load.intake
        if intake.has_bad_input:
            intake.log.require_clean(load.source.place, intake.inputs)
        while True:
            judge = load.judge(snapshot)
            findings = judge.run()
            if not load.options.quarantines:
                intake.log.absorb(findings.log)
                if intake.log.total:
                    intake.log.absorb(findings.conflicts)
                intake.log.require_clean(load.source.place, intake.inputs)
                _require_no_conflicts(findings, load)
                return judge
            if findings.unfixable.total:
                findings.log.require_clean(load.source.place, intake.inputs)
            if not findings.rejected_rows:
                if intake.quarantine is not None:
                    intake.quarantine.keep()
                return judge
            intake.log.absorb(findings.log)
            for key, rows in findings.rejected_rows.items():
                intake.reject_rows(intake.types[key], rows)
            intake.require_tolerable()

    def revalidation(self, load: LoadState, snapshot: Snapshot, judge: LoadCheck) -> Revalidate:
        """Return the check of tables that were only read and have moved."""

        def revalidate(state: ManifestState, moved: frozenset[str]) -> None:
            again = Snapshot(snapshot.incarnation, state, snapshot.datasets)
            findings = load.judge(again).run_again(moved)
            if findings.cascaded:
                # Edges have come that would have to go as well.
                key = min(findings.cascaded)
                raise mismatch(state, key, judge.reads[key])
            if findings.log.total and load.options.quarantines:
                # Rows that fall now have to be left out: that is another attempt.
                key = min(moved & judge.reads.keys())
                raise mismatch(state, key, judge.reads[key])
            findings.log.require_clean(load.source.place, load.intake.inputs)

        return revalidate

    # -- committing -------------------------------------------------------------------------------

    @staticmethod
    def _fold(load: LoadState) -> None:
        with load.timer.phase("validate"):
            for loaded in load.intake.types.values():
                fold(loaded, load.options, load.source)

    def _preview(self, load: LoadState, snapshot: Snapshot) -> None:
        """Judge everything, and count what would change."""
        with load.timer.phase("validate"):
            judge = self.judge(load, snapshot)
            stored = StoredRows(snapshot)
            load.staged = {
                key: preview_type(loaded, stored, load.options.mode)
                for key, loaded in load.intake.types.items()
            }
            for key, addresses in judge.findings.cascaded.items():
                load.staged[key] = StagedTable(None, removed=len(addresses))

    def _commit(self, load: LoadState, snapshot: Snapshot) -> GraphCommit | None:
        schema_hash = snapshot.schema.schema_hash
        first = {key: snapshot.entry(key) for key in load.intake.types}
        clock, branch = self._repository.clock, snapshot.incarnation.branch
        for attempt in attempts(self._committer, clock, branch, operation="load"):
            with attempt.lock:
                if attempt.number:
                    snapshot = self._repository.history.snapshot(snapshot.incarnation)
                    if snapshot.schema.schema_hash != schema_hash:
                        raise SchemaMovedError(schema_hash, snapshot.schema.schema_hash)
                    if not load.is_repeatable:
                        _require_unmoved(snapshot.state, first)
                try:
                    return self._attempt(load, snapshot)
                except ExpectedVersionMismatchError as error:
                    if attempt.is_last:
                        raise
                    if not (load.is_repeatable or error.is_only_maintenance):
                        raise
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, load: LoadState, snapshot: Snapshot) -> GraphCommit | None:
        clock = self._repository.clock
        options = load.options
        with load.timer.phase("validate"):
            judge = self.judge(load, snapshot)
        with load.timer.phase("write"), self._repository.store.flusher.together():
            load.staged = self.stage(load, snapshot)
            for key, addresses in judge.findings.cascaded.items():
                stored = StoredRows(snapshot)
                load.staged[key] = stage_cascade(key, addresses, stored, load.bases)
        tables = tuple(one.write for one in load.staged.values() if one.write is not None)
        if not tables:
            return None
        job = WriteJob(
            kind=WriterKind.LOAD,
            incarnation=snapshot.incarnation,
            operation_id=clock.ulid(),
            draft=CommitDraft(
                graph_commit_id=clock.ulid(),
                operation="load",
                actor_id=options.actor_id,
                created_at=clock.now_us(),
                message=options.message,
                properties=options.properties,
            ),
            schema_hash=snapshot.schema.schema_hash,
            tables=tables,
            reads=_reads(judge, load, snapshot),
            expected_head=options.expected_head,
        )
        with load.timer.phase("commit"):
            revalidate = self.revalidation(load, snapshot, judge)
            return self._committer.commit(job, revalidate=revalidate).commit

    def stage(self, load: LoadState, snapshot: Snapshot) -> dict[str, StagedTable]:
        """Make one transaction per table."""
        stored = StoredRows(snapshot)
        types = sorted(load.intake.types.items(), key=lambda item: _nodes_first(item[0]))
        return {
            key: stage_type(loaded, stored, load.bases, load.options.mode) for key, loaded in types
        }

    def _persist_topologies(self, load: LoadState, incarnation: Incarnation) -> None:
        with load.timer.phase("write"):
            snapshot = self._repository.history.snapshot(incarnation)
            store = self._repository.store
            persist_topologies(load.intake.types, load.staged, snapshot, store)

    # -- telling ----------------------------------------------------------------------------------

    def _result(self, load: LoadState, target: _Target, commit: GraphCommit | None) -> LoadResult:
        counts = {key: load.counts(key) for key in sorted(load.intake.records_read)}
        options = load.options
        rejected = load.intake.quarantine
        return LoadResult(
            branch=_branch_of(options),
            base_branch=None if options.from_branch is None else str(options.from_branch),
            branch_created=target.is_new,
            mode=str(options.mode),
            node_counts=_of_kind(counts, "node:"),
            edge_counts=_of_kind(counts, "edge:"),
            commit=commit,
            actor_id=options.actor_id,
            durability=self._repository.store.settings.durability,
            bytes_written=sum(one.bytes_written for one in load.staged.values()),
            unreadable=0 if rejected is None else rejected.counts["unreadable"],
            seconds=load.timer.seconds,
            cascaded=load.removed() if options.cascade else None,
            is_dry_run=options.is_dry_run,
        )


@dataclass(frozen=True)
class _Target:
    incarnation: Incarnation
    is_new: bool


class _Timer:
    """Adds up the seconds of the phases of a load."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = Seconds()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside as one phase."""
        start = self._clock.monotonic_s()
        try:
            yield
        finally:
            self._add(name, self._clock.monotonic_s() - start)

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count some of the time of one phase as another's."""
        self._add(source, -seconds)
        self._add(target, seconds)

    def _add(self, name: str, seconds: float) -> None:
        before: float = getattr(self.seconds, name)
        self.seconds = replace(self.seconds, **{name: before + seconds})


@dataclass
class LoadState:
    """A load that has been read."""

    source: LoadInput
    intake: Intake
    bases: TableBases
    catalog: Catalog
    options: LoadOptions
    timer: _Timer
    staged: dict[str, StagedTable] = field(default_factory=dict)

    @property
    def is_repeatable(self) -> bool:
        """Whether the load means the same on a newer state."""
        return self.options.mode is not WriteMode.OVERWRITE

    def judge(self, snapshot: Snapshot) -> LoadCheck:
        """Return the rules across rows, to be run against a snapshot."""
        stored = StoredRows(snapshot)
        return LoadCheck(self.intake.types, self.catalog, self.options, self.source, stored)

    def removed(self) -> dict[str, int]:
        """Say how many stored edges go with their nodes, by type."""
        return {
            TableKey(key).type_name: staged.removed
            for key, staged in self.staged.items()
            if staged.removed
        }

    def counts(self, key: str) -> LoadCounts:
        """Say what has become of one type."""
        staged = self.staged.get(key, StagedTable(None))
        quarantine = self.intake.quarantine
        return LoadCounts(
            loaded=self.intake.records_read[key],
            inserted=staged.inserted,
            updated=staged.updated,
            unchanged=staged.unchanged,
            rejected=0 if quarantine is None else quarantine.counts[key],
        )


def _require_no_conflicts(findings: Findings, load: LoadState) -> None:
    """Raise all ids that cannot be inserted; ids given twice come first."""
    if findings.first_conflict is not None:
        raise KeyConflictError.of(
            findings.first_conflict,
            findings.conflicts,
            place=load.source.place,
            inputs=load.intake.inputs,
        )


def _require_unmoved(state: ManifestState, expected: Mapping[str, Entry]) -> None:
    """Refuse to repeat an overwrite on tables that more than maintenance has moved."""
    for key, entry in expected.items():
        actual = state.entries.get(key)
        is_same = actual is not None and actual.state == entry.state
        if not is_same and not is_only_maintenance(state, key, entry):
            raise mismatch(state, key, entry)


def _reads(judge: LoadCheck, load: LoadState, snapshot: Snapshot) -> dict[str, Entry | None]:
    """Return the entries that the verdict rests on and the load does not write."""
    reads = dict(judge.reads)
    for key, staged in load.staged.items():
        # Rows that were found to be stored already as they are have to stay so.
        if staged.write is None:
            reads[key] = snapshot.entry(key)
    return reads


def _branch_of(options: LoadOptions) -> str:
    target = options.target
    return str(target.branch if isinstance(target, Incarnation) else target)


def _nodes_first(table_key: str) -> tuple[bool, str]:
    return TableKey(table_key).is_edge, table_key


def _of_kind(counts: Mapping[str, LoadCounts], prefix: str) -> dict[str, LoadCounts]:
    return {
        key.removeprefix(prefix): found for key, found in counts.items() if key.startswith(prefix)
    }
