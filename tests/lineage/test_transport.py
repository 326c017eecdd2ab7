"""Events that are sent while jobs work: when they begin, how they end, and what is not sent."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from omnigraph import engine
from omnigraph.engine import LoadRequest
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph, Job
from omnigraph.lineage.openlineage import Event
from omnigraph.lineage.transport import LineageTargetError, LiveEvents, LongJob
from omnigraph.spark.engine import record_files
from omnigraph.spark.load.inputs import plan_lines
from omnigraph.spark.load.workers import SparkSource, load_on_spark
from omnigraph.write.load.result import LoadResult
from support.inline_engine import InlineEngine

SCHEMA = "node Person { name: String @key }"
JOB = Job("python", "load", run_id="01KA5CFAT00000000000000001")


class Recorded:
    """Keeps what it is given, or refuses it."""

    def __init__(self, *, is_slow: bool = False, fails: bool = False) -> None:
        self.is_slow, self.fails = is_slow, fails
        self.events: list[Event] = []
        self.threads: set[int] = set()

    @property
    def kinds(self) -> list[str]:
        return [event["eventType"] for event in self.events]

    def send(self, event: Event) -> None:
        self.threads.add(threading.get_ident())
        if self.fails:
            raise OSError("the server at https://u:secret@h/ is gone")
        self.events.append(event)


def long_job(transport: Recorded) -> LongJob:
    return LongJob(LiveEvents(transport), JOB, "LOAD", lambda: 1)


def test_a_job_without_a_commit_ends_by_itself() -> None:
    transport = Recorded()
    with long_job(transport) as job:
        job.begin()
    assert transport.kinds == ["START", "COMPLETE"]


def test_the_commit_of_a_job_is_its_end() -> None:
    transport = Recorded()
    with long_job(transport) as job:
        job.begin()
        job.has_commit = True
    assert transport.kinds == ["START"]


def test_a_job_that_fails_says_why_without_secrets() -> None:
    transport = Recorded()
    job = long_job(transport)
    job.begin()
    job.__exit__(ValueError, ValueError("no https://u:secret@h/"), None)
    assert transport.kinds == ["START", "FAIL"]
    message = transport.events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "no https://***@h/"


def test_a_job_that_never_began_is_silent() -> None:
    transport = Recorded()
    with long_job(transport):
        pass
    with LongJob(None, JOB, "LOAD", lambda: 1) as job:
        job.begin()
    assert transport.events == []


def test_a_slow_transport_works_in_another_thread_and_is_waited_for() -> None:
    transport = Recorded(is_slow=True)
    live = LiveEvents(transport)
    for _ in range(20):
        live.started(JOB, "LOAD", at_us=1)
    live.flush()
    assert len(transport.events) == 20
    assert threading.get_ident() not in transport.threads


@pytest.mark.parametrize("is_slow", [True, False])
def test_a_failure_is_a_warning_without_secrets(
    is_slow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    live = LiveEvents(Recorded(is_slow=is_slow, fails=True))
    live.started(JOB, "LOAD", at_us=1)
    live.flush()
    assert "a lineage event was not sent" in caplog.text
    assert "secret" not in caplog.text


class Inline(InlineEngine):
    """Loads files of records with the tasks of Spark, in this process."""

    def load(self, request: LoadRequest) -> LoadResult:
        files = record_files(request.data)
        source = SparkSource(lambda _: plan_lines(files, parallelism=1), "line", True)
        return load_on_spark(
            request.repository,
            request.committer,
            source,
            request.options,
            self.jobs,
            operation_id=request.repository.clock.ulid(),
        )


def test_a_load_on_spark_begins_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inline = Inline()
    monkeypatch.setitem(engine._engines, inline.name, inline)
    monkeypatch.setenv("OMNIGRAPH_LINEAGE", f"file:{tmp_path}/events")
    file = tmp_path / "people.jsonl"
    file.write_bytes(b'{"type": "Person", "data": {"name": "ann"}}\n')
    with Graph.init(
        tmp_path / "g.omni", SCHEMA, durability="process", auto_optimize=False
    ) as graph:
        graph.load(file, mode="append", engine="spark")
        with pytest.raises(OmnigraphError, match="already exists"):
            graph.load(file, mode="append", engine="spark")
        events = [json.loads(path.read_bytes()) for path in (tmp_path / "events").iterdir()]
        again = list(graph.lineage.events())
        properties = graph.commits.list(limit=1)[0].properties
    by_run: dict[str, list[str]] = {}
    for event in sorted(events, key=lambda one: one["eventTime"]):
        by_run.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert sorted(map(sorted, by_run.values())) == [["COMPLETE", "START"], ["FAIL", "START"]]
    start, complete = again
    assert complete in events
    assert {**start, "eventTime": ""} in [{**event, "eventTime": ""} for event in events]
    [read] = complete["inputs"]
    assert (read["name"], read["inputFacets"]["inputStatistics"]["rowCount"]) == (str(file), 1)
    assert (properties["engine"], properties["spark_app_id"]) == ("spark", "inline")


@pytest.mark.parametrize("target", ["file:~nobody-of-this-name/x", "http://", "ftp://h"])
def test_a_target_that_cannot_be_used_stops_no_write(
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refusing(**_: object) -> None:
        raise ValueError("Need valid url for OpenLineage HttpTransport")

    client = ModuleType("openlineage.client")
    client.OpenLineageClient = refusing  # type: ignore[attr-defined]  # as the library has it
    monkeypatch.setitem(sys.modules, "openlineage", ModuleType("openlineage"))
    monkeypatch.setitem(sys.modules, "openlineage.client", client)
    monkeypatch.setenv("OMNIGRAPH_LINEAGE", target)
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process") as graph:
        graph.load(b'{"type": "Person", "data": {"name": "ann"}}', mode="append")
        with pytest.raises(LineageTargetError):
            graph.lineage.emit()
    assert "no lineage events are sent" in caplog.text


def test_an_error_of_a_job_hides_what_its_caller_knows() -> None:
    transport = Recorded()
    hide = lambda text: text.replace("s3cret", "${PW}")  # noqa: E731 - one use
    job = LongJob(LiveEvents(transport), JOB, "LOAD", lambda: 1, hide=hide)
    job.begin()
    job.__exit__(ValueError, ValueError("password=s3cret"), None)
    message = transport.events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "password=${PW}"
