"""Runs a pipeline for a test: its sources are rows of the file, its target is the fixture.

This module needs PySpark, so it is imported only for tests of pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from omnigraph.pipelines.data_tests.acts import Facts, Failure, TestBranch
from omnigraph.pipelines.data_tests.fixtures import json_lines
from omnigraph.pipelines.data_tests.model import Row, RunPipeline
from omnigraph.pipelines.diagnostics import PipelineFileError, did_you_mean
from omnigraph.pipelines.file.model import PipelineFile, Source
from omnigraph.pipelines.file.read import load_pipeline_file
from omnigraph.pipelines.record import RunState
from omnigraph.pipelines.run import RunOptions, run_pipeline

_FAILED = frozenset({RunState.FAILED, RunState.CHECKS_FAILED})


def run(branch: TestBranch, act: RunPipeline) -> tuple[Facts, TestBranch]:
    """Run a pipeline; return the facts, and where its rows are: `publish: branch` leaves them."""
    try:
        file = load_pipeline_file(act.path)
    except PipelineFileError as error:
        return Facts(failure=Failure.of(error)), branch
    problem = _source_problem(file.sources, act.sources)
    if problem is not None:
        return Facts(failure=Failure(problem)), branch
    try:
        record = run_pipeline(_redirected(file, branch, act.sources), RunOptions())
    except PipelineFileError as error:
        return Facts(failure=Failure.of(error)), branch
    where = branch if record.branch is None else replace(branch, name=record.branch, pinned=None)
    if record.state in _FAILED:
        return Facts(failure=Failure(record.error or str(record.state))), where
    return Facts(rejected=sum(one.rejected for one in record.counts)), where


def _source_problem(
    declared: Mapping[str, Source], given: Mapping[str, tuple[Row, ...]]
) -> str | None:
    """Say which sources have no rows: a test never reads real ones."""
    for name in given:
        if name not in declared:
            return f"the pipeline has no source '{name}'{did_you_mean(name, tuple(declared))}"
    missing = [name for name in declared if name not in given]
    return f"'sources' has no rows for {', '.join(missing)}" if missing else None


def _redirected(
    file: PipelineFile,
    branch: TestBranch,
    rows: Mapping[str, tuple[Row, ...]],
) -> PipelineFile:
    sources = {
        name: replace(
            source,
            format="json",
            paths=(str(_written(branch.new_path(f"{name}.jsonl"), rows[name])),),
            table=None,
            options={},
            incremental=None,
        )
        for name, source in file.sources.items()
    }
    policy = file.on_error
    if policy.folder is not None:
        policy = replace(policy, folder=branch.new_path("quarantine"))
    target = replace(file.target, graph=branch.graph.uri, branch=branch.name)
    return replace(file, sources=sources, target=target, on_error=policy)


def _written(path: Path, rows: tuple[Row, ...]) -> Path:
    path.write_bytes(json_lines(rows))
    return path
