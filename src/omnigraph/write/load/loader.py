"""Bulk load: records or tables become one commit, or nothing.

1. The input is read once. Rows are converted and checked one by one while it is read; all problems
   are reported together, and then nothing is committed.
2. Memory is bounded by batches, not by the input: rows are written as fragments while they are
   read, or wait in files; `rows/types.py` lists the few numbers per row that stay.
3. All types of one call are one commit; an edge may name a node of the same call in any order.
4. A load that changes nothing makes no commit, unless it has properties for one, or its terms ask
   for it (`commit/terms.py`).
5. With a quarantine, rows that break a rule are rejected instead, then the rows that break a rule
   without those, until the rest is valid. A broken rule that rejecting rows cannot fix fails the
   load.
6. `append` and `merge` that lose a race before any effect are checked and staged again on the newer
   state, with the rows as they were converted and the files as they were written; what they took
   from stored rows (kept properties, the verdict `unchanged`) is taken anew. The last attempt runs
   under the branch lock, so no other writer can win. `overwrite` raises the conflict instead,
   unless only maintenance has moved its tables.
7. A branch that the call has made is removed again when the load fails.
8. `cleanup` spares files that are written long before the commit while the load lives: it holds a
   record (`staging_record`) from before the first of them.
9. In a merge, edges without an id are matched with the stored edges that they stand for
   (`match_edges`), in each attempt anew.
10. A dry run reads and checks everything, counts what would change, and writes nothing: neither
   files nor a branch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError, OutcomeUnknownError
from omnigraph.lineage import runtime
from omnigraph.manifest import CommitDraft, Entry, GraphCommit, Repository, Snapshot
from omnigraph.manifest.errors import (
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    SchemaMovedError,
)
from omnigraph.manifest.layout import Incarnation
from omnigraph.manifest.requirements import (
    Requirements,
    Revalidate,
    is_only_maintenance,
    is_published_entry,
    mismatch,
)
from omnigraph.manifest.state import ManifestState
from omnigraph.names import MAIN, BranchName
from omnigraph.progress import Progress
from omnigraph.recovery import WriterKind
from omnigraph.store.errors import DatasetNotFoundError
from omnigraph.write.commit.attempts import attempts
from omnigraph.write.commit.committer import Committer
from omnigraph.write.commit.job import WriteJob
from omnigraph.write.embed.row_embedder import RowEmbedder
from omnigraph.write.load.check.folding import fold
from omnigraph.write.load.check.load_check import LoadCheck
from omnigraph.write.load.input.interfaces import LoadInput
from omnigraph.write.load.options import LoadOptions
from omnigraph.write.load.result import LoadCounts, LoadResult
from omnigraph.write.load.rows.intake import Intake
from omnigraph.write.load.rows.row_parts import TableBases
from omnigraph.write.load.rows.spool import SpoolBudget
from omnigraph.write.load.stage import StagedTable, preview_type, stage_cascade
from omnigraph.write.load.state import LoadState, PhaseTimer
from omnigraph.write.load.workers import LoadedRows, LoadWorkers
from omnigraph.write.rules.findings import Findings
from omnigraph.write.rules.violations import KeyConflictError
from omnigraph.write.stage.external_blobs import ExternalBlobs
from omnigraph.write.stage.staging_record import LazyRecord, StagingRecords
from omnigraph.write.stage.stored_rows import StoredRows

_log = logging.getLogger(__name__)


class Loader:
    """Loads into the branches of one graph."""

    def __init__(
        self,
        repository: Repository,
        committer: Committer,
        embedder: RowEmbedder | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._progress = progress or Progress()
        self._repository = repository
        self._committer = committer
        self._embedder = embedder

    def load(self, workers: LoadWorkers, options: LoadOptions) -> LoadResult:
        """Read everything, check it, and commit it once."""
        options.check()
        run_id = self._repository.clock.ulid()
        with (
            self._target(options) as target,
            SpoolBudget(options.memory_max) as budget,
            self._staging_record(run_id) as record,
        ):
            snapshot = self._repository.history.snapshot(target.incarnation)
            self._committer.require_schema(snapshot.incarnation, snapshot.schema.schema_hash)
            if options.expected_head is not None:
                self._repository.publisher.require(
                    target.incarnation, Requirements(expected_head=options.expected_head)
                )
            load = self._start(workers.source, options, snapshot, budget, record)
            load.run_id = run_id
            load.runtime = runtime(workers.name, workers.application_id)
            try:
                rows = self._read(workers, load, snapshot)
                commit = None
                if options.is_dry_run:
                    self._preview(load, rows, snapshot)
                else:
                    commit = self._commit(load, rows, snapshot)
                    if self._embedder is not None:
                        self._embedder.record()
                if commit is not None and rows.leaves_topologies:
                    self._leave_topologies(load, rows, target.incarnation)
                return self._result(load, workers.name, target, commit)
            except DatasetNotFoundError:
                load.bases.require_forks()
                raise
            finally:
                load.intake.close()

    def _staging_record(self, operation_id: str) -> LazyRecord:
        records = StagingRecords(self._repository.store.objects, self._repository.clock)
        return LazyRecord(records, operation_id)

    # -- target -----------------------------------------------------------------------------------

    @contextmanager
    def _target(self, options: LoadOptions) -> Iterator[_Target]:
        target = self._find(options)
        try:
            yield target
        except OutcomeUnknownError:
            # The load may have been committed: then the branch has to stay.
            raise
        except BaseException:
            if target.is_new:
                self._remove(target)
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
            # The new branch would begin with the rows of this one.
            return _Target(source, is_new=False)
        operation_id = self._repository.clock.ulid()
        made = branches.create(options.target, source=source, operation_id=operation_id)
        return _Target(made, is_new=True)

    def _remove(self, target: _Target) -> None:
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

    # -- reading ----------------------------------------------------------------------------------

    def _start(
        self,
        source: LoadInput,
        options: LoadOptions,
        snapshot: Snapshot,
        budget: SpoolBudget,
        record: LazyRecord,
    ) -> LoadState:
        """Return a load that has read nothing yet."""
        clock = self._repository.clock
        store = self._repository.store
        bases = TableBases(store.datasets, snapshot.incarnation, clock, record)
        external = ExternalBlobs(options.external_blob_bases, store.settings.storage_options)
        intake = Intake(
            options,
            snapshot,
            bases=bases,
            budget=budget,
            clock=clock,
            external_blobs=external,
            place=source.place,
            embedder=self._embedder,
        )
        catalog = snapshot.catalog
        return LoadState(
            source, options, catalog, intake, bases, budget, PhaseTimer(clock, self._progress)
        )

    @staticmethod
    def _read(workers: LoadWorkers, load: LoadState, snapshot: Snapshot) -> LoadedRows:
        with load.timer.phase("read", lambda: sum(load.intake.records_read.values())):
            rows = workers.read(load, snapshot)
        load.timer.move("read", "validate", load.intake.checking_s)
        load.intake.finish()
        with load.timer.phase("validate"):
            for loaded in load.intake.types.values():
                fold(loaded, load.options, load.source)
        return rows

    # -- checking ---------------------------------------------------------------------------------

    @staticmethod
    def _check(load: LoadState, rows: LoadedRows, snapshot: Snapshot) -> LoadCheck:
        """Prove or run the rules across rows; leave out what breaks them, or raise."""
        proven = rows.prove(snapshot)
        if proven is not None:
            check = load.check(snapshot)
            check.reads.update({key: snapshot.entry(key) for key in proven})
            return check
        rows.gather(snapshot)
        intake, place = load.intake, load.source.place
        if intake.has_bad_input:
            intake.log.require_clean(place, intake.inputs)
        while True:
            check = load.check(snapshot)
            findings = check.run()
            if not load.options.quarantines:
                intake.log.absorb(findings.log)
                if intake.log.total:
                    intake.log.absorb(findings.conflicts)
                intake.log.require_clean(place, intake.inputs)
                _require_no_conflicts(findings, load)
                return check
            if findings.unfixable.total:
                findings.log.require_clean(place, intake.inputs)
            if not findings.rejected_rows:
                if intake.quarantine is not None:
                    intake.quarantine.keep()
                return check
            intake.log.absorb(findings.log)
            for key, rejected in findings.rejected_rows.items():
                intake.reject_rows(intake.types[key], rejected)
            intake.require_tolerable()

    @staticmethod
    def _revalidation(
        load: LoadState, rows: LoadedRows, snapshot: Snapshot, check: LoadCheck
    ) -> Revalidate:
        """Return the check of tables that were only read and have moved."""

        def revalidate(state: ManifestState, moved: frozenset[str]) -> None:
            for key in sorted(moved & load.staged.keys()):
                # Rows were compared with stored ones that may be others now: another attempt.
                raise mismatch(state, key, snapshot.entry(key))
            rows.gather(snapshot)
            again = Snapshot(snapshot.incarnation, state, snapshot.datasets)
            recheck = load.check_again(again)
            findings = recheck.run_again(moved)
            if recheck.cascaded:
                # New edges have to be removed as well: that is another attempt.
                key = min(recheck.cascaded)
                raise mismatch(state, key, check.reads[key])
            if findings.log.total and load.options.quarantines:
                # More rows have to be rejected: that is another attempt.
                key = min(moved & check.reads.keys())
                raise mismatch(state, key, check.reads[key])
            findings.log.require_clean(load.source.place, load.intake.inputs)

        return revalidate

    # -- committing -------------------------------------------------------------------------------

    def _preview(self, load: LoadState, rows: LoadedRows, snapshot: Snapshot) -> None:
        """Check everything, and count what would change."""
        with load.timer.phase("validate"):
            check = self._check(load, rows, snapshot)
            stored = StoredRows(snapshot)
            load.staged = {
                key: preview_type(loaded, stored, load.options)
                for key, loaded in load.types.items()
            }
            for key, addresses in check.cascaded.items():
                load.staged[key] = StagedTable(None, removed=len(addresses))

    def _commit(self, load: LoadState, rows: LoadedRows, snapshot: Snapshot) -> GraphCommit | None:
        schema_hash = snapshot.schema.schema_hash
        first = snapshot.entries
        clock, branch = self._repository.clock, snapshot.incarnation.branch
        for attempt in attempts(self._committer, clock, branch, operation="load"):
            with attempt.lock:
                if attempt.number:
                    snapshot = self._repository.history.snapshot(snapshot.incarnation)
                    if snapshot.schema.schema_hash != schema_hash:
                        raise SchemaMovedError(schema_hash, snapshot.schema.schema_hash)
                    if not load.is_repeatable:
                        # What the last attempt staged: workers elsewhere leave the intake empty.
                        written = {key: first[key] for key in load.staged}
                        _require_unmoved(snapshot.state, written)
                try:
                    return self._attempt(load, rows, snapshot)
                except ExpectedVersionMismatchError as error:
                    if attempt.is_last:
                        raise
                    if not (load.is_repeatable or error.is_only_maintenance):
                        raise
                except PreconditionFailedError:
                    if attempt.is_last or not load.awaits_terms:
                        raise
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, load: LoadState, rows: LoadedRows, snapshot: Snapshot) -> GraphCommit | None:
        clock = self._repository.clock
        options = load.options
        with load.timer.phase("validate"):
            check = self._check(load, rows, snapshot)
            load.budget.release_memory()
        with load.timer.phase("write"), self._repository.store.flusher.together():
            load.staged = rows.stage(snapshot)
            for key, addresses in check.cascaded.items():
                stored = StoredRows(snapshot)
                load.staged[key] = stage_cascade(key, addresses, stored, load.bases)
        tables = tuple(one.write for one in load.staged.values() if one.write is not None)
        commits_unchanged = options.terms is not None and options.terms.commits_unchanged
        if not tables and not options.properties and not commits_unchanged:
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
                properties=_properties(load, snapshot),
            ),
            schema_hash=snapshot.schema.schema_hash,
            tables=tables,
            reads=_reads(check, load, snapshot),
            expected_head=_expected_head(load, snapshot),
            revalidate=self._revalidation(load, rows, snapshot, check),
        )
        with load.timer.phase("commit"):
            return self._committer.commit(job).commit

    def _leave_topologies(
        self, load: LoadState, rows: LoadedRows, incarnation: Incarnation
    ) -> None:
        with load.timer.phase("write"):
            snapshot = self._repository.history.snapshot(incarnation)
            rows.leave_topologies(snapshot, self._repository.store)

    # -- reporting --------------------------------------------------------------------------------

    def _result(
        self, load: LoadState, engine: str, target: _Target, commit: GraphCommit | None
    ) -> LoadResult:
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
            engine=engine,
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


def _require_no_conflicts(findings: Findings, load: LoadState) -> None:
    """Raise all ids that cannot be inserted; ids given twice come first."""
    if findings.first_conflict is not None:
        raise KeyConflictError.of(
            findings.first_conflict,
            findings.conflicts,
            place=load.source.place,
            inputs=load.intake.inputs,
        )


def _properties(load: LoadState, snapshot: Snapshot) -> Mapping[str, str]:
    options, stated = load.options, dict[str, str]()
    if options.terms is not None:
        counts = {key: load.counts(key) for key in sorted(load.intake.records_read)}
        stated = options.terms.stated(counts)
    # Terms that name a job state the whole lineage.
    lineage = {} if "job" in stated else load.lineage(snapshot).to_properties()
    return {**lineage, **options.properties, **stated}


def _expected_head(load: LoadState, snapshot: Snapshot) -> str | None:
    """Return the head that the commit must land on; with terms, one on which they hold."""
    options = load.options
    if options.terms is not None:
        options.terms.require(snapshot.state)
    return snapshot.commit_id if load.awaits_terms else options.expected_head


def _require_unmoved(state: ManifestState, expected: Mapping[str, Entry]) -> None:
    """Refuse to repeat an overwrite on tables that more than maintenance has moved."""
    for key, entry in expected.items():
        is_same = is_published_entry(state, key, entry)
        if not is_same and not is_only_maintenance(state, key, entry):
            raise mismatch(state, key, entry)


def _reads(check: LoadCheck, load: LoadState, snapshot: Snapshot) -> dict[str, Entry | None]:
    """Return the entries that the check rests on and the load does not write."""
    reads = dict(check.reads)
    for key, staged in load.staged.items():
        # Rows that equal the stored ones are not written: their table must not change either.
        if staged.write is None:
            reads[key] = snapshot.entry(key)
    return reads


def _branch_of(options: LoadOptions) -> str:
    target = options.target
    return str(target.branch if isinstance(target, Incarnation) else target)


def _of_kind(counts: Mapping[str, LoadCounts], prefix: str) -> dict[str, LoadCounts]:
    return {
        key.removeprefix(prefix): found for key, found in counts.items() if key.startswith(prefix)
    }
