"""The record of a run: what a commit says of the run that made it, and how it is read again.

A record is the properties of a commit. Each value is JSON:

| property | content |
|---|---|
| `job` | `{namespace: "pipeline", name, file_digest, run_id, batch_id?}` |
| `inputs` | `[{source, uri, format, version?, rows?, bytes?, files?}]` |
| `outputs` | per type `{inserted, updated, deleted, unchanged, rejected}` |
| `columns` | `{"Person.name": ["people.full_name"]}`, for plain columns of sources |
| `checks` | `[{name, expect, value, passed, severity?, error?}]` |
| `watermarks` | per source `{kind, value, type?}`: where the next run begins |
| `stream` | of a micro-batch: `{id, batch_id, sources}`: its checkpoint, number and streams |
| `run` | `{state, branch?, started_at, finished_at?, error?}` |
| `files.<source>.<n>` | the files that this run has read, as hashes joined by blanks |
| `engine`, `spark_app_id`, `omnigraph_version`, `python_version` | plain texts |

Batch runs and micro-batches of a stream write the same record. What the next run needs is in the
commit that published the rows, so a crash leaves either both or neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, cast

NAMESPACE: Final = "pipeline"
FILES_PREFIX: Final = "files."
RESERVED_PROPERTIES: Final = frozenset(
    {"job", "inputs", "outputs", "columns", "checks", "watermarks", "run", "stream"}
    | {"engine", "spark_app_id", "omnigraph_version", "python_version"}
)
_HASHES_PER_PROPERTY: Final = 3_500
_TEXT_MAX: Final = 60_000
_SHOWN_MAX: Final = 2_000
_BOUNDED: Final[tuple[str, ...]] = ("inputs", "outputs", "columns", "checks")
"""What a commit can do without; the next run needs the rest."""


class RunState(StrEnum):
    """What has become of a run."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    CHECKS_FAILED = "checks_failed"
    FAILED = "failed"
    NOTHING_NEW = "nothing_new"


@dataclass(frozen=True)
class TypeCounts:
    """What a run did to the rows of one type."""

    type_name: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    rejected: int = 0

    def plus(self, other: TypeCounts) -> TypeCounts:
        """Return the sum of two counts of one type."""
        names = ("inserted", "updated", "deleted", "unchanged", "rejected")
        return TypeCounts(
            self.type_name, **{name: getattr(self, name) + getattr(other, name) for name in names}
        )

    def to_json(self) -> dict[str, object]:
        """Return the counts as programs see them."""
        return dict(vars(self))


@dataclass(frozen=True)
class CheckResult:
    """What a check has found."""

    name: str
    expect: str
    value: object
    passed: bool
    is_warning: bool = False
    error: str | None = None

    @property
    def stops(self) -> bool:
        """Whether the run must not be published because of it."""
        return not self.passed and not self.is_warning

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        shape: dict[str, object] = {
            "name": self.name,
            "expect": self.expect,
            "value": self.value[:_SHOWN_MAX] if isinstance(self.value, str) else self.value,
            "passed": self.passed,
        }
        if self.is_warning:
            shape["severity"] = "warn"
        if self.error is not None:
            shape["error"] = self.error[:_SHOWN_MAX]
        return shape


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
class InputRead:
    """What a run has read of one source; texts hold no secrets."""

    source: str
    uri: str
    format: str
    version: str | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return what is known."""
        return {name: value for name, value in vars(self).items() if value is not None}


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
    inputs: tuple[InputRead, ...] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Hashes of the files that were read, by source."""
    engine: Mapping[str, str] = field(default_factory=dict)
    batch: BatchOfStream | None = None

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
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "error": None if self.error is None else self.error[:_SHOWN_MAX],
        }
        job: dict[str, object] = {
            "namespace": NAMESPACE,
            "name": self.pipeline,
            "run_id": self.run_id,
        }
        if self.batch is not None:
            job["batch_id"] = self.batch.number
        values: dict[str, object] = {
            "job": job | {"file_digest": self.file_digest},
            "inputs": [one.to_json() for one in self.inputs],
            "outputs": {one.type_name: _without(one.to_json(), "type_name") for one in self.counts},
            "columns": {name: list(read) for name, read in self.columns.items()},
            "checks": [one.to_json() for one in self.checks],
            "watermarks": {name: mark.to_json() for name, mark in self.watermarks.items()},
            "run": {key: value for key, value in run.items() if value is not None},
            "stream": None if self.batch is None else self.batch.to_json(),
        }
        texts = {
            key: json.dumps(value, ensure_ascii=False) for key, value in values.items() if value
        }
        bounded = {key: _bounded(texts[key]) for key in _BOUNDED if key in texts}
        return {**texts, **bounded, **dict(_file_properties(self.files)), **self.engine}


def _bounded(text: str) -> str:
    """Return a value that a commit can store; what is too long is named as such."""
    return text if len(text) <= _TEXT_MAX else json.dumps({"truncated": len(text)})


def _without(shape: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in shape.items() if name != key}


# -- files ----------------------------------------------------------------------------------------


def file_hash(path: str, size: int, modified_us: int) -> str:
    """Return what stands for one state of a file; a file that changes has another one."""
    return blake2b(f"{path}\n{size}\n{modified_us}".encode(), digest_size=8).hexdigest()


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
    job = _object(properties.get("job"))
    if job.get("namespace") != NAMESPACE or "run" not in properties:
        return None
    name, run_id = str(job.get("name", "")), str(job.get("run_id", ""))
    if pipeline not in (None, name):
        return None
    run = _object(properties["run"])
    return RunRecord(
        run_id=run_id,
        pipeline=name,
        state=RunState(run.get("state", RunState.RUNNING)),
        started_at=int(run.get("started_at", 0)),
        finished_at=run.get("finished_at"),
        file_digest=str(job.get("file_digest", "")),
        branch=run.get("branch"),
        counts=tuple(
            TypeCounts(type_name, **counts)
            for type_name, counts in _object(properties.get("outputs")).items()
            if isinstance(counts, dict)
        ),
        checks=tuple(_check_of(one) for one in _list(properties.get("checks"))),
        watermarks={
            source: Watermark(mark["kind"], mark["value"], mark.get("type", ""))
            for source, mark in _object(properties.get("watermarks")).items()
        },
        error=run.get("error"),
        inputs=tuple(InputRead(**one) for one in _list(properties.get("inputs"))),
        columns=_object(properties.get("columns")),
        files=_files_of(properties),
        engine={key: properties[key] for key in ENGINE_KEYS if key in properties},
        batch=_batch_of(_object(properties.get("stream"))),
    )


def _batch_of(shape: dict[str, Any]) -> BatchOfStream | None:
    if "id" not in shape or "batch_id" not in shape:
        return None
    return BatchOfStream(str(shape["id"]), int(shape["batch_id"]), str(shape.get("sources", "")))


ENGINE_KEYS: Final = ("engine", "spark_app_id", "omnigraph_version", "python_version")


def _check_of(shape: dict[str, Any]) -> CheckResult:
    return CheckResult(
        name=shape["name"],
        expect=shape["expect"],
        value=shape["value"],
        passed=shape["passed"],
        is_warning=shape.get("severity") == "warn",
        error=shape.get("error"),
    )


def _object(text: str | None) -> dict[str, Any]:
    found = _json(text)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _list(text: str | None) -> list[dict[str, Any]]:
    found = _json(text)
    return found if isinstance(found, list) else []


def _json(text: str | None) -> object:
    """Read a value; what others have written under our names counts as nothing."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None
