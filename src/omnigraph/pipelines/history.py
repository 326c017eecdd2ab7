"""The runs of a pipeline, derived from commits.

1. A run is *published* when the history of the target's branch has its record: in its load, in the
   merge of its branch, or in the branch that a user has merged after a review.
2. Other runs are known by their branches `pipeline/<name>/<run id>`: the newest record there says
   what became of the run; without one it is running, or its process has died.
3. Nothing else is stored, so nothing can contradict the commits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from omnigraph.graph import CommitNotFoundError, CommitPages, Graph, GraphCommit, all_commits
from omnigraph.pipelines.record import RunRecord, RunState, Watermark, read_record

BRANCHES: Final = "pipeline"
_NEWEST: Final = 10
"""The newest run is most often among so many commits."""


def run_branch(pipeline: str, run_id: str) -> str:
    """Return the branch of a run.

    >>> run_branch("social", "01K")
    'pipeline/social/01K'
    """
    return f"{BRANCHES}/{pipeline}/{run_id}"


@dataclass(frozen=True)
class Published:
    """What the runs of a pipeline have brought to a branch."""

    runs: tuple[RunRecord, ...] = ()
    """Newest first."""

    @property
    def last_run_id(self) -> str | None:
        """The id of the newest run."""
        return self.runs[0].run_id if self.runs else None

    @property
    def watermarks(self) -> dict[str, Watermark]:
        """Where the next run begins, by source."""
        found: dict[str, Watermark] = {}
        for run in self.runs:
            for source, mark in run.watermarks.items():
                found.setdefault(source, mark)
        return found

    def files(self, source: str) -> frozenset[str]:
        """Return all files of a source that were read."""
        none: frozenset[str] = frozenset()
        return none.union(*(run.files.get(source, none) for run in self.runs))

    def run(self, run_id: str) -> RunRecord | None:
        """Find a run."""
        return next((run for run in self.runs if run.run_id == run_id), None)


def published_runs(graph: Graph, pages: CommitPages, pipeline: str) -> Published:
    """Read the published runs of a pipeline from the commits of a branch."""
    found = [
        run
        for commit in all_commits(pages)
        if (run := _record_of(graph, commit, pipeline)) is not None
        and run.state is RunState.SUCCEEDED
    ]
    return Published(tuple({run.run_id: run for run in reversed(found)}.values())[::-1])


def newest_run(
    graph: Graph, pages: CommitPages, pipeline: str, *, is_batch: bool = False
) -> RunRecord | None:
    """Find the newest published run in the commits of a branch; perhaps only micro-batches count.

    Commits are read until it is found.
    """
    for commit in all_commits(pages, first=_NEWEST):
        run = _record_of(graph, commit, pipeline)
        if run is not None and run.state is RunState.SUCCEEDED and (run.batch or not is_batch):
            return run
    return None


def _record_of(graph: Graph, commit: GraphCommit, pipeline: str) -> RunRecord | None:
    run = read_record(commit.properties)
    if run is None and commit.merged_parent_commit_id is not None:
        # A branch of a run that a user has merged brings the record of its last commit.
        try:
            merged = graph.commits.get(commit.merged_parent_commit_id)
        except CommitNotFoundError:
            return None
        if (merged.graph_branch or "").startswith(f"{BRANCHES}/{pipeline}/"):
            run = read_record(merged.properties)
    if run is None or run.pipeline != pipeline:
        return None
    return replace(run, graph_commit_id=commit.graph_commit_id)


# -- runs that are not published ------------------------------------------------------------------


def unpublished_runs(graph: Graph, pipeline: str) -> list[RunRecord]:
    """Return the runs that have a branch, newest first."""
    prefix = f"{BRANCHES}/{pipeline}/"
    names = [name for name in graph.branches.list() if name.startswith(prefix)]
    runs = [_run_of_branch(graph, name, pipeline) for name in names]
    return sorted(runs, key=lambda run: run.started_at, reverse=True)


def _run_of_branch(graph: Graph, branch: str, pipeline: str) -> RunRecord:
    run_id = branch.rpartition("/")[2]
    head = graph.commits.list(branch, limit=1)[0]
    run = read_record(head.properties, pipeline)
    if run is not None and run.run_id == run_id:
        return replace(run, branch=branch, graph_commit_id=head.graph_commit_id)
    return RunRecord(run_id, pipeline, RunState.RUNNING, started_at=head.created_at, branch=branch)


@dataclass(frozen=True)
class History:
    """All runs of a pipeline that the graph knows, newest first."""

    pipeline: str
    runs: tuple[RunRecord, ...]
    watermarks: dict[str, Watermark]

    def page(self, *, limit: int, before: str | None) -> tuple[tuple[RunRecord, ...], str | None]:
        """Return some runs and the id to go on from; None at the end."""
        runs = self.runs
        if before is not None:
            ids = [run.run_id for run in runs]
            runs = runs[ids.index(before) + 1 :] if before in ids else ()
        shown = runs[:limit]
        return shown, shown[-1].run_id if len(runs) > limit else None


def history_of(graph: Graph, branch: str, pipeline: str) -> History:
    """Return the runs of a pipeline that loads this branch."""
    published = published_runs(graph, pages_of(graph, branch), pipeline)
    known = {run.run_id for run in published.runs}
    others = [run for run in unpublished_runs(graph, pipeline) if run.run_id not in known]
    runs = sorted((*published.runs, *others), key=lambda run: run.started_at, reverse=True)
    return History(pipeline, tuple(runs), published.watermarks)


def pages_of(graph: Graph, branch: str) -> CommitPages:
    """Return what reads the commits of a branch as they are when they are asked for."""
    return partial(graph.commits.list, branch)


def published_on(graph: Graph, branch: str, pipeline: str) -> Published:
    """Read the published runs of a pipeline on a branch."""
    return published_runs(graph, pages_of(graph, branch), pipeline)
