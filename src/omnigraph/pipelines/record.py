"""The record of a run: what a commit says of the run that made it, and how it is read again.

A record is the properties of a commit: its lineage, as `omnigraph.lineage.record` lists it, with
the job `{namespace: "pipeline", name, file_digest, run_id}`, and what the next run needs:

| property | content |
|---|---|
| `watermarks` | per source `{kind, value, type?}`: where the next run begins |
| `stream` | of a micro-batch: `{id, batch_id, sources}`: its checkpoint, number and streams |
| `run` | `{state, branch?, file?, started_at, finished_at?, error?}` |
| `files.<source>.<n>` | the files that this run has read, as hashes joined by blanks |

Batch runs and micro-batches of a stream write the same record. What the next run needs is in the
commit that published the rows, so a crash leaves either both or neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, cast

from omnigraph.lineage import (
    LINEAGE_KEYS,
    CheckResult,
    InputRead,
    Job,
    Lineage,
    TypeCounts,
    read_lineage,
)

__all__ = [
    "NAMESPACE",
    "RESERVED_PROPERTIES",
    "BatchOfStream",
    "CheckResult",
    "InputRead",
    "RunRecord",
    "RunState",
    "TypeCounts",
    "Watermark",
    "read_record",
]

NAMESPACE: Final = "pipeline"
FILES_PREFIX: Final = "files."
RESERVED_PROPERTIES: Final = LINEAGE_KEYS | {"watermarks", "run", "stream"}
_HASHES_PER_PROPERTY: Final = 3_500
_SHOWN_MAX: Final = 2_000


class RunState(StrEnum):
    """What has become of a run."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    CHECKS_FAILED = "checks_failed"
    FAILED = "failed"
    NOTHING_NEW = "nothing_new"


@dataclass(frozen=True)
class Watermark:
    """Where the next run of a source begins."""

    kind: str
    value: str
    sql_type: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the stored form."""
        shape = {"kind": self.kind, "value": self.value}
        return shape | {"type": self.sql_type} if self.sql_type else shape


@dataclass(frozen=True)
class BatchOfStream:
    """Which micro-batch of which stream a run is."""

    stream_id: str
    """The id of the checkpoint, made by Spark."""
    number: int
    sources: str = ""
    """A digest of what the stream reads; another one does not fit the checkpoint."""

    def is_same(self, other: BatchOfStream) -> bool:
        """Whether two are the same micro-batch, whatever its file says now."""
        return (self.stream_id, self.number) == (other.stream_id, other.number)

    def to_json(self) -> dict[str, object]:
        """Return the stored form."""
        return {"id": self.stream_id, "batch_id": self.number, "sources": self.sources}


@dataclass(frozen=True)
class RunRecord:
    """Everything that is known of one run."""

    run_id: str
    pipeline: str
    state: RunState
    started_at: int
    finished_at: int | None = None
    file_digest: str = ""
    branch: str | None = None
    graph_commit_id: str | None = None
    counts: tuple[TypeCounts, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    error: str | None = None
    file: str | None = None
    """The path of the pipeline's file."""
    inputs: tuple[InputRead, ...] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Hashes of the files that were read, by source."""
    engine: Mapping[str, str] = field(default_factory=dict)
    batch: BatchOfStream | None = None

    @property
    def job(self) -> Job:
        """What the lineage of the commits of this run calls their job."""
        return Job(
            NAMESPACE, self.pipeline, file_digest=self.file_digest or None, run_id=self.run_id
        )

    def to_json(self) -> dict[str, object]:
        """Return the run as programs see it."""
        shape: dict[str, object] = {
            "run_id": self.run_id,
            "pipeline": self.pipeline,
            "state": str(self.state),
            "batch_id": None if self.batch is None else self.batch.number,
            "branch": self.branch,
            "graph_commit_id": self.graph_commit_id,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "counts": [one.to_json() for one in self.counts],
            "checks": [one.to_json() for one in self.checks],
            "watermarks": {name: mark.value for name, mark in self.watermarks.items()},
            "error": self.error,
        }
        optional = ("batch_id", "branch", "graph_commit_id", "finished_at", "error")
        return {
            key: value for key, value in shape.items() if value is not None or key not in optional
        }

    def to_properties(self) -> dict[str, str]:
        """Return the properties of the commit that states this run."""
        run = {
            "state": str(self.state),
            "branch": self.branch,
            "file": self.file,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "error": None if self.error is None else self.error[:_SHOWN_MAX],
        }
        values: dict[str, object] = {
            "watermarks": {name: mark.to_json() for name, mark in self.watermarks.items()},
            "stream": None if self.batch is None else self.batch.to_json(),
            "run": {key: value for key, value in run.items() if value is not None},
        }
        texts = {
            key: json.dumps(value, ensure_ascii=False) for key, value in values.items() if value
        }
        lineage = Lineage(
            self.job, self.inputs, self.counts, self.columns, self.checks, self.engine
        )
        return {**lineage.to_properties(), **texts, **dict(_file_properties(self.files))}


# -- files ----------------------------------------------------------------------------------------


def _file_properties(files: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    for source, hashes in files.items():
        ordered = sorted(hashes)
        for number, start in enumerate(range(0, len(ordered), _HASHES_PER_PROPERTY)):
            part = ordered[start : start + _HASHES_PER_PROPERTY]
            yield f"{FILES_PREFIX}{source}.{number}", " ".join(part)


def _files_of(properties: Mapping[str, str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for key, value in properties.items():
        if key.startswith(FILES_PREFIX):
            source = key.removeprefix(FILES_PREFIX).rpartition(".")[0]
            found.setdefault(source, set()).update(value.split())
    return {source: frozenset(hashes) for source, hashes in found.items()}


# -- reading --------------------------------------------------------------------------------------


def read_record(properties: Mapping[str, str], pipeline: str | None = None) -> RunRecord | None:
    """Return the run that the properties of a commit state; None if they state none.

    With a name, runs of other pipelines count as none.
    """
    lineage = read_lineage(properties)
    if lineage is None or lineage.job.namespace != NAMESPACE or "run" not in properties:
        return None
    if pipeline not in (None, lineage.job.name):
        return None
    run = _object(properties["run"])
    return RunRecord(
        run_id=lineage.job.run_id or "",
        pipeline=lineage.job.name,
        state=_state_of(run.get("state")),
        started_at=_moment(run.get("started_at")) or 0,
        finished_at=_moment(run.get("finished_at")),
        file_digest=lineage.job.file_digest or "",
        branch=run.get("branch"),
        counts=lineage.outputs,
        checks=lineage.checks,
        watermarks={
            source: Watermark(str(mark["kind"]), str(mark["value"]), str(mark.get("type", "")))
            for source, mark in _object(properties.get("watermarks")).items()
            if isinstance(mark, dict) and {"kind", "value"} <= mark.keys()
        },
        error=run.get("error"),
        file=run.get("file"),
        inputs=lineage.inputs,
        columns=lineage.columns,
        files=_files_of(properties),
        engine=lineage.engine,
        batch=_batch_of(_object(properties.get("stream"))),
    )


def _state_of(value: object) -> RunState:
    """Return a state; one that only a newer release knows is no success."""
    return next((state for state in RunState if state == value), RunState.RUNNING)


def _moment(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _batch_of(shape: dict[str, Any]) -> BatchOfStream | None:
    if "id" not in shape or not isinstance(shape.get("batch_id"), int):
        return None
    return BatchOfStream(str(shape["id"]), shape["batch_id"], str(shape.get("sources", "")))


def _object(text: str | None) -> dict[str, Any]:
    found = _json(text)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _json(text: str | None) -> object:
    """Read a value; what others have written under our names counts as nothing."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None
