"""Commits as run events of OpenLineage 2.0.2.

1. An event is a function of the commit and of the address of its graph: sent again, it is the same
   byte for byte. So nothing has to remember what was sent.
2. Long jobs (a run of a pipeline, a load on Spark, an embedding) have a `START` too. It says only
   what is known when the job begins. Sent again, it differs in its `eventTime` alone.
3. A pipeline writes several commits in one run: those before the last one are `RUNNING`. A run that
   failed, or whose checks do not hold, is `FAIL`.
4. A commit without lineage has no event: mutations, maintenance, and commits of older releases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

import orjson

from omnigraph.clock import decode_ulid
from omnigraph.lineage.inputs import address
from omnigraph.lineage.record import InputRead, Job, Lineage, TypeCounts, read_lineage
from omnigraph.manifest import GraphCommit

Event = dict[str, Any]

PIPELINE: Final = "pipeline"
_SPEC: Final = "https://openlineage.io/spec"
_EVENT: Final = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_COMMIT_FACET: Final = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunFacet"
_FACETS: Final = {
    "version": "1-0-1/DatasetVersionDatasetFacet",
    "schema": "1-2-0/SchemaDatasetFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "dataQualityAssertions": "1-1-0/DataQualityAssertionsDatasetFacet",
    "inputStatistics": "1-0-0/InputStatisticsInputDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
    "sourceCodeLocation": "1-1-0/SourceCodeLocationJobFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet",
}
"""The published schema of each facet that events have."""
_VERSION: Final = re.compile(r"@[0-9A-Z]{26}\Z")
_STATES: Final = {"failed": "FAIL", "checks_failed": "FAIL", "running": "RUNNING"}


def to_bytes(event: Event) -> bytes:
    """Return the stored and sent form of an event."""
    return orjson.dumps(event, option=orjson.OPT_SORT_KEYS)


def events_of(commit: GraphCommit, root: str) -> list[Event]:
    """Return the events of a commit in their order; none if it has no lineage."""
    lineage = read_lineage(commit.properties)
    if lineage is None:
        return []
    last = _event_of(commit, lineage, root)
    if not is_long(lineage, commit.operation) or last["eventType"] == "RUNNING":
        return [last]
    run = _run_of(commit)
    begun = run.get("started_at")
    started = start_event(
        lineage.job,
        operation_of(lineage.job, commit.operation),
        at_us=begun if isinstance(begun, int) else commit.created_at,
        engine=lineage.engine,
        file=run.get("file"),
    )
    return [started, last]


def is_long(lineage: Lineage, operation: str) -> bool:
    """Whether a job is one that says when it begins."""
    is_on_spark = lineage.engine.get("engine") == "spark" and operation == "load"
    return is_on_spark or operation == "embed" or lineage.job.namespace == PIPELINE


def operation_of(job: Job, operation: str) -> str:
    """Return what kind of job this is, in the words of OpenLineage."""
    return (PIPELINE if job.namespace == PIPELINE else operation).upper()


def run_id(job: Job) -> str:
    """Return the id of a run: the 128 bits of its ULID, else a UUID of its names.

    >>> run_id(Job("cli", "load", run_id="01KA5CFAT00000000000000001"))
    '019a8ac7-ab40-0000-0000-000000000001'
    """
    text = job.run_id or ""
    bits = decode_ulid(text)
    if bits is not None:
        return str(UUID(int=bits))
    return str(uuid5(NAMESPACE_URL, f"omnigraph:{job.namespace}/{job.name}/{text}"))


# -- events without a commit ----------------------------------------------------------------------


def start_event(
    job: Job, operation: str, *, at_us: int, engine: Mapping[str, str], file: object = None
) -> Event:
    """Return the event of a job that begins."""
    return _bare("START", job, operation, at_us=at_us, engine=engine, file=file)


def end_event(
    job: Job,
    operation: str,
    *,
    at_us: int,
    engine: Mapping[str, str],
    error: str | None = None,
    file: object = None,
) -> Event:
    """Return the event of a job that ended without a commit: nothing to do, or an error."""
    kind = "COMPLETE" if error is None else "FAIL"
    event = _bare(kind, job, operation, at_us=at_us, engine=engine, file=file)
    if error is not None:
        event["run"]["facets"] = _error_facet(error, event["producer"])
    return event


def _bare(
    kind: str,
    job: Job,
    operation: str,
    *,
    at_us: int,
    engine: Mapping[str, str],
    file: object,
) -> Event:
    producer = _producer(engine)
    return {
        "eventType": kind,
        "eventTime": _time(at_us),
        "producer": producer,
        "schemaURL": _EVENT,
        "run": {"runId": run_id(job)},
        "job": _job(job, operation, file, producer),
        "inputs": [],
        "outputs": [],
    }


# -- the event of a commit ------------------------------------------------------------------------


def _event_of(commit: GraphCommit, lineage: Lineage, root: str) -> Event:
    producer, run = _producer(lineage.engine), _run_of(commit)
    operation = operation_of(lineage.job, commit.operation)
    inputs = [_input(one, producer) for one in lineage.inputs]
    return {
        "eventType": _kind(commit, lineage),
        "eventTime": _time(commit.created_at),
        "producer": producer,
        "schemaURL": _EVENT,
        "run": {
            "runId": run_id(lineage.job),
            "facets": {
                "omnigraph_commit": _commit_facet(commit, producer),
                **_engine_facet(lineage.engine, producer),
                **_error_facet(run.get("error"), producer),
            },
        },
        "job": _job(lineage.job, operation, run.get("file"), producer),
        "inputs": inputs,
        "outputs": [_output(one, commit, lineage, root, producer) for one in lineage.outputs],
    }


def _kind(commit: GraphCommit, lineage: Lineage) -> str:
    if lineage.job.namespace != PIPELINE:
        return "COMPLETE"
    return _STATES.get(str(_run_of(commit).get("state", "running")), "COMPLETE")


def _run_of(commit: GraphCommit) -> dict[str, Any]:
    """Return what the record of a pipeline's run says of its state."""
    try:
        found = json.loads(commit.properties.get("run", "{}"))
    except (ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _job(job: Job, operation: str, file: object, producer: str) -> dict[str, Any]:
    kind = {"processingType": "BATCH", "integration": "OMNIGRAPH", "jobType": operation}
    facets = {"jobType": _facet("jobType", producer, **kind)}
    if isinstance(file, str):
        facets["sourceCodeLocation"] = _facet(
            "sourceCodeLocation",
            producer,
            type="file",
            url=address(file),
            **_known(version=job.file_digest),
        )
    return {"namespace": job.namespace, "name": job.name, "facets": facets}


def _commit_facet(commit: GraphCommit, producer: str) -> dict[str, Any]:
    parents = [commit.parent_commit_id, commit.merged_parent_commit_id]
    return {
        "_producer": producer,
        "_schemaURL": _COMMIT_FACET,
        "commit": commit.graph_commit_id,
        "parents": [parent for parent in parents if parent is not None],
        "branch": commit.graph_branch or "main",
        "operation": commit.operation,
        **_known(actor=commit.actor_id, message=commit.message),
    }


def _engine_facet(engine: Mapping[str, str], producer: str) -> dict[str, Any]:
    if "engine" not in engine or "omnigraph_version" not in engine:
        return {}
    names = {"name": engine["engine"], "version": engine["omnigraph_version"]}
    return {"processing_engine": _facet("processing_engine", producer, **names)}


def _error_facet(error: object, producer: str) -> dict[str, Any]:
    if not isinstance(error, str):
        return {}
    return {
        "errorMessage": _facet(
            "errorMessage", producer, message=error, programmingLanguage="PYTHON"
        )
    }


# -- datasets -------------------------------------------------------------------------------------


def dataset_name(uri: str) -> tuple[str, str]:
    """Return the namespace and the name of a dataset: scheme and authority, and the path.

    >>> dataset_name("s3://lake/g.omni#node:Person@01KA5CFAT00000000000000001")
    ('s3://lake', 'g.omni#node:Person')
    >>> dataset_name("file:///data/people.parquet"), dataset_name("memory:Person")
    (('file', '/data/people.parquet'), ('memory', 'Person'))
    """
    plain = _VERSION.sub("", uri)
    scheme, marks, rest = plain.partition("://")
    if not marks:
        kind, _, name = plain.partition(":")
        return (kind, name) if name else ("omnigraph", kind)
    if scheme == "file":
        return "file", rest
    authority, _, path = rest.partition("/")
    return f"{scheme}://{authority}", path or "/"


def _input(read: InputRead, producer: str) -> dict[str, Any]:
    namespace, name = dataset_name(read.uri)
    counts = _known(rowCount=read.rows, size=read.bytes, fileCount=read.files)
    facets = _dataset_facets(producer, version=read.version or read.digest, columns=read.columns)
    dataset: dict[str, Any] = {"namespace": namespace, "name": name, "facets": facets}
    if counts:
        dataset["inputFacets"] = {"inputStatistics": _facet("inputStatistics", producer, **counts)}
    return dataset


def _output(
    counts: TypeCounts, commit: GraphCommit, lineage: Lineage, root: str, producer: str
) -> dict[str, Any]:
    namespace, name = dataset_name(f"{address(root)}#{counts.table_key}")
    columns = _columns_of(counts.type_name, lineage)
    facets = _dataset_facets(producer, version=commit.graph_commit_id, columns=columns)
    fields = {
        prop: {"inputFields": list(_input_fields(read, lineage.inputs))}
        for prop, read in columns.items()
    }
    if any(one["inputFields"] for one in fields.values()):
        facets["columnLineage"] = _facet("columnLineage", producer, fields=fields)
    if lineage.checks:
        facets["dataQualityAssertions"] = _facet(
            "dataQualityAssertions",
            producer,
            assertions=[
                {
                    "assertion": one.name,
                    "success": one.passed,
                    "severity": "warn" if one.is_warning else "error",
                    **_known(expected=one.expect or None),
                }
                for one in lineage.checks
            ],
        )
    written = counts.inserted + counts.updated
    statistics = _facet("outputStatistics", producer, rowCount=written)
    return {
        "namespace": namespace,
        "name": name,
        "facets": facets,
        "outputFacets": {"outputStatistics": statistics},
    }


def _columns_of(type_name: str, lineage: Lineage) -> dict[str, Iterable[str]]:
    prefix = f"{type_name}."
    return {
        name.removeprefix(prefix): read
        for name, read in lineage.columns.items()
        if name.startswith(prefix)
    }


def _input_fields(read: Iterable[str], inputs: Iterable[InputRead]) -> Iterator[dict[str, str]]:
    for column in read:
        source, _, field = column.rpartition(".")
        for one in inputs:
            if source in (one.source, read_type(one)):
                namespace, name = dataset_name(one.uri)
                yield {"namespace": namespace, "name": name, "field": field}


def read_type(read: InputRead) -> str | None:
    """Return the type of a graph that an input is; None for one from elsewhere."""
    name = dataset_name(read.uri)[1].rpartition("#")[2]
    kind, _, type_name = name.partition(":")
    return type_name if kind in ("node", "edge") else None


def _dataset_facets(
    producer: str, *, version: str | None, columns: Iterable[str]
) -> dict[str, dict[str, Any]]:
    facets: dict[str, dict[str, Any]] = {}
    if version is not None:
        facets["version"] = _facet("version", producer, datasetVersion=version)
    fields = [{"name": name} for name in columns]
    if fields:
        facets["schema"] = _facet("schema", producer, fields=fields)
    return facets


# -- parts ----------------------------------------------------------------------------------------


def _facet(facet: str, producer: str, /, **members: Any) -> dict[str, Any]:
    path = _FACETS[facet]
    kind = path.partition("/")[2]
    url = f"{_SPEC}/facets/{path}.json#/$defs/{kind}"
    return {"_producer": producer, "_schemaURL": url, **members}


def _known(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _producer(engine: Mapping[str, str]) -> str:
    """Return who says this: the release that has made the commit."""
    return f"https://pypi.org/project/omnigraph/{engine.get('omnigraph_version', 'unknown')}/"


def _time(at_us: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
