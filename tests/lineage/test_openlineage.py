"""Events of OpenLineage: valid by the published schema, and the same whenever they are made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from omnigraph.graph import GraphCommit
from omnigraph.lineage import CheckResult, InputRead, Job, Lineage, TypeCounts, runtime
from omnigraph.lineage.inputs import graph_read
from omnigraph.lineage.openlineage import Event, end_event, events_of, run_id, to_bytes

SCHEMA = json.loads((Path(__file__).parent / "openlineage-2-0-2.schema.json").read_bytes())
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
ROOT = "s3://key:secret@lake/graph.omni"
FIRST, SECOND, RUN = (f"01KA5CFAT0000000000000000{n}" for n in (1, 2, 3))


def commit(lineage: Lineage | None = None, operation: str = "load", **more: Any) -> GraphCommit:
    made = GraphCommit(
        graph_commit_id=SECOND,
        manifest_branch=None,
        manifest_version=3,
        parent_commit_id=FIRST,
        merged_parent_commit_id=None,
        actor_id="ada",
        created_at=1_763_000_000_123_456,
        operation=operation,
        message="why",
        properties={} if lineage is None else lineage.to_properties(),
    )
    return replace(made, **more)


LOAD = Lineage(
    job=Job("cli", "load", run_id=RUN),
    inputs=(
        InputRead("people", "file:///in/people.csv", "csv", rows=2, bytes=9, digest="sha256:1"),
    ),
    outputs=(TypeCounts("Person", inserted=2), TypeCounts("Knows", updated=1, is_edge=True)),
    columns={"Person.name": ["people.full_name"]},
    engine=runtime("local"),
)
PIPELINE = replace(
    LOAD,
    job=Job("pipeline", "social", file_digest="sha256:9", run_id="nightly"),
    checks=(CheckResult("ages", "n = 0", 0, passed=True),),
    engine=runtime("spark", "app-1"),
)


def valid(event: Event) -> Event:
    problems = [error.message for error in VALIDATOR.iter_errors(json.loads(to_bytes(event)))]
    assert problems == []
    return event


def run_of(state: str, **more: object) -> dict[str, str]:
    run = {"state": state, "started_at": 1_762_999_000_000_000, "file": "/p/social.yaml", **more}
    return {**PIPELINE.to_properties(), "run": json.dumps(run)}


def test_a_load_is_one_event_that_says_what_the_commit_says() -> None:
    [event] = events_of(commit(LOAD), ROOT)
    valid(event)
    assert (event["eventType"], event["eventTime"]) == ("COMPLETE", "2025-11-13T02:13:20.123Z")
    assert event["run"]["runId"] == "019a8ac7-ab40-0000-0000-000000000003"
    facet = event["run"]["facets"]["omnigraph_commit"]
    assert {key: facet[key] for key in ("commit", "parents", "branch", "operation")} == {
        "commit": SECOND,
        "parents": [FIRST],
        "branch": "main",
        "operation": "load",
    }
    [read] = event["inputs"]
    assert (read["namespace"], read["name"]) == ("file", "/in/people.csv")
    assert read["facets"]["version"]["datasetVersion"] == "sha256:1"
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 2
    person, knows = event["outputs"]
    assert (person["namespace"], person["name"]) == ("s3://***@lake", "graph.omni#node:Person")
    assert knows["name"] == "graph.omni#edge:Knows"
    assert person["facets"]["version"]["datasetVersion"] == SECOND
    fields = person["facets"]["columnLineage"]["fields"]["name"]["inputFields"]
    assert fields == [{"namespace": "file", "name": "/in/people.csv", "field": "full_name"}]
    assert "secret" not in to_bytes(event).decode()


def test_a_merge_names_both_parents_and_the_commit_that_it_read() -> None:
    lineage = Lineage(
        Job("cli", "branch merge", run_id=RUN),
        (graph_read(ROOT, "node:Person", FIRST, rows=1),),
        (TypeCounts("Person", inserted=1),),
        engine=runtime("local"),
    )
    [event] = events_of(commit(lineage, "merge", merged_parent_commit_id=RUN), ROOT)
    valid(event)
    assert event["run"]["facets"]["omnigraph_commit"]["parents"] == [FIRST, RUN]
    [read] = event["inputs"]
    assert (read["namespace"], read["name"]) == ("s3://***@lake", "graph.omni#node:Person")
    assert read["facets"]["version"]["datasetVersion"] == FIRST


@pytest.mark.parametrize(
    ("properties", "kinds"),
    [
        (run_of("succeeded"), ["START", "COMPLETE"]),
        (run_of("failed", error="it broke"), ["START", "FAIL"]),
        (run_of("checks_failed"), ["START", "FAIL"]),
        (run_of("running"), ["RUNNING"]),
        (PIPELINE.to_properties(), ["RUNNING"]),
        ({**PIPELINE.to_properties(), "run": "7"}, ["RUNNING"]),
        (replace(LOAD, engine=runtime("spark", "app-1")).to_properties(), ["START", "COMPLETE"]),
    ],
)
def test_long_jobs_begin_and_end_under_one_run(
    properties: dict[str, str], kinds: list[str]
) -> None:
    events = [valid(event) for event in events_of(commit(properties=properties), ROOT)]
    assert [event["eventType"] for event in events] == kinds
    assert len({event["run"]["runId"] for event in events}) == 1
    assert events == events_of(commit(properties=properties), ROOT)


def test_a_pipeline_names_its_file_and_its_checks() -> None:
    start, event = events_of(commit(properties=run_of("failed", error="it broke")), ROOT)
    assert start["eventTime"] == "2025-11-13T01:56:40.000Z"
    for one in (start, event):
        place = one["job"]["facets"]["sourceCodeLocation"]
        assert (place["url"], place["version"]) == ("file:///p/social.yaml", "sha256:9")
    assert event["run"]["facets"]["errorMessage"]["message"] == "it broke"
    checks = event["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"]
    assert [(one["assertion"], one["success"]) for one in checks] == [("ages", True)]


@pytest.mark.parametrize(
    "properties", [{}, {"team": "data"}, {"job": "nightly"}, {"job": '{"name": "x"}'}]
)
def test_a_commit_without_lineage_has_no_event(properties: dict[str, str]) -> None:
    assert events_of(commit(properties=properties), ROOT) == []


def test_a_job_that_ends_without_a_commit_is_valid_too() -> None:
    job = Job("python", "load", run_id=RUN)
    done = end_event(job, "LOAD", at_us=1, engine=runtime("local"))
    failed = end_event(job, "LOAD", at_us=1, engine=runtime("local"), error="no")
    assert [valid(one)["eventType"] for one in (done, failed)] == ["COMPLETE", "FAIL"]


def test_a_run_id_of_ones_own_is_a_uuid_of_its_names() -> None:
    one, other = Job("dlt", "crm", run_id="17.5"), Job("dlt", "erp", run_id="17.5")
    assert run_id(one) == run_id(replace(one)) != run_id(other)


def test_the_schema_refuses_what_is_no_event() -> None:
    [event] = events_of(commit(LOAD), ROOT)
    without = {**event, "job": {"namespace": "x"}}
    facet = {**event["inputs"][0], "facets": {"version": {"datasetVersion": "1"}}}
    assert not VALIDATOR.is_valid(without)
    assert not VALIDATOR.is_valid({**event, "inputs": [facet]})
    assert not VALIDATOR.is_valid({**event, "eventType": "DONE"})
