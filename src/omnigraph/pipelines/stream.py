"""Runs of a pipeline with a trigger: every micro-batch is one commit, exactly once.

1. A micro-batch is a run: the same mapping, load, checks and record. Its commit states the id of
   the checkpoint and the number of the batch.
2. Spark numbers the micro-batches of a checkpoint from 0 without gaps, and hands one that it does
   not know as done over again with the same rows. Every micro-batch leaves a commit, also one that
   changes no row. So the next number is that of the newest commit plus one. The same number is a
   batch that was published before a crash: it is skipped. Any other one means that graph and
   checkpoint do not belong together, and nothing is loaded.
3. That is decided again when the commit lands, on the state that it replaces: two processes with
   one checkpoint cannot both publish a batch.
4. A micro-batch that fails, or whose checks do not hold, ends the stream. The next run of the
   pipeline gets it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from omnigraph.errors import ConflictError, InvalidInputError
from omnigraph.graph import CommitLog, CommitPages, Graph
from omnigraph.pipelines.branch import RunBranch
from omnigraph.pipelines.checks import checking_workspace
from omnigraph.pipelines.file.model import PipelineFile, Source
from omnigraph.pipelines.file.view_order import sources_of
from omnigraph.pipelines.history import Published, newest_run, pages_of
from omnigraph.pipelines.mapping import Mapped
from omnigraph.pipelines.record import BatchOfStream, RunRecord, RunState
from omnigraph.pipelines.run import (
    OneRun,
    RunOptions,
    RunTables,
    drop_published,
    mapped_steps,
)
from omnigraph.pipelines.signals import signals_that_stop
from omnigraph.pipelines.sources import Prepared, graph_of, noticed_read, prepare_batch
from omnigraph.spark.steps import SMALL_BYTES, MicroBatch, MicroBatches, StreamReads, Workspace

_OPTIONS_OF_A_READ: Final = ("node", "edge", "branch", "readchangefeed", "startingversion")


class StreamCheckpointError(InvalidInputError):
    """The checkpoint of a stream and the commits of the graph do not belong together."""

    code = "OG-PIPELINE-CHECKPOINT"
    hint = (
        "restore the checkpoint that belongs to the graph; or remove it, and read everything again"
        " with `omnigraph pipeline run --begin-again`"
    )
    template = (
        "pipeline '{pipeline}' cannot load micro-batch {number} of the checkpoint '{checkpoint}':"
        " {reason}; nothing was loaded"
    )
    pipeline: str
    number: int
    checkpoint: str
    reason: str


class StreamRunIdError(InvalidInputError):
    """A run id was given to a stream, whose micro-batches have ids of their own."""

    code = "OG-PIPELINE-RUN-ID"
    hint = "leave the run id out: a micro-batch that was published is recognised by its number"
    template = "pipeline '{pipeline}' has a trigger, so its runs take no id"
    pipeline: str


class BatchPublishedError(ConflictError):
    """A micro-batch is in the graph already."""

    code = "OG-PIPELINE-PUBLISHED"
    hint = "nothing is to be done: the micro-batch is not loaded again"
    template = "micro-batch '{run_id}' of pipeline '{pipeline}' was published before"
    pipeline: str
    run_id: str


class _BatchFailedError(Exception):
    """Ends a stream because of one micro-batch."""

    def __init__(self, run: RunRecord) -> None:
        super().__init__(run.error)
        self.run = run


def run_stream(file: PipelineFile, options: RunOptions) -> RunRecord:
    """Run micro-batches until the stream ends; return the last one, or that nothing was new.

    A broken file is raised. A stream with `every` ends when it is stopped, or by a failure.
    """
    if options.run_id is not None:
        raise StreamRunIdError(file.name)
    target = file.target
    with Graph.open(target.graph, branch=target.branch) as graph:
        run_id = options.clock.ulid()
        record = _record(file, options, run_id)
        branch = RunBranch(graph, file.name, run_id, options.actor_id)
        start = OneRun(file, options, graph, branch, record, lambda _: None)
        return start.outcome(lambda: _Stream(file, options, graph).run() or start.nothing_new())


def _record(file: PipelineFile, options: RunOptions, run_id: str) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        pipeline=file.name,
        state=RunState.RUNNING,
        started_at=options.clock.now_us(),
        file_digest=file.digest,
        file=str(file.path.absolute()),
    )


@dataclass
class _Stream:
    file: PipelineFile
    options: RunOptions
    graph: Graph
    last: RunRecord | None = None
    steps: Sequence[Mapped] = ()
    batches: MicroBatches = field(init=False)
    checking: Workspace | None = field(init=False)
    sources: str = field(init=False)

    def run(self) -> RunRecord | None:
        """Return the last micro-batch; None if there was none."""
        file, options = self.file, self.options
        assert file.trigger is not None  # noqa: S101 - only streams come here
        options.report("reading sources")
        self.sources = sources_digest(file)
        self._require_same_sources()
        workspace = Workspace(options.spark, file.spark)
        self.checking = None
        self.batches = MicroBatches(
            workspace,
            _reads(file),
            checkpoint=file.checkpoint,
            every_s=file.trigger.every_s,
        )
        self._map()
        options.report("waiting for rows")
        try:
            with signals_that_stop(options.stop, is_wanted=options.takes_signals):
                self.batches.run(self._take, options.stop, options.cancelled)
        except _BatchFailedError as failed:
            return failed.run
        return self.last

    def _require_same_sources(self) -> None:
        """Refuse a file with other streams, before Spark reads them by the old checkpoint."""
        pages = pages_of(self.graph, self.file.target.branch)
        newest = newest_run(self.graph, pages, self.file.name, is_batch=True)
        last = None if newest is None else newest.batch
        if last is None or self.options.begins_again or last.sources == self.sources:
            return
        raise StreamCheckpointError(
            self.file.name,
            last.number + 1,
            self.file.checkpoint,
            "it was made for other sources than the file has now",
        )

    def _map(self) -> None:
        """Check views, mappings and checks once: a stream keeps the columns of its start."""
        empty = Workspace(self.options.spark, self.file.spark)
        prepare_batch(self.file, empty, Published())
        self.batches.add_columns(empty)
        catalog = self.graph.schema.catalog()
        self.checking = checking_workspace(self.file, self.options.spark, catalog)
        self.steps = mapped_steps(self.file, self.graph, empty, self.checking)

    # -- a micro-batch ----------------------------------------------------------------------------

    def _take(self, batch: MicroBatch) -> None:
        file, options = self.file, self.options
        of_stream = BatchOfStream(batch.stream_id, batch.number, self.sources)
        run_id = batch_run_id(of_stream)
        options.report(f"micro-batch {batch.number}")
        branch = RunBranch(self.graph, file.name, run_id, options.actor_id)
        record = replace(
            _record(file, options, run_id),
            batch=of_stream,
            branch=branch.name if file.uses_branch else None,
        )
        follows = _RequireNext(self.graph, file, of_stream, begins_again=options.begins_again)
        run = OneRun(file, options, self.graph, branch, record, follows)
        self.last = run.reported(lambda: self._publish(run, batch, follows))
        if self.last.state is not RunState.SUCCEEDED:
            options.on_batch(self.last)
            raise _BatchFailedError(self.last)
        # What a failed attempt has left, or a process that was killed before it could remove it.
        drop_published(self.graph, file, Published((self.last,)), options.actor_id)
        options.on_batch(self.last)

    def _publish(self, run: OneRun, batch: MicroBatch, follows: _RequireNext) -> RunRecord:
        try:
            follows.check(pages_of(self.graph, self.file.target.branch))
            before = Published(() if follows.before is None else (follows.before,))
            self.batches.require_columns(batch)
            prepared = prepare_batch(self.file, batch.workspace, before, batch.files)
            run.has_read(prepared, batch.workspace)
            for name, sql in self.file.views.items():
                batch.workspace.add_view(name, sql)
            return run.publish(
                RunTables(
                    batch.workspace,
                    self.checking,
                    self.steps,
                    commits_unchanged=True,
                    are_small=batch.is_small and self._reads_little(prepared),
                    leaving=self._leaving(prepared.followed),
                )
            )
        except BatchPublishedError:
            assert follows.published is not None  # noqa: S101 - it is why this was raised
            self.options.report(f"micro-batch {batch.number} was published before")
            run.branch.drop()
            return follows.published

    def _reads_little(self, prepared: Prepared) -> bool:
        """Whether the sources that are read whole are small files."""
        streams = {name for name, source in self.file.sources.items() if source.is_stream}
        whole = [one for one in prepared.inputs if one.source not in streams]
        return all(one.bytes is not None and one.bytes <= SMALL_BYTES for one in whole)

    def _leaving(self, changed: Sequence[str]) -> list[Mapped]:
        """Return the steps that read sources of which changes were read."""
        file = self.file
        return [
            one
            for one in self.steps
            if sources_of(one.step.source, file.sources, file.views).intersection(changed)
        ]


@dataclass
class _RequireNext:
    """Lets a micro-batch be published only after the one before it, and once."""

    graph: Graph
    file: PipelineFile
    batch: BatchOfStream
    begins_again: bool
    before: RunRecord | None = None
    """The micro-batch before this one, where one was found."""
    published: RunRecord | None = None
    """This micro-batch, where it was found."""

    def __call__(self, log: CommitLog) -> None:
        self.check(log.commits)

    def check(self, pages: CommitPages) -> None:
        number = self.batch.number
        newest = newest_run(self.graph, pages, self.file.name, is_batch=number > 0)
        if newest is not None and newest.batch is not None and newest.batch.is_same(self.batch):
            self.published = newest
            raise BatchPublishedError(self.file.name, newest.run_id)
        reason = mismatch(self.batch, newest)
        if reason is None:
            self.before = newest
        elif number or not self.begins_again:
            raise StreamCheckpointError(self.file.name, number, self.file.checkpoint, reason)


def mismatch(batch: BatchOfStream, newest: RunRecord | None) -> str | None:
    """Return why a micro-batch does not follow the newest run in the graph; None if it does.

    >>> mismatch(BatchOfStream("a", 3), None)
    'the graph has no micro-batch of it'
    """
    last = None if newest is None else newest.batch
    if last is None:
        if batch.number:
            return "the graph has no micro-batch of it"
        return None if newest is None else "earlier runs of the pipeline have loaded the graph"
    if last.stream_id != batch.stream_id:
        return f"the graph has micro-batch {last.number} of another checkpoint"
    if last.number + 1 != batch.number:
        return f"the newest micro-batch in the graph is {last.number}"
    return None


def batch_run_id(batch: BatchOfStream) -> str:
    """Return the id of the run that a micro-batch is: the same whenever it is tried.

    >>> batch_run_id(BatchOfStream("2c25e775-96c5-48ac-b187-e9fe02b79ddc", 7))
    '2c25e775-7'
    """
    return f"{batch.stream_id.partition('-')[0]}-{batch.number}"


def sources_digest(file: PipelineFile) -> str:
    """Return what stands for the streams of a file in their order, which a checkpoint keeps."""
    read = [_identity(source) for source in file.sources.values() if source.is_stream]
    return sha256(json.dumps(read).encode()).hexdigest()[:16]


def _identity(source: Source) -> list[object]:
    options = {name.lower(): value for name, value in source.options.items()}
    chosen = [options.get(name) for name in _OPTIONS_OF_A_READ]
    return [source.name, source.format, source.paths, source.table, chosen]


def _reads(file: PipelineFile) -> StreamReads:
    streams = [source for source in file.sources.values() if source.is_stream]
    noticed = {graph_of(one): noticed_read(file, one) for one in streams if one.is_followed}
    return StreamReads([one for one in streams if not one.is_followed], list(noticed.values()))
