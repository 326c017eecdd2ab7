"""The public face of pipelines: a file, and what can be done with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from omnigraph.graph import Graph, OpenMode
from omnigraph.pipelines.file.model import PipelineFile
from omnigraph.pipelines.file.read import load_pipeline_file
from omnigraph.pipelines.history import History, history_of
from omnigraph.pipelines.plan import SAMPLE_ROWS, Plan, plan_pipeline
from omnigraph.pipelines.record import RunRecord
from omnigraph.pipelines.run import RunOptions, run_pipeline
from omnigraph.pipelines.stream import run_stream
from omnigraph.pipelines.validate import Validation, read_text, validate_file, validate_text


@dataclass(frozen=True)
class Pipeline:
    """A pipeline whose file was read.

    ```python
    run = Pipeline.load("social.yaml").run()
    print(run.state, run.counts)
    ```
    """

    file: PipelineFile

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        graph: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Read a file; one that is broken is raised as `PipelineFileError` with all its mistakes.

        `graph` takes the place of the graph that the file names.
        """
        file = load_pipeline_file(path, environment=environment)
        if graph is not None:
            file = replace(file, target=replace(file.target, graph=graph))
        return cls(file)

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.file.name

    def validate(self, *, spark: object | None = None) -> Validation:
        """Check names, SQL, mappings and checks; no rows are read."""
        return validate_file(self.file, spark=spark)

    def plan(self, *, spark: object | None = None, sample_rows: int = SAMPLE_ROWS) -> Plan:
        """Return what a run would do, with counts from a sample; nothing is written."""
        return plan_pipeline(self.file, spark=spark, sample_rows=sample_rows)

    def run(
        self,
        *,
        run_id: str | None = None,
        actor_id: str | None = None,
        spark: object | None = None,
        progress: bool = False,
        report: Callable[[str], None] | None = None,
        on_batch: Callable[[RunRecord], None] | None = None,
        stop: threading.Event | None = None,
        begin_again: bool = False,
        takes_signals: bool = False,
    ) -> RunRecord:
        """Run it, and return what became of the run; a run that failed is returned, not raised.

        A run with the `run_id` of one that was published is not repeated. `progress` shows what
        Spark does on stderr, `report` is called with each step.

        With a `trigger` the file is a stream, and its last micro-batch is returned; `on_batch` is
        called with each of them. Once `stop` is set, the stream ends after the one that is
        running; with `takes_signals` SIGINT and SIGTERM set it. With `begin_again` a stream may
        read everything once more, where its checkpoint was lost.
        """
        options = RunOptions(
            run_id=run_id,
            actor_id=actor_id,
            spark=spark,
            shows_progress=progress,
            begins_again=begin_again,
            takes_signals=takes_signals,
        )
        if report is not None:
            options = replace(options, report=report)
        if on_batch is not None:
            options = replace(options, on_batch=on_batch)
        if stop is not None:
            options = replace(options, stop=stop)
        if self.file.trigger is not None:
            return run_stream(self.file, options)
        return run_pipeline(self.file, options)

    def history(self) -> History:
        """Return the runs that the graph knows, newest first."""
        target = self.file.target
        with Graph.open(target.graph, branch=target.branch, mode=OpenMode.READ_ONLY) as graph:
            return history_of(graph, target.branch, self.file.name)


def validate_path(
    path: str | os.PathLike[str],
    *,
    graph: str | None = None,
    environment: Mapping[str, str] | None = None,
    spark: object | None = None,
) -> Validation:
    """Validate a file, also one that cannot be read as a pipeline."""
    return validate_text(
        read_text(path), path=Path(path), environment=environment, graph=graph, spark=spark
    )
