"""One run of a pipeline: read, map, load, check, publish.

1. A run that needs checks works on its own branch `pipeline/<name>/<run id>`, cut from the target's
   branch. Readers of the target see nothing of it before it is published.
2. Publishing is one commit: the merge of that branch, or the load itself where nothing has to see
   the rows first. The commit holds the record of the run, with the marks of the next one.
3. The commit lands only if no other run of the pipeline was published since this one read the
   marks, and this run id was not: two runs at once cannot both publish what one of them read.
4. A run that was published is recognised by its id, and not repeated.
5. A branch of a run stays when its checks fail, and when `publish` is `branch`. It goes when the
   run is published; what a killed process left is removed by the next run with the same id.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from pathlib import Path
from typing import Final

from omnigraph.clock import Clock, SystemClock
from omnigraph.errors import ConflictError, OmnigraphError
from omnigraph.graph import (
    BranchNotFoundError,
    CommitLog,
    CommitTerms,
    Graph,
    LoadCounts,
    LoadResult,
    ReadTarget,
)
from omnigraph.lineage import runtime, type_names
from omnigraph.lineage.transport import LongJob, live_events
from omnigraph.names import BranchName, TableKey
from omnigraph.pipelines.analysis import Analysis
from omnigraph.pipelines.branch import RunBranch, RunReplacedError
from omnigraph.pipelines.checks import checking_workspace, run_checks
from omnigraph.pipelines.deletions import left_ids
from omnigraph.pipelines.diagnostics import PipelineFileError
from omnigraph.pipelines.file.model import PipelineFile, Publish
from omnigraph.pipelines.history import (
    Published,
    newest_run,
    published_on,
    run_branch,
    unpublished_runs,
)
from omnigraph.pipelines.mapping import Mapped
from omnigraph.pipelines.record import RunRecord, RunState, TypeCounts
from omnigraph.pipelines.sources import (
    Prepared,
    SourceEmptyError,
    has_nothing_new,
    prepare_sources,
)
from omnigraph.spark.steps import Workspace

_log = logging.getLogger(__name__)

FAILED_MAX: Final = 20
"""So many branches of failed runs stay, for the history."""


class RunOvertakenError(ConflictError):
    """Another run of the pipeline was published while this one was working; nothing was."""

    code = "OG-PIPELINE-OVERTAKEN"
    hint = "run the pipeline again: it begins where that run has ended"
    template = "run '{other}' of pipeline '{pipeline}' was published during this run"
    pipeline: str
    other: str


@dataclass(frozen=True)
class RunOptions:
    """How a caller wants a run."""

    run_id: str | None = None
    actor_id: str | None = None
    spark: object | None = None
    shows_progress: bool = False
    report: Callable[[str], None] = field(default=lambda _: None)
    """Called with what the run does next."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Ends a stream after the micro-batch that is running."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Ends a load without a commit."""
    on_batch: Callable[[RunRecord], None] = field(default=lambda _: None)
    """Called with every micro-batch of a stream when it has ended."""
    begins_again: bool = False
    """Whether a stream may begin where other runs of the pipeline have loaded already."""
    takes_signals: bool = False
    """Whether SIGINT and SIGTERM set `stop`."""
    clock: Clock = field(default_factory=SystemClock)


def run_pipeline(file: PipelineFile, options: RunOptions) -> RunRecord:
    """Run a pipeline and return what became of it; a broken file is raised."""
    run_id = options.clock.ulid() if options.run_id is None else options.run_id
    BranchName.parse(run_branch(file.name, run_id))
    target = file.target
    with Graph.open(target.graph, branch=target.branch) as graph:
        published = published_on(graph, target.branch, file.name)
        drop_published(graph, file, published, options.actor_id)
        known = published.run(run_id) or _reviewed(graph, file, run_id)
        if known is not None:
            options.report(f"run {run_id} was published before")
            return known
        branch = RunBranch(graph, file.name, run_id, options.actor_id)
        record = RunRecord(
            run_id=run_id,
            pipeline=file.name,
            state=RunState.RUNNING,
            started_at=options.clock.now_us(),
            file_digest=file.digest,
            file=str(file.path.absolute()),
            branch=branch.name if file.uses_branch else None,
        )
        first = _RequireFirst(graph, file.name, published.last_run_id)
        run = OneRun(file, options, graph, branch, record, first)
        return run.reported(lambda: _read_and_publish(run, published))


def _read_and_publish(run: OneRun, published: Published) -> RunRecord:
    """Read the sources, then load, check and publish."""
    file, options = run.file, run.options
    options.report("reading sources")
    workspace = Workspace(options.spark, file.spark)
    prepared = prepare_sources(file, workspace, published)
    run.has_read(prepared, workspace)
    if has_nothing_new(file, prepared):
        return run.nothing_new()
    for source in prepared.without_columns:
        raise SourceEmptyError(source)
    checking = checking_workspace(file, options.spark, run.graph.schema.catalog())
    steps = mapped_steps(file, run.graph, workspace, checking)
    commits_unchanged = prepared.moved or not prepared.news
    return run.publish(RunTables(workspace, checking, steps, commits_unchanged=commits_unchanged))


def mapped_steps(
    file: PipelineFile, graph: Graph, workspace: Workspace, checking: Workspace | None
) -> list[Mapped]:
    """Check views, mappings and checks against the columns that there are now."""
    findings = file.findings()
    steps = Analysis(file, graph.schema.catalog(), workspace, checking, findings).run()
    findings.require_usable(str(file.path))
    return steps


@dataclass(frozen=True)
class _RequireFirst:
    """Refuses to publish after another run of the pipeline."""

    graph: Graph
    pipeline: str
    known_run_id: str | None

    def __call__(self, log: CommitLog) -> None:
        newest = newest_run(self.graph, log.commits, self.pipeline)
        if newest is not None and newest.run_id != self.known_run_id:
            raise RunOvertakenError(self.pipeline, newest.run_id)


def drop_published(
    graph: Graph, file: PipelineFile, published: Published, actor_id: str | None
) -> None:
    """Remove branches of published runs whose process was killed before it could do so."""
    if file.target.publish is Publish.BRANCH:
        return
    done = {run_branch(file.name, run.run_id) for run in published.runs}
    for branch in done.intersection(graph.branches.list()):
        with suppress(BranchNotFoundError):
            graph.branches.delete(branch, actor_id=actor_id)


def _reviewed(graph: Graph, file: PipelineFile, run_id: str) -> RunRecord | None:
    """Return a run of this id that waits on its branch for a review."""
    if file.target.publish is not Publish.BRANCH:
        return None
    runs = unpublished_runs(graph, file.name)
    done = (run for run in runs if run.state is RunState.SUCCEEDED)
    return next((run for run in done if run.run_id == run_id), None)


@dataclass(frozen=True)
class RunTables:
    """The rows that a run publishes, and the tables of its checks."""

    workspace: Workspace
    checking: Workspace | None
    steps: Sequence[Mapped]
    commits_unchanged: bool
    """Whether there is a commit even if no row changes, for what it says of the run."""
    are_small: bool = False
    """Whether this process loads the rows: tasks would take longer to start than to work."""
    leaving: Sequence[Mapped] = ()
    """Steps whose rows were changed at their source: what they have been is deleted, unless it is
    loaded again. The workspace can show the rows before the changes."""


@dataclass
class OneRun:
    """One run, or one micro-batch of a stream: loads, checks and publishes what was read."""

    file: PipelineFile
    options: RunOptions
    graph: Graph
    branch: RunBranch
    record: RunRecord
    """What is known so far."""
    require: Callable[[CommitLog], None]
    """Raises when the run must not be published on this state of the target."""
    has_loaded: bool = False

    def outcome(self, work: Callable[[], RunRecord]) -> RunRecord:
        """Return what became of the run: a failure is a record as well, a broken file is raised."""
        try:
            return work()
        except PipelineFileError:
            self.branch.drop()
            raise
        except OmnigraphError as error:
            return self.failed(error)
        except BaseException:
            self.branch.drop()
            raise

    def reported(self, work: Callable[[], RunRecord]) -> RunRecord:
        """Return the outcome, and send events of its lineage: when it begins, and how it ends."""
        record, hide = self.record, self.file.variables.hide
        long_job = LongJob(
            live_events(), record.job, "PIPELINE", self._now, file=record.file, hide=hide
        )
        with long_job:
            long_job.begin(record.started_at)
            done = self.outcome(work)
            long_job.has_commit, long_job.error = done.graph_commit_id is not None, done.error
        return done

    # -- the steps --------------------------------------------------------------------------------

    def has_read(self, prepared: Prepared, workspace: Workspace) -> None:
        """Record what was found of the sources."""
        self.record = replace(
            self.record,
            inputs=prepared.inputs,
            watermarks=prepared.watermarks,
            files=prepared.files,
            engine=runtime("spark", workspace.application_id),
        )

    def nothing_new(self) -> RunRecord:
        """End without a commit."""
        self.record = replace(self.record, branch=None)
        return self._ended(RunState.NOTHING_NEW)

    def publish(self, tables: RunTables) -> RunRecord:
        """Load the rows, check them, and bring them to the target as one commit."""
        columns = {name: read for step in tables.steps for name, read in step.plain_columns.items()}
        self.record = replace(self.record, columns=columns)
        if not self.file.uses_branch:
            return self._load_directly(tables)
        return self._write_audit_publish(tables)

    def _load_directly(self, tables: RunTables) -> RunRecord:
        self.options.report(f"loading {self.file.target.branch}")
        branch = self.file.target.branch
        replaced = self._replaced(tables.steps, branch)

        def properties(counts: Mapping[str, LoadCounts]) -> Mapping[str, str]:
            made = _named(_counts(counts, replaced))
            done = replace(self.record, state=RunState.SUCCEEDED, counts=made)
            return self._properties(replace(done, finished_at=self._now()))

        terms = CommitTerms(self.require, properties, tables.commits_unchanged)
        graph = self.graph.on_terms(terms)
        result = self._load(graph, tables, tables.steps, branch)
        self.record = replace(self.record, counts=_named(_counts(_by_key(result), replaced)))
        if result.commit is None:
            return self._ended(RunState.NOTHING_NEW)
        self.record = replace(self.record, graph_commit_id=result.commit.graph_commit_id)
        return self._ended(RunState.SUCCEEDED)

    def _write_audit_publish(self, tables: RunTables) -> RunRecord:
        self.branch.cut(self.file.target.branch)
        counts: dict[str, TypeCounts] = {}
        has_changed = False
        for _, group in groupby(tables.steps, key=lambda one: one.step.mode):
            part = list(group)
            self.options.report(f"loading {self.branch.name} ({part[0].step.mode})")
            replaced = self._replaced(part, self.branch.name)
            result = self._load_branch(tables, part)
            has_changed |= result.commit is not None
            _add(counts, _counts(_by_key(result), replaced))
        gone = self._delete_left(tables)
        has_changed |= any(gone.values())
        _add(counts, {key: _type_counts(key, deleted=number) for key, number in gone.items()})
        self.has_loaded = True
        self.record = replace(self.record, counts=_named(counts))
        if not has_changed and not tables.commits_unchanged:
            self.branch.drop()
            return self.nothing_new()
        if self.file.checks:
            self.options.report(f"checking {self.branch.name}")
        checks = run_checks(self.file, self.graph, self.branch.name, tables.checking)
        self.record = replace(self.record, checks=checks)
        stopping = [one for one in checks if one.stops]
        if stopping:
            error = f"{len(stopping)} of {len(checks)} checks do not hold"
            self.record = replace(self.record, error=error)
            return self._stated(self._ended(RunState.CHECKS_FAILED))
        if self.file.target.publish is Publish.BRANCH:
            return self._stated(self._ended(RunState.SUCCEEDED))
        # A merge needs a commit to merge, also when no row has changed.
        self._stated(replace(self.record, finished_at=self._now()))
        return self._merge(self._ended(RunState.SUCCEEDED))

    # -- writing ----------------------------------------------------------------------------------

    def _load_branch(self, tables: RunTables, steps: Sequence[Mapped]) -> LoadResult:
        """Load some steps of one mode onto the branch of the run."""
        branch = self.branch
        with branch.held():
            result = self._load(self.graph, tables, steps, branch.name, head=branch.head)
        if result.commit is not None:
            branch.head = result.commit.graph_commit_id
        return result

    def _load(
        self,
        graph: Graph,
        tables: RunTables,
        steps: Sequence[Mapped],
        branch: str,
        *,
        head: str | None = None,
    ) -> LoadResult:
        """Load some steps of one mode as one commit, on this head of the branch."""
        workspace = tables.workspace
        by_type: dict[str, list[Mapped]] = {}
        for one in steps:
            by_type.setdefault(one.entity_type.table_key, []).append(one)
        frames = {
            key: workspace.all_mapped(
                [(one.step.source, one.expressions) for one in parts], parts[0].what
            )
            for key, parts in by_type.items()
        }
        policy = self.file.on_error
        folder = policy.folder and _free_folder(policy.folder, self.record.run_id)
        data: Mapping[str, object] = frames
        if tables.are_small:
            data = {key: workspace.whole(frame, f"load of {key}") for key, frame in frames.items()}
        result = graph.load(
            data,
            mode=steps[0].step.mode,
            branch=branch,
            expected_head=head,
            message=self.branch.message,
            job=self.record.job,
            actor_id=self.options.actor_id,
            on_error="quarantine" if policy.quarantines else "fail",
            quarantine=folder,
            max_errors=policy.rows_max,
            engine="local" if tables.are_small else "spark",
            spark=None if tables.are_small else workspace.session,
            progress=self.options.shows_progress,
            cancelled=self.options.cancelled,
        )
        if folder is not None and not result.rejected:
            with suppress(OSError):
                folder.rmdir()
        return result

    def _delete_left(self, tables: RunTables) -> Mapping[str, int]:
        """Delete the rows of changed sources that the steps do not give any more, by table."""
        if not tables.leaving:
            return {}
        gone = left_ids(self.file, tables.workspace, tables.leaving, tables.steps)
        if not any(gone.values()):
            return {}
        self.options.report(f"deleting from {self.branch.name}")
        branch = self.branch
        with branch.held():
            result = self.graph.delete_rows(
                gone, branch=branch.name, expected_head=branch.head, actor_id=branch.actor_id
            )
        if result.commit is not None:
            branch.head = result.commit.graph_commit_id
        return result.deleted

    def _stated(self, record: RunRecord) -> RunRecord:
        """Add a commit to the branch of the run that holds its record."""
        return replace(record, graph_commit_id=self.branch.state(self._properties(record)))

    def _merge(self, record: RunRecord) -> RunRecord:
        target = self.file.target.branch
        self.options.report(f"publishing to {target}")
        published = replace(record, branch=None)
        properties = self._properties(published)
        terms = CommitTerms(self.require, lambda _: properties, merged_commit=self.branch.head)
        return replace(published, graph_commit_id=self.branch.merge(target, terms))

    # -- failures ---------------------------------------------------------------------------------

    def failed(self, error: OmnigraphError) -> RunRecord:
        """Return the record of a run that failed, and keep it on the branch of the run.

        Rows that were loaded and could not be merged stay there.
        """
        text = self.file.variables.hide(str(error))
        self.record = replace(self.record, error=text, branch=self.branch.name)
        record = self._ended(RunState.FAILED)
        if isinstance(error, RunReplacedError):
            return replace(record, branch=None)
        try:
            if not self.has_loaded or isinstance(error, RunOvertakenError):
                self.branch.cut(self.file.target.branch)
            record = self._stated(record)
            self._forget_old_failures()
        except OmnigraphError as problem:
            _log.warning("the failed run is not recorded: %s", problem)
            record = replace(record, branch=None)
        return record

    def _forget_old_failures(self) -> None:
        runs = unpublished_runs(self.graph, self.file.name)
        failed = [run for run in runs if run.state is RunState.FAILED]
        for run in failed[FAILED_MAX:]:
            self.graph.branches.delete(
                run_branch(self.file.name, run.run_id), actor_id=self.options.actor_id
            )

    # -- records ----------------------------------------------------------------------------------

    def _properties(self, record: RunRecord) -> dict[str, str]:
        hide = self.file.variables.hide_secrets
        own = {key: hide(value) for key, value in self.file.properties.items()}
        return {**own, **record.to_properties()}

    def _replaced(self, steps: Sequence[Mapped], branch: str) -> dict[str, int]:
        """Count the stored rows that an overwrite replaces."""
        if steps[0].step.mode != "overwrite":
            return {}
        entries = self.graph.snapshot_of(ReadTarget.branch(branch)).entries
        keys = {one.entity_type.table_key for one in steps}
        return {key: entries[key].row_count for key in keys if key in entries}

    def _now(self) -> int:
        return self.options.clock.now_us()

    def _ended(self, state: RunState) -> RunRecord:
        self.record = replace(self.record, state=state, finished_at=self._now())
        return self.record


def _by_key(result: LoadResult) -> dict[str, LoadCounts]:
    nodes = [(TableKey.node(name), counts) for name, counts in result.node_counts.items()]
    edges = [(TableKey.edge(name), counts) for name, counts in result.edge_counts.items()]
    return {str(key): counts for key, counts in (*nodes, *edges)}


def _free_folder(parent: Path, run_id: str) -> Path:
    """Return a folder that nothing was written to: a repeated run leaves that of the first."""
    for number in count(1):
        folder = parent / (run_id if number == 1 else f"{run_id}.{number}")
        if not folder.exists():
            return folder
    raise AssertionError("numbers do not end")


def _counts(counts: Mapping[str, LoadCounts], replaced: Mapping[str, int]) -> dict[str, TypeCounts]:
    """Return what a load did, by table."""
    return {
        key: _type_counts(
            key,
            inserted=one.inserted,
            updated=one.updated,
            deleted=replaced.get(key, 0),
            unchanged=one.unchanged,
            rejected=one.rejected,
        )
        for key, one in counts.items()
    }


def _type_counts(key: str, **numbers: int) -> TypeCounts:
    return TypeCounts(TableKey(key).type_name, is_edge=TableKey(key).is_edge, **numbers)


def _add(counts: dict[str, TypeCounts], more: Mapping[str, TypeCounts]) -> None:
    for key, one in more.items():
        counts[key] = counts[key].plus(one) if key in counts else one


def _named(counts: Mapping[str, TypeCounts]) -> tuple[TypeCounts, ...]:
    """Return counts by table under the names of their types, nodes first."""
    return tuple(replace(counts[key], type_name=name) for key, name in type_names(counts).items())
