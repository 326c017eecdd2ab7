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
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import count, groupby
from pathlib import Path
from typing import Final

from omnigraph.clock import Clock, SystemClock
from omnigraph.errors import ConflictError, OmnigraphError
from omnigraph.graph import (
    BranchNotFoundError,
    Catalog,
    CommitLog,
    CommitTerms,
    Graph,
    LoadCounts,
    LoadResult,
    ReadTarget,
)
from omnigraph.names import BranchName, TableKey
from omnigraph.pipelines.analysis import Analysis
from omnigraph.pipelines.branch import RunBranch, RunReplacedError
from omnigraph.pipelines.checks import checking_workspace, run_checks
from omnigraph.pipelines.diagnostics import PipelineFileError
from omnigraph.pipelines.file.model import PipelineFile, Publish
from omnigraph.pipelines.history import (
    Published,
    published_on,
    published_runs,
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
    clock: Clock = field(default_factory=SystemClock)


def run_pipeline(file: PipelineFile, options: RunOptions) -> RunRecord:
    """Run a pipeline and return what became of it; a broken file is raised."""
    run_id = options.clock.ulid() if options.run_id is None else options.run_id
    BranchName.parse(run_branch(file.name, run_id))
    target = file.target
    with Graph.open(target.graph, branch=target.branch) as graph:
        published = published_on(graph, target.branch, file.name)
        _drop_published(graph, file, published, options.actor_id)
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
            branch=branch.name if file.uses_branch else None,
        )
        run = _Run(file, options, graph, published, branch, record)
        try:
            return run.do()
        except PipelineFileError:
            branch.drop()
            raise
        except OmnigraphError as error:
            return run.failed(error)
        except BaseException:
            branch.drop()
            raise


def _drop_published(
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


@dataclass
class _Run:
    file: PipelineFile
    options: RunOptions
    graph: Graph
    published: Published
    branch: RunBranch
    record: RunRecord
    """What is known so far."""
    has_loaded: bool = False

    # -- the steps --------------------------------------------------------------------------------

    def do(self) -> RunRecord:
        options, file = self.options, self.file
        options.report("reading sources")
        workspace = Workspace(options.spark, file.spark)
        prepared = prepare_sources(file, workspace, self.published)
        self.record = replace(
            self.record,
            inputs=prepared.inputs,
            watermarks=prepared.watermarks,
            files=prepared.files,
            engine=_engine(workspace),
        )
        if has_nothing_new(file, prepared):
            self.record = replace(self.record, branch=None)
            return self._ended(RunState.NOTHING_NEW)
        for source in prepared.without_columns:
            raise SourceEmptyError(source)
        catalog = self.graph.schema.catalog()
        checking = checking_workspace(file, options.spark, catalog)
        steps = self._mapped(catalog, workspace, checking)
        columns = {name: read for step in steps for name, read in step.plain_columns.items()}
        self.record = replace(self.record, columns=columns)
        if not file.uses_branch:
            return self._load_directly(workspace, steps, prepared)
        return self._write_audit_publish(workspace, checking, steps, prepared)

    def _mapped(
        self, catalog: Catalog, workspace: Workspace, checking: Workspace | None
    ) -> list[Mapped]:
        """Check views, mappings and checks against the columns that there are now."""
        findings = self.file.findings()
        steps = Analysis(self.file, catalog, workspace, checking, findings).run()
        findings.require_usable(str(self.file.path))
        return steps

    def _load_directly(
        self, workspace: Workspace, steps: Sequence[Mapped], prepared: Prepared
    ) -> RunRecord:
        self.options.report(f"loading {self.file.target.branch}")
        branch = self.file.target.branch
        replaced = self._replaced(steps, branch)

        def properties(counts: Mapping[str, LoadCounts]) -> Mapping[str, str]:
            done = replace(self.record, state=RunState.SUCCEEDED, counts=_counts(counts, replaced))
            return self._properties(replace(done, finished_at=self._now()))

        commits_unchanged = prepared.moved or not prepared.news
        terms = CommitTerms(self._require_first, properties, commits_unchanged)
        graph = self.graph.on_terms(terms)
        result = self._load(graph, workspace, steps, branch)
        self.record = replace(self.record, counts=_counts(_by_key(result), replaced))
        if result.commit is None:
            return self._ended(RunState.NOTHING_NEW)
        self.record = replace(self.record, graph_commit_id=result.commit.graph_commit_id)
        return self._ended(RunState.SUCCEEDED)

    def _write_audit_publish(
        self,
        workspace: Workspace,
        checking: Workspace | None,
        steps: Sequence[Mapped],
        prepared: Prepared,
    ) -> RunRecord:
        self.branch.cut(self.file.target.branch)
        counts: dict[str, TypeCounts] = {}
        has_changed = False
        for _, group in groupby(steps, key=lambda one: one.step.mode):
            part = list(group)
            self.options.report(f"loading {self.branch.name} ({part[0].step.mode})")
            replaced = self._replaced(part, self.branch.name)
            result = self._load_branch(workspace, part)
            has_changed |= result.commit is not None
            for one in _counts(_by_key(result), replaced):
                before = counts.get(one.type_name, TypeCounts(one.type_name))
                counts[one.type_name] = before.plus(one)
        self.has_loaded = True
        self.record = replace(self.record, counts=tuple(counts.values()))
        if not has_changed and prepared.news and not prepared.moved:
            self.branch.drop()
            self.record = replace(self.record, branch=None)
            return self._ended(RunState.NOTHING_NEW)
        if self.file.checks:
            self.options.report(f"checking {self.branch.name}")
        checks = run_checks(self.file, self.graph, self.branch.name, checking)
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

    def _load_branch(self, workspace: Workspace, steps: Sequence[Mapped]) -> LoadResult:
        """Load some steps of one mode onto the branch of the run."""
        branch = self.branch
        with branch.held():
            result = self._load(self.graph, workspace, steps, branch.name, head=branch.head)
        if result.commit is not None:
            branch.head = result.commit.graph_commit_id
        return result

    def _load(
        self,
        graph: Graph,
        workspace: Workspace,
        steps: Sequence[Mapped],
        branch: str,
        *,
        head: str | None = None,
    ) -> LoadResult:
        """Load some steps of one mode as one commit, on this head of the branch."""
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
        return graph.load(
            frames,
            mode=steps[0].step.mode,
            branch=branch,
            expected_head=head,
            message=self.branch.message,
            actor_id=self.options.actor_id,
            on_error="quarantine" if policy.quarantines else "fail",
            quarantine=None
            if policy.folder is None
            else _free_folder(policy.folder, self.record.run_id),
            max_errors=policy.rows_max,
            engine="spark",
            spark=workspace.session,
            progress=self.options.shows_progress,
        )

    def _stated(self, record: RunRecord) -> RunRecord:
        """Add a commit to the branch of the run that holds its record."""
        return replace(record, graph_commit_id=self.branch.state(self._properties(record)))

    def _merge(self, record: RunRecord) -> RunRecord:
        target = self.file.target.branch
        self.options.report(f"publishing to {target}")
        published = replace(record, branch=None)
        properties = self._properties(published)
        terms = CommitTerms(
            self._require_first, lambda _: properties, merged_commit=self.branch.head
        )
        return replace(published, graph_commit_id=self.branch.merge(target, terms))

    def _require_first(self, log: CommitLog) -> None:
        """Refuse to publish after another run of the pipeline."""
        newer = published_runs(self.graph, log.commits, self.file.name).last_run_id
        if newer is not None and newer != self.published.last_run_id:
            raise RunOvertakenError(self.file.name, newer)

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


def _engine(workspace: Workspace) -> dict[str, str]:
    known = {
        "engine": "spark",
        "spark_app_id": workspace.application_id,
        "omnigraph_version": version("omnigraph"),
        "python_version": platform.python_version(),
    }
    return {key: value for key, value in known.items() if value is not None}


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


def _counts(
    counts: Mapping[str, LoadCounts], replaced: Mapping[str, int]
) -> tuple[TypeCounts, ...]:
    return tuple(
        TypeCounts(
            TableKey(key).type_name,
            inserted=one.inserted,
            updated=one.updated,
            deleted=replaced.get(key, 0),
            unchanged=one.unchanged,
            rejected=one.rejected,
        )
        for key, one in sorted(
            counts.items(), key=lambda item: (TableKey(item[0]).is_edge, item[0])
        )
    )
