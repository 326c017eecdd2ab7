"""Where rows came from, as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from omnigraph.graph import GraphCommit, Lineage, Step, Trace


def trace_text(trace: Trace) -> str:
    """Return the lines of a trace: a paragraph per commit, then what is not known."""
    found = [line for step in trace.steps for line in _step(step)]
    if not found:
        found = ["(nothing read it)" if trace.direction == "down" else "(no commit wrote it)"]
    return "\n".join([*found, *(f"note: {on_one_line(note)}" for note in trace.notes)])


def _step(step: Step) -> Iterator[str]:
    indent = "  " * step.depth
    yield f"{indent}{_commit(step.commit)}"
    if step.lineage is None:
        yield f"{indent}  (this commit records no lineage)"
        return
    for name, text in _facts(step.lineage):
        yield f"{indent}  {name:<7} {on_one_line(text)}"


def _commit(commit: GraphCommit) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=commit.created_at)
    actor = "" if commit.actor_id is None else f" by {on_one_line(commit.actor_id)}"
    branch = on_one_line(commit.graph_branch or "main")
    shown = moment.strftime("%Y-%m-%d %H:%M:%S")
    return f"{commit.graph_commit_id} {commit.operation} on {branch}{actor} at {shown}"


def _facts(lineage: Lineage) -> Iterator[tuple[str, str]]:
    job = lineage.job
    yield "job", f"{job.namespace}/{job.name}" + (f" run {job.run_id}" if job.run_id else "")
    for read in lineage.inputs:
        state = read.version or (read.digest or "")[:19]
        rows = None if read.rows is None else f"{read.rows} rows"
        known = [read.uri, read.format, rows, state]
        yield "input", "  ".join(one for one in known if one)
    for counts in lineage.outputs:
        changes = {
            name: count for name, count in counts.to_json().items() if count and name != "type_name"
        }
        done = ", ".join(f"{count} {name}" for name, count in changes.items())
        yield "output", f"{counts.type_name}: {done or 'nothing'}"
    for name, read_columns in lineage.columns.items():
        yield "column", f"{name} from {', '.join(read_columns)}"
    for check in lineage.checks:
        yield "check", f"{check.name}: {'passed' if check.passed else 'failed'}"
