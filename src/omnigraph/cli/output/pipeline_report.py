"""Results of pipelines, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from omnigraph.pipelines import CheckResult, History, Plan, RunRecord, TypeCounts


def run_text(run: RunRecord) -> str:
    """Return a run: what became of it, then its counts and checks."""
    return "\n".join(_run_lines(run))


def _run_lines(run: RunRecord) -> Iterator[str]:
    yield f"run {run.run_id} of {run.pipeline}: {run.state}"
    if run.error is not None:
        yield f"  {on_one_line(run.error)}"
    for counts in run.counts:
        yield f"  {counts.type_name}: {_counts(counts)}"
    for check in run.checks:
        yield f"  {_check(check)}"
    if run.branch is not None:
        yield f"  branch {run.branch}"
    if run.graph_commit_id is not None:
        yield f"  commit {run.graph_commit_id}"


def _counts(counts: TypeCounts) -> str:
    shown = [
        f"{number} {name}"
        for name, number in counts.to_json().items()
        if name != "type_name" and number
    ]
    return ", ".join(shown) or "no rows"


def _check(check: CheckResult) -> str:
    mark = "ok    " if check.passed else "warn  " if check.is_warning else "failed"
    found = check.error if check.error is not None else f"found {check.value}"
    return f"{mark} {check.name}: {check.expect}, {on_one_line(found)}"


def status_text(history: History) -> str:
    """Return the last run, and where the next one begins."""
    if not history.runs:
        return f"{history.pipeline}: no runs"
    marks = [f"  {name} from {mark.value}" for name, mark in history.watermarks.items()]
    return "\n".join([run_text(history.runs[0]), *(["next run:", *marks] if marks else [])])


def history_text(runs: Sequence[RunRecord], next_before: str | None) -> str:
    """Return a line per run, newest first."""
    lines = [
        f"{_moment(run.started_at)} {run.run_id} {run.state} {run.graph_commit_id or '-'}"
        for run in runs
    ]
    if next_before is not None:
        lines.append(f"more: --before {next_before}")
    return "\n".join(lines or ["(no runs)"])


def _moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(" ", "seconds")


def plan_text(plan: Plan) -> str:
    """Return what a run would do."""
    return "\n".join(_plan_lines(plan))


def _plan_lines(plan: Plan) -> Iterator[str]:
    file = plan.file
    yield f"{file.name} → {file.target.graph}, {file.target.branch} ({file.target.publish})"
    for read in plan.prepared.inputs:
        known = {"files": read.files, "rows": read.rows}
        sizes = [f"{value} {name}" for name, value in known.items() if value is not None]
        yield f"  read {read.source}: {', '.join([read.format, *sizes])}"
    for name, columns in plan.views.items():
        yield f"  view {name}: {', '.join(columns)}"
    for one in plan.load:
        step, sample = one.mapped.step, one.sample
        what = f"  load {step.kind} {step.type_name} from {step.source} ({step.mode})"
        yield f"{what}: sample of {sample.rows} rows, {sample.rejected} rejected"
        yield from (f"    {on_one_line(problem)}" for problem in sample.problems)
    for check in file.checks:
        yield f"  check {check.name}: {check.expect.text}"
