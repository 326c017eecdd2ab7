"""Loads that tell what they do, and large ones, which Spark does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from typing import Any

import orjson
import pytest

from omnigraph import engine
from omnigraph.engine import LoadCancelledError, LoadRequest
from omnigraph.server.routes.spool import IN_MEMORY_MAX, Spool
from omnigraph.write.load.result import LoadCounts, LoadResult
from support.http_graph import TestServer
from support.inline_engine import InlineEngine

Event = tuple[str, dict[str, Any]]
ENDED_MAX_S = 30.0
NDJSON = ("Content-Type", "application/x-ndjson")
EVENTS = ("Accept", "text/event-stream")
NOTE = b'{"type": "Note", "data": {"name": "told"}}\n'
LARGE = b'{"type": "Note", "data": {"name": "%s"}}\n' % (b"x" * IN_MEMORY_MAX)


def events_of(body: bytes) -> list[Event]:
    found = []
    for block in body.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))))
    return found


def load(server: TestServer, body: bytes, path: str = "/load/ndjson") -> list[Event]:
    answer = server.send("POST", f"/graphs/demo{path}", [NDJSON, EVENTS], body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events_of(answer.content)


class Watched(InlineEngine):
    """Stands for Spark: tells two stages, and waits in the second until it may end."""

    def __init__(self, *, may_end: bool) -> None:
        super().__init__()
        self.may_end = threading.Event()
        self.begun, self.ended = threading.Event(), threading.Event()
        self.data: object = None
        if may_end:
            self.may_end.set()

    def load(self, request: LoadRequest) -> LoadResult:
        self.data = request.data
        assert request.report is not None
        assert request.cancelled is not None
        request.report({"stage": "read", "seconds": 0.5, "tasks": 4, "done": 1})
        self.begun.set()
        try:
            while not self.may_end.wait(0.01):
                if request.cancelled.is_set():
                    raise LoadCancelledError
        finally:
            self.ended.set()
        counts = {"Note": LoadCounts(1)}
        return LoadResult("main", None, False, "merge", counts, {}, None, None, engine="spark")


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched(may_end=True)
    monkeypatch.setitem(engine._engines, watched.name, watched)
    monkeypatch.setenv("OMNIGRAPH_SPARK_MIN_BYTES", str(IN_MEMORY_MAX))
    return watched


def test_the_last_event_is_what_a_load_answers_otherwise(server: TestServer) -> None:
    *progress, last = load(server, NOTE)
    assert progress[0] == ("progress", {"stage": "load", "seconds": 0.0})
    assert {name for name, _ in progress} == {"progress"}
    assert (last[0], last[1]["total_entities"], last[1]["inserted"]) == ("result", 1, 1)
    plain = server.send("POST", "/graphs/demo/load/ndjson", [NDJSON], NOTE).json()
    assert set(plain) == set(last[1])


def test_a_load_that_fails_ends_with_its_error(server: TestServer) -> None:
    name, shape = load(server, b'{"type": "Note", "data": {"nme": 1}}')[-1]
    plain = server.send(
        "POST", "/graphs/demo/load/ndjson", [NDJSON], b'{"type": "Note", "data": {"nme": 1}}'
    )
    assert name == "error"
    assert shape.pop("status") == plain.status_code == 400
    assert shape == plain.json()
    assert len(server.graph.list_commits()) == 3


def test_what_is_refused_at_once_has_its_status(server: TestServer) -> None:
    answer = server.send("POST", "/graphs/demo/load/ndjson?branch=no", [NDJSON, EVENTS], NOTE)
    assert answer.status_code == 404


def test_a_large_load_runs_on_spark_and_tells_its_stages(
    server: TestServer, spark: Watched
) -> None:
    found = load(server, LARGE)
    assert ("progress", {"stage": "read", "seconds": 0.5, "tasks": 4, "done": 1}) in found
    assert (found[-1][0], found[-1][1]["engine"]) == ("result", "spark")
    assert str(spark.data).endswith(".jsonl")
    answer = server.send("POST", "/graphs/demo/load/ndjson", [NDJSON], LARGE)
    assert answer.json()["engine"] == "spark"


def test_a_small_load_runs_here(server: TestServer, spark: Watched) -> None:
    assert load(server, NOTE)[-1][1]["engine"] == "local"
    assert spark.data is None


@pytest.mark.parametrize("accept", [[EVENTS], []], ids=["events", "json"])
def test_a_client_that_goes_away_cancels_the_job(
    server: TestServer, spark: Watched, accept: list[tuple[str, str]]
) -> None:
    spark.may_end.clear()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/graphs/demo/load/ndjson",
        "raw_path": b"/graphs/demo/load/ndjson",
        "query_string": b"",
        "headers": [
            (name.lower().encode(), value.encode())
            for name, value in (("Host", "localhost"), NDJSON, *accept)
        ],
        "server": ("localhost", 80),
        "client": ("localhost", 1),
    }

    async def run() -> None:
        sent = False

        async def receive() -> MutableMapping[str, Any]:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": LARGE, "more_body": False}
            await asyncio.to_thread(spark.begun.wait, ENDED_MAX_S)
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            """Take what comes."""

        async with asyncio.timeout(ENDED_MAX_S):
            await server.app(scope, receive, send)

    asyncio.run(run())
    assert spark.ended.wait(ENDED_MAX_S)
    assert len(server.graph.list_commits()) == 3


def test_a_spool_keeps_what_it_is_given() -> None:
    for chunks in ([b"a", b"b"], [b"a" * IN_MEMORY_MAX, b"b", b"c"]):
        with Spool() as spool:
            for chunk in chunks:
                spool.write(chunk)
            found = spool.input()
            assert not isinstance(found, str)
            assert found.read() == b"".join(chunks)
            assert spool.size == sum(map(len, chunks))
